"""``procsched list``: the jobs of a task file and when they run, without running any. In the parent."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from procsched.cli import loading, options, table
from procsched.cli.output import say
from procsched.cli.status import Status
from procsched.observe import human

if TYPE_CHECKING:
    from procsched.cli.selection import Plan

__all__ = ["list_jobs"]


@click.command("list")
@options.TASKS
@click.option(
    "--next", "upcoming", type=click.IntRange(1, 10_000), default=1, metavar="N", help="Show so many runs of each job."
)
@click.option("--json", "as_json", is_flag=True, help="An array of objects with id and next_run_time (ISO 8601).")
def list_jobs(tasks: str, upcoming: int, as_json: bool) -> Status:
    """Show the jobs of TASKS.PY and their next run times.

    Times of a fixed delay beyond the first are as if its runs took no time.
    """
    from procsched.cli.selection import Catalogue
    from procsched.cli.upcoming import upcoming_runs
    from procsched.testing import FakeClock

    loading.load(tasks)
    now = datetime.now(UTC)
    catalogue = loading.open_scheduler(Catalogue, clock=FakeClock(start=now))
    try:
        loading.fill(catalogue, tasks)
        runs = [(plan, upcoming_runs(plan, now, upcoming)) for plan in catalogue.plans.values()]
        runs.sort(key=lambda pair: pair[1][0] if pair[1] else datetime.max.replace(tzinfo=UTC))
        if as_json:
            text = json.dumps([_as_object(plan, times) for plan, times in runs], indent=2)
        else:
            rows = [row for plan, times in runs for row in _rows(plan, times, now)]
            text = "\n".join(table.render(["job", "next run", "in", "schedule"], rows, right="llr"))
    finally:
        catalogue.shutdown(wait=False, cancel_futures=True)
    say(text)
    return Status.CLEAN


def _as_object(plan: Plan, times: list[datetime]) -> dict[str, Any]:
    shown = [moment.astimezone().isoformat() for moment in times]
    return {
        "id": plan.job.id,
        "next_run_time": shown[0] if shown else None,
        "next_run_times": shown,
        "schedule": repr(plan.when),
        "state": plan.job.state.value,
    }


def _rows(plan: Plan, times: list[datetime], now: datetime) -> list[list[str]]:
    name, schedule = plan.job.id, repr(plan.when)
    if not times:
        return [[name, plan.job.state.value if plan.job.next_run_time is None else "-", "", schedule]]
    rows = []
    for moment in times:
        distance = max(0.0, (moment - now).total_seconds())
        ahead = human.seconds(distance) if distance >= 0.001 else "now"
        rows.append([name, f"{moment.astimezone():%Y-%m-%d %H:%M:%S %Z}", ahead, schedule])
        name = schedule = ""
    return rows
