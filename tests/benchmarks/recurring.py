"""Recurring jobs that are always due: what a run costs when it comes from the heap and goes back into it."""

from __future__ import annotations

import time
from itertools import repeat

from calls import in_order
from harness import Failed, Plan, Side, Table, figure, in_turn, medians, ratio
from peers import background, nothing, observed, timed

from procsched import FixedRate, Missed

TITLE = "Recurring runs"
JOBS = 64
TARGET = "multiprocessing.Pool"


def ours(runs: int) -> dict[str, float]:
    """Runs a second of jobs whose every slot is past, with CATCH_UP; each run leaves its record."""
    with observed() as (scheduler, _witness):
        when = FixedRate("1us", missed=Missed.CATCH_UP).times(runs // JOBS)
        cpu, jobs = time.process_time(), []

        def work() -> None:
            jobs.extend(scheduler.schedule(nothing, when) for _ in repeat(None, JOBS))
            scheduler.wait()

        seconds = timed(work)
        cpu = time.process_time() - cpu
        made = sum(job.stats.succeeded for job in jobs)
        assert made == runs // JOBS * JOBS, (made, runs)
        assert all(len(job.history) == min(100, job.stats.runs) for job in jobs)
    return {"rate": made / seconds, "cpu": cpu / made * 1e6}


def apscheduler(seconds: float) -> dict[str, float]:
    """Runs a second of as many interval jobs, of a period that it can't keep."""
    from apscheduler.events import EVENT_JOB_EXECUTED

    with background() as scheduler:
        runs = []
        scheduler.add_listener(runs.append, EVENT_JOB_EXECUTED)
        for _ in range(JOBS):
            scheduler.add_job(nothing, "interval", seconds=0.001, misfire_grace_time=None, coalesce=True)
        time.sleep(1)
        before, cpu = len(runs), time.process_time()
        time.sleep(seconds)
        made = max(1, len(runs) - before)
        cpu = time.process_time() - cpu
        scheduler.remove_all_jobs()
    return {"rate": made / seconds, "cpu": cpu / made * 1e6}


def tables(plan: Plan) -> list[Table]:
    count = plan.size(64_000, 1_280)
    sides = [
        Side("procsched, 64 jobs, CATCH_UP", ours, {"runs": count}),
        Side("multiprocessing.Pool, calls in order", in_order, {"name": "multiprocessing.Pool", "count": count}),
        Side("APScheduler, 64 interval jobs", apscheduler, {"seconds": plan.size(4, 1)}),
    ]
    found = in_turn(sides, plan.rounds)
    table = Table(("recurring no-ops", "runs/s", "CPU µs/run", "procsched against it", "target"))
    table.note = "A Pool has no recurring jobs: it is given calls, which is less work."
    mine = found[sides[0].name]
    for name, values in found.items():
        if isinstance(values, Failed):
            table.fail(name, values)
            continue
        middle, against = medians(values), ""
        if not isinstance(mine, Failed) and values is not mine:
            against = f"{ratio([v['rate'] for v in mine], [v['rate'] for v in values]):.2f} x"
        target = "≥ 8 x" if name.startswith(TARGET) else ""
        table.add(name, figure(middle["rate"]), figure(middle["cpu"]), against, target)
    return [table]
