"""Alarms: what the loop itself must look at later (limits of runs, slow boots, a shutdown's deadline). In the loop."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Alarms"]

_MANY = 64


def _always() -> bool:
    return True


class Alarms:
    """A few deeds with a time. An alarm isn't taken back: it is asked, when it rings, whether it still matters.

    Those that don't are swept out whenever their number has doubled, so that short runs with a long limit can't
    pile up.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], object], Callable[[], bool]]] = []
        self._seq = 0
        self._sweep_at = _MANY

    def set(self, at: int, deed: Callable[[], object], matters: Callable[[], bool] = _always) -> None:
        """``deed`` at monotonic ``at`` (ns), or soon after, if it ``matters`` then."""
        self._seq += 1
        heappush(self._heap, (at, self._seq, deed, matters))
        if len(self._heap) >= self._sweep_at:
            self._heap = [alarm for alarm in self._heap if alarm[3]()]
            heapify(self._heap)
            self._sweep_at = max(_MANY, 2 * len(self._heap))

    def ring(self, now: int) -> None:
        """Does what is due."""
        while self._heap and self._heap[0][0] <= now:
            _at, _seq, deed, matters = heappop(self._heap)
            if matters():
                deed()

    def next(self) -> int | None:
        """When to ring next."""
        while self._heap and not self._heap[0][3]():
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None
