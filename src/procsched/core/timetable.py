"""Timetable: when does which job run? The generation table, and the rules between its rows. Pure.

Theory of operation
===================

1. ``jobs`` maps an id to the row of its living job. A row that isn't in it is history: its runs finish, and change
   nothing.
2. A job's next slot, and a run that waits, have one entry in one heap (`Queues`).
3. ``promote`` moves what has become due to the ready queue. ``take`` turns the first ready entries into runs for a
   worker, and decides there, when a run could be handed over, what becomes of missed slots. ``put_back`` undoes a
   take. ``settle`` ends an attempt, and plans the next slot.
4. An id never has more than ``max_instances`` runs in hand, over all its generations (`Hands`).
5. Each change that a caller's thread makes has one commit point (an entry is pushed before its item points to it, a
   row is complete before the table has it), so that an interrupt between any two steps leaves it valid.

It is told the time and calls nobody, with one exception: a job's schedule, which may be a user's, is asked through
`slots`, and what it raises pauses its job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from procsched.core.changes import Changes
from procsched.core.model import (
    NOWHERE,
    JobState,
    Outcome,
    Place,
    Run,
    Timebase,
)
from procsched.core.schedules import FixedDelay
from procsched.core.shortcut import Shortcut
from procsched.core.slots import (
    ScheduleFailed,
    base_time,
    first_slot,
    following_slot,
    to_wall,
)

if TYPE_CHECKING:
    from procsched.core.model import JobRow, Now
    from procsched.core.schedules import Schedule

__all__ = ["Timetable"]

REST_FROM = 1_000_000_000
"""A job whose first slot is so far away (ns) rests until then."""
_MOST_SKIPPED = 100
"""Per take: a long row of slots that come too late mustn't hold the lock."""

_WAITING = (Place.TIMER, Place.READY, Place.HELD)
_FAILURES = (Outcome.FAILED, Outcome.CRASHED, Outcome.TIMED_OUT)


class Timetable(Shortcut):
    """What happens to jobs and runs. Its methods are called under one lock that its owner holds."""

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
            self.jobs.pop(row.id)
        else:
            self._push_slot(row, first, draw)
            self.jobs[row.id] = row
        if old is not None:
            self._bury(old)
        return changes

    def lay_down(self, row: JobRow, now: Now, draw: float = 0.0) -> int | None:
        """Registers a new row under a free id, to rest until its first slot; its monotonic due time.

        None: it isn't of the kind that can, or is due too soon to pay for it; nothing is registered then.
        """
        schedule = row.schedule
        if not self.jobs.can_rest(row):
            return None
        base = now.wall if schedule.timebase is Timebase.WALL else now.mono
        first = schedule.first(base)  # of a schedule of ours: it answers, and raises nothing
        if first is None or (until := first - base) < REST_FROM:
            return None
        row.planned = first
        row.generation = self._next_generation()
        row.epoch = self.jobs.epoch
        row.in_wall = schedule.timebase is Timebase.WALL
        row.place = Place.TIMER
        row.entry = seq = next(self.queues.sequence)
        entry = self.jobs.packed(row, seq, first + self._jittered(schedule, draw))
        self.queues.push_resting(entry, schedule.timebase)
        self.jobs.rest(row, entry)
        return now.mono + until

    def cancel_resting(self, row: JobRow) -> bool:
        """Ends the job if it rests: there is nothing more to do then. False: it doesn't."""
        entry = self.jobs.end_rest(row.id, row.generation)
        if entry is None:
            return False
        self.queues.forget_resting(self.jobs.timebase_of(entry))
        return True

    def cancel_resting_id(self, id: str) -> int | None:
        """The same for whatever job has this id; the generation that it was."""
        entry = self.jobs.end_rest(id)
        if entry is None:
            return None
        self.queues.forget_resting(self.jobs.timebase_of(entry))
        return self.jobs.generation_of(entry)

    def reschedule(self, row: JobRow, schedule: Schedule, now: Now, draw: float = 0.0) -> Changes:
        """A new generation in place: what waits of the old one dies, what executes finishes."""
        self.jobs.get(row.id)  # it rests no longer
        first = first_slot(schedule, now)
        changes = Changes()
        extras = [run for run in row.live if run.planned is None and not run.started]
        self._clear(row, now, changes, keep=extras)
        row.generation = self._next_generation()
        for extra in extras:  # beside the schedule: they stay
            extra.generation = row.generation
        row.planned = 0  # until it is known: an interrupted change is mended by asking the schedule anew
        row.over = False
        row.schedule = schedule
        row.pace = -1
        row.made = row.failures = 0
        row.planning = False
        row.resumed = row.busy_since = None
        if first is None:  # nothing is left that could be paused
            row.over = True
            row.state = JobState.SCHEDULED
            self.paused.discard(row)
        elif row.state is JobState.PAUSED:
            row.planned = first
            row.epoch = self.jobs.epoch
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
        self.jobs.get(row.id)  # it rests no longer
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
        if when is None:
            self.queues.arrive(run)
        else:
            self.admitted += 1
            run.noticed = now.mono
            run.planned = when
            self.queues.push_timer(run, timebase, when)

    # -- runs: the loop -------------------------------------------------------------------------------------------

    def promote(self, now: Now) -> None:
        """Moves what has become due to the ready queue, and notices steps of the wall clock."""
        if self.queues.wall_was_set_back(now):
            self.jobs.epoch += 1
            for row in self.queues.wall_rows():
                self._plan_anew(row, now)
        self.queues.promote(now)
        self._turn_before, self._turn = self._turn, now.mono

    def take(self, now: Now, limit: int, budget: int, draw: float = 0.0) -> Changes:
        """The first ready runs, for one worker: at most ``limit``, costing at most ``budget`` together, or just one."""
        changes = Changes()
        runs, queues, spent = changes.runs, self.queues, 0
        while len(runs) < limit and len(changes.skipped) < _MOST_SKIPPED:
            if not queues.arrivals:
                spent = self._take_shortcuts(runs, limit, spent, budget, now)
                if len(runs) >= limit:
                    break
            item = queues.head()
            if item is None:
                break
            run: Run | None
            if isinstance(item, Run) and item.row is None:
                run = item
                if run.estimate is not None:
                    run.cost = run.estimate.cost
                if runs and spent + run.cost > budget:
                    break
                if run.place is Place.POSTED:
                    spent = self._admit(runs, limit, spent, budget, now)
                    continue
                queues.pop_ready(run)
            elif not isinstance(item, Run) and self._is_simple(item, now.mono):
                if runs and spent + item.cost > budget:
                    break
                queues.pop_ready(item)
                run = self._take_simple(item, now)
            else:
                if self._hold(item):
                    continue
                if runs and spent + item.cost > budget:
                    break
                queues.pop_ready(item)
                if isinstance(item, Run):
                    assert item.row is not None
                    run = self._take_again(item.row, item, now, changes, draw)
                else:
                    run = self._take_slot(item, now, changes, draw)
            if run is not None:
                run.place = Place.OFFERED
                spent += run.cost
                runs.append(run)
        return changes

    def _admit(self, runs: list[Run], limit: int, spent: int, budget: int, now: Now) -> int:
        """Takes calls as they have come, as long as nothing else can be before them; what they all cost by then."""
        queues, offset, turn_before = self.queues, now.wall - now.mono, self._turn_before
        arrivals, none_else, before = queues.arrivals, not queues.others, len(runs)
        while True:
            run = arrivals.popleft()
            run.planned_wall = run.due + offset
            run.noticed = run.due if run.due < turn_before else now.mono
            run.place = Place.OFFERED
            spent += run.cost
            runs.append(run)
            if not none_else or not arrivals or len(runs) >= limit:
                break
            following = arrivals[0]
            if following.place is not Place.POSTED:
                break
            if following.estimate is not None:
                following.cost = following.estimate.cost
            if spent + following.cost > budget:
                break
        self.admitted += len(runs) - before
        return spent

    def take_early(self, now: Now, horizon: int, draw: float = 0.0) -> Changes:
        """The next run that will be due within ``horizon`` ns, for handing it over before its time.

        Only to be asked while nothing is ready, so that it overtakes nobody.
        """
        changes = Changes()
        soonest = self.queues.soonest(now, now.mono + horizon)
        if soonest is None:
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
            self.admitted -= 1
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

    def close(self, now: Now, *, cancel_calls: bool) -> Changes:
        """Shutdown: no job or delayed call makes a further run. Calls for now stay, unless ``cancel_calls``."""
        changes = Changes()
        self._closed = True
        self.promote(now)  # a delayed call that is due is one for now
        for item in list(self.queues.items()):
            if isinstance(item, Run) and item.row is None and (cancel_calls or item.place is Place.TIMER):
                changes.cancelled += self.drop(item, now).cancelled
        self.jobs.clear_resting()
        self.queues.recount()
        changes.over = self.jobs.rows()
        for row in changes.over:
            self._end_job(row, now, changes)
        return changes

    # -- questions ------------------------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Nothing is left to run, paused jobs aside."""
        return not self.calls and not self.live and len(self.jobs) == len(self.paused)

    def next_run(self, row: JobRow, now: Now) -> int | None:
        """The job's next slot in wall ns; None when there is none, or none that can be known yet."""
        if not self.jobs.is_living(row) or row.state is not JobState.SCHEDULED:
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
