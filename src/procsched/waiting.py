"""Waiting: threads that wait until something is so, and the loop that tells them. Callers' threads and the loop."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from procsched.engine import Engine

__all__ = ["Waiting"]

SLICE = 0.25
"""Seconds between looks at whether the loop still lives."""

COURTESY = 1.0
"""Seconds that the answer, once it is yes, waits for Futures that are still to be set: behind a user's callback that
blocks, perhaps until whoever waits here goes on."""


class Waiting:
    """Questions that are asked at the end of each turn, under the engine's lock, until the answer is yes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._questions: list[tuple[Callable[[], bool], threading.Event, list[float]]] = []
        """Appended to and taken out of by the loop alone."""

    def until(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Until ``predicate`` holds at the end of a turn; whether it does. ``timeout`` in seconds.

        Raises:
            PoolUnusable, InternalError: The scheduler has ended itself.
        """
        engine = self._engine
        deadline = None if timeout is None else time.monotonic() + timeout
        yes = False
        if engine.turns and not engine.stopping.ended.is_set():
            answered, yes_at = threading.Event(), list[float]()
            question = (predicate, answered, yes_at)
            engine.mailbox.post(lambda: self._questions.append(question))
            try:
                yes = self._sleep(answered, yes_at, predicate, deadline)
            finally:
                engine.mailbox.post(lambda: self._forget(answered))
        if engine.failure is not None:
            raise engine.failure
        if yes:
            return True
        with engine.lock:
            return predicate()

    def _sleep(
        self,
        answered: threading.Event,
        yes_at: list[float],
        predicate: Callable[[], bool],
        deadline: float | None,
    ) -> bool:
        engine = self._engine
        while True:
            rest = SLICE if deadline is None else min(SLICE, deadline - time.monotonic())
            if answered.wait(max(0.0, rest)) or (yes_at and time.monotonic() - yes_at[0] > COURTESY):
                return True
            if engine.stopping.ended.is_set():
                return False
            if rest <= 0 or engine.delivery.is_current():  # whose answer would come through the thread that waits
                with engine.lock:
                    yes = predicate()
                if yes or rest <= 0:
                    return yes

    def tell(self) -> None:
        """In the loop: those whose time has come."""
        if not self._questions:
            return
        engine = self._engine
        with engine.lock:
            over = [question for question in self._questions if question[0]()]
        if over:
            self._questions = [question for question in self._questions if question not in over]
            # Behind the results that are still to be delivered: whoever waits finds his Futures done.
            for _predicate, answered, yes_at in over:
                yes_at.append(time.monotonic())
                engine.delivery.put(answered.set)

    def release(self) -> None:
        """The loop has ended: nobody will answer any more."""
        for _predicate, answered, _yes_at in self._questions:
            answered.set()

    def _forget(self, answered: threading.Event) -> None:
        self._questions = [question for question in self._questions if question[1] is not answered]
