"""Gate: the bound on calls that are accepted and not yet finished (``max_pending``). Callers' threads and the loop.

::

    enter(run) ── on its way in ── arrived(run) ── inside ── release()
                       └── a Ctrl-C: left(run), and then recount(), once the loop has mended the books

A call on its way in occupies a place already, under its own name, so that one that was cut short can't keep it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from procsched.errors import SchedulerClosed, SchedulerFull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Gate"]


class Gate:
    """Counts calls in and out; when the bound is reached, who wants in waits, or is refused."""

    def __init__(self, bound: int | None, *, refuse: bool) -> None:
        self._bound = bound
        self._refuse = refuse
        self._inside = 0
        self._on_their_way: set[object] = set()
        self._closed = False
        self._changed = threading.Condition(threading.RLock())
        self._waiting = 0

    @property
    def bounded(self) -> bool:
        return self._bound is not None

    def enter(self, run: object) -> None:
        """Lets one call in, which says `arrived` when it is on the books.

        Raises:
            SchedulerFull: The bound is reached, and the scheduler was told not to block.
            SchedulerClosed: It was shut down while this waited.
        """
        if self._bound is None:
            return
        with self._changed:
            while (taken := self._inside + len(self._on_their_way)) >= self._bound and not self._closed:
                if self._refuse:
                    raise SchedulerFull(
                        f"{taken} calls are accepted and unfinished, and max_pending is {self._bound}; "
                        f"wait for some of their Futures, or construct the scheduler with on_full='block'"
                    )
                self._waiting += 1
                try:
                    self._changed.wait()
                finally:
                    self._waiting -= 1
            if self._closed:
                raise SchedulerClosed("the scheduler was shut down while this call waited for max_pending")
            self._on_their_way.add(run)

    def arrived(self, run: object) -> None:
        """The call is on the books, whose owner will release its place."""
        if run in self._on_their_way:
            with self._changed:
                self._inside += 1
                self._on_their_way.discard(run)

    def left(self, run: object) -> None:
        """The call was refused or cut short. It may have arrived: if so, its place is for `recount` to see."""
        if self._bound is None:
            return
        with self._changed:
            self._on_their_way.discard(run)
            if self._waiting:
                self._changed.notify_all()

    def recount(self, booked: Callable[[], Iterable[object]]) -> None:
        """After an interrupted call: what is inside is what the books say."""
        if self._bound is None:
            return
        with self._changed:
            self._inside = len(set(booked()) - self._on_their_way)
            if self._waiting:
                self._changed.notify_all()

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
