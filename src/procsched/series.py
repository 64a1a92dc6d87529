"""Series: the runs of a periodic job, one done Future each, for a reader that takes its time. Runs in the parent."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

__all__ = ["Series"]

KEPT = 100


class Series:
    """Iterate over it, with ``for`` or ``async for``: a done Future per run, in order; it ends when the job ends.

    The newest 100 are kept for a slow reader; `dropped` counts those that went for it.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._done: deque[Future[Any]] = deque()
        self._open = True
        self._changed = threading.Condition()
        self._listeners: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def expect(self) -> Future[Any]:
        """A Future for a run that is handed over now; it joins the series when it is done."""
        future: Future[Any] = Future()
        future.add_done_callback(self._add)
        return future

    def _add(self, future: Future[Any]) -> None:
        with self._changed:
            if not self._open:
                return
            self._done.append(future)
            if len(self._done) > KEPT:
                self._done.popleft()
                self.dropped += 1
            self._tell()

    def end(self) -> None:
        """The job has ended: readers get what is left, and stop."""
        with self._changed:
            self._open = False
            self._tell()

    def _tell(self) -> None:
        self._changed.notify_all()
        for loop, event in self._listeners:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def __iter__(self) -> Iterator[Future[Any]]:
        return self

    def __next__(self) -> Future[Any]:
        with self._changed:
            while not self._done:
                if not self._open:
                    raise StopIteration
                self._changed.wait()
            return self._done.popleft()

    def __aiter__(self) -> AsyncIterator[Future[Any]]:
        return self._follow()

    async def _follow(self) -> AsyncIterator[Future[Any]]:
        event = asyncio.Event()
        listener = (asyncio.get_running_loop(), event)
        with self._changed:
            self._listeners.append(listener)
        try:
            while True:
                with self._changed:
                    event.clear()
                    future = self._done.popleft() if self._done else None
                    if future is None and not self._open:
                        return
                if future is None:
                    await event.wait()
                else:
                    yield future
        finally:
            with self._changed:
                self._listeners.remove(listener)
