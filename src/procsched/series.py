"""Series: the runs of a periodic job, one done Future each, for a reader that takes its time. Runs in the parent."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from procsched.futures import Follower

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Iterator

__all__ = ["Expected", "Series"]

KEPT = 100


class Expected(Follower):
    """The Future of a run that was handed over: it joins its series when it is done."""

    def __init__(self, series: Series) -> None:
        super().__init__()
        self._series = weakref.ref(series)
        self.add_done_callback(_join)

    @property
    def series(self) -> Series | None:
        """None: nobody reads it any more."""
        return self._series()


def _join(future: Future[Any]) -> None:
    assert isinstance(future, Expected)
    series = future.series
    if series is not None:
        series.add(future)


class Series:
    """Iterate over it, with ``for`` or ``async for``: a done Future per run, in order; it ends when the job has.

    The newest 100 are kept for a slow reader; `dropped` counts those that went for it. A run that executes when its job
    is cancelled is the last one.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._done: deque[Future[Any]] = deque()
        self._under_way = 0
        self._ending = False
        # Re-entrant: a collection in the middle may drop a Future, whose callbacks may come here.
        self._changed = threading.Condition(threading.RLock())
        self._listeners: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def expect(self) -> Expected:
        """A Future for a run that is handed over now."""
        with self._changed:
            self._under_way += 1
        return Expected(self)

    def add(self, future: Future[Any]) -> None:
        """One that was expected is done. (A run that never started is none of the series.)"""
        with self._changed:
            self._under_way -= 1
            if not future.cancelled():
                self._done.append(future)
            if len(self._done) > KEPT:
                self._done.popleft()
                self.dropped += 1
            self._tell()

    def end(self) -> None:
        """The job has ended: readers get what is left, and what still executes, and stop."""
        with self._changed:
            self._ending = True
            self._tell()

    @property
    def _over(self) -> bool:
        return self._ending and self._under_way <= 0

    def _tell(self) -> None:
        self._changed.notify_all()
        for loop, event in self._listeners:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # it is closed
                pass

    def __iter__(self) -> Iterator[Future[Any]]:
        return self

    def __next__(self) -> Future[Any]:
        with self._changed:
            while not self._done:
                if self._over:
                    raise StopIteration
                self._changed.wait()
            return self._done.popleft()

    def __aiter__(self) -> AsyncIterator[Future[Any]]:
        return self._follow()

    async def _follow(self) -> AsyncIterator[Future[Any]]:
        import asyncio  # here: only those who have it running already come here

        event = asyncio.Event()
        listener = (asyncio.get_running_loop(), event)
        with self._changed:
            self._listeners.append(listener)
        try:
            while True:
                with self._changed:
                    event.clear()
                    future = self._done.popleft() if self._done else None
                    if future is None and self._over:
                        return
                if future is None:
                    await event.wait()
                else:
                    yield future
        finally:
            with self._changed:
                self._listeners.remove(listener)
