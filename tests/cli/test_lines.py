"""Log records as lines for people: columns for runs, sentences for the rest, colours on a terminal alone."""

from __future__ import annotations

import io
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from procsched import Outcome, RunEnded, RunError, RunRecord
from procsched.cli import table
from procsched.cli.lines import LineFormatter
from procsched.cli.logs import JsonFormatter
from procsched.cli.output import Paint
from procsched.cli.summary import Summary
from procsched.observe import log

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def ended(job_id: str = "report", outcome: Outcome = Outcome.SUCCEEDED, **other: Any) -> RunEnded:
    fields: dict[str, Any] = {"error": None, "held_by": "", "worker": 1, "pid": 42, "number": 12, "attempt": 1}
    fields |= {"duration": 1.32, "lateness": 0.0004} | other
    return RunEnded(
        RunRecord(
            job_id=job_id,
            generation=1,
            planned=NOON,
            started=NOON,
            finished=NOON + timedelta(seconds=1),
            cpu_time=1.0,
            max_rss=1 << 20,
            outcome=outcome,
            **fields,
        )
    )


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> LineFormatter:
    return LineFormatter(Paint(io.StringIO()))


def line(formatter: logging.Formatter, event: RunEnded, caplog: pytest.LogCaptureFixture) -> str:
    """As it would stand in the log, without its time."""
    caplog.set_level(logging.DEBUG)
    log.log_event(event)
    return formatter.format(caplog.records[-1])[10:]


def test_a_run_stands_in_columns(plain: LineFormatter, caplog: pytest.LogCaptureFixture) -> None:
    plain.make_room(["thumbnails"])
    assert line(plain, ended(), caplog) == "report      #12    succeeded    1.32 s    400 us late  worker 1"
    assert line(plain, ended("thumbnails", number=7, duration=0.2), caplog) == (
        "thumbnails  #7     succeeded    200 ms    400 us late  worker 1"
    )


def test_a_failure_goes_on_below(plain: LineFormatter, caplog: pytest.LogCaptureFixture) -> None:
    """The reason ends the line; tracebacks are indented under it."""
    error = RunError("ValueError", "no host", "Traceback …\n  File x\nValueError: no host\n")
    first, *rest = line(plain, ended(outcome=Outcome.FAILED, error=error), caplog).splitlines()
    assert first.endswith("worker 1  pid 42  ValueError: no host")
    assert rest == ["          Traceback …", "            File x", "          ValueError: no host"]


def test_a_run_that_never_started_has_no_duration(plain: LineFormatter, caplog: pytest.LogCaptureFixture) -> None:
    text = line(plain, ended(outcome=Outcome.SKIPPED, worker=None, pid=None, lateness=70.0), caplog)
    assert text.split() == ["report", "#12", "skipped", "1", "min", "10", "s", "late"]


def test_a_run_that_is_late_by_a_second_says_why(plain: LineFormatter, caplog: pytest.LogCaptureFixture) -> None:
    """A few milliseconds are nobody's question."""
    late = line(plain, ended(lateness=1.0, held_by="2 of 2 workers busy, 1 with complexity"), caplog)
    assert late.endswith("1.00 s late  worker 1  (2 of 2 workers busy, 1 with complexity)")
    assert line(plain, ended(lateness=0.9, held_by="no worker was up"), caplog).endswith("late  worker 1")


def test_a_record_of_a_run_says_whose_it_is(plain: LineFormatter) -> None:
    record = logging.makeLogRecord(
        {"name": "mine", "msg": "half of it", "levelno": 30, "levelname": "WARNING"}
        | {"job": "report", "run": 3, "process": 42}
    )
    assert plain.format(record)[10:] == "warning: mine: half of it  (report #3, pid 42)"
    record.msg = "two\nlines"
    assert plain.format(record)[10:] == "warning: mine: two  (report #3, pid 42)\n          lines"


def test_a_new_day_is_told(plain: LineFormatter) -> None:
    """The lines have the time only; where the date changes, it stands between them."""
    texts = [
        plain.format(logging.makeLogRecord({"msg": "x", "levelno": 20, "name": "procsched.cli", "created": moment}))
        for moment in (1_772_000_000, 1_772_000_001, 1_772_090_000)
    ]
    assert [text.count("\n") for text in texts] == [0, 0, 1]
    assert "2026-02-2" in texts[2].splitlines()[0]


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colours(
    variables: dict[str, str], coloured: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal, unless NO_COLOR says something."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    formatter = LineFormatter(Paint(Terminal()))
    assert ("\x1b[32m" in line(formatter, ended(), caplog)) is coloured
    assert "\x1b" not in line(LineFormatter(Paint(io.StringIO())), ended(), caplog)


def test_json_escapes_what_would_break_a_line() -> None:
    record = logging.makeLogRecord({"name": "mine", "msg": "two\nlines", "levelname": "INFO", "exc_info": None})
    assert "\n" not in JsonFormatter().format(record)


def test_the_summary_counts_what_started() -> None:
    summary = Summary()
    summary.expect(["report", "never"])
    summary(ended(duration=1.0, lateness=0.0))
    summary(ended(duration=3.0, lateness=1.0, outcome=Outcome.CRASHED))
    summary(ended(duration=0.0, lateness=9.0, outcome=Outcome.SKIPPED))
    assert [row.split() for row in summary.lines()] == [
        ["job", "runs", "failed", "skipped", "mean", "max", "mean", "late", "max", "late"],
        ["-" * 6, "-" * 4, "-" * 6, "-" * 7, "-" * 6, "-" * 6, "-" * 9, "-" * 8],
        ["report", "2", "1", "1", "2.00", "s", "3.00", "s", "500", "ms", "1.00", "s"],
        ["never", "0", "0", "0", "-", "-", "-", "-"],
    ]


def test_a_flood_of_ids_is_cut() -> None:
    summary = Summary()
    for number in range(100):
        summary(ended(f"call-{number}"))
    assert summary.lines()[-1] == "and 40 more: 40 runs, 0 failed"


def test_a_table_is_as_wide_as_its_cells() -> None:
    lines = table.render(["a", "number"], [["long", "1"]], right="lr")
    assert lines == ["a     number", "----  ------", "long       1"]
