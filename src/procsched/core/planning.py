"""Planning: from a schedule to the next slot, and from a due slot to a run; how a job pauses and ends. Pure.

What becomes of missed slots is decided when a run could be handed over (`_take_slot`), since only then is it known how
many are unserved. `Missed.SKIP` is also asked at the end of a run: what came due during it is passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from procsched.core.changes import Changes
from procsched.core.hands import Hands
from procsched.core.model import (
    NOWHERE,
    JobState,
    Missed,
    Place,
    ReadyOrder,
    Run,
    Timebase,
)
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

__all__ = ["Planning"]

SKIP_GRACE = 60_000_000_000
"""`Missed.SKIP` starts a late slot within this, or within half the gap to the next one, whichever is smaller."""

_GOLDEN = 0.6180339887498949

_WAITING = (Place.TIMER, Place.READY, Place.HELD)


class Planning(Hands):
    """The table with its plans. The owner's lock is held in every method."""

    def __init__(self, order: ReadyOrder = ReadyOrder.DUE) -> None:
        super().__init__(order)
        self.admitted = 0
        """Submitted calls that haven't ended, without those that have only come."""
        self.missed = 0
        self._generation = 0
        self._spread = 0.0
        self._turn = self._turn_before = 0
        """Monotonic instants of the last two looks at what is due: what came before the one but last had been seen."""
        self._closed = False

    # -- slots ----------------------------------------------------------------------------------------------------

    def _push_slot(self, row: JobRow, slot: int, draw: float) -> None:
        row.planned = slot
        row.over = False
        row.epoch = self.jobs.epoch
        row.was_held = False
        self.queues.push_timer(row, row.schedule.timebase, slot + self._jittered(row.schedule, draw))

    def _jittered(self, schedule: Schedule, draw: float) -> int:
        if not schedule.jitter:
            return 0
        # One draw serves all jobs of a turn: the golden ratio spreads it, so that they don't move together.
        self._spread += _GOLDEN
        return int(schedule.jitter * ((draw + self._spread) % 1.0))

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
        self.queues.pop_ready(item)
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

    @property
    def calls(self) -> int:
        """Submitted calls that haven't ended."""
        return self.admitted + self.queues.calls

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
            if slot is not None and schedule.timebase is Timebase.WALL and row.epoch != self.jobs.epoch:
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
            if row.over or self._is_spent(row):
                slot = None
            elif row.schedule.timebase is Timebase.WALL and row.epoch != self.jobs.epoch:
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
            row.over = True
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

    def _skip(self, row: JobRow, run: Run, now: Now, changes: Changes, draw: float) -> None:
        """It comes too late, and never starts."""
        assert run.planned is not None
        run.place = Place.DONE
        self._leave(row, run, now.mono)
        row.made -= 1
        changes.skipped.append(run)
        if row.place is NOWHERE:
            self._plan_following(row, row.planned, base_time(row.schedule, now), now, changes, draw)

    # -- the life of a job ----------------------------------------------------------------------------------------

    def _next_generation(self) -> int:
        self._generation += 1
        return self._generation

    def _is_current(self, run: Run) -> bool:
        row = run.row
        return row is not None and run.generation == row.generation and self.jobs.is_living(row)

    def _pause(self, row: JobRow, now: Now, changes: Changes, reason: Exception | None = None) -> None:
        self.queues.disowned(row)
        row.state = JobState.PAUSED
        self.paused.add(row)
        for run in list(row.live):
            if run.planned is None or run.started or run.generation != row.generation:
                continue
            if run.place in _WAITING:
                changes.unmade += self.drop(run, now).unmade
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
            and self.jobs.is_living(row)
        ):
            row.state = JobState.FINISHED
            del self.jobs[row.id]
            self._bury(row)
            changes.finished.append(row)

    def drop(self, run: Run, now: Now) -> Changes:
        """A run that waits, or was taken back from a worker, goes no further.

        It is CANCELLED, or ends as its last attempt did; a slot of a paused job is as if it had never been taken.
        """
        changes = Changes(prevented=True)
        posted = run.place is Place.POSTED
        self.queues.forget(run)
        run.place = Place.DONE
        row = run.row
        if row is None:
            self.admitted -= not posted
            changes.cancelled.append(run)
            return changes
        current = self._is_current(run)
        if run.started:
            row.executing -= 1
            changes.ended.append(run)
        elif current and run.planned is not None:  # its job was paused, and perhaps resumed since
            row.made -= 1
            row.over = row.over and row.state is JobState.SCHEDULED
            row.number -= run.number == row.number
            changes.unmade.append(run)
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
