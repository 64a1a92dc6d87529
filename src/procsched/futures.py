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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Follower", "RunFuture", "SlimFuture", "cancel_and_notify", "finish_all"]

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
    _lock: threading.Condition | None = None

    def __init__(self) -> None:
        pass

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        lock = self._lock
        if lock is None:
            fresh = threading.Condition()
            with _births:
                lock = self._lock
                if lock is None:
                    self._lock = lock = fresh
        return lock

    def __getattr__(self, name: str) -> Any:
        # Asked for what isn't there yet; by those who hold the lock only.
        if name == "_waiters" or name == "_done_callbacks":
            return self.__dict__.setdefault(name, [])
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

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


class RunFuture(SlimFuture):
    """The Future of one run. ``cancel()`` succeeds until the run has started, wherever it waits."""

    def __init__(self, prevent: Callable[[Any], bool] | None = None, run: Any = None) -> None:
        self._prevent = prevent
        """Keeps the run from starting; None once there is nothing to prevent."""
        self._run = run

    def let_go(self) -> None:
        """The run has ended."""
        self._prevent = self._run = None

    def cancel(self) -> bool:
        """Keep the run from starting. False when it has started or ended: a run is never killed by this."""
        prevent, run = self._prevent, self._run
        if prevent is not None and run is not None and not self.done() and prevent(run):
            self.let_go()
            cancel_and_notify(self)
        return self.cancelled()


class Follower(SlimFuture):
    """Looks on at a run of somebody else: cancelling it ends the looking, not the run."""

    def cancel(self) -> bool:
        """Look no further; whoever waits for this Future is told at once."""
        cancel_and_notify(self)
        return self.cancelled()
