"""Alarms: what the loop itself must look at later (limits of runs, slow boots, a shutdown's deadline). In the loop."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Alarms"]


class Alarms:
    """A few deeds with a time. An alarm isn't taken back: it looks, when it rings, whether it still matters."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], object]]] = []
        self._seq = 0

    def set(self, at: int, deed: Callable[[], object]) -> None:
        """``deed`` at monotonic ``at`` (ns), or soon after."""
        self._seq += 1
        heappush(self._heap, (at, self._seq, deed))

    def ring(self, now: int) -> None:
        while self._heap and self._heap[0][0] <= now:
            heappop(self._heap)[2]()

    def next(self) -> int | None:
        return self._heap[0][0] if self._heap else None
