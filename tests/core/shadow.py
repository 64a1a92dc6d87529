"""The shadow of the timetable: the same rules once more, by plain lists and loops, slow and obvious.

Nothing here is kept that can be counted: which runs are in hand, who is full, what comes first is looked up anew each
time in one list of everything. Slots are found by walking from one to the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from procsched.core.model import JobOptions, Missed, Outcome, Timebase
from procsched.core.retry import Retry
from procsched.core.schedules import After, At, FixedDelay, FixedRate, Schedule

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
ALONE = 1 << 60
FAILURES = (Outcome.FAILED, Outcome.CRASHED, Outcome.TIMED_OUT)


class Grid(Schedule):
    """A calendar without zones: every whole multiple of a period since the epoch."""

    timebase = Timebase.WALL

    def __init__(self, period: int, missed: Missed) -> None:
        self.period = period
        self.missed = missed

    def first(self, now: int) -> int:
        return (now // self.period + 1) * self.period

    def next(self, planned: int, finished: int) -> int:
        return planned + self.period

    def latest(self, planned: int, now: int) -> tuple[int, int]:
        count = max(0, (now - planned) // self.period)
        return planned + count * self.period, count

    def gap(self, planned: int) -> int:
        return self.period


class OneByOne(Schedule):
    """A user's own: it knows the next slot, and nothing of several; and it breaks sometimes, if told to."""

    timebase = Timebase.MONOTONIC

    def __init__(self, period: int, missed: Missed, breaks: bool) -> None:
        self.period = period
        self.missed = missed
        self.breaks = breaks

    def first(self, now: int) -> int:
        return now + self.period

    def next(self, planned: int, finished: int) -> int:
        if self.breaks and planned // SECOND % 3 == 0:
            raise ZeroDivisionError("broken")
        return planned + self.period


class Broken(Exception):
    """What the shadow's schedules raise."""


@dataclass(frozen=True)
class Plan:
    """A schedule as the shadow knows it. Times in ns."""

    kind: str
    period: int = 10 * SECOND
    delay: int = 0
    missed: Missed = Missed.CATCH_UP
    times: int | None = None
    until: int | None = None
    starting: int | None = None

    @property
    def wall(self) -> bool:
        return self.kind in ("grid", "at")

    def schedule(self) -> Schedule:
        """The real one."""
        period, delay = timedelta(microseconds=self.period // 1000), timedelta(microseconds=self.delay // 1000)
        made: Schedule
        if self.kind == "rate":
            made = FixedRate(period, initial_delay=delay, missed=self.missed)
        elif self.kind == "delay":
            made = FixedDelay(period, initial_delay=delay)
        elif self.kind == "after":
            made = After(delay)
        elif self.kind == "at":
            made = At(_moment(self.delay))
        elif self.kind == "grid":
            made = Grid(self.period, self.missed)
        else:
            made = OneByOne(self.period, self.missed, self.kind == "breaks")
        if self.times is not None:
            made = made.times(self.times)
        if self.until is not None:
            made = made.until(_moment(self.until))
        if self.starting is not None:
            made = made.starting(_moment(self.starting))
        return made

    # -- what it answers, bounds included; `now` is (mono, wall)

    def base(self, now: tuple[int, int]) -> int:
        return now[1] if self.wall else now[0]

    def as_mono(self, slot: int, now: tuple[int, int]) -> int:
        return slot - now[1] + now[0] if self.wall else slot

    def as_wall(self, slot: int, now: tuple[int, int]) -> int:
        return slot if self.wall else slot - now[0] + now[1]

    def within(self, slot: int, now: tuple[int, int]) -> bool:
        return self.until is None or self.as_wall(slot, now) <= self.until

    def first(self, now: tuple[int, int]) -> int | None:
        asked = self.base(now)
        if self.starting is not None:
            start = self.starting if self.wall else self.starting - now[1] + now[0]
            asked = max(asked, start - 1 if self.wall else start)
        if self.kind == "at":
            slot = self.delay
        elif self.kind == "grid":
            slot = asked + self.period - asked % self.period
        elif self.kind in ("own", "breaks"):
            slot = asked + self.period
        else:
            slot = asked + self.delay
        if self.starting is not None and self.as_wall(slot, now) < self.starting:
            return None
        return slot if self.within(slot, now) else None

    def after(self, slot: int, finished: int, now: tuple[int, int]) -> int | None:
        if self.kind in ("at", "after"):
            return None
        if self.kind == "breaks" and slot // SECOND % 3 == 0:
            raise Broken
        following = (finished if self.kind == "delay" else slot) + self.period
        if following <= slot:
            raise Broken
        return following if self.within(following, now) else None

    def due_by(self, slot: int, at: int, now: tuple[int, int]) -> list[int]:
        """All slots from this one on that are due by then, itself included."""
        slots = [slot]
        if self.kind in ("rate", "grid"):
            while slots[-1] + self.period <= at and self.within(slots[-1] + self.period, now):
                slots.append(slots[-1] + self.period)
        return slots

    def later_than(self, slot: int, at: int, now: tuple[int, int]) -> int | None:
        """The first slot from this one on that isn't due by then."""
        if self.kind == "delay":
            return self.after(slot, at, now)
        found: int | None = slot
        while found is not None and found <= at:
            found = self.after(self.due_by(found, at, now)[-1], at, now)
        return found


def _moment(ns: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ns // 1000)


@dataclass(eq=False)
class ShadowJob:
    """One generation table row, and its next slot."""

    id: str
    plan: Plan
    options: JobOptions
    generation: int = 0
    state: str = "scheduled"
    where: str = "none"
    """Of the next slot: timer, ready or none."""
    planned: int = 0
    due: int = 0
    order: int = 0
    under_way: bool = False
    made: int = 0
    number: int = 0
    missed: int = 0
    failures: int = 0
    epoch: int = 0
    resumed: int | None = None
    busy: tuple[int, int] | None = None
    extra: ShadowRun | None = None
    cost: int = ALONE

    @property
    def priority(self) -> int:
        return self.options.priority


@dataclass(eq=False)
class ShadowRun:
    """One run of a job, or one call."""

    job: ShadowJob | None
    generation: int
    number: int
    priority: int
    where: str
    """timer, ready, offered, executing, backoff or done."""
    due: int
    expected: int
    planned_wall: int
    order: int = 0
    planned: int | None = None
    in_wall: bool = False
    started: bool = False
    attempt: int = 1
    cost: int = ALONE

    @property
    def in_hand(self) -> bool:
        return self.started or self.where in ("offered", "executing")


@dataclass
class Effects:
    """What one operation did."""

    runs: list[ShadowRun] = field(default_factory=list)
    skipped: list[ShadowRun] = field(default_factory=list)
    cancelled: list[ShadowRun] = field(default_factory=list)
    offered: list[ShadowRun] = field(default_factory=list)
    ended: list[ShadowRun] = field(default_factory=list)
    paused: list[ShadowJob] = field(default_factory=list)
    finished: list[ShadowJob] = field(default_factory=list)
    retry_at: int | None = None
    prevented: bool = False


class Shadow:
    """All jobs and runs, in two lists."""

    def __init__(self, by_priority: bool, now: tuple[int, int]) -> None:
        self.by_priority = by_priority
        self.now = now
        self.jobs: list[ShadowJob] = []
        self.runs: list[ShadowRun] = []
        self.counter = 0
        self.generation = 0
        self.epoch = 0
        self.latest_wall: int | None = None
        self.closed = False

    # -- looking around

    def job(self, id: str) -> ShadowJob | None:
        return next((job for job in self.jobs if job.id == id), None)

    def runs_of(self, job: ShadowJob) -> list[ShadowRun]:
        return [run for run in self.runs if run.job is job]

    def is_full(self, job: ShadowJob) -> bool:
        in_hand = [run for run in self.runs if run.job is not None and run.job.id == job.id and run.in_hand]
        return len(in_hand) >= job.options.max_instances

    def is_busy(self, job: ShadowJob) -> bool:
        own = [run for run in self.runs_of(job) if run.in_hand and run.generation == job.generation]
        return len(own) >= job.options.max_instances

    def is_current(self, run: ShadowRun) -> bool:
        return run.job in self.jobs and run.generation == run.job.generation

    def is_spent(self, job: ShadowJob) -> bool:
        return job.plan.times is not None and job.made >= job.plan.times

    def ghosts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for run in self.runs:
            if run.job is not None and run.job not in self.jobs and run.in_hand:
                found[run.job.id] = found.get(run.job.id, 0) + 1
        return found

    def ready(self) -> list[ShadowJob | ShadowRun]:
        """What could be handed over now, in order."""
        found: list[ShadowJob | ShadowRun] = [job for job in self.jobs if job.where == "ready"]
        found += [run for run in self.runs if run.where == "ready"]
        return sorted((item for item in found if self.may_go(item)), key=self.key)

    def may_go(self, item: ShadowJob | ShadowRun) -> bool:
        if isinstance(item, ShadowJob):
            return not self.is_full(item)
        return item.job is None or item.started or not self.is_full(item.job)

    def key(self, item: ShadowJob | ShadowRun) -> tuple[int, int, int]:
        if self.by_priority:
            return item.priority, item.due, item.order
        return item.due, item.priority, item.order

    def timers(self, wall: bool) -> list[ShadowJob | ShadowRun]:
        found: list[ShadowJob | ShadowRun] = []
        found += [job for job in self.jobs if job.where == "timer" and job.plan.wall == wall]
        found += [run for run in self.runs if run.where in ("timer", "backoff") and run.in_wall == wall]
        return sorted(found, key=lambda item: (item.due, item.priority, item.order))

    def next_wakeup(self) -> int | None:
        times = [item.due for item in self.timers(False)[:1]]
        times += [self.now[0] + min(item.due - self.now[1], 30 * SECOND) for item in self.timers(True)[:1]]
        return min(times, default=None)

    def next_run(self, job: ShadowJob) -> int | None:
        if job not in self.jobs or job.state != "scheduled":
            return None
        slot: int | None = job.planned
        if job.where == "none":
            if not job.under_way or job.plan.kind == "delay" or self.is_spent(job):
                return None
            try:
                slot = job.plan.after(job.planned, job.planned, self.now)
            except Broken:
                return None
        return None if slot is None else job.plan.as_wall(slot, self.now)

    # -- small steps

    def stamp(self) -> int:
        self.counter += 1
        return self.counter

    def set_slot(self, job: ShadowJob, slot: int) -> None:
        job.planned = job.due = slot
        job.epoch = self.epoch
        job.where = "timer"
        job.order = self.stamp()

    def gone(self, run: ShadowRun, at: int) -> None:
        """The run is over: out of the list, its hand free."""
        job = run.job
        if job is not None:
            self.hand_back(job, run, at)
            if job.extra is run:
                job.extra = None
        run.where = "done"
        self.runs.remove(run)

    def hand_back(self, job: ShadowJob, run: ShadowRun, at: int) -> None:
        if run.in_hand and self.is_busy(job):
            if run.started and job.busy is not None:
                job.busy = (job.busy[0], at)
            elif not run.started:
                job.busy = None

    def take_hand(self, job: ShadowJob, run: ShadowRun) -> None:
        held = run.in_hand
        run.where = "offered"
        if not held and self.is_busy(job):
            job.busy = (self.now[0], -1)
        if job.extra is run:
            job.extra = None

    def new_run(self, job: ShadowJob, planned: int, expected: int) -> ShadowRun:
        job.number += 1
        job.made += 1
        job.planned = planned
        wall = job.plan.as_wall(planned, self.now)
        run = ShadowRun(job, job.generation, job.number, job.priority, "ready", job.due, expected, wall)
        run.planned, run.order, run.cost = planned, job.order, job.cost
        job.under_way = job.options.max_instances == 1
        job.where = "none"
        self.runs.append(run)
        return run

    def finish_if_over(self, job: ShadowJob, effects: Effects) -> None:
        idle = job.where == "none" and not job.under_way and not self.runs_of(job)
        if job in self.jobs and job.state == "scheduled" and idle:
            job.state = "finished"
            self.jobs.remove(job)
            effects.finished.append(job)

    # -- planning

    def plan_following(self, job: ShadowJob, planned: int, finished: int, effects: Effects) -> None:
        job.under_way = False
        job.planned = planned
        if job.state != "scheduled":
            return
        plan, now = job.plan, self.now
        try:
            slot = None if self.is_spent(job) else plan.after(planned, finished, now)
            if slot is not None and plan.wall and job.epoch != self.epoch:
                slot = plan.first(now)
            if slot is not None and job.resumed is not None and slot <= job.resumed:
                slot = plan.later_than(slot, job.resumed, now)
            one = job.options.max_instances == 1
            if slot is not None and one and plan.missed is Missed.SKIP and slot <= finished:
                passed = plan.due_by(slot, finished, now)
                slot = plan.after(passed[-1], finished, now)
                job.missed += len(passed)
        except Broken:
            self.pause_now(job, effects)
            return
        job.resumed = None
        self.plan_slot(job, slot, effects)

    def plan_slot(self, job: ShadowJob, slot: int | None, effects: Effects) -> None:
        if slot is not None and not self.is_spent(job):
            self.set_slot(job, slot)
        else:
            self.finish_if_over(job, effects)

    def go_on(self, job: ShadowJob, effects: Effects) -> None:
        at = job.plan.base(self.now) if job.resumed is None else job.resumed
        try:
            slot = None
            if not self.is_spent(job):
                anew = job.plan.wall and job.epoch != self.epoch
                slot = job.plan.first(self.now) if anew else job.plan.later_than(job.planned, at, self.now)
        except Broken:
            self.pause_now(job, effects)
            return
        self.plan_slot(job, slot, effects)

    def pause_now(self, job: ShadowJob, effects: Effects) -> None:
        job.where = "none"
        job.state = "paused"
        for run in self.runs_of(job):
            if run.planned is None or run.started or run.generation != job.generation:
                continue
            if run.where in ("timer", "ready"):
                self.drop(run)
            elif run.where == "offered":
                effects.offered.append(run)
        effects.paused.append(job)

    def clear(self, job: ShadowJob, effects: Effects, keep: list[ShadowRun]) -> None:
        job.where = "none"
        for run in self.runs_of(job):
            if run in keep:
                continue
            if run.where == "offered":
                effects.offered.append(run)
            elif run.where in ("timer", "ready", "backoff"):
                (effects.ended if run.started else effects.cancelled).append(run)
                self.gone(run, self.now[0])

    def end_job(self, job: ShadowJob, effects: Effects) -> None:
        if job.where == "ready":
            run = self.new_run(job, job.planned, job.due)
            effects.cancelled.append(run)
            self.gone(run, self.now[0])
        self.clear(job, effects, [])
        self.jobs.remove(job)
        job.state = "cancelled"

    # -- the operations

    def add(self, job: ShadowJob) -> Effects:
        effects = Effects()
        self.generation += 1
        job.generation = self.generation
        old = self.job(job.id)
        if old is not None:
            self.clear(old, effects, [])
            old.state = "cancelled"
        first = job.plan.first(self.now)
        place = self.jobs.index(old) if old is not None else len(self.jobs)
        self.jobs[place : place + (old is not None)] = [job]
        if first is None:
            self.finish_if_over(job, effects)
        else:
            self.set_slot(job, first)
        return effects

    def reschedule(self, job: ShadowJob, plan: Plan) -> Effects:
        effects = Effects()
        keep = [run for run in self.runs_of(job) if run.planned is None and not run.started]
        self.clear(job, effects, keep)
        self.generation += 1
        job.generation = self.generation
        for run in keep:
            run.generation = self.generation
        job.plan = plan
        job.made = job.failures = 0
        job.under_way = False
        job.resumed = job.busy = None
        first = plan.first(self.now)
        if first is None:
            job.state = "scheduled"
            self.finish_if_over(job, effects)
        elif job.state == "paused":
            job.planned, job.epoch = first, self.epoch
        else:
            self.set_slot(job, first)
        return effects

    def cancel(self, job: ShadowJob) -> Effects:
        effects = Effects()
        effects.prevented = job.state == "paused" or job.where != "none"
        if job.under_way and not self.is_spent(job):
            try:
                goes_on = job.plan.after(job.planned, job.plan.base(self.now), self.now) is not None
            except Broken:
                goes_on = False
            effects.prevented = effects.prevented or goes_on
        self.end_job(job, effects)
        effects.prevented = effects.prevented or bool(effects.cancelled or effects.ended)
        return effects

    def pause(self, job: ShadowJob) -> Effects:
        effects = Effects()
        if job.state == "scheduled":
            self.pause_now(job, effects)
        return effects

    def resume(self, job: ShadowJob) -> Effects:
        effects = Effects()
        if job.state == "paused":
            job.failures = 0
            job.resumed = job.plan.base(self.now)
            job.state = "scheduled"
            if not job.under_way:
                self.go_on(job, effects)
        return effects

    def run_now(self, job: ShadowJob) -> ShadowRun:
        if job.extra is None:
            job.number += 1
            mono, wall = self.now
            run = ShadowRun(job, job.generation, job.number, job.priority, "ready", mono, mono, wall, self.stamp())
            run.cost = job.cost
            job.extra = run
            self.runs.append(run)
        return job.extra

    def submit(self, number: int, when: int | None, in_wall: bool) -> ShadowRun:
        mono, wall = self.now
        run = ShadowRun(None, 0, number, 2, "ready", mono, mono, wall, self.stamp())
        if when is not None:
            run.where, run.due, run.planned, run.in_wall = "timer", when, when, in_wall
        self.runs.append(run)
        return run

    def promote(self) -> None:
        mono, wall = self.now
        if self.latest_wall is None or wall > self.latest_wall:
            self.latest_wall = wall
        elif wall < self.latest_wall - 3 * HOUR:
            self.latest_wall = wall
            self.epoch += 1
            for item in self.timers(True):
                if isinstance(item, ShadowJob) and (slot := item.plan.first(self.now)) is not None:
                    self.set_slot(item, slot)
        for in_wall in (False, True):
            for item in self.timers(in_wall):
                if item.due <= self.now[in_wall]:
                    item.due = item.due - wall + mono if in_wall else item.due
                    item.where = "ready"
                    item.order = self.stamp()
                    if isinstance(item, ShadowRun):
                        item.expected = item.due

    def take(self, limit: int, budget: int) -> Effects:
        effects, spent = Effects(), 0
        while len(effects.runs) < limit and (ready := self.ready()):
            item = ready[0]
            if effects.runs and spent + item.cost > budget:
                break
            run = self.take_slot(item, effects) if isinstance(item, ShadowJob) else self.take_run(item, effects)
            if run is not None:
                effects.runs.append(run)
                spent += run.cost
        return effects

    def is_passed_over(self, job: ShadowJob, slot: int, due: int) -> bool:
        if job.plan.missed is not Missed.SKIP:
            return False
        if job.busy is not None and job.busy[0] <= due <= job.busy[1]:
            return True
        grace = job.options.misfire_grace
        if grace is None:
            grace = 60 * SECOND
            if job.plan.kind in ("rate", "grid"):
                grace = min(grace, job.plan.period // 2)
        return self.now[0] - due > grace

    def take_slot(self, job: ShadowJob, effects: Effects) -> ShadowRun | None:
        plan, now = job.plan, self.now
        base = plan.base(now)
        slots = [job.planned] if plan.missed is Missed.CATCH_UP else plan.due_by(job.planned, base, now)
        due = job.due if len(slots) == 1 else plan.as_mono(slots[-1], now)
        job.missed += len(slots) - 1
        job.where = "none"
        if self.is_passed_over(job, slots[-1], due):
            job.missed += 1
            self.plan_following(job, slots[-1], base, effects)
            return None
        run = self.new_run(job, slots[-1], due)
        grace = job.options.misfire_grace
        if grace is not None and now[0] - due > grace:
            self.skip(job, run, effects)
            return None
        self.hand_over_slot(job, run, effects)
        return run

    def hand_over_slot(self, job: ShadowJob, run: ShadowRun, effects: Effects) -> None:
        self.take_hand(job, run)
        if job.options.max_instances > 1 and run.planned is not None:
            self.plan_following(job, run.planned, job.plan.base(self.now), effects)
            if run in effects.offered:  # a schedule that breaks after this slot doesn't take this slot back
                effects.offered.remove(run)

    def skip(self, job: ShadowJob, run: ShadowRun, effects: Effects) -> None:
        effects.skipped.append(run)
        self.gone(run, self.now[0])
        job.made -= 1
        if job.where == "none":
            self.plan_following(job, job.planned, job.plan.base(self.now), effects)

    def take_run(self, run: ShadowRun, effects: Effects) -> ShadowRun | None:
        job = run.job
        if job is None:
            run.where = "offered"
            return run
        if run.planned is not None and not run.started:
            if job.under_way and job.plan.missed is not Missed.CATCH_UP:
                slots = job.plan.due_by(run.planned, job.plan.base(self.now), self.now)
                if len(slots) > 1:
                    run.planned = job.planned = slots[-1]
                    run.planned_wall = job.plan.as_wall(slots[-1], self.now)
                    run.expected = job.plan.as_mono(slots[-1], self.now)
                    job.missed += len(slots) - 1
            grace = job.options.misfire_grace
            late = grace is not None and self.now[0] - run.expected > grace
            if late or self.is_passed_over(job, run.planned, run.expected):
                self.skip(job, run, effects)
                return None
        self.take_hand(job, run)
        return run

    def take_early(self, horizon: int) -> Effects:
        effects = Effects()
        soonest = [(item.due, item) for item in self.timers(False)[:1]]
        soonest += [(item.due - self.now[1] + self.now[0], item) for item in self.timers(True)[:1]]
        if not soonest:
            return effects
        due, item = min(soonest, key=lambda pair: pair[0])
        if due > self.now[0] + horizon or not self.may_go(item):
            return effects
        item.due = due
        item.order = -1  # it has never been among the ready
        if isinstance(item, ShadowRun):
            run = item
            if run.job is not None:
                self.take_hand(run.job, run)
            run.where, run.expected = "offered", due
        else:
            run = self.new_run(item, item.planned, due)
            self.hand_over_slot(item, run, effects)
        effects.runs.append(run)
        return effects

    def put_back(self, run: ShadowRun) -> Effects:
        job = run.job
        if job is not None:
            if not self.is_current(run) or (job.state == "paused" and run.planned is not None and not run.started):
                return self.drop(run)
            if not run.started:
                self.hand_back(job, run, self.now[0])
                if run.planned is None and job.extra is None:
                    job.extra = run
        run.where = "ready"
        if run.order < 0:
            run.order = self.stamp()
        if run.due > self.now[0]:
            run.where, run.in_wall, run.order = "backoff" if run.started else "timer", False, self.stamp()
        return Effects()

    def drop(self, run: ShadowRun) -> Effects:
        effects = Effects(prevented=True)
        job, current = run.job, self.is_current(run)
        self.gone(run, self.now[0])
        if job is None:
            effects.cancelled.append(run)
            return effects
        slot_run = current and run.planned is not None
        if run.started:
            effects.ended.append(run)
        elif slot_run:
            job.made -= 1
            job.number -= run.number == job.number
        else:
            effects.cancelled.append(run)
        if slot_run and job.under_way:
            job.under_way = False
            if job.state == "scheduled":
                self.go_on(job, effects)
        self.finish_if_over(job, effects)
        return effects

    def start(self, run: ShadowRun) -> None:
        run.where = "executing"
        run.started = True

    def tries_again(self, job: ShadowJob, run: ShadowRun, outcome: Outcome) -> bool:
        retry = job.options.retry
        if retry is None or run.attempt >= retry.attempts or self.closed or not self.is_current(run):
            return False
        return outcome in (Outcome.FAILED, Outcome.TIMED_OUT) or (outcome is Outcome.CRASHED and retry.on_crash)

    def settle(self, run: ShadowRun, outcome: Outcome, finished: int) -> Effects:
        effects = Effects()
        job = run.job
        if job is None:
            self.gone(run, finished)
            return effects
        retry = job.options.retry
        tries = retry is not None and run.attempt < retry.attempts and not self.closed and self.is_current(run)
        failed = outcome in (Outcome.FAILED, Outcome.TIMED_OUT)
        if tries and (failed or (outcome is Outcome.CRASHED and retry.on_crash)):
                pause = SECOND * 2 ** (run.attempt - 1)
                effects.retry_at = run.due = run.expected = max(finished, self.now[0]) + pause
                run.attempt += 1
                run.where, run.in_wall, run.order = "backoff", False, self.stamp()
                return effects
        current = self.is_current(run)
        self.gone(run, finished)
        if current:
            job.failures = job.failures + 1 if outcome in FAILURES else 0
            limit = job.options.pause_after_failures
            if limit is not None and job.failures >= limit and job.state == "scheduled":
                self.pause_now(job, effects)
            if run.planned is not None and job.under_way:
                base = finished - self.now[0] + self.now[1] if job.plan.wall else finished
                self.plan_following(job, run.planned, base, effects)
        self.finish_if_over(job, effects)
        return effects

    def close(self, cancel_calls: bool) -> Effects:
        effects = Effects()
        self.closed = True
        self.promote()
        for run in list(self.runs):
            if run.job is None and run.where in ("timer", "ready") and (cancel_calls or run.where == "timer"):
                effects.cancelled += self.drop(run).cancelled
        for job in list(self.jobs):
            self.end_job(job, effects)
        return effects


RETRIES = (None, Retry(2, backoff="1s"), Retry(3, backoff="1s", on_crash=False))
"""Pauses of 1 s, 2 s, …"""
