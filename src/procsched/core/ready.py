"""ReadyQueue: what is due, first come first served, in an order that is mostly the order of coming. Pure.

What becomes due next is nearly always the last in the order, so it joins the end of a *line*, where coming and going
cost O(1); only what has to go further forward (a higher priority, a run that came back from a worker) takes a heap. The
first of both is the first of all. Stale entries are dropped as in `heap`.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from procsched.core.heap import Entry
    from procsched.core.model import JobRow, Run

__all__ = ["ReadyQueue"]

_SMALL = 64
"""Below this many entries a rebuild costs less than thinking about it."""


class ReadyQueue:
    """A line and a heap, with one order."""

    __slots__ = ("_is_live", "_stale", "heap", "line")

    def __init__(self, is_live: Callable[[Entry], bool]) -> None:
        self.line: deque[Entry] = deque()
        self.heap: list[Entry] = []
        self._is_live = is_live
        self._stale = 0

    def __len__(self) -> int:
        """Live entries (an upper bound while one is being cancelled)."""
        return max(0, len(self.line) + len(self.heap) - self._stale)

    def push(self, first: int, second: int, seq: int, item: JobRow | Run) -> None:
        entry = (first, second, seq, item)
        line = self.line
        if not line or line[-1] < entry:
            line.append(entry)
        else:
            heappush(self.heap, entry)

    def peek(self) -> Entry | None:
        """The first live entry, left where it is."""
        line, heap = self.line, self.heap
        while line or heap:
            from_heap = heap and (not line or heap[0] < line[0])
            entry = heap[0] if from_heap else line[0]
            if self._is_live(entry):
                return entry
            if from_heap:
                heappop(heap)
            else:
                line.popleft()
            self._stale -= 1
        self._stale = 0
        return None

    def pop(self) -> Entry:
        """Takes the entry that `peek` has just shown."""
        line, heap = self.line, self.heap
        return heappop(heap) if heap and (not line or heap[0] < line[0]) else line.popleft()

    def forget(self) -> None:
        """One entry has become stale. Amortised: a rebuild is paid for by as many cancels as it touches entries."""
        self._stale += 1
        if self._stale > _SMALL and self._stale * 2 > len(self.line) + len(self.heap):
            line = deque(entry for entry in self.line if self._is_live(entry))
            heap = [entry for entry in self.heap if self._is_live(entry)]
            heapify(heap)
            self.line, self.heap = line, heap
            self._stale = 0

    def recount(self) -> None:
        """Counts the stale entries anew, after a change that was cut short. Costs O(n)."""
        self._stale = sum(not self._is_live(entry) for entry in (*self.line, *self.heap))

    def live(self) -> Iterator[Entry]:
        """All live entries, in no order. Costs O(n): for shutdown, re-planning and checks."""
        return (entry for entry in (*self.line, *self.heap) if self._is_live(entry))

    def check_valid(self) -> None:
        line, heap = self.line, self.heap
        live = sum(map(self._is_live, (*line, *heap)))
        entries = len(line) + len(heap)
        assert entries - live <= max(self._stale, 0), "a stale entry that nobody counted"
        assert entries <= max(2 * live + 1, live + _SMALL + 1), "stale entries outnumber live ones"
        assert all(heap[(i - 1) // 2][:3] <= heap[i][:3] for i in range(1, len(heap))), "heap order"
        assert all(line[i - 1][:3] < line[i][:3] for i in range(1, len(line))), "the line's order"
