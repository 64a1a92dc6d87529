"""Delivery: decodes results and sets Futures, so that the loop needn't run anybody's code. A thread of the parent.

It does what it is given in order, and every piece of it may run a user's code (unpickling, done-callbacks) for as long
as that likes: nobody's run waits for it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from procsched.core.model import Outcome
from procsched.errors import RemoteError
from procsched.futures import cancel_and_notify, finish, finish_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from procsched.futures import RunFuture, SlimFuture
    from procsched.pool.api import Pool

__all__ = ["Delivery", "Settlement"]

_TINY = 64
"""Bytes of a value that is decoded in no time: no class to import, no array."""
_PAUSE = 0.01  # seconds, so that a lasting lack of memory does not become heat

_log = logging.getLogger("procsched.scheduler")


class Delivery:
    """A queue of deeds and the thread that does them."""

    def __init__(self, name: str, pool: Pool, *, threaded: bool) -> None:
        self._given: list[tuple[RunFuture, object]] = []
        self._pool = pool
        self._deeds: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._name = name
        self._threaded = threaded

    def start(self) -> None:
        if self._threaded and self._thread is None:
            thread = threading.Thread(target=self._run, name=f"{self._name}-delivery", daemon=True)
            thread.start()
            self._thread = thread  # one that could not be started can be tried again

    def is_current(self) -> bool:
        """Whether the caller is this thread."""
        return threading.current_thread() is self._thread

    def put(self, deed: Callable[[], object]) -> None:
        if self._given:
            self.send()
        self._deeds.put(deed)

    def give(self, future: RunFuture, body: object) -> None:
        """A success for one Future. In the loop, which calls `send` at the end of its turn: one deed for many."""
        self._given.append((future, body))

    def send(self) -> None:
        if self._given:
            self._deeds.put(partial(hand_out, self._given, self._pool.decode))
            self._given = []  # now: an error in between mustn't make them forgotten

    def flush(self) -> bool:
        """Without a thread: does what is there, on the calling one. True if there was something."""
        did = False
        self.send()
        while not self._deeds.empty():
            deed = self._deeds.get()
            if deed is not None:
                did = True
                try:
                    self._do(deed)
                except BaseException:
                    self._do_quietly(deed)
        return did

    def stop(self, timeout: float | None = None) -> None:
        """Does what is there and ends. ``timeout`` (seconds) bounds the wait for a user's code that doesn't return."""
        if self._thread is None:
            self.flush()
            return
        self.send()
        self._deeds.put(None)
        if not self.is_current():
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            try:
                deed = self._deeds.get()
            except Exception:  # no memory to wait with: what is there is there still
                time.sleep(_PAUSE)
                continue
            if deed is None:
                return
            try:
                self._do(deed)
            except BaseException:  # memory is gone, or a log handler raised: once more, and then the next ones
                self._do_quietly(deed)
            del deed  # or the last result would live until the next one

    def _do(self, deed: Callable[[], object]) -> None:
        try:
            deed()
        except BaseException:
            self._do_quietly(deed)  # it goes on where it stopped; who has been told isn't told again
            _log.exception("a Future's callback raised, or a result couldn't be delivered")

    def _do_quietly(self, deed: Callable[[], object]) -> None:
        try:
            deed()
        except BaseException:
            pass


def hand_out(given: list[tuple[RunFuture, Any]], decode: Callable[[Outcome, object], object]) -> None:
    """Gives Futures their values, in order; those that need no thought many at a time."""
    given.reverse()
    while given:
        _hand_out_simple(given, decode)
        if given:  # one that needs thought, by itself
            future, body = given[-1]
            Settlement([future], Outcome.SUCCEEDED, body, None, decode)()
            given.pop()
            del future, body  # one that is done isn't kept until all are


def _hand_out_simple(given: list[tuple[RunFuture, Any]], decode: Callable[[Outcome, object], object]) -> None:
    """From the end of the list, as far as it goes: nobody waits for a value that may take its time, or is broken."""
    done: list[tuple[RunFuture, object]] = []
    value: object
    try:
        while given:
            future, body = given[-1]
            if body is None:
                value = None
            elif type(body) is bytes and len(body) <= _TINY:
                try:
                    value = decode(Outcome.SUCCEEDED, body)
                except BaseException:
                    break
            else:
                break
            done.append((future, value))
            given.pop()
        _finish_all(done)
    except BaseException:  # no memory for many at a time
        for future, value in done:
            settle(future, value, None)


def _finish_all(done: list[tuple[RunFuture, object]]) -> None:
    """Sets these values: at once, but for Futures that somebody looks at."""
    for future, value in finish_all(done):
        settle(future, value, None)


def unreadable(reason: BaseException) -> RemoteError:
    """What stands for a value that can't be unpickled here."""
    error = RemoteError(type(reason).__name__, f"the result can't be unpickled here: {reason}")
    error.__cause__ = reason
    return error


def settle(future: SlimFuture, value: object, error: BaseException | None) -> None:
    """One Future gets its end, unless it has one."""
    try:
        finish(future, value, error)
    except BaseException:  # a callback's sys.exit, say: the other Futures have theirs to come
        if not future.done():
            raise
        _log.exception("a Future's callback raised")


class Settlement:
    """One run's Futures and what they get."""

    __slots__ = ("body", "decode", "error", "futures", "outcome")

    def __init__(
        self,
        futures: list[SlimFuture],
        outcome: Outcome,
        body: object,
        error: BaseException | None,
        decode: Callable[[Outcome, object], object],
    ) -> None:
        self.futures = futures
        self.outcome = outcome
        self.body = body
        self.error = error
        self.decode = decode

    def __call__(self) -> None:
        if self.outcome in (Outcome.CANCELLED, Outcome.SKIPPED) and self.error is None:
            for future in self.futures:
                cancel_and_notify(future)
            return
        value: Any = None
        error = self.error
        if error is None:
            try:
                value = self.decode(self.outcome, self.body)
            except BaseException as reason:
                error = unreadable(reason)
            else:
                if self.outcome is Outcome.FAILED and isinstance(value, BaseException):
                    error, value = value, None
        for future in self.futures:
            settle(future, value, error)
        del future  # an error's traceback keeps this frame
        self.futures = []
        self.body = None
