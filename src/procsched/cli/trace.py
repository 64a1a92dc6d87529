"""``procsched trace``: what `run --trace` has written, as a table, a page, or a picture. In the parent."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import TYPE_CHECKING

import click

from procsched.cli import table
from procsched.cli.output import say
from procsched.cli.status import CommandFailed, Status
from procsched.observe import human
from procsched.observe.extras import MissingExtra
from procsched.observe.tracefile import read_trace
from procsched.observe.tracepage import is_bad, page_of

if TYPE_CHECKING:
    from procsched.observe.tracefile import TracedRun, TraceFile

__all__ = ["trace"]


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--html", type=click.Path(dir_okay=False), metavar="OUT", help="Write a page with the timeline.")
@click.option("--png", type=click.Path(dir_okay=False), metavar="OUT", help="Draw the timeline: a .png, .svg or .pdf.")
def trace(file: str, html: str | None, png: str | None) -> Status:
    """Show FILE, which `procsched run --trace FILE` has written, or still writes.

    Perfetto (https://ui.perfetto.dev) and chrome://tracing open the same file.
    """
    try:
        found = read_trace(file)
    except OSError as error:
        raise CommandFailed(f"{file}: {error.strerror}" if error.strerror else str(error)) from error
    except ValueError as error:
        raise CommandFailed(str(error)) from error
    if html is not None:
        try:
            with open(html, "w", encoding="utf-8") as page:
                page.write(page_of(found))
        except OSError as error:
            raise CommandFailed(f"{html} can't be written: {error.strerror}") from error
        say(f"{human.count(len(found.runs), 'run')} in {html}")
    if png is not None:
        from procsched.observe import charts

        try:
            charts.draw_trace(found, png)
        except (MissingExtra, OSError, ValueError) as error:
            raise CommandFailed(str(error)) from error
        say(f"{human.count(len(found.runs), 'run')} in {png}")
    if html is None and png is None:
        say("\n".join(_lines(found)))
    return Status.CLEAN


def _lines(found: TraceFile) -> list[str]:
    runs = found.runs
    if not runs:
        return ["no runs"]
    first, last = runs[0].start, max(run.start + run.duration for run in runs)
    begun = datetime.fromtimestamp(found.begun + first).astimezone()
    lost = sum(name == "WorkerLost" for _at, _slot, name, _about in found.marks)
    facts = [human.count(len(runs), "run"), human.count(sum(map(is_bad, runs)), "failure"), f"{lost} workers lost"]
    lines = [f"{', '.join(facts)} in {human.seconds(last - first)} from {begun:%Y-%m-%d %H:%M:%S %Z}", ""]
    by_worker: dict[int, list[TracedRun]] = defaultdict(list)
    for run in runs:
        by_worker[run.worker].append(run)
    rows = []
    for slot, name in found.workers.items():
        own = by_worker[slot]
        busy = sum(run.duration for run in own)
        rows.append([name, str(len(own)), human.seconds(busy), f"{busy / max(last - first, 1e-9):.0%}"])
    lines += table.render(["worker", "runs", "busy", "of the time"], rows, right="lrrr")
    latest = sorted(runs, key=lambda run: -run.lateness)[:5]
    rows = [
        [f"{run.job_id} #{run.number}", human.seconds(run.lateness), human.seconds(run.duration), run.held_by]
        for run in latest
        if run.lateness > 0
    ]
    if rows:
        lines += ["", *table.render(["latest", "late", "took", "because"], rows, right="lrr")]
    return lines
