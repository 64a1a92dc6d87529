"""ProcessScheduler: the public face. Checks everything at the door, in callers' threads; the engine does the rest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from procsched import context, doorway, lifecycle, taskfile
from procsched.clock import SystemClock
from procsched.core.durations import duration_ns
from procsched.core.model import JobRow, JobState, Priority, ReadyOrder, Timebase
from procsched.core.schedules import At
from procsched.engine import Engine
from procsched.figures import health_of, stats_of, workers_of
from procsched.inorder import all_or_none, in_order
from procsched.instance import InstanceLock
from procsched.jobs import Job
from procsched.pool.api import PoolSettings

if TYPE_CHECKING:
    from types import ModuleType

    from procsched.clock import Clock
    from procsched.core.durations import Duration
    from procsched.core.retry import Retry
    from procsched.core.schedules import Schedule
    from procsched.events import Event
    from procsched.figures import Health, SchedulerStats, WorkerInfo
    from procsched.pool.api import Pool

__all__ = ["ProcessScheduler"]

_T = TypeVar("_T")


class ProcessScheduler(Executor):
    """Runs calls and periodic jobs on a fixed pool of worker processes.

    Args:
        workers: Number of worker processes; by default what this process may use (affinity and cgroup quota count).
            ``max_workers`` is the same.
        initializer, initargs: Called in every worker, replacements too, before its first run.
        max_tasks_per_child: Replace a worker after so many runs, between runs.
        max_memory_per_child: Replace a worker whose own memory is above this after a run; bytes, or ``"512MiB"``.
        threads_per_worker: Threads that numeric libraries may use in a worker; by default each worker's share of the
            cores. Variables that are set already win.
        env: Added to the environment of the workers.
        spare_workers: Started workers kept ready to replace a lost one at once.
        max_pending: Bound on calls that are accepted and not finished; recurring jobs don't count.
        on_full: What ``submit`` does at that bound: ``"block"``, or ``"raise"`` `SchedulerFull`.
        ready_order: Who goes first among due runs.
        single_instance: Path of a lock file: a second scheduler on it raises `AlreadyRunning`.
        clock, pool: For tests (`procsched.testing`), and for other pools.
        start_timeout: Seconds after which a worker that isn't ready is given up and tried again.
        name: In logs and thread names.

    Threads and workers start with the first job or call. Leaving a ``with`` block shuts down and waits.

    Raises:
        TypeError, ValueError: Senseless arguments, or more workers than there are file descriptors for.
        AlreadyRunning: ``single_instance`` is held by another scheduler.
        OSError: This platform isn't supported, or the lock file can't be opened.
    """

    _threaded = True

    def __init__(
        self,
        workers: int | None = None,
        *,
        max_workers: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        max_tasks_per_child: int | None = None,
        max_memory_per_child: int | str | None = None,
        threads_per_worker: int | None = None,
        env: Mapping[str, str] | None = None,
        spare_workers: int = 0,
        max_pending: int | None = None,
        on_full: str = "block",
        ready_order: ReadyOrder = ReadyOrder.DUE,
        single_instance: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        pool: Pool | None = None,
        start_timeout: Duration = 60,
        name: str = "procsched",
    ) -> None:
        doorway.check_platform()
        if workers is not None and max_workers is not None:
            raise TypeError("workers and max_workers are the same; give one of them")
        asked = workers if workers is not None else max_workers
        cores = _cores() if pool is None else 1
        count = cores if asked is None else doorway.whole(asked, "workers" if workers is not None else "max_workers")
        spares = doorway.whole(spare_workers, "spare_workers", least=0, example="1")
        tasks = None if max_tasks_per_child is None else doorway.whole(max_tasks_per_child, "max_tasks_per_child")
        memory = None
        if max_memory_per_child is not None:
            memory = doorway.size_of(max_memory_per_child, "max_memory_per_child")
        pending = None if max_pending is None else doorway.whole(max_pending, "max_pending", example="1000")
        if on_full not in ("block", "raise"):
            raise ValueError(f"on_full must be 'block' or 'raise', not {on_full!r}")
        if not isinstance(ready_order, ReadyOrder):
            raise TypeError(f"ready_order must be ReadyOrder.DUE or ReadyOrder.PRIORITY, not {ready_order!r}")
        if not (isinstance(name, str) and name):
            raise TypeError(f"name must be a text such as 'procsched', not {name!r}")
        timeout = duration_ns(start_timeout, "start_timeout")
        environment = doorway.worker_environment(env, threads_per_worker, count, cores)
        started_by = None
        if initializer is not None:
            fn, arguments = doorway.check_callable_initializer(initializer, initargs)
            started_by = doorway.ship_initializer(fn, arguments)
        if pool is None:
            doorway.check_descriptors(count, spares)
            if _inert_because() is None:
                from procsched.pool.process_pool import ProcessPool

                pool = ProcessPool()
        self._lock_file: InstanceLock | None = None
        settings = PoolSettings(
            workers=count,
            name=name,
            spares=spares,
            initializer=started_by,
            env=environment,
            max_memory=memory,
        )
        self._engine = Engine(
            pool if pool is not None else lifecycle.NO_POOL,
            clock if clock is not None else SystemClock(),
            settings,
            order=ready_order,
            max_tasks=tasks,
            max_pending=pending,
            refuse=on_full == "raise",
            start_timeout=timeout,
            threaded=self._threaded,
        )
        if (reason := _inert_because()) is not None:
            self._engine.become_inert(reason)
            return
        if single_instance is not None:
            self._lock_file = InstanceLock(single_instance)
        lifecycle.watch(self, self._engine, self._lock_file)

    # -- calls ----------------------------------------------------------------------------------------------------

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Run ``fn(*args, **kwargs)`` as soon as a worker is free.

        Raises:
            NotShippable, TypeError: ``fn`` or an argument can't be sent to a worker.
            SchedulerFull: ``max_pending`` is reached, with ``on_full="raise"``.
            SchedulerClosed: After shutdown.
        """
        engine = self._engine
        if not engine.admits:
            engine.check_open()  # before anything is pickled
        return engine.submit(engine.pool.ship(fn, args, kwargs))

    def submit_at(self, when: datetime, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Run ``fn(*args, **kwargs)`` at an aware datetime, or at once if that is past. Raises as `submit` does."""
        instant = At(when).first(0)
        assert instant is not None
        engine = self._engine
        engine.check_open()
        return engine.submit_at(engine.pool.ship(fn, args, kwargs), instant, Timebase.WALL)

    def submit_after(self, delay: Duration, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Run ``fn(*args, **kwargs)`` after a delay (seconds, timedelta or ``"90s"``). Raises as `submit` does."""
        wait = duration_ns(delay, "submit_after() delay", zero=True)
        engine = self._engine
        engine.check_open()
        payload = engine.pool.ship(fn, args, kwargs)
        return engine.submit_at(payload, engine.clock.monotonic_ns() + wait, Timebase.MONOTONIC)

    def map(
        self, fn: Callable[..., _T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[_T]:
        """Like the built-in ``map``, with the calls made by workers, ``chunksize`` of them at a time.

        ``timeout`` (seconds) counts from the call; when it has passed, asking for the next value raises
        `TimeoutError`. All calls are submitted before this returns.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        end = None if timeout is None else time.monotonic() + timeout
        if chunksize == 1:
            return in_order(all_or_none(self.submit, ((fn, *args) for args in zip(*iterables, strict=False))), end)
        from functools import partial

        from procsched.chunks import chunked, run_chunk

        chunks = chunked(zip(*iterables, strict=False), chunksize)
        parts = all_or_none(self.submit, ((partial(run_chunk, fn), chunk) for chunk in chunks))
        return (value for part in in_order(parts, end) for value in part)

    # -- jobs -----------------------------------------------------------------------------------------------------

    def schedule(
        self,
        fn: Callable[..., Any],
        when: Schedule | datetime,
        *,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,  # its name everywhere
        replace_existing: bool = False,
        tags: Iterable[str] = (),
        priority: int = Priority.MEDIUM,
        max_instances: int = 1,
        retry: Retry | None = None,
        pause_after_failures: int | None = None,
        timeout: Duration | None = None,
        warn_after: Duration | None = None,
        misfire_grace_time: Duration | None = None,
    ) -> Job:
        """Run ``fn(*args, **kwargs)`` as ``when`` says.

        Function and arguments are pickled here, once: every run starts from that snapshot.

        Args:
            when: A Schedule, or an aware datetime (`At`).
            id: By default made of the function's name. It is free again as soon as the job has ended.
            replace_existing: Replace a job of this id: what of it waits never starts, what executes finishes.
            tags: Labels for `get_jobs`, `pause` and `resume`.
            priority: The smaller runs first among runs that became due together.
            max_instances: Runs of the job that may execute at once.
            retry: Attempts in all of the same run.
            pause_after_failures: Pause the job after so many failed runs in a row. Default: never.
            timeout: Limit on the execution of one attempt; past it the worker and all its descendants are ended.
            warn_after: An execution past it is logged, with the worker's Python stack; it goes on.
            misfire_grace_time: A run that can't start within it of its planned time is skipped. Default: it runs late.

        Raises:
            NotShippable, TypeError, ValueError: Something can't be sent, or makes no sense; nothing is registered.
            ConflictingIdError: The id is in use.
            SchedulerClosed: After shutdown.
        """
        engine = self._engine
        engine.check_open()
        plan = doorway.schedule_of(when)
        options = doorway.job_options(
            plan,
            priority=priority,
            max_instances=max_instances,
            retry=retry,
            pause_after_failures=pause_after_failures,
            timeout=timeout,
            warn_after=warn_after,
            misfire_grace_time=misfire_grace_time,
            tags=tags,
        )
        arguments, keywords = doorway.arguments(args, kwargs)
        if id is not None:
            _check_id(id)
        payload = engine.pool.ship(fn, arguments, keywords)
        row = JobRow(self._new_id(payload.function.name) if id is None else id, plan, payload, options)
        engine.add(row, replace=bool(replace_existing))
        return Job(engine, row)

    def _new_id(self, name: str) -> str:
        engine = self._engine
        while (made := f"{name}-{engine.next_number()}") in engine.timetable.jobs:
            continue  # somebody gave that one to a job of his
        return made

    def load(self, path_or_module: str | os.PathLike[str] | ModuleType) -> list[Job]:
        """Schedule the jobs of a task file, all or none, and then call its ``setup(scheduler)``, if it has one.

        Raises:
            TaskFileError: The file is missing, broken, or defines nothing.
            ConflictingIdError: One of its ids is in use.
        """
        self._engine.check_open()
        loaded = taskfile.load(path_or_module)
        if loaded.source is not None:
            self._engine.load_in_workers(loaded.source)
        jobs: list[Job] = []
        try:
            for definition in loaded.jobs:
                jobs.append(definition.schedule_on(self))
        except BaseException:
            for job in jobs:
                job.cancel()
            raise
        if loaded.setup is not None:
            loaded.setup(self)
        return jobs

    def get_jobs(self, tag: str | None = None) -> list[Job]:
        """The jobs that haven't ended, in the order of scheduling; with ``tag`` only those that have it."""
        self._engine.check_usable()
        return [Job(self._engine, row) for row in self._engine.rows() if tag is None or tag in row.options.tags]

    def get_job(self, id: str) -> Job:
        """The job with this id; `JobLookupError` if there is none."""
        return Job(self._engine, self._engine.find(id))

    __getitem__ = get_job

    def cancel(self, id: str) -> bool:
        """End a job, as `Job.cancel` does; `JobLookupError` if there is none."""
        return self._engine.cancel_id(id)

    def pause(self, id: str | None = None, *, tag: str | None = None) -> None:
        """Pause one job, all jobs with a tag, or all; `JobLookupError` for an unknown id."""
        self._each(id, tag, self._engine.pause, JobState.SCHEDULED)

    def resume(self, id: str | None = None, *, tag: str | None = None) -> None:
        """Resume one job, all jobs with a tag, or all; `JobLookupError` for an unknown id."""
        self._each(id, tag, self._engine.resume, JobState.PAUSED)

    def _each(self, id: str | None, tag: str | None, act: Callable[[JobRow], None], state: JobState) -> None:
        if id is not None:
            if tag is not None:
                raise TypeError("give an id or a tag, not both")
            act(self._engine.find(id))
            return
        from procsched.errors import JobLookupError

        for job in self.get_jobs(tag):
            if job.state is state:
                try:
                    act(job._row)
                except JobLookupError:
                    continue  # it ended in this moment

    # -- what is going on -----------------------------------------------------------------------------------------

    def workers(self) -> list[WorkerInfo]:
        """The slots of the pool and what is in them."""
        self._engine.check_usable()
        return workers_of(self._engine)

    def stack(self, which: str | int) -> str:
        """The Python stacks of all threads of a worker, now: also of one that holds its interpreter lock.

        Args:
            which: The id of a job that executes, or a worker's slot.

        Returns:
            Text, innermost call first; empty when none came within 0.2 s, and for a job that doesn't execute.
        """
        self._engine.check_usable()
        for worker in workers_of(self._engine):
            name = worker.current.rpartition(" #")[0] if worker.current else None
            if worker.slot == which or (name is not None and name == which):
                return self._engine.pool.dump_stack(worker.slot)
        return ""

    def stats(self) -> SchedulerStats:
        """Counts since the start."""
        self._engine.check_usable()
        return stats_of(self._engine)

    def health(self) -> Health:
        """Whether the loop turns, and how long the oldest due run has been waiting."""
        self._engine.check_usable()
        return health_of(self._engine)

    def wait(self, timeout: float | None = None) -> bool:
        """Until nothing is left to run, paused jobs aside. False when ``timeout`` seconds passed first.

        Raises:
            PoolUnusable, InternalError: The scheduler has ended itself.
        """
        engine = self._engine
        engine.check_usable()
        return engine.waiting.until(engine.is_idle, doorway.seconds(timeout, "wait() timeout"))

    def subscribe(self, callback: Callable[[Any], object], *event_types: type[Event]) -> Callable[[], None]:
        """Call ``callback(event)`` for each event of these types, or of all; returns a function that ends that.

        Callbacks run in order, on a thread of their own: a slow one delays nobody's run, one that raises is logged.
        """
        self._engine.check_usable()
        return self._engine.announcer.subscribe(callback, event_types)

    # -- the end --------------------------------------------------------------------------------------------------

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False, timeout: float | None = None) -> None:
        """Take no new work, let what executes and what was submitted for now finish, and end.

        Jobs and delayed calls make no further run. Idempotent, from any thread; from a callback it doesn't wait.

        Args:
            wait: Return when everything has ended.
            cancel_futures: Cancel submitted calls that wait for a worker, too.
            timeout: Seconds after which what still executes is ended with its descendants, and recorded ABORTED.
        """
        limit = doorway.seconds(timeout, "shutdown() timeout")
        self._engine.shutdown(wait=wait, cancel_calls=cancel_futures, timeout=limit)

    def __enter__(self) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a scheduler can't be sent to a worker, which could only pretend to use it; "
            "return a value from the run, and let the parent schedule"
        )

    def __repr__(self) -> str:
        engine = self._engine
        state = "shut down" if engine.closing else "open"
        return f"<{type(self).__name__} {engine.name!r}, {len(engine.roster.slots)} workers, {state}>"


def _check_id(id: object) -> None:
    if not isinstance(id, str):
        raise TypeError(f"id must be a str, not {id!r}")
    if not id:
        raise ValueError("id must not be empty; leave it out to have one made")


def _inert_because() -> str | None:
    if context.in_worker():
        return "this is a worker: the scheduler lives in the parent process, and a copy of it here could only pretend"
    if taskfile.is_loading():
        return (
            "a task file is being loaded, and only what it defines is wanted of it: its jobs are made by @job and by"
            ' setup(scheduler). Put a main part of its own behind: if __name__ == "__main__":'
        )
    return None


def _cores() -> int:
    from procsched.pool.cores import cpu_count

    return cpu_count()
