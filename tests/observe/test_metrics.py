"""What Prometheus gets of a scheduler: names as it wants them, bounded, and there even when the loop isn't."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from procsched import After, FixedRate, ProcessScheduler, Retry, RunProgress, current_run, figures
from procsched.observe import extras
from procsched.observe import metrics as module
from procsched.observe.endpoint import HttpRequest
from procsched.observe.metrics import METRICS, SchedulerCollector
from procsched.testing import ManualScheduler

Scrape = Callable[[], dict[str, float]]


def fail() -> None:
    raise ValueError


@pytest.fixture
def scheduler() -> ManualScheduler:
    return ManualScheduler()


def registry_of(scheduler: ManualScheduler, **options: Any) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(SchedulerCollector(scheduler, **options))
    return registry


def scraped(registry: CollectorRegistry) -> dict[str, float]:
    """By name with labels, as Prometheus writes it: ``name{a="b"}``."""
    found = {}
    for family in parse(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            key = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert key not in found, f"{key} comes twice: Prometheus refuses it all"
            found[key] = sample.value
    return found


@contextmanager
def held(scheduler: ManualScheduler) -> Iterator[None]:
    """Somebody else holds the lock that the loop needs."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with scheduler._engine.lock:
            taken.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait(60)
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_scrape_tells_how_runs_went(scheduler: ManualScheduler) -> None:
    registry = registry_of(scheduler)
    scheduler.schedule(scheduler.clock.advance, FixedRate("10s").times(3), args=("2s",), id="work")
    scheduler.schedule(fail, After("1s"), id="bad", retry=Retry(2, backoff="1s"))
    for _ in range(5):
        scheduler.tick()
        scheduler.clock.advance("5s")
    scheduler.schedule(int, After("1h"), id="waits")
    scheduler.pause("waits")
    scheduler.tick()
    found = scraped(registry)
    assert found['procsched_runs_total{job_id="work",outcome="succeeded"}'] == 3
    assert found['procsched_runs_total{job_id="work",outcome="failed"}'] == 0
    assert found['procsched_runs_total{job_id="bad",outcome="failed"}'] == 1
    assert found['procsched_run_retries_total{job_id="bad"}'] == 1
    assert found['procsched_job_failures_in_a_row{job_id="bad"}'] == 1
    assert found['procsched_run_duration_seconds_sum{job_id="work"}'] == 6
    assert found['procsched_run_duration_seconds_bucket{job_id="work",le="1.0"}'] == 0
    assert found['procsched_run_duration_seconds_bucket{job_id="work",le="2.5"}'] == 3
    assert found['procsched_run_duration_seconds_bucket{job_id="work",le="+Inf"}'] == 3
    assert found['procsched_run_lateness_seconds_count{job_id="work"}'] == 3
    assert found['procsched_run_wait_seconds_count{cause="loop"}'] == 4
    assert found['procsched_job_paused{job_id="waits"}'] == 1
    assert found['procsched_job_paused{job_id="bad"}'] == 0
    assert found["procsched_jobs"] == 1
    assert found["procsched_healthy"] == 1
    assert found['procsched_workers{state="up"}'] == 1
    assert found['procsched_job_last_end_timestamp_seconds{job_id="waits"}'] == 0
    assert found['procsched_job_last_success_timestamp_seconds{job_id="work"}'] > 1.7e9


def test_gauges_tell_what_is_now(scheduler: ManualScheduler) -> None:
    registry = registry_of(scheduler)
    scheduler.schedule(int, After("1s"), id="soon")
    scheduler.tick()
    assert scraped(registry)["procsched_scheduled_runs"] == 1
    scheduler.clock.advance("61s")
    scheduler._engine.timetable.promote(scheduler._engine.now())
    found = scraped(registry)
    assert (found["procsched_ready_runs"], found["procsched_oldest_due_seconds"]) == (1, 60)
    assert found["procsched_loop_turn_age_seconds"] == 61
    assert found["procsched_healthy"] == 0  # due for a minute, and no turn
    scheduler.tick()
    found = scraped(registry)
    assert (found["procsched_ready_runs"], found["procsched_oldest_due_seconds"]) == (0, 0)
    assert found["procsched_healthy"] == 1


def test_both_formats_are_read_back(scheduler: ManualScheduler) -> None:
    """By the parsers of prometheus-client, of which that of OpenMetrics is strict."""
    registry = registry_of(scheduler)
    for job_id in ("plain", 'quote"', "back\\slash", "new\nline", "ünï", "\ud800", "(other)"):
        scheduler.schedule(int, FixedRate("1s"), id=job_id)
    scheduler.tick()
    assert scraped(registry)
    families = list(parse_openmetrics(generate_openmetrics(registry).decode()))
    assert [family.name for family in families] == list(METRICS)


def test_names_are_as_prometheus_wants_them() -> None:
    """Base units, as suffixes; no suffix that a kind of metric adds; help for everything."""
    for name, (kind, labels, text) in METRICS.items():
        assert re.fullmatch(r"procsched_[a-z]+(_[a-z]+)*", name), name
        assert not name.endswith(("_total", "_info", "_count", "_sum", "_bucket"))
        assert not re.search(r"_(ms|us|ns|milliseconds|minutes|kb|mb|percent)(_|$)", name)
        if kind == "histogram":
            assert name.endswith("_seconds")
        if "timestamp" in name:
            assert name.endswith("_timestamp_seconds") and kind == "gauge"
        assert text.endswith(".") and kind in ("counter", "gauge", "histogram", "info")
        assert not {"job", "instance"} & set(labels)  # Prometheus' own, and ours would be renamed
        assert set(labels) <= {"job_id", "outcome", "cause", "state", "reason", "worker"}


def test_what_is_described_is_collected(scheduler: ManualScheduler) -> None:
    """The same metrics in the same order, with samples or without."""
    collector = SchedulerCollector(scheduler)
    scheduler.schedule(int, FixedRate("1s"))
    scheduler.tick()
    described = [(family.name, family.type) for family in collector.describe()]
    assert described == [(family.name, family.type) for family in collector.collect()]
    assert not any(family.samples for family in collector.describe())


def test_some_of_it_can_be_asked_for(scheduler: ManualScheduler) -> None:
    """``?name[]=…``, as prometheus-client has it."""
    pages = module._Pages(scheduler._engine, prometheus_client.make_wsgi_app(registry_of(scheduler)))
    answer = pages(HttpRequest("/metrics", "name[]=procsched_healthy", {}))
    lines = [line for line in answer.body.decode().splitlines() if not line.startswith("#")]
    assert lines == ["procsched_healthy 1.0"]


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "text/plain"),
        ("text/html,*/*;q=0.8", "text/plain"),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", "application/openmetrics-text"),
    ],
)
def test_the_format_is_negotiated(scheduler: ManualScheduler, accept: str, kind: str) -> None:
    """And it is compressed for those who say that they can read that."""
    pages = module._Pages(scheduler._engine, prometheus_client.make_wsgi_app(registry_of(scheduler)))
    answer = pages(HttpRequest("/metrics", "", {"accept": accept, "accept-encoding": "gzip"}))
    headers = {name.lower(): value for name, value in answer.headers}
    assert headers["content-type"].split(";")[0] == kind
    assert headers["content-encoding"] == "gzip"
    plain = pages(HttpRequest("/metrics", "", {"accept": accept}))
    assert plain.body.startswith(b"# ")


@pytest.mark.parametrize("kind", ["text/plain", "application/openmetrics-text"])
@pytest.mark.parametrize(
    "version", ["abc", "zz", "", "1.x", "-1", "1.0.0 x", ".", "1..0", "1.0.0 ; q=1", "9" * 5000, "²"]
)
@pytest.mark.parametrize("query", ["", "name[]=%ff", "name[]", "%00"])
def test_a_senseless_question_is_answered(scheduler: ManualScheduler, kind: str, version: str, query: str) -> None:
    """A version that is none doesn't count."""
    pages = module._Pages(scheduler._engine, prometheus_client.make_wsgi_app(registry_of(scheduler)))
    for accept in (
        f"{kind};version={version}",
        f"{kind};version={version},*/*;q=0.1",
        f"{kind}; version={version};q=1",
    ):
        assert pages(HttpRequest("/metrics", query, {"accept": accept})).status == 200


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metricsx", "/favicon.ico", "/healthz/x", "/../metrics"])
def test_there_is_nothing_else(scheduler: ManualScheduler, path: str) -> None:
    pages = module._Pages(scheduler._engine, prometheus_client.make_wsgi_app(registry_of(scheduler)))
    assert pages(HttpRequest(path, "", {})).status == 404


# -- bounds ----------------------------------------------------------------------------------------------------------


def test_the_number_of_series_is_bounded(scheduler: ManualScheduler) -> None:
    """Whatever comes: thousands of jobs and calls add nothing once the table is full."""
    registry = registry_of(scheduler, most_jobs=10)
    sizes = []
    for hundred in range(3):
        for number in range(100):
            scheduler.schedule(int, After("1s"), id=f"job-{hundred}-{number}")
            scheduler.submit(int)
        scheduler.tick()
        scheduler.clock.advance("1s")
        scheduler.tick()
        scheduler.clock.advance("1h")
        found = scraped(registry)
        sizes.append(len(found))
        assert len({key for key in found if key.startswith("procsched_run_retries_total")}) <= 11
    assert max(sizes) < 700


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "10", None])
def test_a_senseless_bound_is_refused(scheduler: ManualScheduler, wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="most_jobs"):
        SchedulerCollector(scheduler, most_jobs=wrong)


# -- when the loop isn't well ----------------------------------------------------------------------------------------


def test_a_stuck_scheduler_can_still_be_scraped(scheduler: ManualScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what must be looked at under its lock; it says that it isn't well, and ``/healthz`` is 503."""
    monkeypatch.setattr(figures, "PATIENCE", 0.01)
    registry = registry_of(scheduler)
    pages = module._Pages(scheduler._engine, prometheus_client.make_wsgi_app(registry))
    scheduler.schedule(int, FixedRate("1s").times(1), id="work")
    scheduler.tick()
    assert pages(HttpRequest("/healthz", "", {})).status == 200
    scheduler.clock.advance("10s")
    with held(scheduler):
        found = scraped(registry)
        health = pages(HttpRequest("/healthz", "", {}))
    assert found["procsched_healthy"] == 0
    assert found["procsched_loop_turn_age_seconds"] == 10
    assert found['procsched_runs_total{job_id="work",outcome="succeeded"}'] == 1
    assert "procsched_ready_runs" not in found
    assert health.status == 503
    assert b'"ok": false' in health.body
    scheduler.tick()
    assert pages(HttpRequest("/healthz", "", {})).status == 200


def test_an_ended_scheduler_is_not_well(scheduler: ManualScheduler) -> None:
    """And what it has counted can still be had."""
    registry = registry_of(scheduler)
    scheduler.submit(int)
    scheduler.tick()
    scheduler.shutdown()
    found = scraped(registry)
    assert found["procsched_healthy"] == 0
    assert found['procsched_runs_total{job_id="int",outcome="succeeded"}'] == 1


# -- as a guest ------------------------------------------------------------------------------------------------------


def test_the_global_registry_is_left_alone(scheduler: ManualScheduler) -> None:
    registry_of(scheduler)
    scheduler.tick()
    assert b"procsched" not in generate_latest(prometheus_client.REGISTRY)


def test_it_can_be_added_to_the_global_registry(scheduler: ManualScheduler) -> None:
    """If somebody wants it there; once."""
    collector = SchedulerCollector(scheduler)
    prometheus_client.REGISTRY.register(collector)
    try:
        assert b"procsched_healthy 1.0" in generate_latest(prometheus_client.REGISTRY)
        with pytest.raises(ValueError, match="procsched_healthy"):
            prometheus_client.REGISTRY.register(SchedulerCollector(scheduler))
    finally:
        prometheus_client.REGISTRY.unregister(collector)


def test_closed_it_counts_no_longer(scheduler: ManualScheduler) -> None:
    collector = SchedulerCollector(scheduler)
    registry = CollectorRegistry()
    registry.register(collector)
    scheduler.submit(int)
    scheduler.tick()
    collector.close()
    collector.close()
    scheduler.submit(int)
    scheduler.tick()
    assert scraped(registry)['procsched_runs_total{job_id="int",outcome="succeeded"}'] == 1


def test_it_keeps_no_scheduler_alive() -> None:
    """One that nobody holds ends when nothing is left to run."""
    scheduler = ManualScheduler()
    registry = registry_of(scheduler)
    gone = weakref.ref(scheduler)
    del scheduler
    gc.collect()
    assert gone() is None
    assert scraped(registry)


def test_without_the_package_it_says_what_to_install(
    scheduler: ManualScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, from the library and from the command line."""

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(extras.importlib, "import_module", missing)
    for make in (lambda: SchedulerCollector(scheduler), lambda: module.prepare("127.0.0.1:0")):
        with pytest.raises(extras.MissingExtra, match=r"^[^\n]*pip install 'procsched\[metrics\]'$"):
            make()


def test_progress_of_the_run_on_a_worker() -> None:
    """While it executes; neither of one that has ended, nor of one that says nothing."""
    with ProcessScheduler(1) as real:
        collector = SchedulerCollector(real)
        registry = CollectorRegistry()
        registry.register(collector)
        seen = threading.Event()
        real.subscribe(lambda event: seen.set(), RunProgress)
        call = real.submit(tell_and_wait)
        assert seen.wait(30)
        assert scraped(registry)['procsched_worker_run_progress_ratio{worker="0"}'] == 0.25
        assert scraped(registry)['procsched_worker_run_progress_ratio{worker="0"}'] == 0.25
        real.schedule(int, After(0), id="other")
        os.kill(real.workers()[0].pid or 0, signal.SIGUSR1)
        call.result(30)
        assert real.submit(int).result(30) == 0
        assert 'procsched_worker_run_progress_ratio{worker="0"}' not in scraped(registry)
        collector.close()


def tell_and_wait() -> None:
    """Until it is signalled."""
    heard: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    current_run().progress(0.25)
    while not heard:
        time.sleep(0.01)
