"""A million jobs at rest: adding, cancelling, memory, and what they cost those that run."""

from __future__ import annotations

import gc
import random
import statistics
import threading
import time
from typing import Any

import psutil
from harness import Failed, Plan, Side, Table, figure, in_turn
from peers import background, nothing, observed, timed

from procsched import After, FixedRate, Missed, RunEnded

TITLE = "A million jobs"


def rest(jobs: int) -> dict[str, float]:
    """Jobs a second, bytes each; and how late a 1 kHz job gets meanwhile, ms."""
    with observed() as (scheduler, _witness):
        when = After("1d")
        gc.collect()
        before = psutil.Process().memory_info().rss
        begin = time.perf_counter()
        for _ in range(jobs):
            scheduler.schedule(nothing, when)
        added = time.perf_counter() - begin
        gc.collect()
        each = (psutil.Process().memory_info().rss - before) / jobs
        handles = scheduler.get_jobs()
        random.Random(1).shuffle(handles)
        begin = time.perf_counter()
        for job in handles:
            job.cancel()
        cancelled = time.perf_counter() - begin
        handles = [scheduler.schedule(nothing, when) for _ in range(jobs)]
        begin = time.perf_counter()
        for job in handles:
            job.cancel()
        in_order = time.perf_counter() - begin
    return {"added": jobs / added, "cancelled": jobs / cancelled, "in order": jobs / in_order, "bytes": each}


def stops(jobs: int) -> dict[str, float]:
    """Worst waits for the loop of a 1 kHz job, and its worst age under runs, ms, while the heap fills and empties."""
    with observed() as (scheduler, _witness):
        late: list[float] = []

        def note(event: RunEnded) -> None:
            if event.record.job_id == "tick" and event.record.waited is not None:
                late.append(event.record.waited.loop)
            elif event.record.job_id == "tick":
                late.append(event.record.lateness or 0.0)

        scheduler.subscribe(note, RunEnded)
        tick = scheduler.schedule(nothing, FixedRate("1ms", initial_delay="50ms"), id="tick")
        when, found = After("1d"), {}
        handles = [scheduler.schedule(nothing, when) for _ in range(jobs)]
        time.sleep(0.2)
        found["add"] = max(late, default=0.0) * 1000
        late.clear()
        for job in handles:
            job.cancel()
        time.sleep(0.2)
        found["cancel"] = max(late, default=0.0) * 1000
        handles = [scheduler.schedule(nothing, when) for _ in range(jobs)]
        time.sleep(0.2)
        ages: list[float] = []
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.001):
                ages.append(scheduler.health().loop_age)

        watcher = threading.Thread(target=watch)
        watcher.start()
        for future in [scheduler.submit(nothing) for _ in range(jobs // 20)]:
            future.result()
        over.set()
        watcher.join()
        found["dispatch"] = max(ages, default=0.0) * 1000
        tick.cancel()
    return found


def dispatch(jobs: int, runs: int) -> dict[str, float]:
    """CPU microseconds of this process per recurring run, with so many jobs at rest in the same heap."""
    with observed() as (scheduler, _witness):
        far = After("1d")
        for _ in range(jobs):
            scheduler.schedule(nothing, far)
        when = FixedRate("1us", missed=Missed.CATCH_UP).times(runs // 64)
        cpu = time.process_time()
        recurring = []
        seconds = timed(lambda: _all_end(scheduler, recurring, when))
        cpu = time.process_time() - cpu
        made = sum(job.stats.runs for job in recurring)
    return {"cpu": cpu / made * 1e6, "rate": made / seconds}


def _all_end(scheduler: Any, recurring: list[Any], when: Any) -> None:
    recurring += [scheduler.schedule(nothing, when) for _ in range(64)]
    for job in recurring:
        job.wait()


def apscheduler(jobs: int) -> dict[str, float]:
    """Jobs a second and bytes each."""
    from datetime import UTC, datetime, timedelta

    with background() as scheduler:
        when = datetime.now(UTC) + timedelta(days=1)
        gc.collect()
        before = psutil.Process().memory_info().rss
        begin = time.perf_counter()
        handles = [scheduler.add_job(nothing, "date", run_date=when) for _ in range(jobs)]
        added = time.perf_counter() - begin
        each = (psutil.Process().memory_info().rss - before) / jobs
        random.Random(1).shuffle(handles)
        begin = time.perf_counter()
        for job in handles:
            job.remove()
        cancelled = time.perf_counter() - begin
    return {"added": jobs / added, "cancelled": jobs / cancelled, "bytes": each}


def tables(plan: Plan) -> list[Table]:
    million, few = plan.size(1_000_000, 5_000), 1_000
    return [_at_rest(plan, million), _running(plan, million, few)]


def _at_rest(plan: Plan, million: int) -> Table:
    scaled = plan.size(5_000, 200)
    table = Table(("jobs a day away", "jobs", "added/s", "cancelled/s, in random order", "bytes each"))
    sides = [
        Side("procsched", rest, {"jobs": million}),
        Side("APScheduler", apscheduler, {"jobs": scaled}),
    ]
    table.note = (
        "Bytes are resident ones of a fresh process, without the caller's handles. Targets: ≥ 100,000 added/s, "
        "≥ 500,000 cancelled/s, ≤ 600 bytes. APScheduler scales with the square of their number: it gets fewer."
    )
    counts = {"procsched": million, "APScheduler": scaled}
    for name, values in in_turn(sides, plan.rounds).items():
        if isinstance(values, Failed):
            table.fail(name, values)
            continue
        cells = [figure(statistics.median(v[key] for v in values)) for key in ("added", "cancelled", "bytes")]
        table.add(name, f"{counts[name]:,}", *cells)
    return table


def _running(plan: Plan, million: int, few: int) -> Table:
    runs = plan.size(32_000, 640)
    sides = [
        Side("few", dispatch, {"jobs": few, "runs": runs}),
        Side("many", dispatch, {"jobs": million, "runs": runs}),
        Side("stops", stops, {"jobs": million}),
    ]
    found = in_turn(sides, plan.rounds)
    table = Table((f"with {million:,} jobs at rest", "measured", "target"))
    less, more, stopped = (found[side.name] for side in sides)
    if isinstance(less, Failed) or isinstance(more, Failed):
        table.fail("procsched, dispatch", less if isinstance(less, Failed) else more)  # type: ignore[arg-type]
    else:
        before, after = (statistics.median(v["cpu"] for v in side) for side in (less, more))
        each = statistics.median(b["cpu"] / a["cpu"] for a, b in zip(less, more, strict=True))
        table.add("CPU µs per run", f"{figure(after)}, with {few:,} {figure(before)}: {each:.2f} x", "≤ 2 x")
    if isinstance(stopped, Failed):
        table.fail("procsched, stops", stopped)
        return table
    meaning = {
        "add": "worst wait of a 1 kHz job for the loop, while they are added, ms",
        "cancel": "the same, while they are cancelled, ms",
        "dispatch": "worst age of the loop's last turn, while calls are made, ms",
    }
    for key, text in meaning.items():
        table.add(text, f"{figure(statistics.median(v[key] for v in stopped))}", "≤ 50")
    return table
