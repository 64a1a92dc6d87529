"""DueHeap: what comes first. Pure.

Entries are ``(key, key, seq, item)``: never compared beyond ``seq``, so users' objects never are. Nothing is removed
from the middle. An entry is *stale* when its item has moved on (``item.entry != seq``); stale ones are dropped when
they come up, and all at once when they outnumber the live ones, so that cancelling costs O(1) and the heap stays
within twice what lives in it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from procsched.core.model import JobRow, Run

    Entry = tuple[int, int, int, JobRow | Run]

__all__ = ["DueHeap"]

_SMALL = 64
"""Below this many entries a rebuild costs less than thinking about it."""


class DueHeap:
    """A heap whose stale entries are dropped lazily, and bounded."""

    __slots__ = ("_entries", "_is_live", "_stale")

    def __init__(self, is_live: Callable[[Entry], bool]) -> None:
        self._entries: list[Entry] = []
        self._is_live = is_live
        self._stale = 0

    def __len__(self) -> int:
        """Live entries (an upper bound while one is being cancelled)."""
        return max(0, len(self._entries) - self._stale)

    def push(self, first: int, second: int, seq: int, item: JobRow | Run) -> None:
        heappush(self._entries, (first, second, seq, item))

    def peek(self) -> Entry | None:
        """The earliest live entry, left where it is."""
        entries = self._entries
        while entries:
            if self._is_live(entries[0]):
                return entries[0]
            heappop(entries)
            self._stale -= 1
        self._stale = 0
        return None

    def pop(self) -> Entry:
        """Takes the entry that `peek` has just shown."""
        return heappop(self._entries)

    def forget(self) -> None:
        """One entry has become stale. Amortised: a rebuild is paid for by as many cancels as it touches entries."""
        self._stale += 1
        if self._stale > _SMALL and self._stale * 2 > len(self._entries):
            entries = [entry for entry in self._entries if self._is_live(entry)]
            heapify(entries)
            self._entries = entries
            self._stale = 0

    def recount(self) -> None:
        """Counts the stale entries anew, after a change that was cut short. Costs O(n)."""
        self._stale = len(self._entries) - sum(map(self._is_live, self._entries))

    def live(self) -> Iterator[Entry]:
        """All live entries, in no order. Costs O(n): for shutdown, re-planning and checks."""
        return (entry for entry in self._entries if self._is_live(entry))

    def check_valid(self) -> None:
        entries = self._entries
        live = sum(map(self._is_live, entries))
        assert len(entries) - live <= max(self._stale, 0), "a stale entry that nobody counted"
        assert len(entries) <= max(2 * live + 1, live + _SMALL + 1), "stale entries outnumber live ones"
        assert all(entries[(i - 1) // 2][:3] <= entries[i][:3] for i in range(1, len(entries))), "heap order"
