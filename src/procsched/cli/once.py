"""``procsched once``: one run of one job, now, in a worker. In the parent."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import click

from procsched.cli import loading, logs, options
from procsched.cli.output import say
from procsched.cli.signals import StopSignals
from procsched.cli.status import CommandFailed, Status
from procsched.core.model import Outcome
from procsched.observe import human
from procsched.observe.log import run_line

if TYPE_CHECKING:
    from procsched.events import RunEnded
    from procsched.records import RunRecord

__all__ = ["once"]


@click.command(short_help="Run the job ID of TASKS.PY once, now, in a worker.")
@options.TASKS
@click.argument("job_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
def once(tasks: str, job_id: str, as_json: bool) -> Status:
    """Run the job ID of TASKS.PY once, now, in a worker, and print the run's record.

    Its retries and its timeout hold. Exit status: 0 when it succeeded, 1 when not, 2 for an unknown id.
    """
    from procsched.cli.selection import HeldScheduler
    from procsched.events import RunEnded

    logs.configure_for_one()
    with StopSignals():
        loading.load(tasks)
        scheduler = loading.open_scheduler(HeldScheduler, only={job_id}, workers=1)
        try:
            records: list[RunRecord] = []
            arrived = threading.Event()

            def keep(event: RunEnded) -> None:
                if event.record.job_id == job_id:
                    records.append(event.record)
                    arrived.set()

            loading.fill(scheduler, tasks)
            scheduler.check()
            scheduler.subscribe(keep, RunEnded)
            error = scheduler[job_id].run_now().exception()
            if not arrived.wait(5.0):
                raise CommandFailed(f"no record of {job_id} arrived: {error}", Status.UNUSABLE)
        finally:
            scheduler.shutdown(wait=True, cancel_futures=True, timeout=0)
    record = records[0]
    say(json.dumps(record.as_dict(), indent=2) if as_json else "\n".join(_lines(record)))
    return Status.CLEAN if record.outcome is Outcome.SUCCEEDED else Status.FOUND


def _lines(record: RunRecord) -> list[str]:
    facts = {
        "planned": record.planned.astimezone().isoformat(timespec="milliseconds"),
        "started": record.started.astimezone().isoformat(timespec="milliseconds") if record.started else "never",
        "duration": human.seconds(record.duration),
        "cpu time": human.seconds(record.cpu_time),
        "memory": f"{human.size(record.max_rss)} at most",
        "result": human.size(record.result_size) if record.result_size is not None else "none",
    }
    lines = [run_line(record), *(f"  {name:9} {value}" for name, value in facts.items())]
    if record.error is not None:
        lines.append(f"  {'error':9} {record.error.type}: {record.error.message}")
        lines.extend(f"    {line}" for line in record.error.traceback.splitlines())
    return lines
