"""BackgroundWriter: a thread that writes down what happened, in batches, and is in nobody's way. In the parent.

What is noted waits in a buffer that is bounded: a disk that is full or slow costs notes, which are counted and told of,
and never memory, time of the loop, or the scheduler's end.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["BackgroundWriter"]

_log = logging.getLogger("procsched.scheduler")

_EVERY = 0.5
"""Seconds between two batches: what a crash of the parent can cost."""
_AT_ONCE = 5000
"""Notes in one batch: some ten milliseconds of writing."""
_LONGEST = 30.0
"""Seconds until the next try after several that failed."""


class BackgroundWriter:
    """Calls ``write(batch)`` in a thread of its own. One that raises is tried again with the same notes, later.

    Args:
        what: Names the goal in messages, such as ``"the history runs.db"``.
        write: Takes a list of notes. Raises what it likes.
        most: Notes that may wait; beyond that the oldest are dropped.
    """

    def __init__(self, what: str, write: Callable[[list[Any]], None], most: int) -> None:
        self._what = what
        self._write = write
        self._waiting: deque[Any] = deque()
        self._most = most
        self._wake = threading.Event()
        self._stopping = False
        self._failing = False
        self._pause = _EVERY
        self.dropped = 0
        """Notes that were never written."""
        self._thread = threading.Thread(target=self._run, name=f"procsched {what}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def note(self, notes: Iterable[Any]) -> None:
        """From any one thread at a time; costs an append each."""
        waiting = self._waiting
        waiting.extend(notes)
        surplus = len(waiting) - self._most
        while surplus > 0:
            try:
                waiting.popleft()
            except IndexError:  # the thread has taken it meanwhile
                break
            self.dropped += 1
            surplus -= 1

    def stop(self, timeout: float = 10.0) -> None:
        """Writes what there is, once, and ends. ``timeout`` (seconds) bounds the wait for a disk that hangs."""
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout)
        lost = self.dropped + len(self._waiting)
        if lost:
            _log.error("%s lacks %d entries that couldn't be written in time", self._what, lost)

    def _run(self) -> None:
        while True:
            self._wake.wait(self._pause)
            stopping = self._stopping  # looked at before the last batch is taken
            written = self._write_all()
            if stopping:
                return
            self._pause = _EVERY if written else min(_LONGEST, self._pause * 2)

    def _write_all(self) -> bool:
        """False: it failed, and the batch waits for the next try."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
            try:
                self._write(batch)
            except Exception as error:
                self._waiting.extendleft(reversed(batch))
                if not self._failing:
                    self._failing = True
                    _log.error("%s can't be written: %s. Runs go on; it is tried again", self._what, error)
                return False
            if self._failing:
                self._failing = False
                lack = f", but lacks {self.dropped} entries" if self.dropped else ""
                _log.warning("%s is written again%s", self._what, lack)
        return True
