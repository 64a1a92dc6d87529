"""Lateness of starts on an idle pool, beside a loop that only sleeps."""

from __future__ import annotations

import statistics
import time

from bare import sleeps
from harness import Failed, Plan, Side, Table, figure, in_turn, quantile
from peers import background, observed

from procsched import FixedRate

TITLE = "Lateness"
PAIRS = 5


def ours(frequency: int, count: int) -> dict[str, float]:
    """Of every run's record."""
    with observed() as (scheduler, witness):
        late = witness.lateness["job"] = []
        when = FixedRate(1 / frequency, initial_delay=0.1).times(count)
        job = scheduler.schedule(time.monotonic, when, id="job")
        assert scheduler.wait()
        assert job.stats.runs == count, job.stats
    return _summary(late)


def bare(frequency: int, count: int) -> dict[str, float]:
    return _summary(sleeps(frequency, count))


def apscheduler(frequency: int, count: int) -> dict[str, float]:
    """What the run reads on the clock, beside the time it was planned for."""
    from apscheduler.events import EVENT_JOB_EXECUTED

    late: list[float] = []
    with background() as scheduler:

        def ended(event: object) -> None:
            late.append(event.retval - event.scheduled_run_time.timestamp())  # type: ignore[attr-defined]

        scheduler.add_listener(ended, EVENT_JOB_EXECUTED)
        scheduler.add_job(time.time, "interval", seconds=1 / frequency)
        time.sleep(1 + count / frequency)
        scheduler.remove_all_jobs()
    return _summary(late[len(late) // 4 :])  # its workers start with the first runs


def _summary(late: list[float]) -> dict[str, float]:
    return {"p50": quantile(late, 0.5) * 1e6, "p99": quantile(late, 0.99) * 1e6, "runs": len(late)}


def tables(plan: Plan) -> list[Table]:
    table = Table(("lateness of starts, µs", "p50", "p99", "p50 to bare: best, median", "p99 to bare: best, median"))
    table.note = (
        f"Best and median of {plan.size(PAIRS, 1)} pairs measured in turn, each against its own `time.sleep` loop. "
        "Targets, for the best pair: p50 ≤ 0.9 x, p99 ≤ 1.5 x. The best pair is the one in which nobody else wanted "
        "the processor; the median tells how often that was so."
    )
    for frequency in (20, 200, 1000):
        count = plan.size({20: 120, 200: 600, 1000: 2000}[frequency], 20)
        given = {"frequency": frequency, "count": count}
        sides = [Side("time.sleep loop", bare, given), Side("procsched", ours, given)]
        found = in_turn(sides, plan.size(PAIRS, 1))
        if frequency <= 200:
            found |= in_turn([Side("APScheduler", apscheduler, given)], 1)
        floor = found["time.sleep loop"]
        assert not isinstance(floor, Failed)
        for name, values in found.items():
            label = f"{name}, {frequency} Hz"
            if isinstance(values, Failed):
                table.fail(label, values)
                continue
            cells = [figure(statistics.median(v[key] for v in values)) for key in ("p50", "p99")]
            if name == "procsched":
                for key in ("p50", "p99"):
                    ratios = [v[key] / f[key] for v, f in zip(values, floor, strict=True)]
                    cells.append(f"{min(ratios):.2f} x, {statistics.median(ratios):.2f} x")
            table.add(label, *cells, *[""] * (4 - len(cells)))
    return [table]
