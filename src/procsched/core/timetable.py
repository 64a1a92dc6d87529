"""Timetable: when does which job run? The generation table, and the rules between its rows. Pure.

Theory of operation
===================

1. ``jobs`` maps an id to the row of its living job. A row that isn't in it is history: its runs finish, and change
   nothing.
2. A job's next slot, and a run that waits, have one entry in one heap (`Queues`).
3. ``promote`` moves what has become due to the ready heap. ``take`` turns the first ready entries into runs for a
   worker, and decides there, when a run could be handed over, what becomes of missed slots. ``put_back`` undoes a
   take. ``settle`` ends an attempt, and plans the next slot.
4. An id never has more than ``max_instances`` runs in hand, over all its generations (`Hands`).
5. Each change that a caller's thread makes has one commit point (an entry is pushed before its item points to it, a
   row is complete before the table has it), so that an interrupt between any two steps leaves it valid.

It is told the time and calls nobody, with one exception: a job's schedule, which may be a user's, is asked through
`slots`, and what it raises pauses its job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from procsched.core.hands import Hands
from procsched.core.model import (
    NOWHERE,
    JobState,
    Missed,
    Outcome,
    Place,
    ReadyOrder,
    Run,
    Timebase,
)
from procsched.core.schedules import FixedDelay
from procsched.core.slots import (
    ScheduleFailed,
    base_time,
    first_slot,
    following_slot,
    latest_slot,
    slot_after_pause,
    to_mono,
    to_wall,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from procsched.core.model import JobRow, Now
    from procsched.core.schedules import Schedule

__all__ = ["Changes", "Timetable"]

SKIP_GRACE = 60_000_000_000
"""`Missed.SKIP` starts a late slot within this, or within half the gap to the next one, whichever is smaller."""

_GOLDEN = 0.6180339887498949

_MOST_SKIPPED = 100
"""Per take: a long row of slots that come too late mustn't hold the lock."""

_WAITING = (Place.TIMER, Place.READY, Place.HELD)
_FAILURES = (Outcome.FAILED, Outcome.CRASHED, Outcome.TIMED_OUT)


@dataclass(slots=True)
class Changes:
    """What one operation did beside what was asked for."""

    runs: list[Run] = field(default_factory=list)
    """From `Timetable.take`: for a worker."""
    skipped: list[Run] = field(default_factory=list)
    """Ended SKIPPED: too late."""
    cancelled: list[Run] = field(default_factory=list)
    """Ended CANCELLED: they never start."""
    offered: list[Run] = field(default_factory=list)
    """In some worker's hands: whoever owns the channels should take them back, and `drop` those that it could."""
    ended: list[Run] = field(default_factory=list)
    """Were in back-off and aren't tried again: they end as their last attempt did."""
    paused: list[tuple[JobRow, Exception | None]] = field(default_factory=list)
    """By failures (None), or by what the schedule raised."""
    finished: list[JobRow] = field(default_factory=list)
    over: list[JobRow] = field(default_factory=list)
    """Jobs that a shutdown has ended."""
    retry_at: int | None = None
    """The settled run goes on, at this monotonic instant."""
    prevented: bool = False
    """Whether something was kept from starting."""


class Timetable(Hands):
    """What happens to jobs and runs. Its methods are called under one lock that its owner holds."""

    def __init__(self, order: ReadyOrder = ReadyOrder.DUE) -> None:
        super().__init__(order)
        self.calls = 0
        """Submitted calls that haven't ended."""
        self.missed = 0
        self._generation = 0
        self._epoch = 0
        """Of the calendar: goes up when the wall clock is set back far."""
        self._spread = 0.0
        self._closed = False

    # -- jobs: callers' threads -----------------------------------------------------------------------------------

    def add(self, row: JobRow, now: Now, draw: float = 0.0) -> Changes:
        """Registers a new row; a living job of its id is replaced.

        Raises:
            ScheduleFailed: What the schedule raised; nothing is registered then.
        """
        changes = Changes()
        first = first_slot(row.schedule, now)
        row.generation = self._next_generation()
        old = self.jobs.get(row.id)
        if old is not None:
            self._clear(old, now, changes)
        if first is None:
            row.state = JobState.FINISHED
            changes.finished.append(row)
            self.jobs.pop(row.id, None)
        else:
            self._push_slot(row, first, draw)
            self.jobs[row.id] = row
        if old is not None:
            self._bury(old)
        return changes

    def reschedule(self, row: JobRow, schedule: Schedule, now: Now, draw: float = 0.0) -> Changes:
        """A new generation in place: what waits of the old one dies, what executes finishes."""
        first = first_slot(schedule, now)
        changes = Changes()
        extras = [run for run in row.live if run.planned is None and not run.started]
        self._clear(row, now, changes, keep=extras)
        row.generation = self._next_generation()
        for extra in extras:  # beside the schedule: they stay
            extra.generation = row.generation
        row.schedule = schedule
        row.made = row.failures = 0
        row.planning = False
        row.resumed = row.busy_since = None
        if first is None:  # nothing is left that could be paused
            row.state = JobState.SCHEDULED
            self.paused.discard(row)
        elif row.state is JobState.PAUSED:
            row.planned = first
            row.epoch = self._epoch
        else:
            self._push_slot(row, first, draw)
        self._free_hand(row.id)
        self._finish_if_over(row, changes)
        return changes

    def cancel(self, row: JobRow, now: Now) -> Changes:
        """Ends the job now: what executes finishes and is recorded, what waits never starts."""
        changes = Changes()
        if self.jobs.get(row.id) is not row:
            return changes
        changes.prevented = (
            row.state is JobState.PAUSED or row.place is not NOWHERE or (row.planning and self._goes_on(row, now))
        )
        self._end_job(row, now, changes)
        changes.prevented = changes.prevented or bool(changes.cancelled or changes.ended)
        return changes

    def pause(self, row: JobRow, now: Now) -> Changes:
        """No slot starts until `resume`; slots that wait are dropped, without a record. Extra runs stay."""
        changes = Changes()
        if self.jobs.get(row.id) is row and row.state is JobState.SCHEDULED:
            self._pause(row, now, changes)
        return changes

    def resume(self, row: JobRow, now: Now, draw: float = 0.0) -> Changes:
        """Goes on with the next future slot (`FixedDelay`: now plus its delay)."""
        changes = Changes()
        if self.jobs.get(row.id) is not row or row.state is not JobState.PAUSED:
            return changes
        row.failures = 0
        row.resumed = base_time(row.schedule, now)
        self.paused.discard(row)
        row.state = JobState.SCHEDULED
        if not row.planning:  # otherwise a run of the schedule is under way, and its end plans the next slot
            self._go_on(row, now, changes, draw)
        return changes

    def run_now(self, row: JobRow, now: Now) -> Run:
        """An extra run beside the schedule; while one is queued, that one."""
        if row.extra is not None:
            return row.extra
        run = Run(row, row.payload, row.priority, now.mono, now.wall)
        run.cost = row.cost
        row.number += 1
        run.number = row.number
        self._join(row, run)
        self.queues.push_ready(run)
        row.extra = run
        return run

    # -- submitted calls ------------------------------------------------------------------------------------------

    def submit(self, run: Run, now: Now, *, when: int | None = None, timebase: Timebase = Timebase.MONOTONIC) -> None:
        """Takes in a call: for now, or for an instant of a timebase."""
        self.calls += 1
        run.noticed = now.mono
        if when is None:
            self.queues.push_ready(run)
        else:
            run.planned = when
            self.queues.push_timer(run, timebase, when)

    # -- runs: the loop -------------------------------------------------------------------------------------------

    def promote(self, now: Now) -> None:
        """Moves what has become due to the ready heap, and notices steps of the wall clock."""
        if self.queues.wall_was_set_back(now):
            self._epoch += 1
            for row in self.queues.wall_rows():
                self._plan_anew(row, now)
        self.queues.promote(now)

    def take(self, now: Now, limit: int, budget: int, draw: float = 0.0) -> Changes:
        """The first ready runs, for one worker: at most ``limit``, costing at most ``budget`` together, or just one."""
        changes = Changes()
        runs, queues, spent = changes.runs, self.queues, 0
        while len(runs) < limit and len(changes.skipped) < _MOST_SKIPPED:
            item = queues.head()
            if item is None:
                break
            if self._hold(item):
                continue
            if runs and spent + item.cost > budget:
                break
            queues.pop_ready()
            run: Run | None
            if isinstance(item, Run):
                run = item
                if run.row is not None:
                    run = self._take_again(run.row, run, now, changes, draw)
            else:
                run = self._take_slot(item, now, changes, draw)
            if run is not None:
                run.place = Place.OFFERED
                spent += run.cost
                runs.append(run)
        return changes

    def take_early(self, now: Now, horizon: int, draw: float = 0.0) -> Changes:
        """The next run that will be due within ``horizon`` ns, for handing it over before its time.

        Only to be asked while nothing is ready, so that it overtakes nobody.
        """
        changes = Changes()
        soonest = self.queues.soonest(now)
        if soonest is None or soonest[0] > now.mono + horizon:
            return changes
        due, item = soonest
        row = item.row if isinstance(item, Run) else item
        if row is not None and not (isinstance(item, Run) and item.counted) and self._is_full(row):
            return changes
        self.queues.pop_timer(item)
        item.due = item.noticed = due
        if isinstance(item, Run):
            run = item
            if run.row is not None:
                self._count(run.row, run, now.mono)
        else:
            item.place = NOWHERE
            run = self._new_run(item, item.planned, due, now)
            self._count(item, run, now.mono)
            self._plan_at_hand_over(item, run, now, changes, draw)
        run.expected = due
        run.place = Place.OFFERED
        changes.runs.append(run)
        return changes

    def put_back(self, run: Run, now: Now) -> Changes:
        """Returns an unclaimed run to the queue it came from, under its old key; or ends it if nobody wants it now."""
        row = run.row
        if row is not None:
            paused = row.state is JobState.PAUSED and run.planned is not None and not run.started
            if paused or not self._is_current(run):
                return self.drop(run, now)
            if not run.started:
                self._uncount(row, run, now.mono)
                if run.planned is None and row.extra is None:
                    row.extra = run
        if run.due > now.mono:
            self.queues.push_timer(run, Timebase.MONOTONIC, run.due, Place.BACKOFF if run.started else Place.TIMER)
        else:
            self.queues.push_ready(run)
        if row is not None:
            self._free_hand(row.id)
        return Changes()

    def started(self, run: Run) -> None:
        """A worker has claimed it."""
        run.place = Place.EXECUTING
        if not run.started:
            run.started = True
            if run.row is not None:
                run.row.executing += 1

    def settle(self, run: Run, outcome: Outcome, finished: int, now: Now, draw: float = 0.0) -> Changes:
        """An attempt ended at monotonic ``finished``: plans the next one, or ends the run and plans the next slot."""
        changes = Changes()
        row = run.row
        if row is None:
            run.place = Place.DONE
            self.calls -= 1
        elif self._tries_again(row, run, outcome):
            retry = row.options.retry
            assert retry is not None
            changes.retry_at = max(finished, now.mono) + retry.pause_after(run.attempt, draw)
            run.attempt += 1
            run.due = run.expected = changes.retry_at
            run.start = 0
            self.queues.push_timer(run, Timebase.MONOTONIC, changes.retry_at, Place.BACKOFF)
        else:
            self._end_run(row, run, outcome, finished, now, changes, draw)
        return changes

    def drop(self, run: Run, now: Now) -> Changes:
        """A run that waits, or was taken back from a worker, goes no further.

        It is CANCELLED, or ends as its last attempt did; a slot of a paused job is as if it had never been taken.
        """
        changes = Changes(prevented=True)
        self.queues.forget(run)
        run.place = Place.DONE
        row = run.row
        if row is None:
            self.calls -= 1
            changes.cancelled.append(run)
            return changes
        current = self._is_current(run)
        if run.started:
            row.executing -= 1
            changes.ended.append(run)
        elif current and run.planned is not None:  # its job was paused, and perhaps resumed since
            row.made -= 1
            row.number -= run.number == row.number
        else:
            changes.cancelled.append(run)
        self._leave(row, run, now.mono)
        self._free_hand(row.id)
        if current and row.planning and run.planned is not None:
            row.planning = False
            if row.state is JobState.SCHEDULED:
                self._go_on(row, now, changes, 0.0)
        self._finish_if_over(row, changes)
        return changes

    def close(self, now: Now, *, cancel_calls: bool) -> Changes:
        """Shutdown: no job or delayed call makes a further run. Calls for now stay, unless ``cancel_calls``."""
        changes = Changes()
        self._closed = True
        self.promote(now)  # a delayed call that is due is one for now
        for item in list(self.queues.items()):
            if isinstance(item, Run) and item.row is None and (cancel_calls or item.place is Place.TIMER):
                changes.cancelled += self.drop(item, now).cancelled
        changes.over = list(self.jobs.values())
        for row in changes.over:
            self._end_job(row, now, changes)
        return changes

    # -- questions ------------------------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Nothing is left to run, paused jobs aside."""
        return not self.calls and not self.live and len(self.jobs) == len(self.paused)

    def next_run(self, row: JobRow, now: Now) -> int | None:
        """The job's next slot in wall ns; None when there is none, or none that can be known yet."""
        if self.jobs.get(row.id) is not row or row.state is not JobState.SCHEDULED:
            return None
        schedule, slot = row.schedule, row.planned
        if row.place is NOWHERE:
            # A run is under way. What follows is known already where it doesn't depend on the end of that run.
            if not row.planning or isinstance(schedule, FixedDelay) or self._is_spent(row):
                return None
            try:
                following = following_slot(schedule, slot, slot, now)
            except ScheduleFailed:
                return None
            if following is None:
                return None
            slot = following
        return to_wall(schedule, slot, now)

    # -- slots ----------------------------------------------------------------------------------------------------

    def _push_slot(self, row: JobRow, slot: int, draw: float) -> None:
        row.planned = slot
        row.epoch = self._epoch
        row.was_held = False
        due = slot
        if row.schedule.jitter:
            # One draw serves all jobs of a turn: the golden ratio spreads it, so that they don't move together.
            self._spread += _GOLDEN
            due += int(row.schedule.jitter * ((draw + self._spread) % 1.0))
        self.queues.push_timer(row, row.schedule.timebase, due)

    def _plan_anew(self, row: JobRow, now: Now) -> None:
        try:
            slot = first_slot(row.schedule, now)
        except ScheduleFailed:
            return  # its old slot stays; the failure shows when the schedule is asked next
        if slot is not None:
            self.queues.forget(row)
            self._push_slot(row, slot, 0.0)

    def _hold(self, item: JobRow | Run) -> bool:
        """The first of the ready lacks a hand of its job's: it steps aside until there is one."""
        row = item.row if isinstance(item, Run) else item
        if row is None or not self._is_full(row) or (isinstance(item, Run) and item.counted):
            return False
        self.queues.pop_ready()
        item.place = Place.HELD
        item.was_held = True
        if isinstance(item, Run):
            row.held = [*row.held, item]
        return True

    def _take_slot(self, row: JobRow, now: Now, changes: Changes, draw: float) -> Run | None:
        """Makes the run of a due slot, as the missed-run policy and the grace time say; None if there is none."""
        base = base_time(row.schedule, now)
        row.place = NOWHERE
        try:
            planned, dropped = row.planned, 0
            if row.schedule.missed is not Missed.CATCH_UP:
                planned, dropped = latest_slot(row.schedule, planned, base, now)
            expected = row.due if planned == row.planned else to_mono(row.schedule, planned, now)
            late = now.mono - expected
            if row.schedule.missed is Missed.SKIP and self._is_passed_over(row, planned, expected, late):
                self._miss(row, dropped + 1)
                self._plan_following(row, planned, base, now, changes, draw)
                return None
        except ScheduleFailed as failure:
            self._pause(row, now, changes, failure.reason)
            return None
        self._miss(row, dropped)
        run = self._new_run(row, planned, expected, now)
        grace = row.options.misfire_grace
        if grace is not None and late > grace:
            self._skip(row, run, now, changes, draw)
            return None
        self._count(row, run, now.mono)
        self._plan_at_hand_over(row, run, now, changes, draw)
        return run

    def _take_again(self, row: JobRow, run: Run, now: Now, changes: Changes, draw: float) -> Run | None:
        """A run that has been a run before: an extra one, one that came back from a worker, or a further attempt."""
        if run.planned is not None and not run.started:
            if row.planning and row.schedule.missed is not Missed.CATCH_UP:
                self._aim_again(row, run, run.planned, now)
            late = now.mono - run.expected
            grace = row.options.misfire_grace
            skipping = row.schedule.missed is Missed.SKIP
            passed_over = skipping and self._is_passed_over(row, run.planned, run.expected, late)
            if passed_over or (grace is not None and late > grace):
                self._skip(row, run, now, changes, draw)
                return None
        self._count(row, run, now.mono)
        return run

    def _aim_again(self, row: JobRow, run: Run, planned: int, now: Now) -> None:
        """Several slots may be due by now: a run that never started is for the latest of them."""
        try:
            latest, dropped = latest_slot(row.schedule, planned, base_time(row.schedule, now), now)
        except ScheduleFailed:
            return  # it is for the slot that it was made for; the failure shows when the next one is planned
        if latest != planned:
            run.planned = row.planned = latest
            run.planned_wall = to_wall(row.schedule, latest, now)
            run.expected = to_mono(row.schedule, latest, now)
            self._miss(row, dropped)

    def _is_passed_over(self, row: JobRow, slot: int, due: int, late: int) -> bool:
        """`Missed.SKIP`: whether this slot came due during an execution, or comes too late."""
        if row.busy_since is not None and row.busy_since <= due <= row.busy_until:
            return True
        grace = row.options.misfire_grace
        if grace is None:
            gap = row.schedule.gap(slot)
            grace = SKIP_GRACE if gap is None else min(SKIP_GRACE, gap // 2)
        return late > grace

    def _miss(self, row: JobRow, slots: int) -> None:
        row.missed += slots
        self.missed += slots

    def _new_run(self, row: JobRow, planned: int, expected: int, now: Now) -> Run:
        run = Run(row, row.payload, row.priority, row.due, to_wall(row.schedule, planned, now))
        row.number += 1
        row.made += 1
        run.number = row.number
        run.planned = row.planned = planned
        run.expected = expected
        run.noticed = row.noticed
        run.was_held, row.was_held = row.was_held, False
        run.arrival = row.arrival
        run.cost = row.cost
        row.planning = row.options.max_instances == 1
        self._join(row, run)
        return run

    def _plan_at_hand_over(self, row: JobRow, run: Run, now: Now, changes: Changes, draw: float) -> None:
        """Where runs of a job may overlap, the next slot doesn't wait for the end of this one."""
        if row.options.max_instances > 1 and run.planned is not None:
            self._plan_following(row, run.planned, base_time(row.schedule, now), now, changes, draw)

    def _plan_following(
        self, row: JobRow, planned: int, finished: int, now: Now, changes: Changes, draw: float
    ) -> None:
        """Plans the slot after ``planned``, for a run that ended at ``finished`` of the schedule's timebase."""
        row.planning = False
        row.planned = planned
        if row.state is not JobState.SCHEDULED:
            return
        schedule = row.schedule
        try:
            slot = None if self._is_spent(row) else following_slot(schedule, planned, finished, now)
            if slot is not None and schedule.timebase is Timebase.WALL and row.epoch != self._epoch:
                slot = first_slot(schedule, now)
            if slot is not None and row.resumed is not None and slot <= row.resumed:
                slot = slot_after_pause(schedule, slot, row.resumed, now)
            executed = row.options.max_instances == 1
            if slot is not None and executed and schedule.missed is Missed.SKIP and slot <= finished:
                latest, dropped = latest_slot(schedule, slot, finished, now)
                slot = following_slot(schedule, latest, finished, now)
                self._miss(row, dropped + 1)
        except ScheduleFailed as failure:
            self._pause(row, now, changes, failure.reason)
            return
        row.resumed = None
        self._plan(row, slot, changes, draw)

    def _go_on(self, row: JobRow, now: Now, changes: Changes, draw: float) -> None:
        """After a pause: the next future slot."""
        at = row.resumed if row.resumed is not None else base_time(row.schedule, now)
        try:
            if self._is_spent(row):
                slot = None
            elif row.schedule.timebase is Timebase.WALL and row.epoch != self._epoch:
                slot = first_slot(row.schedule, now)
            else:
                slot = slot_after_pause(row.schedule, row.planned, at, now)
        except ScheduleFailed as failure:
            self._pause(row, now, changes, failure.reason)
            return
        self._plan(row, slot, changes, draw)

    def _plan(self, row: JobRow, slot: int | None, changes: Changes, draw: float) -> None:
        if slot is not None and not self._is_spent(row):
            self._push_slot(row, slot, draw)
        else:
            self._finish_if_over(row, changes)

    def _is_spent(self, row: JobRow) -> bool:
        return row.schedule.limit is not None and row.made >= row.schedule.limit

    def _goes_on(self, row: JobRow, now: Now) -> bool:
        """Whether the schedule would have made another run after the one under way."""
        try:
            base = base_time(row.schedule, now)
            return not self._is_spent(row) and following_slot(row.schedule, row.planned, base, now) is not None
        except ScheduleFailed:
            return False

    # -- the life of a job ----------------------------------------------------------------------------------------

    def _next_generation(self) -> int:
        self._generation += 1
        return self._generation

    def _is_current(self, run: Run) -> bool:
        row = run.row
        return row is not None and run.generation == row.generation and self.jobs.get(row.id) is row

    def _pause(self, row: JobRow, now: Now, changes: Changes, reason: Exception | None = None) -> None:
        self.queues.disowned(row)
        row.state = JobState.PAUSED
        self.paused.add(row)
        for run in list(row.live):
            if run.planned is None or run.started or run.generation != row.generation:
                continue
            if run.place in _WAITING:
                self.drop(run, now)
            elif run.place is Place.OFFERED:
                changes.offered.append(run)
        changes.paused.append((row, reason))

    def _end_job(self, row: JobRow, now: Now, changes: Changes) -> None:
        if row.place in (Place.READY, Place.HELD):
            # A due slot is a run that somebody may be waiting for: it leaves a record.
            run = self._new_run(row, row.planned, row.due, now)
            run.place = Place.DONE
            self._leave(row, run, now.mono)
            changes.cancelled.append(run)
        self._clear(row, now, changes)
        del self.jobs[row.id]
        self._bury(row)

    def _clear(self, row: JobRow, now: Now, changes: Changes, keep: Sequence[Run] = ()) -> None:
        """Everything of the job that waits is stale from now on."""
        self.queues.disowned(row)
        for run in list(row.live):
            if run in keep:
                continue
            if run.place is Place.OFFERED:
                changes.offered.append(run)
            elif run.place in _WAITING:
                self.queues.forget(run)
                if run.started:
                    row.executing -= 1
                    changes.ended.append(run)
                else:
                    changes.cancelled.append(run)
                run.place = Place.DONE
                self._leave(row, run, now.mono)
            elif run.place is Place.BACKOFF:
                self.queues.forget(run)
                run.place = Place.DONE
                row.executing -= 1
                self._leave(row, run, now.mono)
                changes.ended.append(run)

    def _bury(self, row: JobRow) -> None:
        """The row has left the table: what of it is still in hand is a ghost of its id."""
        if row.hands:
            self.ghosts[row.id] = self.ghosts.get(row.id, 0) + row.hands
        self.paused.discard(row)
        if row.state is not JobState.FINISHED:
            row.state = JobState.CANCELLED
        row.payload = None

    def _finish_if_over(self, row: JobRow, changes: Changes) -> None:
        if (
            row.state is JobState.SCHEDULED
            and row.place is NOWHERE
            and not row.live
            and not row.planning
            and self.jobs.get(row.id) is row
        ):
            row.state = JobState.FINISHED
            del self.jobs[row.id]
            self._bury(row)
            changes.finished.append(row)

    # -- the life of a run ----------------------------------------------------------------------------------------

    def _tries_again(self, row: JobRow, run: Run, outcome: Outcome) -> bool:
        retry = row.options.retry
        if retry is None or run.attempt >= retry.attempts or self._closed or not self._is_current(run):
            return False
        return outcome in (Outcome.FAILED, Outcome.TIMED_OUT) or (outcome is Outcome.CRASHED and retry.on_crash)

    def _end_run(
        self, row: JobRow, run: Run, outcome: Outcome, finished: int, now: Now, changes: Changes, draw: float
    ) -> None:
        run.place = Place.DONE
        row.executing -= run.started
        current = self._is_current(run)
        self._leave(row, run, finished)
        if current:
            row.failures = row.failures + 1 if outcome in _FAILURES else 0
            limit = row.options.pause_after_failures
            pausing = limit is not None and row.failures >= limit and row.state is JobState.SCHEDULED
            if pausing:
                self._pause(row, now, changes)
            if run.planned is not None and row.planning:
                wall = row.schedule.timebase is Timebase.WALL
                base = now.wall - (now.mono - finished) if wall else finished
                self._plan_following(row, run.planned, base, now, changes, draw)
        self._free_hand(row.id)
        self._finish_if_over(row, changes)

    def _skip(self, row: JobRow, run: Run, now: Now, changes: Changes, draw: float) -> None:
        """It comes too late, and never starts."""
        assert run.planned is not None
        run.place = Place.DONE
        self._leave(row, run, now.mono)
        row.made -= 1
        changes.skipped.append(run)
        if row.place is NOWHERE:
            self._plan_following(row, row.planned, base_time(row.schedule, now), now, changes, draw)
