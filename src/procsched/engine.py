"""Engine: the parts of a scheduler and what callers' threads do to them. Runs in the parent, in every thread.

The public face (`scheduler`, `job`) checks arguments and talks to this; this talks to the loop. The timetable is
changed under one short lock, in the caller's own thread; only what concerns a run in a worker's hands is asked of the
loop, which alone touches the channels.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
import weakref
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from procsched import events
from procsched.alarms import Alarms
from procsched.announcer import Announcer
from procsched.clock import read
from procsched.core.model import JobState, Place, Run, Timebase
from procsched.core.repair import repair
from procsched.core.restarts import RestartBudget
from procsched.core.roster import Roster
from procsched.core.slots import ScheduleFailed
from procsched.core.timetable import Timetable
from procsched.delivery import Delivery
from procsched.dispatcher import Dispatcher
from procsched.errors import ConflictingIdError, JobLookupError, SchedulerClosed
from procsched.futures import Call, RunFuture, cancel_and_notify
from procsched.gate import Gate
from procsched.ledger import JobNotes, Ledger
from procsched.life import Life
from procsched.mailbox import Mailbox
from procsched.offering import Offering
from procsched.settling import Settling
from procsched.staff import Staff
from procsched.stopping import Stopping
from procsched.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from procsched.clock import Clock
    from procsched.core.changes import Changes
    from procsched.core.model import JobRow, Now, ReadyOrder
    from procsched.core.schedules import Schedule
    from procsched.pool.api import Pool, PoolSettings
    from procsched.series import Series

__all__ = ["Engine"]

_log = logging.getLogger("procsched.scheduler")

_AT_ONCE = 1000
"""Jobs that are looked at under one hold of the lock."""

P = ParamSpec("P")
R = TypeVar("R")


def _mended(change: Callable[Concatenate[Engine, P], R]) -> Callable[Concatenate[Engine, P], R]:
    """For what changes the timetable in callers' threads: a Ctrl-C in the midst of it is mended by the loop."""

    @wraps(change)
    def changing(self: Engine, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return change(self, *args, **kwargs)
        except Exception:
            raise
        except BaseException:
            self._interrupt()
            raise

    return changing


class Engine(Life):
    """One scheduler, without its public face. ``threaded=False``: it moves only when `Dispatcher.turn` is called."""

    def __init__(
        self,
        pool: Pool,
        clock: Clock,
        settings: PoolSettings,
        *,
        order: ReadyOrder,
        max_tasks: int | None,
        max_pending: int | None,
        refuse: bool,
        start_timeout: int,
        threaded: bool,
    ) -> None:
        super().__init__(settings, threaded=threaded)
        self.pool = pool
        self.clock = clock
        self.lock = threading.RLock()
        self.timetable = Timetable(order)
        self.roster = Roster(settings.workers)
        self.budget = RestartBudget(settings.workers)
        self.ledger = Ledger()
        self.alarms = Alarms()
        self.mailbox = Mailbox(pool.wake)
        self.delivery = Delivery(self.name, pool, threaded=threaded)
        self.announcer = Announcer(self.name, threaded=threaded)
        self.gate = Gate(max_pending, refuse=refuse)
        self.max_tasks = max_tasks
        self.recycles = max_tasks is not None or settings.max_memory is not None
        self.start_timeout = start_timeout
        self.dispatcher = Dispatcher(self)
        self.settling = Settling(self)
        self.staff = Staff(self)
        self.waiting = Waiting(self)
        self.offering = Offering(
            pool,
            self.timetable,
            self.roster,
            self.lock,
            self.settling.note,
            self.settling.wants_value,
            self.settling.claimed,
            max_tasks=max_tasks,
        )
        self.stopping = Stopping(self)
        self.interrupted = False
        """Whether a change of the timetable was cut short, and its accounts must be looked over."""
        self._calls = itertools.count(1)

    # -- small things ---------------------------------------------------------------------------------------------

    def now(self) -> Now:
        return read(self.clock)

    def load_in_workers(self, source: tuple[str, str]) -> None:
        """Have workers load this task file before they are up: all of them, if none was started yet; else later ones.

        What fails in it is then a failed boot, not the fault of a run. A worker that is up loads it with its first run.
        """
        if source not in self.settings.task_files:
            self.settings.task_files = (*self.settings.task_files, source)

    def renew_workers(self) -> None:
        """Let every worker be replaced between runs: the code that they have loaded was changed."""
        if self.started and not self.closing:
            self.mailbox.ask(self.staff.renew)

    def next_number(self) -> int:
        """For ids and calls."""
        return next(self._calls)

    # -- jobs -----------------------------------------------------------------------------------------------------

    @_mended
    def add(self, row: JobRow, *, replace: bool) -> None:
        """Registers a job.

        Raises:
            ConflictingIdError: The id is in use and ``replace`` is False.
        """
        self.start()
        with self.lock:
            self.check_open()
            now = self.now()
            due = self.timetable.lay_down(row, now, random.random())
            if due is not None:
                if self.announcer.minds_jobs():
                    self.dispatcher.announce(events.JobAdded, row.id, row.generation)
                    self.mailbox.hint()
                if due < self.dispatcher.sleeps_until:  # what is due later than it wakes anyhow needn't wake it now
                    self.mailbox.nudge()
                return
            old = self.timetable.jobs.get(row.id)
            if old is not None and not replace:
                raise ConflictingIdError(
                    f"a job with the id {row.id!r} exists already; choose another id, "
                    f"or pass replace_existing=True to replace it"
                )
            try:
                changes = self.timetable.add(row, now, random.random())
            except ScheduleFailed as failure:
                raise failure.reason from None
            self.dispatcher.announce(events.JobAdded if old is None else events.JobReplaced, row.id, row.generation)
        if old is not None:
            self._post(lambda: self.settling.job_over(old))
        self._follow_up(changes)

    @_mended
    def reschedule(self, row: JobRow, schedule: Schedule) -> None:
        with self.lock:
            self.check_open()
            self._check_alive(row)
            try:
                changes = self.timetable.reschedule(row, schedule, self.now(), random.random())
            except ScheduleFailed as failure:
                raise failure.reason from None
            self.dispatcher.announce(events.JobReplaced, row.id, row.generation)
        self._follow_up(changes)

    def cancel(self, row: JobRow) -> bool:
        """No run of the job starts after this has returned."""
        if self.inert is not None:
            self.check_usable()
        try:
            with self.lock:
                if self.timetable.cancel_resting(row):  # most jobs that are cancelled were never touched
                    if self.announcer.minds_jobs():
                        self.dispatcher.announce(events.JobCancelled, row.id, row.generation)
                        self.mailbox.hint()
                    return True
        except KeyboardInterrupt:
            self._interrupt()
            raise
        return self._cancel(row)

    def cancel_id(self, id: str) -> bool:
        """`cancel` of the job that has this id; raises `JobLookupError`. One at rest goes without becoming a row."""
        if self.inert is not None:
            self.check_usable()
        try:
            with self.lock:
                generation = self.timetable.cancel_resting_id(id)
                if generation is not None:
                    if self.announcer.minds_jobs():
                        self.dispatcher.announce(events.JobCancelled, id, generation)
                        self.mailbox.hint()
                    return True
        except KeyboardInterrupt:
            self._interrupt()
            raise
        return self.cancel(self.find(id))

    def _interrupt(self) -> None:
        self.interrupted = True
        self.mailbox.nudge()

    @_mended
    def _cancel(self, row: JobRow) -> bool:
        with self.lock:
            if self.timetable.jobs.get(row.id) is not row:
                return False
            changes = self.timetable.cancel(row, self.now())
            self.dispatcher.announce(events.JobCancelled, row.id, row.generation)
        self._post(lambda: self.settling.job_over(row))
        prevented = self._follow_up(changes) or changes.prevented
        for run in row.live:
            if run.place in (Place.EXECUTING, Place.OFFERED):
                self.mailbox.tell(partial(self.pool.ask_stop, run.slot, run.ticket))
        return prevented

    @_mended
    def pause(self, row: JobRow) -> None:
        self.check_usable()
        with self.lock:
            self._check_alive(row)
            if row.state is JobState.PAUSED:
                return
            changes = self.timetable.pause(row, self.now())
            changes.paused.clear()
            self.dispatcher.announce(events.JobPaused, row.id, row.generation)
        self._follow_up(changes)

    @_mended
    def resume(self, row: JobRow) -> None:
        with self.lock:
            self.check_open()
            self._check_alive(row)
            if row.state is not JobState.PAUSED:
                return
            changes = self.timetable.resume(row, self.now(), random.random())
            self.dispatcher.announce(events.JobResumed, row.id, row.generation)
        self._follow_up(changes)

    @_mended
    def run_now(self, row: JobRow) -> RunFuture:
        with self.lock:
            self.check_open()
            self._check_alive(row)
            run = self.timetable.run_now(row, self.now())
            if run.future is None:
                run.future = RunFuture(self, run)
                self.settling.open.add(run)
            future: RunFuture = run.future
        self._post(_nothing)
        return future

    def follow(self, row: JobRow, waiter: Future[Any] | None = None, series: Series | None = None) -> None:
        """Somebody waits for the next run of the job, or for all of them."""
        self.check_usable()
        with self.lock:
            if row.notes is None:
                row.notes = JobNotes()
            over = self.timetable.jobs.get(row.id) is not row or self.failure is not None
            if not over:
                self.settling.followed.add(row)
            if waiter is not None:
                if over:
                    cancel_and_notify(waiter)
                else:
                    row.notes.waiters.append(waiter)
            if series is not None:
                if over:
                    series.end()
                else:
                    row.notes.series.append(weakref.ref(series))

    def rows(self) -> list[JobRow]:
        """All jobs, in the order of scheduling. A few at a time, so that nobody waits for a million of them."""
        with self.lock:
            ids = list(self.timetable.jobs)
        rows: list[JobRow] = []
        for start in range(0, len(ids), _AT_ONCE):
            with self.lock:
                rows += filter(None, map(self.timetable.jobs.look, ids[start : start + _AT_ONCE]))
        return rows

    def find(self, id: str) -> JobRow:
        self.check_usable()
        with self.lock:
            row = self.timetable.jobs.look(id)
        if row is None:
            raise JobLookupError(f"no job has the id {id!r}")
        return row

    # -- calls ----------------------------------------------------------------------------------------------------

    def submit(self, payload: Any) -> RunFuture:
        """A call for now: one append, without a lock."""
        call = Call(self, payload, self.clock.monotonic_ns(), next(self._calls))
        try:
            if not self.admits:
                self._knock(call)
            self.settling.open.add(call)
            if not self.admits:
                self.gate.arrived(call)
            self.timetable.queues.arrive(call)
            if not self.admits:
                self._look_back(call)
        except BaseException as error:
            self.gate.left(call)
            if not isinstance(error, Exception):
                self.settling.cut_short.add(call)
                self._interrupt()
            raise
        self.mailbox.nudge()
        return call

    def _knock(self, run: Run) -> None:
        """For a call: starts the engine, and waits at the gate. Raises what `check_open` and `Gate.enter` do."""
        self.check_open()
        self.start()
        if self.gate.bounded:
            self.gate.enter(run)
            run.due = run.expected = run.noticed = self.clock.monotonic_ns()  # it may have waited there

    def _look_back(self, run: Run) -> None:
        """The end may have begun while this call came in: either that has seen it, or it is refused."""
        if self.stopping.begun or self.failure is not None:
            with self.lock:
                if run.place is Place.POSTED:
                    self.timetable.drop(run, self.now())
                    self.settling.open.discard(run)
                    self.gate.release()
                    self.check_open()

    @_mended
    def submit_at(self, payload: Any, when: int, timebase: Timebase) -> RunFuture:
        """A call for an instant of a timebase."""
        call = Call(self, payload, 0, next(self._calls))
        try:
            self._knock(call)
            now = self.now()
            call.due = call.expected = call.noticed = now.mono
            call.planned_wall = when if timebase is Timebase.WALL else now.wall + when - now.mono
            with self.lock:
                if self.stopping.begun or self.failure is not None:
                    self.check_open()
                self.settling.open.add(call)
                self.gate.arrived(call)
                self.timetable.submit(call, now, when=when, timebase=timebase)
        except BaseException:
            self.gate.left(call)
            self.settling.cut_short.add(call)
            raise
        self.mailbox.nudge()
        return call

    @_mended
    def prevent(self, run: Run) -> bool:
        """Keeps a call or an extra run from starting; its Future is told by `RunFuture.cancel`, at once."""
        if self.inert is not None:
            return False
        with self.lock:
            if run.started or run.place in (Place.EXECUTING, Place.DONE):
                return False
            changes = self.timetable.drop(run, self.now()) if run.place is not Place.OFFERED else None
        if changes is not None:
            self._follow_up(changes)
            return True
        try:
            return bool(self.mailbox.ask(self.settling.retract, run))
        except SchedulerClosed:
            return False

    # -- questions ------------------------------------------------------------------------------------------------

    def log(self, level: int, text: str, *args: object) -> None:
        """A line for the log, from the loop: handlers may block, so the announcer writes it."""
        self.dispatcher.announce(partial(_log.log, level, text, *args))

    def is_idle(self) -> bool:
        return self.timetable.is_idle() and not self.mailbox

    def check_valid(self) -> None:
        """Asserts every law that is written down somewhere. Costs O(n): for tests."""
        with self.lock:
            self.timetable.check_valid()
            self.roster.check_valid()
            self.ledger.check_valid()

    def mend(self, now: Now) -> None:
        """In the loop: makes the timetable whole after an interrupted change."""
        self.interrupted = False
        with self.lock:
            changes = repair(self.timetable, self.roster.holding(), now)
        self.settling.note(changes, now)
        self.settling.find_forgotten(now)
        self.gate.recount(lambda: [run for run in self.settling.open.copy() if run.row is None])

    # -- inside ---------------------------------------------------------------------------------------------------

    def _check_alive(self, row: JobRow) -> None:
        if self.timetable.jobs.get(row.id) is not row:
            raise JobLookupError(f"the job {row.id!r} (generation {row.generation}) has ended: {row.state.value}")

    def _post(self, fn: Any) -> None:
        self.mailbox.post(fn)

    def _follow_up(self, changes: Changes) -> bool:
        """What an operation brought about, for the outer rings; what workers hold is taken back before it returns."""
        prevented = False
        offered, changes.offered = changes.offered, []
        for run in offered:
            prevented = bool(self.mailbox.ask(self.settling.retract, run)) or prevented
        self._post(lambda: self.settling.note(changes, self.now()))
        return prevented


def _nothing() -> None:
    """Posted to wake the loop: something may be due earlier than it thinks."""
