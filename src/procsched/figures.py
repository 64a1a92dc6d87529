"""Figures: what a scheduler tells about itself: `SchedulerStats`, `Health`, `WorkerInfo`. Any thread of the parent."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from procsched.core.model import Place, Run
from procsched.core.roster import SlotState
from procsched.ledger import job_id_of

if TYPE_CHECKING:
    from procsched.core.roster import Slot
    from procsched.engine import Engine

__all__ = [
    "Health",
    "SchedulerStats",
    "WaitingRun",
    "WorkerInfo",
    "current_of",
    "health_of",
    "stats_of",
    "waiting_of",
    "workers_of",
]

SECOND = 1_000_000_000
STUCK = 5.0
"""A loop with work that hasn't turned for so many seconds isn't well. A turn takes milliseconds."""
PATIENCE = 0.5
"""Seconds to wait for the lock, which nobody holds for longer than milliseconds: whoever asks how the loop is mustn't
wait for what it waits for."""


class SchedulerStats(NamedTuple):
    """Counts over all jobs and calls. ``ended`` is the sum of the first five outcomes; started = ended + executing."""

    started: int
    ended: int
    executing: int
    ready: int
    """Due, waiting for a worker."""
    scheduled: int
    """Waiting for their time."""
    succeeded: int
    failed: int
    crashed: int
    timed_out: int
    aborted: int
    skipped: int
    cancelled: int
    missed: int


class Health(NamedTuple):
    """Whether the scheduler does its work. Seconds."""

    ok: bool
    loop_age: float
    """Since the loop's last turn. An idle loop may sleep for long: it is old and well, as long as nothing is due."""
    oldest_due: float | None
    """How long the longest waiting run has been due; None when none waits."""
    workers_up: int


class WorkerInfo(NamedTuple):
    """One slot of the pool."""

    slot: int
    pid: int | None
    state: str
    """"down", "booting", "up" or "leaving"."""
    current: str | None
    """The run it executes, as ``"id #number"``."""
    runs_done: int
    """By the worker that is in it now."""
    memory: int | None
    """Resident bytes."""
    elapsed: float | None = None
    """Seconds that the current run has been executing, as far as is known; None when there is none."""


class WaitingRun(NamedTuple):
    """A run that is due and waits."""

    run: str
    """As ``"id #number"``; without a number while the run isn't made yet."""
    seconds: float
    """Since it was due."""
    why: str


def stats_of(engine: Engine) -> SchedulerStats:
    """All counts at one moment."""
    with engine.lock:
        ledger, timetable = engine.ledger, engine.timetable
        return SchedulerStats(
            started=ledger.started,
            ended=ledger.ended,
            executing=ledger.executing,
            ready=timetable.queues.ready + engine.roster.unclaimed(),
            scheduled=timetable.queues.timers,
            missed=timetable.missed,
            **{outcome.value: count for outcome, count in ledger.counts.items()},
        )


def health_of(engine: Engine) -> Health:
    """Whether the loop turns."""
    now, oldest = engine.clock.monotonic_ns(), None
    if can_look := engine.lock.acquire(timeout=PATIENCE):
        try:
            oldest = engine.timetable.queues.oldest_ready()
        finally:
            engine.lock.release()
    up = sum(slot.state is SlotState.UP for slot in engine.roster)
    age = max(0, now - engine.dispatcher.last_turn) / SECOND if engine.started else 0.0
    waited = None if oldest is None else max(0, now - oldest) / SECOND
    alive = engine.failure is None and engine.inert is None and not engine.stopping.ended.is_set()
    # A loop that sleeps is well, unless something has been due for longer than a turn could ever take.
    has_work = not can_look or bool(engine.mailbox) or (waited is not None and waited > STUCK)
    stuck = age > STUCK and has_work
    return Health(alive and not stuck, age, waited, up)


def workers_of(engine: Engine) -> list[WorkerInfo]:
    """The slots of the pool and what is in them."""
    infos = []
    now = engine.clock.monotonic_ns()
    for slot in engine.roster:
        pid = slot.pid or None
        current = current_of(slot)
        elapsed = max(0, now - slot.progress) / SECOND if current is not None else None
        memory = _memory_of(pid)
        infos.append(WorkerInfo(slot.index, pid, slot.state.value, current, slot.runs_done, memory, elapsed))
    return infos


def waiting_of(engine: Engine, most: int) -> list[WaitingRun]:
    """The first ``most`` of the runs that are due and wait for a worker, and why they do."""
    now = engine.clock.monotonic_ns()
    busy = engine.offering.held_by or "no worker is free"
    with engine.lock:
        queues = engine.timetable.queues
        entries = sorted(islice((*islice(queues.line, most), *islice(queues.heap, most)), 2 * most))[:most]
        found = [entry[3] for entry in entries] + list(islice(queues.arrivals, most))
        return [
            WaitingRun(_name_of(item), max(0, now - item.due) / SECOND, busy)
            for item in found[:most]
            if item.place in (Place.READY, Place.POSTED)
        ]


def _name_of(item: Any) -> str:
    if isinstance(item, Run):
        return f"{job_id_of(item)} #{item.number}" if item.payload is not None else f"#{item.number}"
    return str(item.id)


def current_of(slot: Slot) -> str | None:
    """The run that executes there, as ``"id #number"``."""
    runs = list(slot.runs.values())  # one step: the loop doesn't wait for us
    run = runs[0] if runs else None
    if run is None or (run.ticket == slot.armed and run.place is Place.OFFERED):
        return None
    try:
        return f"{job_id_of(run)} #{run.number}"
    except AttributeError:  # it has ended in this moment, and let go of its payload
        return None


def _memory_of(pid: int | None) -> int | None:
    if pid is None:
        return None
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None
