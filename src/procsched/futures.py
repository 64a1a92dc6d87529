"""RunFuture: the Future of a run, whose cancel() asks the scheduler; Follower: that of an onlooker. In the parent.

It is a stock `concurrent.futures.Future` in all else, so that `wait`, `as_completed` and asyncio treat it as one.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Follower", "RunFuture", "cancel_and_notify"]


def cancel_and_notify(future: Future[Any]) -> bool:
    """Cancels a pending Future and tells who waits for it; False if it was cancelled or done before."""
    if future.cancelled() or not Future.cancel(future):
        return False
    try:
        future.set_running_or_notify_cancel()
    except Exception:  # somebody else notified in between: InvalidStateError, or RuntimeError in older Pythons
        return False
    return True


class RunFuture(Future[Any]):
    """The Future of one run. ``cancel()`` succeeds until the run has started, wherever it waits."""

    _prevent: Callable[[RunFuture], bool] | None = None
    """Keeps the run from starting; None once there is nothing to prevent."""

    def cancel(self) -> bool:
        """Keep the run from starting. False when it has started or ended: a run is never killed by this."""
        prevent = self._prevent
        if prevent is not None and not self.done() and prevent(self):
            self._prevent = None
            cancel_and_notify(self)
        return self.cancelled()


class Follower(Future[Any]):
    """Looks on at a run of somebody else: cancelling it ends the looking, not the run."""

    def cancel(self) -> bool:
        """Look no further; whoever waits for this Future is told at once."""
        cancel_and_notify(self)
        return self.cancelled()
