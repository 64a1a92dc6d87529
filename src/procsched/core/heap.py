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
_STEP = 3
"""Entries looked at in one step of a sweep: at two, it would last until half as many again had become stale."""


class DueHeap:
    """A heap whose stale entries are dropped lazily, and bounded."""

    __slots__ = ("_entries", "_is_live", "_leaving", "_stale")

    def __init__(self, is_live: Callable[[Entry], bool]) -> None:
        self._entries: list[Entry] = []
        self._leaving: list[Entry] = []
        """While stale entries are swept out: what hasn't been looked at yet. A heap, too."""
        self._is_live = is_live
        self._stale = 0

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

    def pop_due(self, at: int) -> Entry | None:
        """Takes the earliest live entry, if its first key is no later than ``at``."""
        while heap := self._first():
            entry = heap[0]
            if not self._is_live(entry):
                heappop(heap)
                self._stale -= 1
            elif entry[0] > at:
                return None
            else:
                return heappop(heap)
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
        leaving = self._leaving
        if leaving:
            for entry in leaving[: -_STEP - 1 : -1]:
                if self._is_live(entry):
                    heappush(self._entries, entry)  # first: cut short, it is there twice, and one is stale
                else:
                    self._stale -= 1
                leaving.pop()
        elif self._stale > _SMALL and self._stale * 2 > len(self._entries):
            self._leaving, self._entries = self._entries, []

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
