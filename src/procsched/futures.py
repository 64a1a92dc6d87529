"""RunFuture: the Future of a run, whose cancel() asks the scheduler; Follower: that of an onlooker. In the parent.

A stock Future makes a lock, a condition and two lists, and takes the lock whenever it is looked at: most of what a tiny
call costs its caller. A `SlimFuture` is a stock `concurrent.futures.Future` for everybody who waits, looks on or
cancels, but makes its lock only then. Law: its state changes either under its own lock, or, while it has none, under
`_births`, which is held wherever a lock is made. So whoever holds the lock sees the state stand still, as
`concurrent.futures.wait` relies on.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from procsched.core.model import Priority, Run

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Call", "Follower", "RunFuture", "SlimFuture", "cancel_and_notify", "finish", "finish_all"]


class _Lock:
    """A Future's lock: a `threading.Condition` to all who use it, of which the costly half waits for a waiter.

    `concurrent.futures.wait` takes the lock of every Future, and sleeps on none of them.
    """

    __slots__ = ("_condition", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._condition: threading.Condition | None = None

    def acquire(self) -> bool:
        return self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """As that of a Condition."""
        if self._condition is None:
            self._condition = threading.Condition(self._lock)
        return self._condition.wait(timeout)

    def notify_all(self) -> None:
        """As that of a Condition."""
        if self._condition is not None:
            self._condition.notify_all()


# Re-entrant: a collection, or a signal handler, in the middle of one birth may need another.
_births = threading.RLock()


def after_fork() -> None:
    """In a forked copy, whose other threads are gone: one of them may have held it."""
    global _births
    _births = threading.RLock()


class SlimFuture(Future[Any]):
    """A Future whose lock and lists are made when somebody needs them."""

    # What stock Futures set in __init__; here an instance has them once they differ.
    _state: str = PENDING
    _result: Any = None
    _exception: BaseException | None = None
    _lock: _Lock | None = None
    _who_waits: list[Any] | None = None
    _callbacks: list[Any] | None = None

    def __init__(self) -> None:
        pass

    @property
    def _condition(self) -> _Lock:  # type: ignore[override]
        lock = self._lock
        if lock is None:
            fresh = _Lock()
            with _births:
                lock = self._lock
                if lock is None:
                    self._lock = lock = fresh
        return lock

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Future can't be pickled or copied: nobody would ever tell the copy its result")

    # Only asked for by those who hold the lock, or after the last of them has gone.

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        if self._who_waits is None:
            self._who_waits = []
        return self._who_waits

    @property
    def _done_callbacks(self) -> list[Any]:
        if self._callbacks is None:
            self._callbacks = []
        return self._callbacks

    # A state that is final can be read without the lock; one that isn't may change right after it was read, anyhow.

    def done(self) -> bool:
        """Whether it has ended: by a value, an exception, or a cancel."""
        return self._state in _DONE

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._state in _CANCELLED

    def result(self, timeout: float | None = None) -> Any:
        """The value, waited for as long as it takes, or ``timeout`` seconds. Raises what the run raised."""
        if self._state == FINISHED and self._exception is None:
            return self._result
        return super().result(timeout)


_DONE = frozenset({CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED})
_CANCELLED = frozenset({CANCELLED, CANCELLED_AND_NOTIFIED})


def finish(future: SlimFuture, value: object, error: BaseException | None = None) -> bool:
    """Gives one Future its end, and tells who waits for it; False if it has one. Runs its callbacks."""
    with future._condition:
        if future._state in _DONE:
            return False
        future._exception = error
        future._result = value
        future._state = FINISHED
        for waiter in future._who_waits or ():
            tell = waiter.add_result if error is None else waiter.add_exception
            try:
                tell(future)
            except Exception:  # no memory: once more, or he who waits would wait for ever
                tell(future)
        future._condition.notify_all()
    if future._callbacks:
        future._invoke_callbacks()  # type: ignore[attr-defined]
    return True


def finish_all(done: Iterable[tuple[SlimFuture, Any]]) -> list[tuple[SlimFuture, Any]]:
    """Gives pending Futures their values, at once; returns those with a lock, which it leaves alone."""
    watched = []
    with _births:
        for future, value in done:
            if future._lock is None:
                future._result = value
                future._state = FINISHED
            else:
                watched.append((future, value))
    return watched


def cancel_and_notify(future: Future[Any]) -> bool:
    """Cancels a pending Future and tells who waits for it; False if it was cancelled or done before."""
    if future.cancelled() or not Future.cancel(future):
        return False
    try:
        future.set_running_or_notify_cancel()
    except Exception:  # somebody else notified in between: InvalidStateError, or RuntimeError in older Pythons
        return False
    return True


class Prevents(Protocol):
    """Who can keep a run from starting: the engine."""

    def prevent(self, run: Run) -> bool:
        """Whether it could."""


class RunFuture(SlimFuture):
    """The Future of one run. ``cancel()`` succeeds until the run has started, wherever it waits."""

    def __init__(self, engine: Prevents, run: Run) -> None:
        self._run: Run | None = run
        """None once there is nothing to prevent: it keeps nothing of a run that has ended."""
        self._engine: Prevents = engine

    def cancel(self) -> bool:
        """Keep the run from starting. False when it has started or ended: a run is never killed by this."""
        run = self._run
        if run is not None and not self.done() and self._engine.prevent(run):
            cancel_and_notify(self)
        return self.cancelled()


class Call(Run, RunFuture):
    """A submitted call, which is its own Future: one object, where there may be a million, is half the work of two."""

    __slots__ = ()

    def __init__(self, engine: Prevents, payload: Any, due: int, number: int) -> None:
        Run.__init__(self, None, payload, Priority.MEDIUM, due, 0)
        self._engine = engine
        self.number = number
        self.estimate = payload.function
        self.future = self._run = self

    __repr__ = SlimFuture.__repr__


class Follower(SlimFuture):
    """Looks on at a run of somebody else: cancelling it ends the looking, not the run."""

    def cancel(self) -> bool:
        """Look no further; whoever waits for this Future is told at once."""
        cancel_and_notify(self)
        return self.cancelled()
