"""Offering: which ready run goes to which slot, how many at once, and when they are taken back. Runs in the loop.

A worker must never idle while runs are due, and tiny runs must not pay a round trip each; but what is in a worker's
queue must not wait behind a run that turns out long while another worker is idle. So:

- *batches* cover about a millisecond of work, by a running estimate of each job's duration; anything long or unknown
  goes alone;
- a slot that works through a batch is *topped up* before it runs dry, and behind a run of some milliseconds one more
  waits while there is a backlog;
- a run that is due in a moment is *armed*: offered early, alone, to a free worker, which sleeps until its time;
- a batch whose first run *overstays* gives its rest back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from procsched import wire
from procsched.core.model import ALONE, Place, Run, Timebase
from procsched.core.roster import SlotState

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import RLock

    from procsched.core.changes import Changes
    from procsched.core.model import Now
    from procsched.core.roster import Roster, Slot
    from procsched.core.timetable import Timetable
    from procsched.pool.api import Pool

__all__ = ["Offering"]

BUDGET = 1_000_000
"""Work in one offer, ns: a worker's latency to anything else, and long against the 50 µs of a round trip."""
MOST = 128
"""Runs in one offer."""
LINGER = 250_000
"""While every worker has enough to do for longer, reports may gather for so long (ns) before they are read. A turn of
the loop costs as much as ten tiny runs, and each takes the interpreter lock from those who submit and wait."""
PREFETCH = 20_000_000
"""Behind a run of up to so long (ns, expected) one more may wait in the worker's queue while there is a backlog: else
the worker would idle for the 150 to 300 µs of a round trip after each. `concurrent.futures` and loky do so for all."""
REPORTED = 10_000_000
"""Runs that take longer tell of their start by themselves."""
OVERSTAY = 1_000_000
"""A slot without a report for so long gives back what it hasn't claimed."""
HORIZON = 2_500_000
"""Runs due within this are armed. epoll sleeps in steps of 1 ms; an armed worker as exactly as ``time.sleep``."""
STEP = 1_000_000_000
"""A wall clock that gains so much between two turns was set, or the machine slept."""
_MANY = 8
_LEAST_COST = BUDGET // MOST
_COST_OF_A_BYTE = 4 * BUDGET // 65536
"""So that an offer's arguments fill at most a quarter of a pipe."""


class Offering:
    """The rules of handing over, over the pool's slots."""

    horizon = HORIZON

    def __init__(
        self,
        pool: Pool,
        timetable: Timetable,
        roster: Roster,
        lock: RLock,
        note: Callable[[Changes, Now], None],
        wants_value: Callable[[Run], bool],
        claimed: Callable[[Run, int], None],
        *,
        max_tasks: int | None,
    ) -> None:
        self._pool = pool
        self._timetable = timetable
        self._roster = roster
        self._lock = lock
        self._note = note
        self._wants_value = wants_value
        self._claimed = claimed
        self._max_tasks = max_tasks
        self.offers = 0
        """Runs offered so far; the latest ticket."""
        self.held_by = ""
        """Why what is ready waits, in words; empty while nothing does."""
        self._looked_at_holders: int | None = None
        self._offset: int | None = None
        self._stepped_at = 0

    # -- estimates ------------------------------------------------------------------------------------------------

    def learn(self, run: Run, duration: int) -> None:
        """A run took so long."""
        row, payload = run.row, run.payload
        if row is not None and not row.plain:
            options = row.options
            if options.timeout is not None or options.warn_after is not None:
                return  # watched runs go alone: their start must be known
        about = row if row is not None else run.estimate
        args = payload.args if payload is not None else b""
        if about is None or type(args) is not bytes:
            return
        known = about.cost
        cost = duration if known == ALONE else (known * 7 + duration) >> 3
        if args:
            cost = max(cost, len(args) * _COST_OF_A_BYTE)
        about.cost = cost if cost > _LEAST_COST else _LEAST_COST

    # -- one turn -------------------------------------------------------------------------------------------------

    def hand_over(self, now: Now, draw: float) -> None:
        """Gives ready runs to free slots, and what is due in a moment to those that are left."""
        queues = self._timetable.queues
        self._watch_steps(now)
        if queues.ready:
            free = self._roster.free_slots()
            for slot in free:
                if not self._feed(slot, now, draw) and not queues.ready:
                    break
            if queues.ready:
                self._remember_holders(now)
                self._top_up(now, draw)
                self._disarm(now)
        if not queues.ready:
            self.held_by = ""  # nobody is held any more
            self._looked_at_holders = None
            self._arm(now, draw)

    def _room(self, slot: Slot) -> int:
        if self._max_tasks is None:
            return MOST
        return self._max_tasks - slot.runs_done - len(slot.runs)

    def _feed(self, slot: Slot, now: Now, draw: float) -> bool:
        """Offers a free slot its share of what is ready."""
        room = min(self._room(slot), MOST)
        if room <= 0:
            return False
        share = -(-self._timetable.queues.ready // len(self._roster.slots))
        with self._lock:
            changes = self._timetable.take(now, min(room, max(1, share)), BUDGET, draw)
        self._note(changes, now)
        if changes.runs:
            self._offer(slot, changes.runs, now)
        return bool(changes.runs)

    def _top_up(self, now: Now, draw: float) -> None:
        """Slots that work through short runs get the next ones before they run dry."""
        for slot in self._roster:
            current = slot.current
            if current is None or slot.owes or slot.armed or slot.heavy or slot.stale or slot.state is not SlotState.UP:
                continue
            head = self._timetable.queues.head()
            if head is None:
                return
            cost = head.estimate.cost if isinstance(head, Run) and head.estimate is not None else head.cost
            if max(cost, current.cost) <= BUDGET // 2:
                most = min(MOST, BUDGET // cost)
                if len(slot.runs) * 2 > most or now.mono - slot.progress > OVERSTAY:
                    continue
            elif not self._may_prefetch(slot, current, cost, now):
                continue
            else:
                most = 1
            room = min(most, self._room(slot))
            if room <= 0:
                continue
            with self._lock:
                changes = self._timetable.take(now, room, BUDGET, draw)
            self._note(changes, now)
            if changes.runs:
                self._offer(slot, changes.runs, now)

    def _may_prefetch(self, slot: Slot, current: Run, cost: int, now: Now) -> bool:
        """Whether one run may wait behind this one: nothing better could come, and it won't be for long."""
        queues = self._timetable.queues
        return (
            len(slot.runs) == 1
            and max(cost, current.cost) <= PREFETCH
            and not queues.by_priority
            and queues.ready >= len(self._roster.slots)
            and now.mono - slot.progress < _allowance(current)
        )

    def _arm(self, now: Now, draw: float) -> None:
        for slot in self._roster:
            if not slot.free or self._room(slot) <= 0:
                continue
            with self._lock:
                changes = self._timetable.take_early(now, HORIZON, draw)
            self._note(changes, now)
            if not changes.runs:
                return
            self._offer(slot, changes.runs, now, armed=True)

    def _disarm(self, now: Now) -> None:
        """Something is due and every slot is taken: those that only wait for a later time give theirs back."""
        for slot in self._roster:
            if slot.armed and slot.runs[slot.armed].due > now.mono:
                self.take_back(slot, now)

    def _offer(self, slot: Slot, runs: list[Run], now: Now, *, armed: bool = False) -> None:
        orders: list[Any] = []
        functions: dict[int, Any] = {}
        ticket, late = self.offers, now.mono - OVERSTAY
        for run in runs:  # flat: of all code here this is what runs most often
            ticket += 1
            run.ticket = ticket
            row, payload = run.row, run.payload
            function = payload.function
            functions[function.key] = function
            timeout, job_id = 0, ""
            flags = wire.WANT_VALUE
            if row is not None:
                job_id = row.id
                if not row.plain:
                    timeout = row.options.timeout or 0
                unheard = run.future is None and not run.followers and (row.notes is None or not row.notes.followed)
                if unheard or not self._wants_value(run):
                    flags = 0
            due, planned = run.due if armed else 0, run.planned_wall
            orders.append(
                (ticket, function.key, due, flags, run.number, run.attempt, planned, timeout, job_id, payload.args)
            )
            if run.expected < late:
                run.notes = self._why_late(run, now)
        if len(runs) == 1 and runs[0].cost > REPORTED:
            orders[0] = (*orders[0][: wire.FLAGS], orders[0][wire.FLAGS] | wire.REPORT_START, *orders[0][wire.NUMBER :])
        self.offers = ticket
        self._roster.offered(slot, runs, now.mono, armed=armed)
        self._pool.offer(slot.index, orders, list(functions.values()))

    def linger(self) -> float:
        """How long reports may be left to gather, in seconds: half of what the worker with the least to do has left.

        Not at all while nothing else is ready: then it is the next slots of the runs reported that workers will lack.
        """
        if not self._timetable.queues.ready:
            return 0.0
        least = 2 * LINGER
        busy = False
        for slot in self._roster:
            held = len(slot.runs)
            if held:
                busy = True
                if held < _MANY or slot.owes or slot.armed:
                    return 0.0
                cost = next(iter(slot.runs.values())).cost
                if cost > BUDGET:
                    return 0.0
                least = min(least, held * cost)
        return least / 2e9 if busy else 0.0

    # -- taking back ----------------------------------------------------------------------------------------------

    def take_back(self, slot: Slot, now: Now) -> None:
        """Withdraws what the slot's worker hasn't claimed."""
        runs = self._roster.withdrawn(slot, self._pool.withdraw(slot.index))
        for run in reversed(runs):
            with self._lock:
                changes = self._timetable.put_back(run, now)
            self._note(changes, now)

    def watch_overstays(self, now: Now) -> int | None:
        """Takes back what waits behind runs that overstay; when to look again (monotonic ns), None: no need."""
        again: int | None = None
        idle = any(slot.free for slot in self._roster)
        for slot in self._roster:
            current = slot.current
            if current is None or slot.state is not SlotState.UP:
                continue
            single = len(slot.runs) == 1
            if single and (current.place is not Place.OFFERED or slot.tried == current.ticket):
                continue
            since = max(slot.progress, current.due) if slot.armed else slot.progress
            allowed = since + (OVERSTAY if single else _allowance(current))
            if now.mono < allowed and not (idle and not single and current.cost > BUDGET // 2):
                again = allowed if again is None else min(again, allowed)
                continue
            if single and not idle:
                continue
            self.take_back(slot, now)
            if idle and self._timetable.queues.ready:
                again = now.mono  # who is free has been served in this turn: nothing else would wake the loop for it
            if (current := slot.current) is not None:  # it has been claimed, so it executes
                slot.tried = current.ticket
                if current.place is Place.OFFERED:
                    self._claimed(current, since)
        return again

    def _why_late(self, run: Run, now: Now) -> str | None:
        """What kept a run: the holders of the workers, or else whatever is known."""
        row = run.row
        if (
            row is not None
            and row.schedule.timebase is Timebase.WALL
            and run.noticed >= self._stepped_at > 0
            and run.expected < self._stepped_at <= now.mono
        ):
            return "the wall clock was set forward, or the machine was suspended"
        if now.mono - run.noticed <= OVERSTAY:
            return None  # it didn't wait for a worker
        if not self.held_by and run.was_held:
            return None  # it waited for its own job
        return self.held_by or "no worker was up"

    def _watch_steps(self, now: Now) -> None:
        """Notices that the wall clock moved on without the monotonic one: calendar runs due now are late by that."""
        offset = now.wall - now.mono
        if self._offset is not None and offset - self._offset > STEP:
            self._stepped_at = now.mono
        self._offset = offset

    def _remember_holders(self, now: Now) -> None:
        """Why ready runs wait: who has the workers now, in words. Looked at as often as it could make a run late."""
        if self._looked_at_holders is not None and now.mono - self._looked_at_holders < OVERSTAY:
            return
        self._looked_at_holders = now.mono
        holders: dict[str, int] = {}
        for slot in self._roster:
            run = slot.current
            if run is not None:
                name = run.row.id if run.row is not None else run.payload.function.name
                holders[name] = holders.get(name, 0) + 1
        if holders:
            names = sorted(holders, key=lambda name: -holders[name])[:3]
            most = ", ".join(f"{holders[name]} with {name}" for name in names) + (", …" if len(holders) > 3 else "")
            self.held_by = f"{sum(holders.values())} of {len(self._roster.slots)} workers busy, {most}"


def _allowance(current: Run) -> int:
    """How long (ns) others may wait behind this run: what is expected to take milliseconds, may take twice that."""
    return OVERSTAY if current.cost <= BUDGET // 2 or current.cost > PREFETCH else max(OVERSTAY, 2 * current.cost)
