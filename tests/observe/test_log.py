"""The log says who, what, where and why, and costs nothing when nobody listens."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from procsched import Outcome, RunEnded, RunError, RunRecord, events
from procsched.observe import log

Make = Callable[..., RunRecord]
Caplog = pytest.LogCaptureFixture


@pytest.fixture(autouse=True)
def everything(caplog: Caplog) -> None:
    caplog.set_level(logging.DEBUG)


def only(caplog: Caplog) -> logging.LogRecord:
    """The one record that there is."""
    (record,) = caplog.records
    return record


def test_a_successful_run_is_one_line(caplog: Caplog, record: Make) -> None:
    log.log_event(RunEnded(record()))
    line = only(caplog)
    assert (line.name, line.levelname) == ("procsched.run", "INFO")
    assert line.getMessage() == "nightly #3 succeeded in 1.32 s, 5.00 ms late, worker 1"
    assert (line.job, line.run, line.worker, line.pid) == ("nightly", 3, 1, 4242)  # type: ignore[attr-defined]


def test_a_failed_run_is_an_error_with_its_tracebacks(caplog: Caplog, record: Make) -> None:
    error = RunError("ValueError", "no host", "Traceback …\nKeyError: 'host'\n\nTraceback …\nValueError: no host\n")
    log.log_event(RunEnded(record(outcome=Outcome.FAILED, error=error)))
    line = only(caplog)
    assert line.levelname == "ERROR"
    for words in ("nightly #3 failed after 1.32 s", "pid 4242", "ValueError: no host", "KeyError: 'host'"):
        assert words in line.getMessage()


def test_a_crash_tells_how_and_what_was_logged_last(caplog: Caplog, record: Make) -> None:
    error = RunError("WorkerCrashed", "its worker was ended by SIGKILL", "", None, "SIGKILL", ("began", "at row 7"))
    log.log_event(RunEnded(record(outcome=Outcome.CRASHED, error=error)))
    text = only(caplog).getMessage()
    assert "SIGKILL" in text
    assert "out-of-memory" in text
    assert text.endswith("Its last log records:\n  began\n  at row 7")


@pytest.mark.parametrize(
    ("outcome", "level"),
    [
        (Outcome.TIMED_OUT, "ERROR"),
        (Outcome.ABORTED, "ERROR"),
        (Outcome.SKIPPED, "WARNING"),
        (Outcome.CANCELLED, "DEBUG"),
    ],
)
def test_every_outcome_has_its_level(caplog: Caplog, record: Make, outcome: Outcome, level: str) -> None:
    log.log_event(RunEnded(record(outcome=outcome)))
    assert only(caplog).levelname == level


def test_lateness_is_explained(caplog: Caplog, record: Make) -> None:
    log.log_event(RunEnded(record(held_by="8 workers busy, 5 with train")))
    assert "late (8 workers busy, 5 with train)" in only(caplog).getMessage()


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (events.WorkerLost(1, 42, None, "SIGKILL", "train", 4, 1.25), "pid 42 SIGKILL 1.25 s into #4 out-of-memory"),
        (events.WorkerLost(1, 42, None, "SIGKILL", "train", 4, 1.25, True), "by the kernel's out-of-memory killer"),
        (events.WorkerLost(1, 42, 7, None, "train", 4, 1.25), "exited with status 7"),
        (events.WorkerLost(1, 42, None, "SIGTERM"), "worker 1 (pid 42) was ended by SIGTERM"),
    ],
)
def test_a_lost_worker(caplog: Caplog, event: events.WorkerLost, words: str) -> None:
    log.log_event(event)
    line = only(caplog)
    assert line.levelname == "WARNING"
    parts = words.split() if words.startswith("pid") else [words]
    assert all(part in line.getMessage() for part in parts)


def test_the_same_boot_error_is_shown_once(caplog: Caplog) -> None:
    """Four slots that can't import a file tell it four times, with one traceback; a new scheduler tells it again."""
    lost = events.WorkerLost(1, 42, 1, None, boot_error="Traceback …\nImportError: no such thing")
    log.log_event(events.SchedulerStarted("x", 2))
    log.log_event(lost)
    log.log_event(lost)
    log.log_event(events.SchedulerStarted("x", 2))
    log.log_event(lost)
    texts = [record.getMessage() for record in caplog.records if record.name == "procsched.worker"]
    assert ["ImportError" in text for text in texts] == [True, False, True]


@pytest.mark.parametrize(
    ("event", "level", "words"),
    [
        (events.SchedulerStarted("procsched", 8), "INFO", "started with 8 workers"),
        (events.SchedulerStopped("procsched"), "INFO", "stopped"),
        (events.JobPaused("j", 1, "5 failures in a row"), "WARNING", "5 failures in a row"),
        (events.JobPaused("j", 1), "INFO", "j is paused"),
        (events.JobResumed("j", 1), "INFO", "j goes on"),
        (events.JobAdded("j", 1), "DEBUG", "j is scheduled"),
        (events.WorkerStarted(0, 42), "DEBUG", "worker 0 is up"),
        (events.WorkerReplaced(0, 43, 42), "INFO", "43 in place of 42"),
    ],
)
def test_what_else_is_worth_a_line(caplog: Caplog, event: events.Event, level: str, words: str) -> None:
    log.log_event(event)
    line = only(caplog)
    assert line.levelname == level
    assert words in line.getMessage()


def test_a_slow_run_shows_its_stack(caplog: Caplog, record: Make) -> None:
    run = record()
    log.log_event(events.RunSlow("j", 1, 1, run.planned, run.planned, 0, 42, 61.0, "File x.py, line 3"))
    line = only(caplog)
    assert line.levelname == "WARNING"
    assert line.getMessage().startswith("j #1 is slow: 1 min 01 s so far, worker 0, pid 42")
    assert line.getMessage().endswith("File x.py, line 3")


def test_a_retry(caplog: Caplog, record: Make) -> None:
    run = record(outcome=Outcome.FAILED, error=RunError("OSError", "gone"))
    log.log_event(events.RunRetrying(run, 10.0))
    line = only(caplog)
    assert line.levelname == "WARNING"
    assert "next attempt in 10.0 s: OSError: gone" in line.getMessage()


def test_progress_and_strangers_are_not_logged(caplog: Caplog) -> None:
    log.log_event(events.RunProgress("j", 1, 0.5, ""))
    log.log_event(SimpleNamespace())  # type: ignore[arg-type]
    assert not caplog.records


def test_nothing_is_built_when_the_level_is_off(caplog: Caplog) -> None:
    """A record of which only the outcome may be looked at passes."""
    caplog.set_level(logging.WARNING, "procsched")
    log.log_event(RunEnded(SimpleNamespace(outcome=Outcome.SUCCEEDED)))  # type: ignore[arg-type]
    assert not caplog.records


# ---- what runs logged


def remote(**other: Any) -> Any:
    fields = {
        "slot": 2,
        "pid": 4242,
        "job_id": "nightly",
        "number": 3,
        "logger": "tasks.deep",
        "level": logging.INFO,
        "text": "100 % of %s done",
        "created": time.time() - 86400,
        "pathname": "/srv/tasks.py",
        "lineno": 12,
        "func": "report",
    }
    return SimpleNamespace(**(fields | other))


def test_a_workers_record_arrives_whole(caplog: Caplog) -> None:
    sent = remote()
    log.log_remote(sent)
    got = only(caplog)
    assert (got.name, got.getMessage(), got.pathname, got.lineno, got.funcName) == (
        "tasks.deep",
        "100 % of %s done",
        "/srv/tasks.py",
        12,
        "report",
    )
    assert (got.created, got.process, got.processName) == (sent.created, 4242, "worker 2")
    assert (got.job, got.run, got.worker, got.pid) == ("nightly", 3, 2, 4242)  # type: ignore[attr-defined]
    assert got.relativeCreated < -3_600_000  # a day ago: well before this program began


def test_a_record_from_outside_a_run_has_no_job(caplog: Caplog) -> None:
    """Logged while a task file is imported, for example."""
    log.log_remote(remote(job_id="", number=0, logger="root"))
    got = only(caplog)
    assert got.name == "root"
    assert (got.job, got.run, got.worker) == (None, None, 2)  # type: ignore[attr-defined]


def test_levels_of_the_parent_count(caplog: Caplog) -> None:
    caplog.set_level(logging.ERROR, "tasks")
    log.log_remote(remote())
    assert not caplog.records


def test_drops_are_told(caplog: Caplog) -> None:
    log.log_dropped(SimpleNamespace(slot=2, count=17))  # type: ignore[arg-type]
    assert only(caplog).getMessage() == "worker 2 logged faster than could be read: 17 records dropped"
