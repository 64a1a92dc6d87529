"""Dispatcher: the loop, the one place where timetable, roster, pool and clock meet. A thread of the parent.

::

    callers' threads            THE LOOP                                    other threads
    ────────────────            ────────                                    ─────────────
    schedule, cancel ─lock─►    timetable ─take─► offering ─► pool ═══════► workers
    submit, ask ──mailbox──►                                   ║
                                timetable ◄settle─ reports ◄───╝
                                    └──► ledger ──► delivery (Futures), announcer (events, log)

It runs no user code, except `Schedule.next`, and waits for nobody: it sleeps in ``pool.poll`` and nowhere else. An
error in it that nobody understands ends the scheduler loudly: alive but not scheduling is not a state it can be in.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

from procsched import events
from procsched.clock import read
from procsched.core.model import Now, Outcome, Place
from procsched.core.restarts import GIVE_UP
from procsched.core.roster import SlotState
from procsched.delivery import Settlement
from procsched.errors import PoolUnusable, RunAborted, RunTimedOut, WorkerCrashed
from procsched.ledger import instant, job_id_of
from procsched.pool import api
from procsched.records import RunError

if TYPE_CHECKING:
    from collections.abc import Callable

    from procsched.core.model import JobRow, Run
    from procsched.core.roster import Slot
    from procsched.core.timetable import Changes
    from procsched.engine import Engine

__all__ = ["Dispatcher"]

SECOND = 1_000_000_000


class Dispatcher:
    """Turns of the loop, over the engine's parts. Everything here runs in the loop's thread, unless it says otherwise."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._spawn_at: dict[int, int] = {}
        self._old_pids: dict[int, int] = {}
        self._waiters: list[tuple[Callable[[], bool], threading.Event]] = []
        self._news: list[tuple[Any, ...]] = []
        self.last_turn = 0
        self.boot_error = ""

    # -- the loop -------------------------------------------------------------------------------------------------

    def turn(self, longest: float | None = None) -> None:
        """This is the loop's body. ``longest`` bounds its sleep (seconds)."""
        engine = self.engine
        engine.mailbox.read()
        now = self.now()
        self.last_turn = now.mono
        engine.alarms.ring(now.mono)
        with engine.lock:
            engine.timetable.promote(now)
        self._staff(now)
        engine.offering.hand_over(now, random.random())
        again = engine.offering.watch_overstays(now)
        self.tell()
        for event in engine.pool.poll(self._patience(again, longest)):
            self._handle(event)
        engine.mailbox.awake()

    def now(self) -> Now:
        return read(self.engine.clock)

    def _patience(self, again: int | None, longest: float | None) -> float | None:
        """How long the loop may sleep, in seconds; None: until it is woken."""
        engine = self.engine
        if not engine.mailbox.about_to_sleep() or engine.stopping.finished():
            return 0
        now = self.now()
        with engine.lock:
            wakeups = [engine.timetable.queues.next_wakeup(now)]
        if wakeups[0] is not None and any(slot.free for slot in engine.roster):
            early = wakeups[0] - engine.offering.horizon
            if early > now.mono:
                wakeups[0] = early
        wakeups += [again, engine.alarms.next(), min(self._spawn_at.values(), default=None)]
        patience = min((at - now.mono for at in wakeups if at is not None), default=None)
        seconds = None if patience is None else max(0, patience) / SECOND
        if longest is not None:
            seconds = longest if seconds is None else min(seconds, longest)
        return seconds

    def _handle(self, event: api.Event) -> None:
        if isinstance(event, api.Ended):
            self._on_ended(event)
        elif isinstance(event, api.Started):
            run = self.engine.roster[event.slot].runs.get(event.ticket)
            if run is not None:
                self.claimed(run, event.started)
        elif isinstance(event, api.Voided):
            self.engine.roster.acknowledged(self.engine.roster[event.slot])
        elif isinstance(event, api.Up):
            self._on_up(event)
        else:
            self._on_died(event)

    def tell(self) -> None:
        """Hands the news of this turn to those who wait for it."""
        engine = self.engine
        if self._news:
            engine.announcer.put(self._news)
            self._news = []
        if self._waiters:
            with engine.lock:
                over = [waiter for waiter in self._waiters if waiter[0]()]
            if over:
                self._waiters = [waiter for waiter in self._waiters if waiter not in over]
                # Behind the results that are still to be delivered: whoever waits finds his Futures done.
                engine.delivery.put(lambda: [event.set() for _predicate, event in over])

    def announce(self, *news: Any) -> None:
        """(event class, *fields), for subscribers and the log."""
        self._news.append(news)

    def tell_when(self, predicate: Callable[[], bool], event: threading.Event) -> None:
        """Sets ``event`` at the end of the first turn at which ``predicate`` holds (it is asked under the lock)."""
        self._waiters.append((predicate, event))

    def forget_waiter(self, event: threading.Event) -> None:
        self._waiters = [waiter for waiter in self._waiters if waiter[1] is not event]

    def release_waiters(self) -> None:
        for _predicate, event in self._waiters:
            event.set()

    # -- workers --------------------------------------------------------------------------------------------------

    def start_workers(self) -> None:
        for slot in self.engine.roster:
            self._spawn_at[slot.index] = 0

    def _staff(self, now: Now) -> None:
        """Asks for workers for the slots whose time has come."""
        engine = self.engine
        for index in [index for index, at in self._spawn_at.items() if at <= now.mono]:
            del self._spawn_at[index]
            engine.roster.booting(index, now.mono)
            engine.pool.spawn(index)
            since = now.mono
            engine.alarms.set(since + engine.start_timeout, lambda index=index, since=since: self._slow_boot(index, since))
        if engine.recycles:
            for slot in engine.roster.free_slots():
                worn = engine.max_tasks is not None and slot.runs_done >= engine.max_tasks
                if worn or (slot.heavy and engine.may_recycle(slot, now.mono)):
                    self._retire(slot)

    def _slow_boot(self, index: int, since: int) -> None:
        slot = self.engine.roster[index]
        if slot.state is SlotState.BOOTING and slot.booting_since == since:
            slot.doomed = f"not ready within {self.engine.start_timeout / SECOND:g} s"
            self.engine.pool.kill(index)

    def _retire(self, slot: Slot) -> None:
        slot.state = SlotState.LEAVING
        self.engine.pool.retire(slot.index)

    def _on_up(self, event: api.Up) -> None:
        engine = self.engine
        engine.roster.up(event.slot, event.pid)
        engine.budget.came_up()
        self.boot_error = ""
        old = self._old_pids.pop(event.slot, None)
        if old is None:
            self.announce(events.WorkerStarted, event.slot, event.pid)
        else:
            self.announce(events.WorkerReplaced, event.slot, event.pid, old)

    def _on_died(self, event: api.Died) -> None:
        engine = self.engine
        slot = engine.roster[event.slot]
        now = self.now()
        doomed = slot.doomed
        back, lost = engine.roster.died(slot, event.unclaimed)
        assert len(lost) <= 1, f"a dead worker had claimed {len(lost)} runs at once"
        for run in reversed(back):
            with engine.lock:
                changes = engine.timetable.put_back(run, now)
            self.note(changes, now)
        victim = lost[0] if lost else None
        asked_for = event.retired or doomed in ("timeout", "abort")  # of which the run's own record tells
        if not asked_for and not (engine.closing and not lost):
            self.announce(*self._obituary(event, victim, doomed, now))
        if victim is not None:
            self._on_lost(event, victim, doomed, now)
        if event.pid:
            self._old_pids[event.slot] = event.pid
        if engine.closing and not engine.timetable.calls and not engine.timetable.live:
            return
        if event.started:
            at = now.mono if event.retired else engine.budget.crashed(now.mono)
        else:
            self.boot_error = event.boot_error or doomed or "it ended before it was ready"
            others_up = any(other.state is SlotState.UP for other in engine.roster)
            at = engine.budget.boot_failed(now.mono, others_up=others_up)
            if at == GIVE_UP:
                why = self.boot_error.rstrip()
                last_line = why.rpartition("\n")[2]
                raise PoolUnusable(f"no worker can be started: {last_line}" + (f"\n{why}" if why != last_line else ""))
        self._spawn_at[event.slot] = at

    def _obituary(self, event: api.Died, victim: Run | None, doomed: str | None, now: Now) -> tuple[Any, ...]:
        seconds = None
        if victim is not None and victim.start:
            seconds = (now.mono - victim.start) / SECOND
        return (
            events.WorkerLost,
            event.slot,
            event.pid,
            event.exitcode,
            event.signal,
            job_id_of(victim) if victim is not None else None,
            victim.number if victim is not None else None,
            seconds,
            event.oom,
            "" if event.started else (event.boot_error or doomed or "it ended before it was ready"),
        )

    # -- runs -----------------------------------------------------------------------------------------------------

    def wants_value(self, run: Run) -> bool:
        """Whether somebody waits for the value of this run: asked at hand-over, when those who do get their Futures."""
        row = run.row
        if row is not None and row.notes is not None:
            notes = row.notes
            if notes.waiters or notes.series:
                # Under no lock: waiters are only added, and the swap is one step.
                waiters, notes.waiters = notes.waiters, []
                run.followers = [*run.followers, *waiters, *(series.expect() for series in notes.series)]
        return run.future is not None or bool(run.followers)

    def claimed(self, run: Run, start: int) -> None:
        """A worker has begun an attempt of it (monotonic ``start``)."""
        engine = self.engine
        slot = engine.roster[run.slot]
        slot.progress = max(slot.progress, start)
        if slot.armed == run.ticket:
            slot.armed = 0
        run.start = start
        self._count_started(run)
        if run.future is not None:
            engine.delivery.put(run.future.set_running_or_notify_cancel)
        offset = self._wall_offset()
        planned, started = instant(run.planned_wall), instant(start + offset)
        self.announce(
            events.RunStarted, job_id_of(run), run.number, run.attempt, planned, started, slot.index, slot.pid
        )
        row = run.row
        if row is not None and row.options.timeout is not None:
            engine.alarms.set(start + row.options.timeout, lambda ticket=run.ticket: self._time_out(slot, run, ticket))
        if row is not None and row.options.warn_after is not None:
            engine.alarms.set(start + row.options.warn_after, lambda ticket=run.ticket: self._warn(slot, run, ticket))

    def _wall_offset(self) -> int:
        now = self.now()
        return now.wall - now.mono

    def _count_started(self, run: Run) -> None:
        engine = self.engine
        with engine.lock:
            if not run.started:
                engine.ledger.started += 1
            engine.timetable.started(run)

    def _time_out(self, slot: Slot, run: Run, ticket: int) -> None:
        if ticket in slot.runs and slot.state is SlotState.UP:
            slot.doomed = "timeout"
            slot.state = SlotState.LEAVING
            self.engine.pool.kill(slot.index)

    def _warn(self, slot: Slot, run: Run, ticket: int) -> None:
        if ticket not in slot.runs:
            return
        now, engine = self.now(), self.engine
        offset = now.wall - now.mono
        planned, started = instant(run.planned_wall), instant(run.start + offset)
        index, pid, elapsed = slot.index, slot.pid, (now.mono - run.start) / SECOND
        about = (job_id_of(run), run.number, run.attempt, planned, started, index, pid, elapsed)
        # Reading a worker's stack takes as long as the worker likes: the announcer does it.
        self.announce(lambda: events.RunSlow(*about, engine.pool.dump_stack(index)))

    def _on_ended(self, event: api.Ended) -> None:
        engine = self.engine
        slot = engine.roster[event.slot]
        if event.ticket not in slot.runs:
            return  # of a run that was given up; its account is closed
        run = engine.roster.reported(slot, event.ticket, event.finished)
        run.start = event.started
        engine.offering.learn(run, event.finished - event.started)
        outcome = Outcome.SUCCEEDED if event.success else Outcome.FAILED
        self._settle(run, outcome, event.finished, event.body, None, event=event, pid=slot.pid)
        slot.heavy = event.over_memory

    def _on_lost(self, event: api.Died, run: Run, doomed: str | None, now: Now) -> None:
        """The run was executing when its worker died."""
        name = f"{job_id_of(run)} #{run.number}"
        how = event.signal or f"exit code {event.exitcode}"
        error: BaseException
        if doomed == "timeout":
            row = run.row
            limit = (row.options.timeout or 0) / SECOND if row is not None else 0
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
        run.start = run.start or min(now.mono, max(run.due, self.engine.roster[event.slot].progress))
        self._settle(run, outcome, now.mono, None, error, told=said, pid=event.pid, max_rss=event.max_rss)

    def _settle(
        self,
        run: Run,
        outcome: Outcome,
        finished: int,
        body: Any,
        error: BaseException | None,
        *,
        event: api.Ended | None = None,
        told: RunError | None = None,
        pid: int = 0,
        max_rss: int = 0,
    ) -> None:
        """An attempt has ended: the one way into the timetable, the ledger and the Futures for all that executed."""
        engine = self.engine
        now = self.now()
        if run.place is Place.OFFERED and engine.announcer.wants(events.RunStarted):
            offset = now.wall - now.mono  # it was so short that its start wasn't told by itself
            times = (instant(run.planned_wall), instant(run.start + offset))
            self.announce(events.RunStarted, job_id_of(run), run.number, run.attempt, *times, run.slot, pid)
        self._count_started(run)
        attempt = run.attempt
        line = engine.ledger.line(
            run,
            outcome,
            now,
            attempt=attempt,
            finished=finished,
            cpu_time=event.cpu_time if event is not None else 0,
            max_rss=event.max_rss if event is not None else max_rss,
            pid=pid,
            error=told if told is not None else (body if outcome is Outcome.FAILED else None),
            result_size=event.size if event is not None and outcome is Outcome.SUCCEEDED and body is not None else None,
            held_by=held_by(run.notes, len(engine.roster.slots)),
        )
        with engine.lock:
            changes = engine.timetable.settle(run, outcome, finished, now, random.random())
            if changes.retry_at is None:
                engine.ledger.end(run, outcome, line)
        if changes.retry_at is not None:
            run.last = (outcome, line, body, error)
            self.announce(events.RunRetrying, line, max(0, changes.retry_at - now.mono) / SECOND)
        else:
            self._end(run, outcome, line, body, error)
        self.note(changes, now)

    def _end(self, run: Run, outcome: Outcome, line: Any, body: Any, error: BaseException | None) -> None:
        """The run has reached its one end: tells everybody, and lets go of all that it held."""
        engine = self.engine
        futures = run.followers
        if run.future is not None:
            run.future._prevent = None
            futures = [run.future, *futures]
            run.future = None
        run.followers = []
        if futures:
            engine.delivery.put(Settlement(futures, outcome, body, error, engine.pool.decode))
        if run.row is None:
            engine.gate.release()
        run.payload = run.last = run.notes = None
        self.announce(events.RunEnded, line)

    def note(self, changes: Changes, now: Now) -> None:
        """Does for the outer rings what an operation of the timetable has brought about."""
        engine = self.engine
        for run in changes.skipped:
            self._end_unstarted(run, Outcome.SKIPPED, now)
        for run in changes.cancelled:
            self._end_unstarted(run, Outcome.CANCELLED, now)
        for run in changes.ended:
            outcome, line, body, error = run.last
            with engine.lock:
                engine.ledger.end(run, outcome, line)
            self._end(run, outcome, line, body, error)
        for row, reason in changes.paused:
            why = f"its schedule raised {reason!r}" if reason is not None else f"{row.failures} failures in a row"
            self.announce(events.JobPaused, row.id, row.generation, why)
        for row in changes.finished:
            self.job_over(row)
            self.announce(events.JobFinished, row.id, row.generation)
        for run in changes.offered:
            self.retract(run)

    def _end_unstarted(self, run: Run, outcome: Outcome, now: Now, error: BaseException | None = None) -> None:
        engine = self.engine
        told = RunError(type(error).__name__, str(error)) if error is not None else None
        run.start = 0
        holders = held_by(run.notes, len(engine.roster.slots))
        line = engine.ledger.line(
            run, outcome, now, attempt=run.attempt, finished=now.mono, error=told, held_by=holders
        )
        with engine.lock:
            engine.ledger.end(run, outcome, line)
        self._end(run, outcome, line, None, error)

    def job_over(self, row: JobRow) -> None:
        """The job has ended: whoever waits for a further run of it is told."""
        notes = row.notes
        if notes is None:
            return
        waiters, notes.waiters = notes.waiters, []
        if waiters:
            self.engine.delivery.put(Settlement(waiters, Outcome.CANCELLED, None, None, self.engine.pool.decode))
        for series in notes.series:
            self.engine.delivery.put(series.end)  # behind the results that are still to come

    def retract(self, run: Run) -> bool:
        """Keeps a run that was handed over from starting; False: it has started."""
        engine = self.engine
        now = self.now()
        if run.place is Place.OFFERED:
            slot = engine.roster[run.slot]
            if run.ticket not in slot.runs or not engine.pool.retract(slot.index, run.ticket):
                return False
            engine.roster.withdrawn(slot, [run.ticket])
        elif run.place in (Place.EXECUTING, Place.DONE):
            return False
        with engine.lock:
            changes = engine.timetable.drop(run, now)
        self.note(changes, now)
        return True

    def fail_all(self, error: BaseException) -> None:
        """The scheduler is ending itself: every run that was waited for gets this error."""
        engine = self.engine
        now = self.now()
        with engine.lock:
            runs = [item for item in engine.timetable.queues.items() if hasattr(item, "future")]
            runs += engine.roster.holding()
        for run in runs:
            if run.place is Place.DONE:
                continue
            run.place = Place.DONE
            if run.started:
                line = engine.ledger.line(run, Outcome.ABORTED, now, attempt=run.attempt, finished=now.mono)
                engine.ledger.end(run, Outcome.ABORTED, line)
                self._end(run, Outcome.ABORTED, line, None, error)
            else:
                self._end_unstarted(run, Outcome.CANCELLED, now, error)
        with engine.lock:
            rows = list(engine.timetable.jobs.values())
        for row in rows:
            self.job_over(row)


def held_by(holders: dict[str, int] | None, workers: int) -> str:
    """Who had the workers while a run waited, in words."""
    if not holders:
        return ""
    busy = sum(holders.values())
    names = sorted(holders, key=lambda name: -holders[name])[:3]
    text = ", ".join(f"{holders[name]} with {name}" for name in names)
    return f"{busy} of {workers} workers busy, {text}" + (", …" if len(holders) > 3 else "")
