"""Twelve jobs that want more than two workers can give: does each get its share?"""

from __future__ import annotations

import time

from harness import Failed, Plan, Side, Table, in_turn
from peers import background, observed

from procsched import FixedRate

TITLE = "Fairness"
JOBS = 12
TAKES = 0.2
PERIOD = 0.1
SECONDS = 30.0


def ours(seconds: float) -> dict[str, float]:
    """The fewest and the most runs of a job."""
    with observed() as (scheduler, _witness):
        jobs = [scheduler.schedule(time.sleep, FixedRate(PERIOD), args=(TAKES,)) for _ in range(JOBS)]
        time.sleep(seconds)
        runs = [job.stats.runs for job in jobs]
        for job in jobs:
            job.cancel()
    return {"least": min(runs), "most": max(runs), "all": sum(runs)}


def apscheduler(seconds: float) -> dict[str, float]:
    from apscheduler.events import EVENT_JOB_EXECUTED

    runs: dict[str, int] = {}

    def ended(event: object) -> None:
        runs[event.job_id] = runs.get(event.job_id, 0) + 1  # type: ignore[attr-defined]

    with background() as scheduler:
        scheduler.add_listener(ended, EVENT_JOB_EXECUTED)
        for number in range(JOBS):
            runs[str(number)] = 0
            scheduler.add_job(time.sleep, "interval", [TAKES], seconds=PERIOD, id=str(number), misfire_grace_time=None)
        time.sleep(seconds)
        found = dict(runs)
        scheduler.remove_all_jobs()
    return {"least": min(found.values()), "most": max(found.values()), "all": sum(found.values())}


def tables(plan: Plan) -> list[Table]:
    seconds = plan.seconds or SECONDS
    sides = [Side("procsched", ours, {"seconds": seconds}), Side("APScheduler", apscheduler, {"seconds": seconds})]
    table = Table(
        (f"{JOBS} jobs of {TAKES} s on 2 workers, {seconds:g} s", "fewest runs", "most runs", "of all", "target")
    )
    table.note = f"Every {PERIOD} s, which is six times what they can get: {seconds * 2 / TAKES:.0f} runs in all."
    for name, values in in_turn(sides, 1).items():
        if isinstance(values, Failed):
            table.fail(name, values)
            continue
        value = values[0]
        if name == "procsched" and value["most"] - value["least"] > 2:
            table.broken.append(f"jobs got between {value['least']} and {value['most']} runs")
        target = "within 2" if name == "procsched" else ""
        table.add(name, str(value["least"]), str(value["most"]), str(value["all"]), target)
    return [table]
