"""Mailbox: what other threads want of the loop, and how they wake it. Runs in the parent, in every thread.

Posting is one append to a deque and, only when the loop sleeps, one write to its wake-up pipe. No lock: a signal
handler or a garbage collection may post in the middle of another post.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from procsched.errors import SchedulerClosed

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Mailbox"]

_log = logging.getLogger("procsched.scheduler")


class _Call:
    """A question whose asker waits."""

    __slots__ = ("answer", "answered", "args", "error", "fn")

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.fn = fn
        self.args = args
        self.answer: Any = None
        self.error: BaseException | None = None
        self.answered = threading.Lock()
        self.answered.acquire()

    def __call__(self) -> None:
        try:
            self.answer = self.fn(*self.args)
        except BaseException as error:
            self.error = error
            raise  # the loop must know too: an error in it that nobody understands ends it
        finally:
            self.answered.release()


class Mailbox:
    """A queue of calls with many writers and one reader."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._calls: deque[Callable[[], object]] = deque()
        self._wake = wake
        self._asleep = False
        self._nudged = False
        self._hinted = False
        self.dozing = False
        """Whether the loop, asleep or not, looks again within a moment anyhow."""
        self._closed = False
        self.reader: int | None = None
        """Thread id of the loop; None: whoever asks does the work himself."""

    def post(self, fn: Callable[[], object]) -> None:
        """Have the loop call ``fn``; returns at once. What comes after the loop's end is dropped."""
        self._calls.append(fn)
        if self._closed:
            self._refuse()
        if self._asleep:
            self._asleep = False
            self._wake()

    def tell(self, fn: Callable[[], object]) -> None:
        """As `post`, but who is the loop himself does it at once."""
        if self.reader is None or threading.get_ident() == self.reader:
            fn()
        else:
            self.post(fn)

    def nudge(self) -> None:
        """The timetable has changed: the loop should look at it before it sleeps."""
        self._nudged = True
        if self._asleep:
            self._asleep = False
            self._wake()

    def hint(self) -> None:
        """There is news, and nothing to do. The first one wakes the loop; a thousand more cost it a turn or two."""
        self._hinted = True
        if self._asleep and not self.dozing:
            self._asleep = False
            self._wake()

    def ask(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Have the loop call ``fn``, and wait for the answer.

        Raises:
            SchedulerClosed: The loop has ended.
        """
        if self.reader is None or threading.get_ident() == self.reader:
            return fn(*args)
        call = _Call(fn, args)
        self.post(call)
        call.answered.acquire()  # not an Event, whose wait a Ctrl-C can break
        if call.error is not None:
            raise SchedulerClosed("the scheduler's loop has ended") from call.error
        return call.answer

    def read(self) -> None:
        """Makes all posted calls, in the order of posting."""
        self._nudged = False
        calls = self._calls
        while calls:
            calls.popleft()()

    def read_on(self) -> None:
        """The loop is at its end, perhaps by an error: what was only told is done still; who asks is refused later."""
        calls = self._calls
        for _ in range(len(calls)):
            call = calls.popleft()
            if isinstance(call, _Call):
                calls.append(call)
                continue
            try:
                call()
            except BaseException:
                _log.critical("what was left to do at the end went wrong; please report this", exc_info=True)

    def about_to_sleep(self) -> bool:
        """From now on posts wake the loop; False when there is mail already, so that it doesn't sleep at all."""
        self.dozing, self._hinted = self._hinted, False
        self._asleep = True
        if self._calls or self._nudged:
            self._asleep = False
            return False
        return True

    def awake(self) -> None:
        self._asleep = False

    def close(self) -> None:
        """The loop has ended: whoever still asks gets an error."""
        self._closed = True
        self._refuse()

    def _refuse(self) -> None:
        # By whoever comes after the end, and by several at once: each call is taken out by one of them.
        while self._calls:
            try:
                call = self._calls.popleft()
            except IndexError:
                break
            if isinstance(call, _Call):
                call.error = SchedulerClosed("the scheduler's loop has ended")
                call.answered.release()
        self._nudged = False

    def __bool__(self) -> bool:
        return bool(self._calls) or self._nudged
