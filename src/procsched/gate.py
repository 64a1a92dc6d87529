"""Gate: the bound on calls that are accepted and not yet finished (``max_pending``). Callers' threads and the loop."""

from __future__ import annotations

import threading

from procsched.errors import SchedulerClosed, SchedulerFull

__all__ = ["Gate"]


class Gate:
    """Counts calls in and out; when the bound is reached, who wants in waits, or is refused."""

    def __init__(self, bound: int | None, *, refuse: bool) -> None:
        self._bound = bound
        self._refuse = refuse
        self._inside = 0
        self._closed = False
        self._changed = threading.Condition(threading.RLock())
        self._waiting = 0

    @property
    def bounded(self) -> bool:
        return self._bound is not None

    def enter(self) -> None:
        """Lets one call in.

        Raises:
            SchedulerFull: The bound is reached, and the scheduler was told not to block.
            SchedulerClosed: It was shut down while this waited.
        """
        if self._bound is None:
            return
        with self._changed:
            while self._inside >= self._bound and not self._closed:
                if self._refuse:
                    raise SchedulerFull(
                        f"{self._inside} calls are accepted and unfinished, and max_pending is {self._bound}; "
                        f"wait for some of their Futures, or construct the scheduler with on_full='block'"
                    )
                self._waiting += 1
                try:
                    self._changed.wait()
                finally:
                    self._waiting -= 1
            if self._closed:
                raise SchedulerClosed("the scheduler was shut down while this call waited for max_pending")
            self._inside += 1

    def release(self, count: int = 1) -> None:
        """Calls have ended."""
        if self._bound is None:
            return
        with self._changed:
            self._inside -= count
            if self._waiting:
                self._changed.notify(count)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
