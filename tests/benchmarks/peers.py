"""The executors that are compared, each with its defaults and two workers, warm. Runs in a child of the driver.

Processes of the peers are spawned, not forked: after warming up that makes no difference, and their CPU time is ours to
count. procsched has everything on that it can account for: records, counters, Futures, and a subscriber for all events.
"""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from procsched import Event, ProcessScheduler, RunEnded, RunRecord

__all__ = ["EXECUTORS", "WORKERS", "Executor", "busy", "nothing", "observed", "timed"]

WORKERS = 2
WARM_UP = 200

nothing = os.getpid
"""The task of most measurements: what the rest of a call costs."""


def busy(seconds: float) -> None:
    """Of CPU time, so that whoever else runs doesn't shorten it."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Witness:
    """A subscriber for all events. It counts them, and the ends of runs for themselves."""

    def __init__(self) -> None:
        self.events = 0
        self.ends = 0
        self.lateness: dict[str, list[float]] = {}
        """Seconds, by job, of those that were entered here."""

    def __call__(self, event: Event) -> None:
        self.events += 1
        if type(event) is RunEnded:
            self.ends += 1
            if self.lateness:
                self._enter(event.record)

    def _enter(self, record: RunRecord) -> None:
        if record.lateness is not None and record.job_id in self.lateness:
            self.lateness[record.job_id].append(record.lateness)


@contextmanager
def observed(workers: int = WORKERS, **options: Any) -> Iterator[tuple[ProcessScheduler, Witness]]:
    """procsched, its workers up. At the end the account must be complete: an event for every run that ended."""
    witness = Witness()
    with ProcessScheduler(workers, **options) as scheduler:
        scheduler.subscribe(witness)
        scheduler.submit(nothing).result()
        while scheduler.health().workers_up < workers:
            time.sleep(0.01)
        for future in [scheduler.submit(nothing) for _ in range(WARM_UP)]:
            future.result()
        yield scheduler, witness
    stats = scheduler.stats()
    assert stats.started == stats.ended == witness.ends - stats.skipped - stats.cancelled, (stats, witness.ends)


@dataclasses.dataclass(frozen=True)
class Executor:
    """How to make calls, and to get what they return."""

    submit: Callable[..., Any]
    get: Callable[[Any], Any]
    tupled: bool = False
    """Arguments go in a tuple behind the function; or else as they are."""

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.submit(function, args) if self.tupled else self.submit(function, *args)

    def warm(self) -> Executor:
        for call in [self.submit(nothing) for _ in range(WARM_UP)]:
            self.get(call)
        return self


def _result(future: Any) -> Any:
    return future.result()


@contextmanager
def procsched(workers: int = WORKERS) -> Iterator[Executor]:
    with observed(workers) as (scheduler, _witness):
        yield Executor(scheduler.submit, _result)


@contextmanager
def pool(workers: int = WORKERS) -> Iterator[Executor]:
    with multiprocessing.get_context("spawn").Pool(workers) as made:
        yield Executor(made.apply_async, lambda result: result.get(), tupled=True).warm()


@contextmanager
def futures(workers: int = WORKERS) -> Iterator[Executor]:
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as made:
        yield Executor(made.submit, _result).warm()


@contextmanager
def loky(workers: int = WORKERS) -> Iterator[Executor]:
    from loky import get_reusable_executor

    made = get_reusable_executor(workers)
    yield Executor(made.submit, _result).warm()
    made.shutdown()


@contextmanager
def pebble(workers: int = WORKERS) -> Iterator[Executor]:
    from pebble import ProcessPool

    with ProcessPool(workers, context=multiprocessing.get_context("spawn")) as made:
        yield Executor(made.schedule, _result, tupled=True).warm()


@contextmanager
def apscheduler(workers: int = WORKERS) -> Iterator[Executor]:
    """A job that is due at once for every call, its value from the event of its end."""
    with background(workers) as scheduler:
        made = _Answers(scheduler)
        yield Executor(made.submit, made.get).warm()


@contextmanager
def background(workers: int = WORKERS) -> Iterator[Any]:
    """APScheduler's BackgroundScheduler on a process pool."""
    import logging

    from apscheduler.executors.pool import ProcessPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler

    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)
    executor = ProcessPoolExecutor(workers, pool_kwargs={"mp_context": multiprocessing.get_context("spawn")})
    scheduler = BackgroundScheduler(executors={"default": executor}, timezone="UTC")
    scheduler.start()
    try:
        yield scheduler
    finally:
        scheduler.shutdown()


class _Answers:
    """Values by job, for a scheduler that has no Futures."""

    def __init__(self, scheduler: Any) -> None:
        from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MISSED

        self._scheduler = scheduler
        self._values: dict[str, Any] = {}
        self._news = threading.Condition()
        scheduler.add_listener(self._ended, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR | EVENT_JOB_MISSED)

    def _ended(self, event: Any) -> None:
        with self._news:
            self._values[event.job_id] = event
            self._news.notify_all()

    def submit(self, function: Callable[..., Any], *args: Any) -> str:
        return str(self._scheduler.add_job(function, args=args, misfire_grace_time=None).id)

    def get(self, job_id: str) -> Any:
        with self._news:
            while job_id not in self._values:
                self._news.wait()
            event = self._values.pop(job_id)
        if event.exception:
            raise event.exception
        return event.retval


EXECUTORS: dict[str, Any] = {
    "procsched": procsched,
    "multiprocessing.Pool": pool,
    "concurrent.futures": futures,
    "loky": loky,
    "pebble": pebble,
    "APScheduler": apscheduler,
}


def timed(work: Callable[[], object]) -> float:
    """Seconds that it takes, with the heap clean before."""
    gc.collect()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
