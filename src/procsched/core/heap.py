"""DueHeap: what comes first. Pure.

Entries are ``(key, key, seq, item)``: never compared beyond ``seq``, so users' objects never are. Nothing is removed
from the middle. An entry is *stale* when its item has moved on (``item.entry != seq``); stale ones are dropped when
they come up, and swept out bit by bit when they outnumber the live ones, so that cancelling costs O(1) and the heap
stays within three times what lives in it.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from procsched.core.model import JobRow, Run

    Entry = tuple[int, int, int, JobRow | Run]

__all__ = ["DueHeap"]

_SMALL = 64
"""So many stale entries do no harm."""
_MOST_DROPPED = 32
"""In one look at when the next entry is due."""
_STEP = 3
"""Entries that a sweep looks at for each further stale one: at two, it would last until half as many again were."""
_AT_ONCE = 32
"""Stale entries that make up one step of a sweep."""


class DueHeap:
    """A heap whose stale entries are dropped lazily, and bounded."""

    __slots__ = ("_entries", "_forgotten", "_is_live", "_leaving", "_live_of", "_stale")

    def __init__(
        self, is_live: Callable[[Entry], bool], live_of: Callable[[list[Entry]], list[Entry]] | None = None
    ) -> None:
        self._entries: list[Entry] = []
        self._leaving: list[Entry] = []
        """While stale entries are swept out: what hasn't been looked at yet. A heap, too."""
        self._is_live = is_live
        self._live_of = live_of if live_of is not None else lambda entries: list(filter(is_live, entries))
        """Those of many that are live."""
        self._stale = 0
        self._forgotten = 0
        """Since the last step of the sweep."""

    def __len__(self) -> int:
        """Live entries (an upper bound while one is being cancelled)."""
        return max(0, len(self._entries) + len(self._leaving) - self._stale)

    def push(self, first: int, second: int, seq: int, item: JobRow | Run) -> None:
        heappush(self._entries, (first, second, seq, item))

    def push_entry(self, entry: Any) -> None:
        """An entry that is more than that: ``(key, key, seq, id, …)`` of a job at rest."""
        heappush(self._entries, entry)

    def peek(self) -> Entry | None:
        """The earliest live entry, left where it is."""
        while heap := self._first():
            if self._is_live(heap[0]):
                return heap[0]
            heappop(heap)
            self._stale -= 1
        self._stale = 0
        return None

    def next_key(self) -> int | None:
        """First key of the earliest live entry, or an earlier one: after some stale entries it leaves it at that.

        A hundred thousand cancels of what comes next mustn't cost who only wants to know how long he may sleep.
        """
        for _ in range(_MOST_DROPPED):
            heap = self._first()
            if not heap or self._is_live(heap[0]):
                break
            heappop(heap)
            self._stale -= 1
        heap = self._first()
        return heap[0][0] if heap else None

    def pop_due(self, at: int) -> Entry | None:
        """Takes the earliest live entry, if its first key is no later than ``at``."""
        while heap := self._first():
            entry = heap[0]
            if entry[0] > at:
                return None  # nor is any other
            heappop(heap)
            if self._is_live(entry):
                return entry
            self._stale -= 1
        self._stale = 0
        return None

    def pop(self) -> Entry:
        """Takes the entry that `peek` has just shown."""
        return heappop(self._first())

    def _first(self) -> list[Entry]:
        """The heap with the earliest entry; an empty one if there is none."""
        entries, leaving = self._entries, self._leaving
        if not leaving:
            return entries
        return leaving if not entries or leaving[0] < entries[0] else entries

    def forget(self) -> None:
        """One entry has become stale.

        When they outnumber the others they are swept out, a few at each further call, so that nobody waits for it. The
        last entry of a heap's list is a leaf: without it, it is a heap still.
        """
        self._stale += 1
        if self._leaving:
            self._forgotten += 1
            if self._forgotten >= _AT_ONCE:
                self._forgotten = 0
                self._sweep(_AT_ONCE * _STEP)
        elif self._stale > _SMALL and self._stale * 2 > len(self._entries):
            self._leaving, self._entries = self._entries, []

    def _sweep(self, count: int) -> None:
        leaving, entries = self._leaving, self._entries
        looked_at = leaving[-count:]
        live = self._live_of(looked_at)
        for entry in live:  # first: cut short, it is there twice, and one is stale
            heappush(entries, entry)
        self._stale -= len(looked_at) - len(live)
        del leaving[-count:]

    def recount(self) -> None:
        """Counts the stale entries anew, after a change that was cut short. Costs O(n)."""
        self._stale = sum(not self._is_live(entry) for entry in (*self._entries, *self._leaving))

    def live(self) -> Iterator[Entry]:
        """All live entries, in no order. Costs O(n): for shutdown, re-planning and checks."""
        return (entry for entry in (*self._entries, *self._leaving) if self._is_live(entry))

    def check_valid(self) -> None:
        entries = [*self._entries, *self._leaving]
        live = sum(map(self._is_live, entries))
        assert len(entries) - live <= max(self._stale, 0), "a stale entry that nobody counted"
        assert len(entries) <= 3 * (live + _SMALL), "stale entries outnumber live ones"
        for heap in (self._entries, self._leaving):
            assert all(heap[(i - 1) // 2][:3] <= heap[i][:3] for i in range(1, len(heap))), "heap order"
