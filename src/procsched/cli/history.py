"""``procsched history``: what `run --history` has written down, as tables, JSON, CSV, or a picture. In the parent."""

from __future__ import annotations

import csv
import io
import json
import time
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

import click

from procsched.cli import options, table
from procsched.cli.output import say
from procsched.cli.status import CommandFailed, Status
from procsched.core.model import Outcome
from procsched.observe import human
from procsched.observe.extras import MissingExtra
from procsched.observe.historyfile import HistoryFile, JobHistory
from procsched.observe.log import error_text, run_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from procsched.records import RunRecord

__all__ = ["history"]

_LAST = 40
"""Runs in a table, unless told otherwise."""
_AT_ONCE = 500
_OUTCOMES = [outcome.value for outcome in Outcome]
_FIELDS = (
    "job_id", "number", "generation", "attempt", "planned", "started", "finished", "lateness", "duration", "cpu_time",
    "max_rss", "worker", "pid", "outcome", "error", "result_size", "waited_loop", "waited_worker", "held_by",
)  # fmt: skip


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--job", "jobs", multiple=True, metavar="ID", help="This job, or calls of this function. Repeatable.")
@click.option("--outcome", "outcomes", multiple=True, type=click.Choice(_OUTCOMES), help="Only these. Repeatable.")
@click.option("--failures", is_flag=True, help="Only runs that failed, crashed, timed out or were aborted.")
@click.option("--since", metavar="TIME", help="That ended since then: an ISO 8601 time, or 2h for two hours ago.")
@click.option("--until", metavar="TIME", help="And until then.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help=f"The latest N. Default: {_LAST} in a table.")
@click.option("--summary", is_flag=True, help="A line per job: runs, failures, durations, lateness.")
@click.option("--run", "one", metavar="ID#N", help="One run in full, with its tracebacks and last log records.")
@click.option("--json", "form", flag_value="json", help="An array of objects.")
@click.option("--csv", "form", flag_value="csv", help="Comma-separated values, with a head.")
@click.option("--plot", type=click.Path(dir_okay=False), metavar="FILE", help="Draw them: a .png, .svg or .pdf.")
def history(
    file: str,
    jobs: tuple[str, ...],
    outcomes: tuple[str, ...],
    failures: bool,
    since: str | None,
    until: str | None,
    last: int | None,
    summary: bool,
    one: str | None,
    form: str | None,
    plot: str | None,
) -> Status:
    """Show the runs in FILE, which `procsched run --history FILE` has written, or still writes."""
    if failures:
        outcomes = (*outcomes, "failed", "crashed", "timed_out", "aborted")
    begin, end = (None if text is None else _instant(text) for text in (since, until))
    number = None
    if one is not None:
        jobs, number, last = *_split(one), 1
    try:
        source = HistoryFile(file)
    except OSError as error:
        raise CommandFailed(f"{file}: {error.strerror}" if error.strerror else str(error)) from error
    except ValueError as error:
        raise CommandFailed(str(error)) from error
    with source:
        if summary:
            sums = source.jobs(jobs=jobs, outcomes=outcomes, since=begin, until=end)
            _show_sums(sums, form)
            return Status.CLEAN
        if last is None and form is None and plot is None:
            last = _LAST
        runs = source.runs(jobs=jobs, outcomes=outcomes, since=begin, until=end, number=number, last=last)
        if plot is not None:
            _draw(runs, plot)
        elif form is not None:
            _write(runs, form)
        elif one is not None:
            _show_one(runs, one)
        else:
            _show(runs)
    return Status.CLEAN


def _instant(text: str) -> float:
    """Seconds since the epoch."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return time.time() - options.duration(text)
        except click.BadParameter:
            raise CommandFailed(
                f"{text!r} is no time; give one such as 2026-03-01T14:30, or 2h for two hours ago"
            ) from None
    return moment.timestamp()  # one without a zone is local, as a person means it


def _split(one: str) -> tuple[tuple[str, ...], int]:
    job_id, mark, number = one.rpartition("#")
    if not mark or not job_id.strip() or not number.isdigit():
        raise CommandFailed(f"{one!r} is no run; give its id and number, such as 'backup#12'")
    return (job_id.strip(),), int(number)


# ---------------------------------------------------------------------------------------------------------- for people


def _show(runs: Iterable[RunRecord]) -> None:
    rows = [_cells(record) for record in runs]
    if not rows:
        say("no runs")
        return
    head = ["ended", "job", "run", "outcome", "took", "late", "worker", ""]
    say("\n".join(table.render(head, rows, right="llrlrrr")))


def _cells(record: RunRecord) -> list[str]:
    why = ""
    if record.error is not None:
        first = record.error.message.partition("\n")[0]
        why = f"{record.error.type}: {first}" if first else record.error.type
    return [
        f"{record.finished.astimezone():%Y-%m-%d %H:%M:%S}",
        record.job_id,
        f"#{record.number}",
        record.outcome.value.replace("_", " "),
        human.seconds(record.duration) if record.outcome.started else "",
        human.seconds(record.lateness),
        "" if record.worker is None else str(record.worker),
        why if len(why) <= 80 else why[:79] + "…",
    ]


def _show_one(runs: Iterable[RunRecord], one: str) -> None:
    record = next(iter(runs), None)
    if record is None:
        raise CommandFailed(f"there is no run {one} in it", Status.FOUND)
    lines = [run_line(record)]
    for name in ("planned", "started", "finished"):
        moment = getattr(record, name)
        if moment is not None:
            lines.append(f"{name:9} {moment.astimezone():%Y-%m-%d %H:%M:%S.%f %Z}")
    if record.waited is not None:
        waited = f"{human.seconds(record.waited.loop)} for the loop, {human.seconds(record.waited.worker)} for a worker"
        lines.append(f"waited    {waited}")
    lines.append(f"used      {human.seconds(record.cpu_time)} of CPU time, {human.size(record.max_rss)} at most")
    if record.error is not None:
        lines.append(error_text(record, record.error))
    say("\n".join(lines))


def _show_sums(sums: list[JobHistory], form: str | None) -> None:
    if form == "json":
        say(json.dumps([each._asdict() for each in sums], indent=2))
        return
    if form == "csv":
        head = [*(name for name in JobHistory._fields if name != "outcomes"), *_OUTCOMES]
        rows = []
        for each in sums:
            values = each._asdict()
            counts = values.pop("outcomes")
            rows.append([*values.values(), *(counts.get(outcome, 0) for outcome in _OUTCOMES)])
        say(_csv([head, *rows]))
        return
    if not sums:
        say("no runs")
        return
    head = ["job", "runs", "failures", "took p50", "p99", "late p50", "p99", "last ended"]
    rows = [
        [
            each.job_id,
            str(each.runs),
            str(each.failures),
            *(
                "-" if value is None else human.seconds(value)
                for value in (each.duration_p50, each.duration_p99, each.lateness_p50, each.lateness_p99)
            ),
            f"{datetime.fromtimestamp(each.last_finished).astimezone():%Y-%m-%d %H:%M:%S}",
        ]
        for each in sums
    ]
    say("\n".join(table.render(head, rows, right="lrrrrrrl")))


# -------------------------------------------------------------------------------------------------------- for programs


def _write(runs: Iterable[RunRecord], form: str) -> None:
    """Bit by bit: a million runs needn't be in memory at once."""
    runs = iter(runs)
    if form == "csv":
        say(_csv([_FIELDS]))
        while some := list(islice(runs, _AT_ONCE)):
            say(_csv([_values(record) for record in some]))
        return
    before = "["
    for record in runs:
        say(f"{before}\n{json.dumps(record.as_dict())}", end="")
        before = ","
    say("[]" if before == "[" else "\n]")


def _values(record: RunRecord) -> list[object]:
    values = record.as_dict()
    waited = values.pop("waited") or {}
    values["waited_loop"], values["waited_worker"] = waited.get("loop"), waited.get("worker")
    if values["error"] is not None:
        values["error"] = f"{values['error']['type']}: {values['error']['message']}"
    return [values[field] for field in _FIELDS]


def _csv(rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().removesuffix("\n")


def _draw(runs: Iterable[RunRecord], path: str) -> None:
    from procsched.observe import charts

    try:
        drawn = charts.draw_history(list(runs), path)
    except (MissingExtra, OSError, ValueError) as error:
        raise CommandFailed(str(error)) from error
    say(f"{human.count(drawn, 'run')} in {path}" if drawn else "no runs that started: there is nothing to draw")
