"""The timetable does what its shadow does, whatever is done to it, and its laws hold after each step.

Larger: ``HYPOTHESIS_PROFILE=long pytest tests/core/test_timetable_machine.py`` (minutes, other examples each time).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from shadow import HOUR, RETRIES, SECOND, Effects, Plan, Shadow, ShadowJob, ShadowRun

from procsched.core.changes import Changes
from procsched.core.jobtable import default_options
from procsched.core.model import ALONE, JobOptions, JobRow, Missed, Now, Outcome, Place, ReadyOrder, Run, Timebase
from procsched.core.roster import Roster
from procsched.core.timetable import Timetable

WALL = 1_700_000_000 * SECOND
YEAR = 365 * 24 * HOUR
SLOTS = 3
WHERE = {
    Place.POSTED: "ready",
    Place.TIMER: "timer",
    Place.READY: "ready",
    Place.HELD: "ready",
    Place.OFFERED: "offered",
    Place.EXECUTING: "executing",
    Place.BACKOFF: "backoff",
    Place.DONE: "done",
}

BASE = settings(deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
QUICK = settings(BASE, max_examples=700, stateful_step_count=50, derandomize=True, database=None)
LONG = settings(BASE, max_examples=20_000, stateful_step_count=80)

periods = st.sampled_from([7, 10, 60]).map(lambda seconds: seconds * SECOND)
moments = st.sampled_from([-3600, -30, 0, 25, 60, 200, 4000]).map(lambda seconds: seconds * SECOND)
policies = st.sampled_from(Missed)


@st.composite
def plans(draw: Callable[[Any], Any]) -> Plan:
    """Any schedule; bounds are relative to the start of the wall clock."""
    kind = draw(st.sampled_from(["rate", "rate", "grid", "grid", "delay", "own", "breaks", "after", "at"]))
    plan = {
        "kind": kind,
        "period": draw(periods),
        "delay": draw(st.sampled_from([0, 0, 3, 10])) * SECOND,
        "missed": draw(policies),
    }
    if kind == "grid":
        plan["period"] = draw(st.sampled_from([HOUR, 6 * HOUR]))
    elif kind in ("own", "breaks"):
        plan["period"] = 100 * SECOND
    elif kind in ("after", "at", "delay"):
        plan["missed"] = Missed.CATCH_UP
        if kind == "at":
            plan["delay"] = WALL + draw(moments)
    plan["times"] = draw(st.sampled_from([None, None, None, None, 1, 2, 4]))
    if draw(st.integers(0, 5)) == 0:
        plan["until"] = WALL + draw(moments) * draw(st.sampled_from([1, 10]))
    elif draw(st.integers(0, 5)) == 0:
        plan["starting"] = WALL + draw(moments)
    return Plan(**plan)


@st.composite
def options(draw: Callable[[Any], Any]) -> JobOptions:
    return JobOptions(
        priority=draw(st.sampled_from([1, 2, 3])),
        max_instances=draw(st.sampled_from([1, 1, 2, 3])),
        retry=draw(st.sampled_from(RETRIES)),
        pause_after_failures=draw(st.sampled_from([None, None, 1, 2])),
        misfire_grace=draw(st.sampled_from([None, None, 0, 4 * SECOND, 50 * SECOND])),
    )


class Payload:
    """Of atoms, but for its function: such jobs rest."""

    def __init__(self, function: object = print, args: bytes = b"args") -> None:
        self.function = function
        self.args = args


class TimetableMachine(RuleBasedStateMachine):
    """Two accounts of one world: the timetable with its roster, and the shadow."""

    failed = True

    @initialize(order=st.sampled_from(ReadyOrder), jobs=st.lists(st.tuples(plans(), options()), min_size=1, max_size=3))
    def begin(self, order: ReadyOrder, jobs: list[tuple[Plan, JobOptions]]) -> None:
        self.mono, self.wall = 1_000 * SECOND, WALL
        self.timetable = Timetable(order)
        self.shadow = Shadow(order is ReadyOrder.PRIORITY, (self.mono, self.wall))
        self.roster = Roster(SLOTS)
        for index in range(SLOTS):
            self.roster.booting(index, self.mono)
            self.roster.up(index, 1)
        self.rows: list[tuple[ShadowJob, JobRow]] = []
        self.runs: dict[ShadowRun, Run] = {}
        self.to_retract: list[ShadowRun] = []
        self.tickets = 0
        self.calls = 0
        self.closed = False
        self.failed = False
        for name, (plan, chosen) in zip("abc", jobs, strict=False):
            self.add_or_replace(name, plan, chosen)

    @property
    def now(self) -> Now:
        return Now(self.mono, self.wall)

    # -- comparing

    def same(self, expected: Effects, got: Changes) -> None:
        """Both did the same, and the same runs are meant from now on."""
        self.failed = True
        assert len(expected.runs) == len(got.runs), (expected.runs, got.runs)
        for shadow, run in zip(expected.runs, got.runs, strict=True):
            self.twin(shadow, run)
        for name in ("skipped", "cancelled", "ended", "offered", "unmade"):
            theirs = sorted(getattr(expected, name), key=_name)
            ours = sorted(getattr(got, name), key=_name)
            assert list(map(_name, theirs)) == list(map(_name, ours)), name
            for shadow, run in zip(theirs, ours, strict=True):
                self.twin(shadow, run)
        assert [job.id for job in expected.finished] == [row.id for row in got.finished]
        assert [job.id for job in expected.paused] == [row.id for row, _reason in got.paused]
        assert expected.retry_at == got.retry_at
        assert expected.prevented == got.prevented
        self.to_retract += expected.offered
        self.failed = False

    def twin(self, shadow: ShadowRun, run: Run) -> None:
        assert self.runs.setdefault(shadow, run) is run, "another run than the shadow's"

    @invariant()
    def laws_hold(self) -> None:
        self.timetable.check_valid()
        self.roster.check_valid()

    @invariant()
    def jobs_agree(self) -> None:
        table, shadow = self.timetable, self.shadow
        assert [(job.id, job.generation) for job in shadow.jobs] == [
            (r.id, r.generation) for r in table.jobs.look_at_all()
        ]
        assert table.missed == sum(job.missed for job, _row in self.rows)
        assert table.ghosts == shadow.ghosts()
        for job, row in self.rows:
            name = f"{job.id} of generation {job.generation}"
            assert row.state.value == job.state, name
            assert (row.number, row.made, row.missed) == (job.number, job.made, job.missed), name
            assert (row.failures, row.generation) == (job.failures, job.generation), name
            runs = shadow.runs_of(job)
            assert row.executing == sum(run.started for run in runs), name
            assert row.hands == sum(run.in_hand for run in runs), name
            assert len(row.live) == len(runs), name
            if job in shadow.jobs:
                assert WHERE.get(row.place) == (job.where if job.where != "none" else "done"), name
                assert job.where == "none" or row.planned == job.planned, name
                assert (row.extra is not None) == (job.extra is not None), name
            assert table.next_run(row, self.now) == shadow.next_run(job), name
        self.rows = [(job, row) for job, row in self.rows if job in shadow.jobs or shadow.runs_of(job) or job.missed]

    @invariant()
    def runs_agree(self) -> None:
        table, shadow = self.timetable, self.shadow
        assert table.calls == sum(run.job is None for run in shadow.runs)
        assert table.live == sum(run.job is not None for run in shadow.runs)
        for _job, row in self.rows:
            known = {id(run) for run in self.runs.values()}
            fresh = [run for run in row.live if id(run) not in known]
            assert not fresh, "a run that the shadow doesn't know"
        for shadow_run, run in list(self.runs.items()):
            assert WHERE[run.place] == shadow_run.where, run
            if shadow_run.where == "done":
                del self.runs[shadow_run]
                continue
            assert (run.number, run.attempt, run.started) == (shadow_run.number, shadow_run.attempt, shadow_run.started)
            assert (run.planned, run.expected) == (shadow_run.planned, shadow_run.expected), run
            assert run.planned_wall == shadow_run.planned_wall or run.row is None, run

    @invariant()
    def the_next_wakeup_agrees(self) -> None:
        queues, expected = self.timetable.queues, self.shadow.next_wakeup()
        found = queues.next_wakeup(self.now)
        if found != expected:  # with many stale entries in front it may be before the time, never after
            assert queues._mono._stale + queues._wall._stale > 0
            assert found is not None and (expected is None or found < expected)
            queues._mono.peek(), queues._wall.peek()
            assert queues.next_wakeup(self.now) == expected
        due = [item.due for item in self.shadow.jobs + self.shadow.runs if item.where == "ready"]
        oldest = self.timetable.queues.oldest_ready()
        assert (oldest is None) <= (not self.shadow.ready()) and (oldest is None or oldest >= min(due))

    # -- time

    @rule(seconds=st.sampled_from([0, 1, 2, 3, 5, 7, 10, 10, 25, 60, 100, 600]), look=st.booleans())
    def advance(self, seconds: int, look: bool) -> None:
        self.mono += seconds * SECOND
        self.wall += seconds * SECOND
        self.shadow.now = self.now
        if look:
            self.promote()

    @rule(step=st.sampled_from([-HOUR, HOUR, -2 * HOUR, 8 * HOUR, -4 * HOUR, YEAR, -8 * YEAR, 5 * SECOND, -SECOND]))
    def step_wall(self, step: int) -> None:
        self.wall += step
        self.shadow.now = self.now

    @rule()
    def promote(self) -> None:
        self.timetable.promote(self.now)
        self.shadow.promote()

    # -- jobs

    @precondition(lambda self: not self.closed)
    @rule(id=st.sampled_from("abcd"), plan=plans(), options=options())
    def add_or_replace(self, id: str, plan: Plan, options: JobOptions) -> None:
        if plan.kind == "delay":  # refused at the door: it counts from the end of a run
            options = options._replace(max_instances=1)
        self.register(ShadowJob(id, plan, options), JobRow(id, plan.schedule(), Payload(), options))

    @precondition(lambda self: not self.closed)
    @rule(id=st.sampled_from("abcd"), plan=plans())
    def add_or_replace_usual(self, id: str, plan: Plan) -> None:
        """One that rests, where its schedule is of that kind."""
        options = default_options(2)
        self.register(ShadowJob(id, plan, options), JobRow(id, plan.schedule(), Payload(), options))

    def register(self, job: ShadowJob, row: JobRow) -> None:
        effects = self.shadow.add(job)
        self.rows.append((job, row))
        laid_down = self.timetable.lay_down(row, self.now)
        self.same(effects, Changes() if laid_down is not None else self.timetable.add(row, self.now))

    def some_job(self, pick: int) -> tuple[ShadowJob, JobRow] | None:
        alive = [(job, row) for job, row in self.rows if job in self.shadow.jobs]
        return alive[pick % len(alive)] if alive else None

    @rule(pick=st.integers(0, 3))
    def cancel(self, pick: int) -> None:
        if chosen := self.some_job(pick):
            rested = self.timetable.cancel_resting(chosen[1])
            changes = Changes(prevented=True) if rested else self.timetable.cancel(chosen[1], self.now)
            self.same(self.shadow.cancel(chosen[0]), changes)

    @rule(pick=st.integers(0, 3))
    def pause(self, pick: int) -> None:
        if chosen := self.some_job(pick):
            self.same(self.shadow.pause(chosen[0]), self.timetable.pause(chosen[1], self.now))

    @rule(pick=st.integers(0, 3))
    def resume(self, pick: int) -> None:
        paused = [(job, row) for job, row in self.rows if job in self.shadow.jobs and job.state == "paused"]
        if paused:
            job, row = paused[pick % len(paused)]
            self.same(self.shadow.resume(job), self.timetable.resume(row, self.now))

    @rule(pick=st.integers(0, 3), plan=plans())
    def reschedule(self, pick: int, plan: Plan) -> None:
        if chosen := self.some_job(pick):
            if plan.kind == "delay" and chosen[0].options.max_instances > 1:
                return
            effects = self.shadow.reschedule(chosen[0], plan)
            self.same(effects, self.timetable.reschedule(chosen[1], plan.schedule(), self.now))

    @rule(pick=st.integers(0, 3))
    def run_now(self, pick: int) -> None:
        if chosen := self.some_job(pick):
            self.twin(self.shadow.run_now(chosen[0]), self.timetable.run_now(chosen[1], self.now))

    @rule(pick=st.integers(0, 3), cost=st.sampled_from([1, 10, ALONE]))
    def learn(self, pick: int, cost: int) -> None:
        if chosen := self.some_job(pick):
            chosen[0].cost = chosen[1].cost = cost

    # -- calls

    @precondition(lambda self: not self.closed)
    @rule(delay=st.none() | st.sampled_from([-10, 0, 5, 100]), in_wall=st.booleans())
    def submit(self, delay: int | None, in_wall: bool) -> None:
        self.calls += 1
        when = None if delay is None else (self.wall if in_wall else self.mono) + delay * SECOND
        run = Run(None, "payload", 2, self.mono, self.wall)
        run.number = self.calls
        timebase = Timebase.WALL if in_wall else Timebase.MONOTONIC
        self.timetable.submit(run, self.now, when=when, timebase=timebase)
        self.twin(self.shadow.submit(self.calls, when, in_wall), run)

    @rule(pick=st.integers(0, 20))
    def cancel_future(self, pick: int) -> None:
        """Of a call or an extra run: it goes if it hasn't started and isn't in a worker's hands."""
        waiting = [run for run in self.shadow.runs if run.where in ("timer", "ready") and not run.started]
        waiting = [run for run in waiting if run.job is None or run.planned is None]
        if waiting:
            run = waiting[pick % len(waiting)]
            self.same(self.shadow.drop(run), self.timetable.drop(self.runs[run], self.now))

    # -- workers

    def held(self, slot: int) -> list[ShadowRun]:
        """What a slot holds, in the order of the offers."""
        shadows = {id(run): shadow for shadow, run in self.runs.items()}
        return [shadows[id(run)] for run in self.roster[slot].runs.values()]

    def claimed(self, slot: int) -> list[ShadowRun]:
        return [run for run in self.held(slot)[:1] if run.where == "executing"]

    @rule(slot=st.integers(0, SLOTS - 1), limit=st.integers(1, 4), budget=st.sampled_from([1, 15, 10**6]))
    def take(self, slot: int, limit: int, budget: int) -> None:
        effects = self.shadow.take(limit, budget)
        changes = self.timetable.take(self.now, limit, budget)
        self.same(effects, changes)
        self.offer(slot, changes.runs)

    @rule(slot=st.integers(0, SLOTS - 1), horizon=st.sampled_from([0, 2_500_000, 5 * SECOND, 100 * SECOND]))
    def take_early(self, slot: int, horizon: int) -> None:
        self.promote()
        if not self.shadow.ready() and not self.roster[slot].runs:
            effects = self.shadow.take_early(horizon)
            changes = self.timetable.take_early(self.now, horizon)
            self.same(effects, changes)
            self.offer(slot, changes.runs, armed=True)

    def offer(self, slot: int, runs: list[Run], armed: bool = False) -> None:
        for run in runs:
            self.tickets += 1
            run.ticket = self.tickets
        self.roster.offered(self.roster[slot], runs, self.mono, armed=armed)

    def busy_slot(self, pick: int) -> int:
        """A slot that holds something, if there is one."""
        busy = [slot.index for slot in self.roster if slot.runs] or [0]
        return busy[pick % len(busy)]

    @rule(pick=st.integers(0, SLOTS - 1))
    def claim(self, pick: int) -> None:
        for run in self.held(self.busy_slot(pick))[:1]:
            if run.due <= self.mono:
                self.start(run)

    def start(self, run: ShadowRun) -> None:
        self.shadow.start(run)
        self.timetable.started(self.runs[run])

    def settle(self, run: ShadowRun, outcome: Outcome, finished: int) -> None:
        self.start(run)
        effects = self.shadow.settle(run, outcome, finished)
        self.same(effects, self.timetable.settle(self.runs[run], outcome, finished, self.now))

    @rule(
        pick=st.integers(0, SLOTS - 1),
        outcome=st.sampled_from([Outcome.SUCCEEDED, Outcome.SUCCEEDED, Outcome.FAILED]),
        ago=st.sampled_from([0, 0, 1, 6]),
    )
    def report(self, pick: int, outcome: Outcome, ago: int) -> None:
        """The worker tells that its first run is over, perhaps a while after it was."""
        slot = self.busy_slot(pick)
        for run in self.held(slot)[:1]:
            if run.due <= self.mono:
                self.roster[slot].reported(self.runs[run].ticket, self.mono)
                self.settle(run, outcome, max(run.due, self.mono - ago * SECOND))

    @rule(
        pick=st.integers(0, SLOTS - 1),
        begun=st.booleans(),
        outcome=st.sampled_from([Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.ABORTED]),
    )
    def lose_worker(self, pick: int, begun: bool, outcome: Outcome) -> None:
        """It dies; its first run had been claimed, with or without our knowing, or not."""
        slot = self.busy_slot(pick)
        held = self.held(slot)
        lost = held[:1] if begun and held and held[0].due <= self.mono else self.claimed(slot)
        unclaimed = [self.runs[run].ticket for run in held if run not in lost]
        back, executing = self.roster.died(self.roster[slot], unclaimed)
        assert executing == [self.runs[run] for run in lost]
        assert back == [self.runs[run] for run in held if run not in lost]
        for run in reversed([run for run in held if run not in lost]):
            self.same(self.shadow.put_back(run), self.timetable.put_back(self.runs[run], self.now))
        for run in lost:
            self.settle(run, outcome, self.mono)
        self.roster.booting(slot, self.mono)
        self.roster.up(slot, 1)

    @rule(pick=st.integers(0, SLOTS - 1))
    def take_back(self, pick: int) -> None:
        """What its worker hasn't claimed."""
        slot = self.busy_slot(pick)
        back = [run for run in self.held(slot) if run not in self.claimed(slot)]
        withdrawn = self.roster.withdrawn(self.roster[slot], [self.runs[run].ticket for run in back])
        assert withdrawn == [self.runs[run] for run in back]
        if back:
            self.roster.acknowledged(self.roster[slot])
        for run in reversed(back):
            self.same(self.shadow.put_back(run), self.timetable.put_back(self.runs[run], self.now))

    @precondition(lambda self: self.to_retract)
    @rule(pick=st.integers(0, 5))
    def retract(self, pick: int) -> None:
        """An operation has asked for a run in a worker's hands; meanwhile anything may have happened."""
        run = self.to_retract.pop(pick % len(self.to_retract))
        if run.where == "offered":
            real = self.runs[run]
            self.roster.withdrawn(self.roster[real.slot], [real.ticket])
            self.roster.acknowledged(self.roster[real.slot])
            self.same(self.shadow.drop(run), self.timetable.drop(real, self.now))

    # -- a turn, as the loop makes them: without it, few runs would get far

    @rule(seconds=st.sampled_from([0, 3, 10, 10, 25, 100]), slot=st.integers(0, SLOTS - 1), limit=st.integers(1, 3))
    def turn(self, seconds: int, slot: int, limit: int) -> None:
        self.advance(seconds, look=True)
        self.take(slot, limit, 10**6)

    @rule(
        seconds=st.sampled_from([1, 7, 10, 25, 35, 100]),
        pick=st.integers(0, SLOTS - 1),
        outcome=st.sampled_from([Outcome.SUCCEEDED, Outcome.FAILED]),
        ago=st.sampled_from([0, 0, 1, 6]),
    )
    def run_on(self, seconds: int, pick: int, outcome: Outcome, ago: int) -> None:
        self.claim(pick)
        self.advance(seconds, look=False)
        self.report(pick, outcome, ago)
        self.promote()
        self.take(pick, 1, 1)

    # -- the end

    @precondition(lambda self: not self.closed)
    @rule(cancel_calls=st.booleans(), really=st.integers(0, 9))
    def close(self, cancel_calls: bool, really: int) -> None:
        if really == 0:
            self.closed = True
            effects = self.shadow.close(cancel_calls)
            changes = self.timetable.close(self.now, cancel_calls=cancel_calls)
            changes.over.clear()
            self.same(effects, changes)

    def teardown(self) -> None:
        """Nothing is left over when all that was begun is ended."""
        if self.failed:
            return
        changes = self.timetable.close(self.now, cancel_calls=True)
        self.same(self.shadow.close(True), changes)
        for slot in self.roster:
            for run in list(slot.runs.values()):
                slot.reported(run.ticket, self.mono)
                self.timetable.started(run)
                self.timetable.settle(run, Outcome.SUCCEEDED, self.mono, self.now)
        self.timetable.check_valid()
        assert (self.timetable.calls, self.timetable.live) == (0, 0)
        assert not self.timetable.jobs and not self.timetable.ghosts and self.timetable.is_idle()
        assert list(self.timetable.queues.items()) == []


def _name(run: ShadowRun | Run) -> tuple[int, int, bool]:
    job = run.job if isinstance(run, ShadowRun) else run.row
    return run.generation, run.number, job is None


def test_the_timetable_does_what_its_shadow_does() -> None:
    """Thousands of random steps, and after each of them both accounts agree and every law holds."""
    long = os.environ.get("HYPOTHESIS_PROFILE") == "long"
    run_state_machine_as_test(TimetableMachine, settings=LONG if long else QUICK)
