"""Settling: what becomes of runs, from the claim to their one end. Runs in the loop.

Whatever ends a run, it comes through here once: into the timetable, the ledger, its Futures and the news.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from procsched import events
from procsched.core.changes import NO_CHANGES, Changes
from procsched.core.model import Outcome, Place, Run
from procsched.core.roster import SlotState
from procsched.delivery import Settlement
from procsched.errors import RunAborted, RunTimedOut, WorkerCrashed
from procsched.ledger import JobNotes, LargeError, instant, job_id_of
from procsched.records import RunError
from procsched.series import Expected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from procsched.core.model import JobRow, Now
    from procsched.core.roster import Slot
    from procsched.engine import Engine
    from procsched.pool import api

__all__ = ["Settling"]

SECOND = 1_000_000_000


class Settling:
    """Law: a run that has started ends once, and so does one that never starts."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.open: set[Run] = set()
        """Runs that have started, or that somebody waits for, until they have been told their end. Between two places
        a run is in neither: an error in the loop at that moment mustn't make it forgotten."""

        self.cut_short: set[Run] = set()
        """Calls whose submit was interrupted: on the books, and perhaps in no queue."""

        self.followed: set[JobRow] = set()
        """Jobs whose end somebody wants to be told of."""

    # -- while it runs --------------------------------------------------------------------------------------------

    def wants_value(self, run: Run) -> bool:
        """Whether somebody waits for the value of this run: asked at hand-over, when those who do get their Futures."""
        row = run.row
        if row is not None and row.notes is not None and (row.notes.waiters or row.notes.series):
            with self._engine.lock:
                run.followers = row.notes.followers_of(run)
                self.open.add(run)
        return run.future is not None or bool(run.followers)

    def claimed(self, run: Run, start: int) -> None:
        """A worker has begun an attempt of it (monotonic ``start``)."""
        engine = self._engine
        slot = engine.roster[run.slot]
        slot.progress = max(slot.progress, start)
        if slot.armed == run.ticket:
            slot.armed = 0
        first = not run.started
        known, run.start = run.start, start
        if known:  # it had been concluded before the worker's word came; that one is exact
            if known != start:
                self._set_alarms(slot, run)
            return
        self._count_started(run)
        if run.future is not None and first:
            engine.delivery.put(run.future.set_running_or_notify_cancel)
        self._announce_start(run, slot.pid)
        self._set_alarms(slot, run)

    def _announce_start(self, run: Run, pid: int) -> None:
        now = self._engine.now()
        line = self._engine.ledger.line(run, Outcome.SUCCEEDED, now, run.attempt, now.mono, 0, 0, pid)
        self._engine.dispatcher.announce(events.RunStarted, line)

    def _count_started(self, run: Run) -> None:
        engine = self._engine
        with engine.lock:
            if not run.started:
                engine.ledger.started += 1
                self.open.add(run)
            engine.timetable.started(run)

    def _set_alarms(self, slot: Slot, run: Run) -> None:
        if run.row is None:
            return
        options, ticket, start = run.row.options, run.ticket, run.start

        def still_runs() -> bool:
            return ticket in slot.runs and run.start == start and slot.state is SlotState.UP

        if options.timeout is not None:
            self._engine.alarms.set(start + options.timeout, lambda: self._time_out(slot), still_runs)
        if options.warn_after is not None:
            self._engine.alarms.set(start + options.warn_after, lambda: self._warn(slot, run), still_runs)

    def _time_out(self, slot: Slot) -> None:
        slot.doomed = "timeout"
        slot.state = SlotState.LEAVING
        self._engine.pool.kill(slot.index)

    def _warn(self, slot: Slot, run: Run) -> None:
        engine = self._engine
        now = engine.now()
        offset = now.wall - now.mono
        planned, started = instant(run.planned_wall), instant(run.start + offset)
        index, pid, elapsed = slot.index, slot.pid, (now.mono - run.start) / SECOND
        about = (job_id_of(run), run.number, run.attempt, planned, started, index, pid, elapsed)
        # Reading a worker's stack takes as long as the worker likes: the announcer does it.
        engine.dispatcher.announce(lambda: events.RunSlow(*about, engine.pool.dump_stack(index)))

    # -- its end --------------------------------------------------------------------------------------------------

    def reported(self, ended: Sequence[api.Ended]) -> None:
        """Workers tell that attempts have ended."""
        engine = self._engine
        slots, learn = engine.roster.slots, engine.offering.learn
        succeeded: list[tuple[Run, api.Ended]] = []
        with engine.lock:  # once for them all
            now = engine.now()
            for event in ended:
                slot = slots[event.slot]
                run = slot.reported(event.ticket, event.finished)
                if run is None:
                    engine.staff.senseless(slot)
                    continue
                learn(run, event.finished - event.started)
                if event.success and (run.row is None or run.row.plain):
                    succeeded.append((run, event))
                else:
                    self._attempt_ended(run, event, slot, now)
                if event.over_memory or slot.heavy:
                    slot.heavy = event.over_memory
                    if slot.heavy:
                        engine.staff.weighed(slot)
            if succeeded:
                self._succeeded(succeeded, now)

    def _attempt_ended(self, run: Run, event: api.Ended, slot: Slot, now: Now) -> None:
        known, run.start = run.start, event.started
        if not known and self._engine.announcer.wants(events.RunStarted):
            self._announce_start(run, slot.pid)  # it was so short that its start wasn't told by itself
        outcome = Outcome.SUCCEEDED if event.success else Outcome.FAILED
        self._settle(run, outcome, event.finished, now, event.body, None, event=event, pid=slot.pid)

    def _succeeded(self, succeeded: list[tuple[Run, api.Ended]], now: Now) -> None:
        """`_settle` and `_end` in one, and for many: what nearly all runs are where there are many. Under the lock."""
        engine = self._engine
        ledger, give, forget, slots = engine.ledger, engine.delivery.give, self.open.discard, engine.roster.slots
        tell, offset = engine.dispatcher.news.append, now.wall - now.mono
        minds, minds_starts = engine.announcer.minds_successes, engine.announcer.minds_starts
        settle_slot, draw, ended = engine.timetable.settle_slot, random.random(), events.RunEnded
        calls = done = fresh = 0
        for run, event in succeeded:
            index, _ticket, _success, started, finished, cpu_time, max_rss, size, body, _over_memory = event
            row, future, fresh_start, changes = run.row, run.future, not run.started, NO_CHANGES
            pid = slots[index].pid
            if row is None:
                calls += 1
                run.place = Place.DONE
                run.started = True
                name = run.payload.function.name
            else:
                settled = settle_slot(run, finished, now, draw) if future is None else None
                if settled is None:
                    self._attempt_ended(run, event, slots[index], now)
                    continue
                changes, name = settled, row.id
            done += 1
            fresh += fresh_start
            if row is not None or minds or minds_starts:
                # A tuple of what there is, of which the whole line is made if somebody looks at it.
                held_by = run.notes or ""
                if run.was_held:
                    held_by = f"max_instances; {held_by}" if held_by else "max_instances"
                line = (
                    name, run.number, run.generation, run.planned_wall, started, finished, run.expected, run.noticed,
                    offset, cpu_time, max_rss, index, pid, size if body is not None else None, held_by,
                )  # fmt: skip
                if row is not None:
                    if row.notes is None:
                        row.notes = JobNotes()
                    row.notes.add_success(line)
                if minds_starts and not run.start:
                    tell((events.RunStarted, line))
                if minds:
                    tell((ended, line))
            if future is not None:
                future._run = None
                give(future, body)
            if run.followers:
                told = Settlement([*run.followers], Outcome.SUCCEEDED, body, None, engine.pool.decode)
                engine.delivery.put(told)
                run.followers = []  # now: an error in between mustn't make them forgotten
            run.future = run.payload = run.estimate = run.notes = None
            forget(run)
            if changes is not NO_CHANGES:
                self.note(changes, now)
        ledger.started += fresh
        engine.timetable.admitted -= calls
        ledger.counts[Outcome.SUCCEEDED] += done
        engine.gate.release(calls)

    def _let_go(self, run: Run) -> None:
        """The run has ended, and everybody who waits has been thought of: it lets go of all that it held."""
        if run.future is not None:
            run.future._run = None
        if run.row is None:
            self._engine.gate.release()
        run.future = run.payload = run.estimate = run.last = run.notes = None
        self.open.discard(run)

    def lost(self, event: api.Died, run: Run, doomed: str | None, now: Now) -> None:
        """The run was executing when its worker died."""
        engine = self._engine
        name = f"{job_id_of(run)} #{run.number}"
        how = event.signal or f"exit code {event.exitcode}"
        error: BaseException
        if doomed == "timeout":
            limit = (run.row.options.timeout or 0) / SECOND if run.row is not None else 0
            outcome, error = Outcome.TIMED_OUT, RunTimedOut(f"{name} executed longer than its timeout of {limit:g} s")
        elif doomed == "abort":
            outcome, error = Outcome.ABORTED, RunAborted(f"{name} was ended: the shutdown's time had run out")
        else:
            outcome = Outcome.CRASHED
            hint = " (the kernel's OOM killer)" if event.oom else ""
            crash = WorkerCrashed(f"the worker (pid {event.pid}) that executed {name} died: {how}{hint}")
            crash.exitcode, crash.signal = event.exitcode, event.signal
            error = crash
        said = RunError(
            type=type(error).__name__,
            message=str(error),
            traceback=event.stack,
            exitcode=event.exitcode,
            signal=event.signal,
            logs=tuple(event.logs),
            oom=event.oom,
        )
        if not run.start:
            run.start = min(now.mono, max(run.due, engine.roster[event.slot].progress))
            if engine.announcer.wants(events.RunStarted):
                self._announce_start(run, event.pid)
        self._settle(run, outcome, now.mono, now, None, error, told=said, pid=event.pid, max_rss=event.max_rss)

    def _settle(
        self,
        run: Run,
        outcome: Outcome,
        finished: int,
        now: Now,
        body: Any,
        error: BaseException | None,
        *,
        event: api.Ended | None = None,
        told: object = None,
        pid: int = 0,
        max_rss: int = 0,
    ) -> None:
        """An attempt has ended: the one way into the timetable, the ledger and the Futures for all that executed."""
        engine = self._engine
        self._count_started(run)
        if outcome is Outcome.FAILED:
            told = self._kept(body)
        cpu_time, size = 0, None
        if event is not None:
            cpu_time, max_rss = event.cpu_time, event.max_rss
            size = event.size if outcome is Outcome.SUCCEEDED and body is not None else None
        line = engine.ledger.line(run, outcome, now, run.attempt, finished, cpu_time, max_rss, pid, told, size)
        with engine.lock:
            changes = engine.timetable.settle(run, outcome, finished, now, random.random())
            if changes.retry_at is None:
                engine.ledger.end(run, outcome, line)
        if changes.retry_at is not None:
            run.last = (outcome, line, body, error)
            engine.dispatcher.announce(events.RunRetrying, line, max(0, changes.retry_at - now.mono) / SECOND)
        else:
            self._end(run, outcome, line, body, error)
        self.note(changes, now)

    def _kept(self, body: Any) -> object:
        """What the history keeps of a failed run's report: a small one as it came."""
        if isinstance(body, bytes):
            return body
        large = LargeError(body)
        self._engine.delivery.put(large.read)
        return large

    def _end(self, run: Run, outcome: Outcome, line: Any, body: Any, error: BaseException | None) -> None:
        """The run has reached its one end: tells everybody, and lets go of all that it held."""
        engine = self._engine
        futures = run.followers
        if run.future is not None:
            futures = [run.future, *futures]
        if futures:
            engine.delivery.put(Settlement(futures, outcome, body, error, engine.pool.decode))
        run.followers = []  # now: an error in between mustn't make them forgotten
        if outcome is not Outcome.SUCCEEDED or engine.announcer.minds_successes:
            engine.dispatcher.announce(events.RunEnded, line)
        self._let_go(run)

    def _end_unstarted(self, run: Run, outcome: Outcome, now: Now, error: BaseException | None = None) -> None:
        engine = self._engine
        if run.payload is None:
            return  # it has been told already
        told = RunError(type(error).__name__, str(error)) if error is not None else None
        run.start = 0
        line = engine.ledger.line(run, outcome, now, run.attempt, now.mono, error=told)
        with engine.lock:
            engine.ledger.end(run, outcome, line)
        self._end(run, outcome, line, None, error)

    # -- what an operation of the timetable has brought about -----------------------------------------------------

    def note(self, changes: Changes, now: Now) -> None:
        """Does for the outer rings what an operation of the timetable has brought about."""
        engine = self._engine
        for run in changes.skipped:
            self._end_unstarted(run, Outcome.SKIPPED, now)
        for run in changes.cancelled:
            self._end_unstarted(run, Outcome.CANCELLED, now)
        for run in changes.ended:
            if run.last is None:
                continue  # it has been told already
            outcome, line, body, error = run.last
            with engine.lock:
                engine.ledger.end(run, outcome, line)
            self._end(run, outcome, line, body, error)
        for run in changes.unmade:
            self._hand_back_followers(run)
        for row, reason in changes.paused:
            why = f"its schedule raised {reason!r}" if reason is not None else f"{row.failures} failures in a row"
            engine.dispatcher.announce(events.JobPaused, row.id, row.generation, why)
        for row in changes.finished:
            self.job_over(row)
            engine.dispatcher.announce(events.JobFinished, row.id, row.generation)
        for run in changes.offered:
            self.retract(run)

    def _hand_back_followers(self, run: Run) -> None:
        """A run that was never made after all: who looked on at it waits for the next one."""
        engine, row = self._engine, run.row
        self.open.discard(run)
        if row is None or not run.followers:
            return
        with engine.lock:
            followers, run.followers = run.followers, []
            row.notes.waiters[:0] = [follower for follower in followers if not isinstance(follower, Expected)]
            over = not engine.timetable.jobs.is_living(row)
        if over:
            self.job_over(row)

    def job_over(self, row: JobRow) -> None:
        """The job has ended: whoever waits for a further run of it is told."""
        engine = self._engine
        if row.notes is None:
            return
        with engine.lock:
            waiters, series = row.notes.waiters, row.notes.readers()
        if waiters:
            engine.delivery.put(Settlement([*waiters], Outcome.CANCELLED, None, None, engine.pool.decode))
        for reader in series:
            engine.delivery.put(reader.end)  # behind the results that are still to come
        # Only now, so that an error on the way here leaves it to `fail_all`; to be told twice does no harm.
        with engine.lock:
            row.notes.waiters = []
            self.followed.discard(row)

    def find_forgotten(self, now: Now) -> None:
        """After an interrupted change: what it had ended, or taken out of the table, without getting to say so."""
        engine, changes = self._engine, Changes()
        cut_short = self.cut_short.copy()
        with engine.lock:
            jobs = engine.timetable.jobs
            alive = {run for run in engine.timetable.queues.items() if isinstance(run, Run)}
            alive.update(engine.roster.holding(), *(row.live for row in jobs.rows()))
            for run in sorted(self.open - alive, key=lambda run: run.number):
                if run.row is None and run.place is Place.POSTED and run not in cut_short:
                    continue  # its thread is just about to put it into the queue
                if run.started:
                    changes.ended.append(run)
                elif run.planned is not None and run.row is not None and jobs.is_living(run.row):
                    changes.unmade.append(run)
                else:
                    changes.cancelled.append(run)
            over = [row for row in self.followed if not jobs.is_living(row)]
        self.cut_short -= cut_short
        self.note(changes, now)
        for row in over:
            self.job_over(row)

    def retract(self, run: Run) -> bool:
        """Keeps a run that was handed over from starting; False: it has started, and is asked to stop."""
        engine = self._engine
        now = engine.now()
        if run.place is Place.OFFERED:
            slot = engine.roster[run.slot]
            if run.ticket not in slot.runs:
                return False
            if not engine.pool.retract(slot.index, run.ticket):
                return False
            engine.roster.withdrawn(slot, [run.ticket])
        elif run.place is Place.DONE:
            return not run.started  # taken back meanwhile, and dropped: it never starts
        elif run.place is Place.EXECUTING:
            return False
        with engine.lock:
            changes = engine.timetable.drop(run, now)
        self.note(changes, now)
        return True

    def fail_all(self, error: BaseException) -> None:
        """The scheduler is ending itself: every run that was waited for gets this error."""
        engine = self._engine
        now = engine.now()
        with engine.lock:
            rows = list(dict.fromkeys([*engine.timetable.jobs.rows(), *self.followed]))
            runs = dict.fromkeys(self.open)
            waiting = [item for item in engine.timetable.queues.items() if isinstance(item, Run)]
            for row in rows:
                waiting += row.live
            runs.update(dict.fromkeys(run for run in waiting + engine.roster.holding() if run.place is not Place.DONE))
        failed: BaseException | None = None
        for deed, item in [*((self._fail, run) for run in runs), *((self._fail_job, row) for row in rows)]:
            try:
                deed(item, now, error)
            except BaseException as reason:  # whatever is wrong with that one, the others are told
                failed = reason
        with engine.lock:
            engine.ledger.close()
        if failed is not None:
            raise failed

    def _fail(self, run: Any, now: Now, error: BaseException) -> None:
        if run.payload is None:
            return  # it has been told already
        run.place = Place.DONE
        if run.started:
            line = self._engine.ledger.line(run, Outcome.ABORTED, now, run.attempt, now.mono)
            with self._engine.lock:
                self._engine.ledger.end(run, Outcome.ABORTED, line)
            self._end(run, Outcome.ABORTED, line, None, error)
        else:
            self._end_unstarted(run, Outcome.CANCELLED, now, error)

    def _fail_job(self, row: Any, now: Now, error: BaseException) -> None:
        self.job_over(row)
