"""Board: what is going on, for those who show it. In the parent; no terminal, no web.

The events' thread counts each run in a few additions, straight from the ledger's line. Everything else is looked up
when somebody asks for a `BoardView`: some times a second, whatever the number of runs.
"""

from __future__ import annotations

import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from procsched.core.model import JobState
from procsched.errors import JobLookupError
from procsched.events import RunEnded, RunProgress
from procsched.figures import Health, SchedulerStats, WaitingRun, health_of, stats_of, waiting_of, workers_of
from procsched.ledger import SHORT, is_failure, record_of

if TYPE_CHECKING:
    from datetime import datetime

    from procsched.jobs import Job
    from procsched.records import RunRecord
    from procsched.scheduler import ProcessScheduler

__all__ = ["Board", "BoardView", "JobView", "WorkerView"]

_DURATIONS = 40
"""Latest durations of a job, for a sparkline."""
_LATENESSES = 200
_FAILURES = 50
_WAITING = 30
_MOST_JOBS = 2000
"""Jobs that are shown; of more, those that have run."""
_MOST_FIGURES = 5000
"""Jobs and functions that are counted by themselves."""
_MOST_WATCHED = 128
"""Workers whose CPU time is looked up: each takes a look into /proc."""


class WorkerView(NamedTuple):
    """One slot of the pool. Times in seconds."""

    slot: int
    pid: int | None
    state: str
    """down, booting, up (idle) or busy, leaving."""
    run: str
    """``"id #number"``, or empty."""
    elapsed: float | None
    fraction: float | None
    """What the run told of its progress, from 0 to 1."""
    message: str
    cpu: float | None
    """Of one core, since the last look: 1.0 is all of it."""
    memory: int | None
    """Resident bytes."""
    runs_done: int


class JobView(NamedTuple):
    """One job. Times in seconds."""

    id: str
    state: str
    executing: int
    next_run: datetime | None
    last_outcome: str
    runs: int
    failures: int
    lateness_p50: float | None
    lateness_p99: float | None
    durations: tuple[float, ...]
    """The latest, oldest first."""
    schedule: str


class BoardView(NamedTuple):
    """Everything at one moment."""

    at: float
    """Seconds since the Unix epoch."""
    uptime: float
    rate: float
    """Runs a second that ended lately."""
    health: Health
    stats: SchedulerStats
    workers: tuple[WorkerView, ...]
    jobs: tuple[JobView, ...]
    more_jobs: int
    """That there is no room for."""
    waiting: tuple[WaitingRun, ...]
    failures: tuple[RunRecord, ...]
    """The latest, newest first."""


class _Figures:
    __slots__ = ("durations", "failures", "latenesses", "outcome", "runs")

    def __init__(self) -> None:
        self.runs = self.failures = 0
        self.outcome = ""
        self.durations: deque[int] = deque(maxlen=_DURATIONS)
        self.latenesses: deque[int] = deque(maxlen=_LATENESSES)


class Board:
    """Watches a scheduler from now on, until `close`."""

    def __init__(self, scheduler: ProcessScheduler) -> None:
        self._scheduler = scheduler
        self._engine = scheduler._engine
        self._begun = time.monotonic()
        self._figures: dict[str, _Figures] = {}
        self._failures: deque[Any] = deque(maxlen=_FAILURES)
        self._progress: dict[tuple[str, int], tuple[float, str]] = {}
        self._ended = 0
        self._rates: deque[tuple[float, int]] = deque(maxlen=20)
        self._processes: dict[int, Any] = {}
        self._leave = (
            self._engine.announcer.follow(self._take),
            scheduler.subscribe(self._progressed, RunProgress),
        )

    def close(self) -> None:
        """Watches no longer."""
        for leave in self._leave:
            leave()

    # -- what happened: in the events' thread ---------------------------------------------------------------------

    def _take(self, news: list[tuple[Any, ...]]) -> None:
        figures, progress = self._figures, self._progress
        for item in news:
            if item[0] is not RunEnded:
                continue
            line = item[1]
            self._ended += 1
            if len(line) == SHORT:
                name, number, late, took = line[0], line[1], line[4] - line[6], line[5] - line[4]
            else:
                name, number, late, took = line[0], line[1], line[7], line[8]
                if not line[2]:
                    name = name.removesuffix(f"-{number}")
            job = figures.get(name)
            if job is None:
                if len(figures) >= _MOST_FIGURES:
                    continue
                job = figures[name] = _Figures()
            job.runs += 1
            job.durations.append(took)
            job.latenesses.append(late if late > 0 else 0)
            if len(line) == SHORT:
                job.outcome = "succeeded"
            else:
                job.outcome = line[13]
                if is_failure(line) and line[13] not in ("skipped", "cancelled"):
                    job.failures += 1
                    self._failures.appendleft(line)
            if progress:
                progress.pop((line[0], number), None)

    def _progressed(self, event: RunProgress) -> None:
        if len(self._progress) > _MOST_FIGURES:
            self._progress.clear()
        self._progress[event.job_id, event.number] = (event.fraction, event.message)

    # -- a look: any thread ---------------------------------------------------------------------------------------

    def view(self) -> BoardView:
        """How things stand."""
        now = time.monotonic()
        self._rates.append((now, self._ended))
        since, before = self._rates[0]
        rate = (self._ended - before) / (now - since) if now > since else 0.0
        jobs, more = self._jobs()
        return BoardView(
            at=time.time(),
            uptime=now - self._begun,
            rate=rate,
            health=health_of(self._engine),
            stats=stats_of(self._engine),
            workers=tuple(self._workers()),
            jobs=jobs,
            more_jobs=more,
            waiting=tuple(waiting_of(self._engine, _WAITING)),
            failures=tuple(record_of(line) for line in [*self._failures]),
        )

    def _workers(self) -> list[WorkerView]:
        views: list[WorkerView] = []
        pids: set[int] = set()
        for info in workers_of(self._engine):
            run = info.current or ""
            name, _, number = run.rpartition(" #")
            fraction, message = self._progress.get((name, int(number)), (None, "")) if number else (None, "")
            if info.pid is not None and len(views) < _MOST_WATCHED:
                pids.add(info.pid)
            state = "busy" if run and info.state == "up" else "idle" if info.state == "up" else info.state
            cpu = self._cpu_of(info.pid) if info.pid in pids else None
            views.append(
                WorkerView(
                    info.slot, info.pid, state, run, info.elapsed, fraction, message, cpu, info.memory, info.runs_done
                )
            )
        for pid in self._processes.keys() - pids:
            del self._processes[pid]
        return views

    def _cpu_of(self, pid: int | None) -> float | None:
        import psutil

        try:
            process = self._processes.get(pid or 0)
            if process is None:
                process = self._processes[pid or 0] = psutil.Process(pid)
                process.cpu_percent()  # from here on
                return None
            return float(process.cpu_percent()) / 100
        except psutil.Error:
            return None

    def _jobs(self) -> tuple[tuple[JobView, ...], int]:
        scheduler, total = self._scheduler, len(self._engine.timetable.jobs)
        if total <= _MOST_JOBS:
            found = scheduler.get_jobs()
        else:
            found = []
            for name in islice([*self._figures], _MOST_JOBS):
                try:
                    found.append(scheduler.get_job(name))
                except JobLookupError:
                    continue
        views = [self._view_of(job) for job in found]
        known = {view.id for view in views}
        gone = [(name, job) for name, job in [*self._figures.items()] if name not in known]
        views += [self._view(name, "ended", 0, None, "", job) for name, job in gone[: _MOST_JOBS - len(views)]]
        return tuple(views), max(0, total - len(found))

    def _view_of(self, job: Job) -> JobView:
        state = job.state
        word = "paused" if state is JobState.PAUSED else "running" if job.executing else state.value
        figures = self._figures.get(job.id) or _Figures()
        return self._view(job.id, word, job.executing, job.next_run_time, repr(job.schedule), figures)

    def _view(
        self, name: str, state: str, executing: int, following: datetime | None, schedule: str, figures: _Figures
    ) -> JobView:
        late = sorted([*figures.latenesses])
        return JobView(
            name, state, executing, following, figures.outcome, figures.runs, figures.failures,
            late[len(late) // 2] / 1e9 if late else None, late[int(len(late) * 0.99)] / 1e9 if late else None,
            tuple(duration / 1e9 for duration in [*figures.durations]), schedule,
        )  # fmt: skip
