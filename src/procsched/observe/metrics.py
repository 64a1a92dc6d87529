"""Metrics: a scheduler's figures in the words of Prometheus, and `run --metrics`. In the parent.

::

    the loop ─news─► events thread ─► Tally ◄─reads─ SchedulerCollector.collect ◄── a scrape, in its own thread
                                                     │ looks at the roster, and for a moment under the lock at the rest

A run costs what `Tally` costs; names, labels and samples are made when somebody asks for them.
"""

from __future__ import annotations

import json
import logging
import platform
import re
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from procsched import __version__, doorway, figures
from procsched.core.model import JobState
from procsched.core.roster import SlotState
from procsched.events import RunProgress, RunRetrying, WorkerLost, WorkerReplaced, WorkerStarted
from procsched.ledger import SECOND
from procsched.observe.endpoint import Endpoint, HttpAnswer, HttpRequest, Listening
from procsched.observe.extras import need
from procsched.observe.tally import DURATIONS, LATENESSES, WAITS, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from procsched.engine import Engine
    from procsched.observe.tally import Histogram, JobTally
    from procsched.scheduler import ProcessScheduler

__all__ = ["METRICS", "SchedulerCollector", "prepare"]

MOST_JOBS = 200
"""Jobs with series of their own. Each has about 40 samples, of some µs to write and of some hundred bytes to store."""
_MOST_PROGRESS = 1000
MOST_WORKERS = 128
"""Workers whose memory and CPU time are shown: each takes a look into /proc."""

_log = logging.getLogger("procsched.metrics")

METRICS = {
    "procsched_build": ("info", (), "Versions."),
    "procsched_healthy": ("gauge", (), "1 while the scheduler does its work, 0 when its loop stands still or is dead."),
    "procsched_loop_turn_age_seconds": (
        "gauge", (), "Time since the loop's last turn; it may sleep for long while nothing is due.",
    ),
    "procsched_oldest_due_seconds": ("gauge", (), "How long the longest waiting run has been due; 0 when none waits."),
    "procsched_ready_runs": ("gauge", (), "Runs that are due and wait for a worker."),
    "procsched_executing_runs": ("gauge", (), "Runs that execute, those between two attempts included."),
    "procsched_scheduled_runs": ("gauge", (), "Jobs and calls that wait for their time."),
    "procsched_jobs": ("gauge", (), "Jobs that haven't ended."),
    "procsched_runs": ("counter", ("job_id", "outcome"), "Runs that have ended, by their outcome."),
    "procsched_run_retries": ("counter", ("job_id",), "Attempts that failed and were followed by another one."),
    "procsched_missed_slots": ("counter", (), "Slots dropped by the missed-run policy."),
    "procsched_run_duration_seconds": ("histogram", ("job_id",), "Execution time of runs, of their last attempt."),
    "procsched_run_lateness_seconds": ("histogram", ("job_id",), "From the planned time of runs to their start."),
    "procsched_run_wait_seconds": (
        "histogram", ("cause",), "Where the lateness went: in the loop, or waiting for a worker; of all jobs together.",
    ),
    "procsched_run_cpu_seconds": ("counter", ("job_id",), "CPU time that runs took in their workers."),
    "procsched_job_failures_in_a_row": (
        "gauge", ("job_id",), "Runs that failed, crashed or timed out since the last one that succeeded.",
    ),
    "procsched_job_last_end_timestamp_seconds": ("gauge", ("job_id",), "When a run of it ended last; 0: not yet."),
    "procsched_job_last_success_timestamp_seconds": ("gauge", ("job_id",), "When one succeeded last; 0: not yet."),
    "procsched_job_paused": ("gauge", ("job_id",), "1 while the job is paused."),
    "procsched_workers": ("gauge", ("state",), "Slots of the pool, by what is in them."),
    "procsched_worker_restarts": ("counter", ("reason",), "Workers that had to be replaced, by what ended them."),
    "procsched_worker_resident_memory_bytes": ("gauge", ("worker",), "Resident memory of the worker in a slot."),
    "procsched_worker_cpu_seconds": ("counter", ("worker",), "CPU time of the worker in a slot; a new one has none."),
    "procsched_worker_run_progress_ratio": (
        "gauge", ("worker",), "How far the run says it is that a worker executes, from 0 to 1; runs may say so or not.",
    ),
    "procsched_events_dropped": ("counter", (), "Events that came faster than subscribers took them: runs uncounted."),
}  # fmt: skip
"""By name, without the suffix that its kind gets in a scrape: kind, labels, help."""


class SchedulerCollector:
    """A scheduler's metrics, for a registry of prometheus-client: ``registry.register(SchedulerCollector(scheduler))``.

    Counting begins now. One per registry: two have metrics of the same names. Needs the extra ``procsched[metrics]``.

    Args:
        scheduler: The scheduler to look at. The collector doesn't keep it alive.
        most_jobs: Jobs, and functions of calls, with series of their own; further ones share ``job_id="(other)"``.

    Raises:
        MissingExtra: prometheus-client isn't installed.
        TypeError, ValueError: ``most_jobs`` is no whole number above 0.
        SchedulerClosed: In a forked copy, or inside a worker.
    """

    def __init__(self, scheduler: ProcessScheduler, *, most_jobs: int = MOST_JOBS) -> None:
        most = doorway.whole(most_jobs, "most_jobs")
        self._core = need("prometheus_client.core", "metrics", type(self).__name__)
        # Not the scheduler itself: who only looks on mustn't keep it from ending when nobody holds it any more.
        self._engine: Engine = scheduler._engine
        self._tally = tally = Tally(most)
        self._most_jobs = most
        self._progress: dict[str, float] = {}
        """By run, as ``"id #number"``."""
        self._leave: tuple[Callable[[], None], ...] = (
            self._engine.announcer.follow(tally.take),
            scheduler.subscribe(tally.run_retrying, RunRetrying),
            scheduler.subscribe(self._note_progress, RunProgress),
            scheduler.subscribe(tally.worker_lost, WorkerLost),
            scheduler.subscribe(tally.worker_came, WorkerStarted, WorkerReplaced),
        )

    def _note_progress(self, event: RunProgress) -> None:
        if len(self._progress) > _MOST_PROGRESS:  # nobody has looked for long: those that execute will tell again
            self._progress.clear()
        self._progress[f"{event.job_id} #{event.number}"] = event.fraction

    def close(self) -> None:
        """Count no longer; what has been counted can still be collected."""
        for leave in self._leave:
            leave()

    def describe(self) -> list[Any]:
        """All metrics, without samples."""
        return list(self._families().values())

    def collect(self) -> list[Any]:
        """All metrics. Any thread; waits a second at most, for a lock that a loop which is well never holds so long. If
        it can't be had, what must be looked at under it is left out."""
        found = self._families()
        self._collect_health(found)
        self._collect_runs(found)
        self._collect_workers(found)
        return list(found.values())

    def _families(self) -> dict[str, Any]:
        kinds = {
            "gauge": self._core.GaugeMetricFamily,
            "counter": self._core.CounterMetricFamily,
            "histogram": self._core.HistogramMetricFamily,
            "info": self._core.InfoMetricFamily,
        }
        return {name: kinds[kind](name, text, labels=labels) for name, (kind, labels, text) in METRICS.items()}

    def _collect_health(self, found: dict[str, Any]) -> None:
        engine = self._engine
        health = figures.health_of(engine)
        found["procsched_build"].add_metric(
            (), {"version": __version__, "python": platform.python_version(), "scheduler": engine.name}
        )
        found["procsched_healthy"].add_metric((), int(health.ok))
        found["procsched_loop_turn_age_seconds"].add_metric((), health.loop_age)
        found["procsched_oldest_due_seconds"].add_metric((), health.oldest_due or 0)
        found["procsched_jobs"].add_metric((), len(engine.timetable.jobs))
        found["procsched_events_dropped"].add_metric((), engine.announcer.dropped)

    def _collect_runs(self, found: dict[str, Any]) -> None:
        engine, tally = self._engine, self._tally
        jobs = engine.timetable.jobs
        if engine.lock.acquire(timeout=figures.PATIENCE):
            try:
                stats, some = figures.stats_of(engine), list(islice(jobs, self._most_jobs))
            finally:
                engine.lock.release()
            tally.look_over(jobs, some, engine.clock.monotonic_ns())
            found["procsched_ready_runs"].add_metric((), stats.ready)
            found["procsched_executing_runs"].add_metric((), stats.executing)
            found["procsched_scheduled_runs"].add_metric((), stats.scheduled)
            found["procsched_missed_slots"].add_metric((), stats.missed)
        for name, job in tally.jobs():
            row = jobs.awake(name)  # one that rests isn't paused
            self._collect_job(found, job, row is not None and row.state is JobState.PAUSED)
        for cause, histogram in tally.waits.items():
            _add_histogram(found["procsched_run_wait_seconds"], (cause,), _WAITS, histogram)

    def _collect_job(self, found: dict[str, Any], job: JobTally, paused: bool) -> None:
        label = (job.label,)
        for outcome, count in job.counts().items():
            found["procsched_runs"].add_metric((job.label, outcome), count)
        found["procsched_run_retries"].add_metric(label, job.retries)
        found["procsched_run_cpu_seconds"].add_metric(label, job.cpu / SECOND)
        _add_histogram(found["procsched_run_duration_seconds"], label, _DURATIONS, job.durations)
        _add_histogram(found["procsched_run_lateness_seconds"], label, _LATENESSES, job.latenesses)
        found["procsched_job_last_end_timestamp_seconds"].add_metric(label, job.last_end / SECOND)
        found["procsched_job_last_success_timestamp_seconds"].add_metric(label, job.last_success / SECOND)
        if not job.is_shared:
            found["procsched_job_failures_in_a_row"].add_metric(label, job.failures)
            found["procsched_job_paused"].add_metric(label, int(paused))

    def _collect_workers(self, found: dict[str, Any]) -> None:
        states = dict.fromkeys(SlotState, 0)
        slots = self._engine.roster.slots
        for slot in slots:
            states[slot.state] += 1
        for state, count in states.items():
            found["procsched_workers"].add_metric((state.value,), count)
        for reason, count in self._tally.restarts.items():
            found["procsched_worker_restarts"].add_metric((reason,), count)
        known, self._progress = self._progress, {}
        for slot in slots:
            run = figures.current_of(slot)
            if run is not None and (fraction := known.get(run)) is not None:
                self._progress.setdefault(run, fraction)  # unless it has told something newer meanwhile
                if slot.index < MOST_WORKERS:
                    found["procsched_worker_run_progress_ratio"].add_metric((str(slot.index),), fraction)
        for slot in slots[:MOST_WORKERS]:
            used = _used_by(slot.pid)
            if used is not None:
                found["procsched_worker_resident_memory_bytes"].add_metric((str(slot.index),), used[0])
                found["procsched_worker_cpu_seconds"].add_metric((str(slot.index),), used[1])


def _names_of(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*(str(float(bound)) for bound in bounds), "+Inf")


_DURATIONS, _LATENESSES, _WAITS = _names_of(DURATIONS), _names_of(LATENESSES), _names_of(WAITS)


def _add_histogram(family: Any, labels: tuple[str, ...], names: tuple[str, ...], histogram: Histogram) -> None:
    total, buckets = 0, []
    for name, count in zip(names, histogram.counts[:], strict=True):
        total += count
        buckets.append((name, total))
    family.add_metric(labels, buckets, histogram.sum / SECOND)


def _used_by(pid: int) -> tuple[int, float] | None:
    """Resident bytes and CPU seconds of a process; None when there is none."""
    if not pid:
        return None
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return process.memory_info().rss, times.user + times.system
    except psutil.Error:
        return None


# ------------------------------------------------------------------------------------------------------ run --metrics


def prepare(address: str) -> Callable[[ProcessScheduler], AbstractContextManager[object]]:
    """For ``run --metrics``: takes ``HOST:PORT`` (or a port of this machine's own address, 0: any) at once.

    Returns what is called with the scheduler, and gives a context in which ``/metrics`` and ``/healthz`` are served.

    Raises:
        MissingExtra: prometheus-client isn't installed.
        ValueError, OSError: The address makes no sense, or can't be had.
    """
    client = need("prometheus_client", "metrics", "--metrics")
    listening = Listening("--metrics", address)

    @contextmanager
    def opened(scheduler: ProcessScheduler) -> Iterator[None]:
        collector = SchedulerCollector(scheduler)
        registry = client.CollectorRegistry()
        registry.register(collector)
        client.ProcessCollector(registry=registry)
        endpoint = Endpoint(listening, _Pages(scheduler._engine, client.make_wsgi_app(registry)), "procsched metrics")
        try:
            endpoint.start()
            _log.info("metrics at %s/metrics", listening.url)
            if not listening.is_loopback:
                _log.warning("whoever reaches %s can read them; nothing asks who it is", listening.url)
            yield
        finally:
            endpoint.stop()
            collector.close()

    return opened


_NO_VERSION = re.compile(r"version=(?![0-9]{1,4}(?:\.[0-9]{1,4})*[ \t]*(?:[;,]|$))[^;,]*")
"""What clients may call the version of a format, and prometheus-client can't compare with one."""


class _Pages:
    """What there is to get: ``/metrics``, as prometheus-client negotiates it, and ``/healthz``."""

    def __init__(self, engine: Engine, metrics: Callable[..., list[bytes]]) -> None:
        self._engine = engine
        self._metrics = metrics

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if request.path == "/metrics":
            return self._scraped(request)
        if request.path == "/healthz":
            health = figures.health_of(self._engine)
            body = json.dumps(health._asdict()).encode() + b"\n"
            return HttpAnswer(200 if health.ok else 503, [("Content-Type", "application/json")], body)
        return HttpAnswer(404, [], b"not found; there are /metrics and /healthz\n")

    def _scraped(self, request: HttpRequest) -> HttpAnswer:
        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": "/metrics",
            "QUERY_STRING": request.query,
            "HTTP_ACCEPT": _NO_VERSION.sub("", request.headers.get("accept", "")),
            "HTTP_ACCEPT_ENCODING": request.headers.get("accept-encoding", ""),
        }
        told: list[Any] = []
        body = b"".join(self._metrics(environ, lambda status, headers: told.extend((status, headers))))
        return HttpAnswer(int(told[0].split()[0]), told[1], body)
