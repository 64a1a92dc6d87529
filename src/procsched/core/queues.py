"""Queues: the two timer heaps and the ready queue, where everything that waits has its one entry. Pure.

An entry is keyed in the time of its schedule, monotonic or wall, so that a step of the wall clock moves the calendar
and nothing else. When due, it moves to the ready queue under the *monotonic* instant at which it became due: raw wall
nanoseconds would sort behind every monotonic one for ever.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any

from procsched.core.heap import DueHeap
from procsched.core.model import NOWHERE, Place, ReadyOrder, Run, Timebase
from procsched.core.ready import ReadyQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from procsched.core.heap import Entry
    from procsched.core.jobtable import JobTable
    from procsched.core.model import JobRow, Now

__all__ = ["Queues"]

WALL_LOOK = 30_000_000_000
"""While a calendar entry waits, the wall clock is looked at this often, so that a step of it, or a resume of the
machine, is noticed in time. cron looks once a minute; monotonic waits alone would sleep through."""

_AT_ONCE = 2000
"""Entries that become due in one turn: about 10 ms. A million jobs may be due at the same instant."""
_MANY = 64
"""Below this many a sweep costs less than thinking about it."""

SMALL_STEP = 3 * 3600 * 1_000_000_000
"""A step back of the wall clock up to this serves no instant twice; after a larger one the calendar is planned anew.
The bound is Debian cron's."""


class Queues:
    """Timer heaps and ready queue over one generation table."""

    def __init__(self, jobs: JobTable, order: ReadyOrder) -> None:
        self._jobs = jobs
        self.by_priority = order is ReadyOrder.PRIORITY
        """Whether what comes later may go first."""
        self._mono = DueHeap(self._is_live, self._live_of)
        self._wall = DueHeap(self._is_live, self._live_of)
        self._ready = ReadyQueue(self._is_live)
        self.arrivals: deque[Run] = deque()
        """Calls for now, in the order of their coming: POSTED, or taken back since. Callers' threads append to it
        without a lock; all else happens under the owner's."""
        self._taken_back = 0
        self.sequence = count(1)
        """For entries: the order of coming."""
        self._latest_wall: int | None = None

    def _is_live(self, entry: Entry) -> bool:
        item: Any = entry[3]
        if isinstance(item, str):
            return self._jobs.has_entry(item, entry)
        return item.entry == entry[2] and (isinstance(item, Run) or self._jobs.is_living(item))

    def _live_of(self, entries: list[Entry]) -> list[Entry]:
        """`_is_live` for many. Most are of jobs at rest."""
        living, is_live = self._jobs.by_id, self._is_live
        return [entry for entry in entries if living.get(entry[3]) is entry or is_live(entry)]  # type: ignore[call-overload]

    # -- in -----------------------------------------------------------------------------------------------------

    def arrive(self, call: Run) -> None:
        """A call for now: one append, which needs no lock."""
        call.arrival = next(self.sequence)
        self.arrivals.append(call)

    def push_timer(self, item: JobRow | Run, timebase: Timebase, due: int, place: Place = Place.TIMER) -> None:
        """``item`` waits for an instant of a timebase."""
        seq = next(self.sequence)
        heap = self._wall if timebase is Timebase.WALL else self._mono
        heap.push(due, item.priority, seq, item)
        item.in_wall = timebase is Timebase.WALL
        item.place = place
        item.entry = seq

    def push_resting(self, entry: Any, timebase: Timebase) -> None:
        """The entry of a job that rests."""
        (self._wall if timebase is Timebase.WALL else self._mono).push_entry(entry)

    def forget_resting(self, timebase: Timebase) -> None:
        """Such an entry has become stale."""
        (self._wall if timebase is Timebase.WALL else self._mono).forget()

    def push_ready(self, item: JobRow | Run) -> None:
        """``item`` is due since `item.due`; one that was here before comes back under its old key."""
        if item.arrival == 0:
            item.arrival = next(self.sequence)
        first, second = self._key(item)
        self._ready.push(first, second, item.arrival, item)
        item.place = Place.READY
        item.entry = item.arrival

    def push_due(self, row: JobRow, due: int, now: Now) -> None:
        """``row`` waits for a monotonic instant that has passed: what `push_timer` and `promote` make of it."""
        row.due = due
        row.noticed = now.mono
        row.arrival = seq = next(self.sequence)
        if self.by_priority:
            self._ready.push(row.options.priority, due, seq, row)
        else:
            self._ready.push(due, row.options.priority, seq, row)
        row.place = Place.READY
        row.entry = seq

    def forget(self, item: JobRow | Run) -> None:
        """Whatever entry ``item`` has is stale from now on."""
        if item.place is Place.POSTED:
            self._take_back(item)
        if item.entry == 0:
            return
        item.entry = 0
        # A key that became stale must never be used again: its old entry would come to life.
        item.arrival = 0
        if item.place is Place.READY:
            self._ready.forget()
        elif item.in_wall:
            self._wall.forget()
        else:
            self._mono.forget()

    def disowned(self, row: JobRow) -> None:
        """The row has left the table with an entry somewhere: count it as stale."""
        self.forget(row)
        row.place = NOWHERE

    # -- time -----------------------------------------------------------------------------------------------------

    def promote(self, now: Now) -> None:
        """Moves what has become due to the ready queue: so much that nobody waits long, the rest in further turns.

        They come in the order in which they became due, which is that of the ready queue; but where priority comes
        first, all must be there.
        """
        self.sweep()
        room = _AT_ONCE if not self.by_priority else 1 << 62
        while room and (entry := self._mono.pop_due(now.mono)) is not None:
            self._became_due(self._item(entry), entry[0], now)
            room -= 1
        room = max(room, _AT_ONCE // 2)
        while room and (entry := self._wall.pop_due(now.wall)) is not None:
            self._became_due(self._item(entry), now.mono - (now.wall - entry[0]), now)
            room -= 1

    def _became_due(self, item: JobRow | Run, due: int, now: Now) -> None:
        item.due = due
        item.noticed = now.mono
        item.arrival = 0
        if isinstance(item, Run):
            item.expected = due
        self.push_ready(item)

    def wall_was_set_back(self, now: Now) -> bool:
        """Whether the wall clock is so far behind the latest time seen that the calendar must be planned anew."""
        if self._latest_wall is None or now.wall > self._latest_wall:
            self._latest_wall = now.wall
        elif now.wall < self._latest_wall - SMALL_STEP:
            self._latest_wall = now.wall
            return True
        return False

    def next_wakeup(self, now: Now) -> int | None:
        """Monotonic instant at which to promote again, or a bit before; None: nothing waits for a time."""
        best = self._mono.next_key()
        if (key := self._wall.next_key()) is not None:
            due = now.mono + min(key - now.wall, WALL_LOOK)
            best = due if best is None or due < best else best
        return best

    # -- out ------------------------------------------------------------------------------------------------------

    def soonest(self, now: Now, before: int) -> tuple[int, JobRow | Run] | None:
        """The next timer entry, if it is due until monotonic ``before``, and when; it stays where it is."""
        best: tuple[int, Entry] | None = None
        if (key := self._mono.next_key()) is None or key > before:
            pass
        elif (entry := self._mono.peek()) is not None and entry[0] <= before:
            best = (entry[0], entry)
        if (key := self._wall.next_key()) is None or now.mono + key - now.wall > before:
            pass
        elif (entry := self._wall.peek()) is not None:
            due = now.mono + entry[0] - now.wall
            if due <= before and (best is None or due < best[0]):
                best = (due, entry)
        return None if best is None else (best[0], self._item(best[1]))

    def _item(self, entry: Entry) -> JobRow | Run:
        """What a live entry stands for; a job that rests no longer does."""
        item: Any = entry[3]
        return self._jobs.get(item) if isinstance(item, str) else item  # type: ignore[return-value]

    def pop_timer(self, item: JobRow | Run) -> None:
        """Takes out the entry that `soonest` has just shown."""
        (self._wall if item.in_wall else self._mono).pop()
        item.entry = 0
        item.arrival = 0

    def head(self) -> JobRow | Run | None:
        """The first of the ready, left where it is."""
        entry, arrivals = self._ready.peek(), self.arrivals
        while arrivals:
            call = arrivals[0]
            if call.place is not Place.POSTED:
                arrivals.popleft()
                self._taken_back -= 1
                continue
            if entry is None or (*self._key(call), call.arrival) < entry[:3]:
                return call
            break
        return None if entry is None else entry[3]

    def pop_ready(self, head: JobRow | Run) -> None:
        """Takes out what `head` has just shown; its key is kept for the case that it comes back."""
        if head.place is Place.POSTED:
            self.arrivals.popleft()
        else:
            self._ready.pop()[3].entry = 0

    @property
    def line(self) -> deque[Entry]:
        """Of the ready: those that came in order. Changed by `pop_ready` alone."""
        return self._ready.line

    @property
    def heap(self) -> list[Entry]:
        """Of the ready: the others."""
        return self._ready.heap

    def _key(self, item: JobRow | Run) -> tuple[int, int]:
        return (item.priority, item.due) if self.by_priority else (item.due, item.priority)

    def _take_back(self, call: JobRow | Run) -> None:
        """A call that came is taken back where it is."""
        call.place = NOWHERE
        self._taken_back += 1

    def sweep(self) -> None:
        """Drops calls that were taken back, once they outnumber the others. In the loop: a Ctrl-C would lose some."""
        if self._taken_back > _MANY and self._taken_back * 2 > len(self.arrivals):
            arrived = [self.arrivals.popleft() for _ in range(len(self.arrivals))]
            self.arrivals.extendleft(reversed([call for call in arrived if call.place is Place.POSTED]))
            self._taken_back = 0

    @property
    def calls(self) -> int:
        """Calls that have come, and nothing more."""
        return len(self.arrivals) - self._taken_back

    @property
    def others(self) -> int:
        """What is ready beside calls that have just come."""
        return len(self._ready)

    @property
    def ready(self) -> int:
        return len(self._ready) + len(self.arrivals) - self._taken_back

    @property
    def timers(self) -> int:
        return len(self._mono) + len(self._wall)

    def oldest_ready(self) -> int | None:
        """When the longest waiting of the ready became due."""
        oldest = next((call.due for call in [*self.arrivals] if call.place is Place.POSTED), None)
        if self.by_priority:
            first = min((entry[1] for entry in self._ready.live()), default=None)
        else:
            entry = self._ready.peek()
            first = None if entry is None else entry[0]
        return first if oldest is None else oldest if first is None else min(first, oldest)

    def items(self) -> Iterator[JobRow | Run]:
        """All that waits, but for jobs at rest, in no order. Costs O(n)."""
        for heap in (self._mono, self._wall, self._ready):
            for entry in heap.live():
                item: Any = entry[3]
                if isinstance(item, str):
                    item = self._jobs.awake(item)
                if item is not None:
                    yield item
        for call in [*self.arrivals]:  # in one step, while others may append
            if call.place is Place.POSTED:
                yield call

    def wall_rows(self) -> list[JobRow]:
        """The jobs that wait for an instant of the calendar, first come first. Costs O(n log n).

        Those at rest wait for an instant that no calendar moves.
        """
        items: list[Any] = [entry[3] for entry in sorted(self._wall.live())]
        rows = [self._jobs.awake(item) if isinstance(item, str) else item for item in items]
        return [row for row in rows if row is not None and not isinstance(row, Run)]

    def recount(self) -> None:
        """Counts anew what is stale, after a change that was cut short."""
        for heap in (self._mono, self._wall, self._ready):
            heap.recount()
        self._taken_back = sum(call.place is not Place.POSTED for call in [*self.arrivals])

    def check_valid(self) -> None:
        seen: dict[int, object] = {}  # with the items, or a number might be given out twice
        for heap, places in (
            (self._mono, (Place.TIMER, Place.BACKOFF)),
            (self._wall, (Place.TIMER,)),
            (self._ready, (Place.READY,)),
        ):
            heap.check_valid()
            for entry in heap.live():
                item: Any = entry[3]
                if isinstance(item, str):
                    item = self._jobs.look(item)
                assert id(item) not in seen, f"{item!r} is in two places"
                seen[id(item)] = item
                assert item.place is not Place.POSTED, f"{item!r} has come, and waits elsewhere"
                assert item.place in places, f"{item!r} is in the heap of another place"
