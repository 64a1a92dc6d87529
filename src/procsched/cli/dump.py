"""Dump: what a person wants to know of a program that hangs, into the log, at SIGUSR1. In the parent, in any thread."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from typing import TYPE_CHECKING

from procsched.figures import health_of, stats_of, waiting_of, workers_of
from procsched.observe import human

if TYPE_CHECKING:
    from procsched.scheduler import ProcessScheduler

__all__ = ["dump"]

_log = logging.getLogger("procsched.scheduler")
_MOST = 50


def dump(scheduler: ProcessScheduler) -> None:
    """State, workers with their stacks, what waits, jobs, and the stacks of our own threads, in one record."""
    engine = scheduler._engine
    health = health_of(engine)
    parts = [f"health: {health}"]
    if engine.lock.acquire(timeout=1):  # a loop that is stuck with the lock is what one may be looking for
        engine.lock.release()
        parts.append(f"stats: {stats_of(engine)}")
        waiting = waiting_of(engine, _MOST)
        parts += [f"waits: {run.run}, {human.seconds(run.seconds)}: {run.why}" for run in waiting]
        for job in scheduler.get_jobs()[:_MOST]:
            parts.append(f"job: {job.id}, {job.state.value}, {job.executing} executing, next {job.next_run_time}")
    else:
        parts.append("the scheduler's lock can't be had: jobs and queues can't be looked at")
    for worker in workers_of(engine):
        parts.append(f"worker: {worker}")
        if worker.current is not None:
            parts.append(_indented(engine.pool.dump_stack(worker.slot) or "no stack came"))
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread: {names.get(ident, ident)}")
        parts.append(_indented("".join(traceback.format_stack(frame))))
    _log.warning("%s", "state, as asked for:\n" + "\n".join(parts))


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())
