"""Runs that were handed over behind one that turns out long: when do they start elsewhere?"""

from __future__ import annotations

import statistics
import time
from typing import Any

from harness import Failed, Plan, Side, Table, figure, in_turn, quantile
from peers import EXECUTORS

TITLE = "Behind a run that overstays"
BURST = 48
LONG = 0.15
"""Seconds."""


def act(long: bool) -> int:
    """In a worker: when it started, monotonic ns."""
    started = time.monotonic_ns()
    if long:
        time.sleep(LONG)
    return started


def ours_or_peer(name: str, bursts: int) -> dict[str, Any]:
    """Milliseconds from the start of the long run to the last start of the others, in each burst."""
    with EXECUTORS[name]() as executor:
        took = []
        for number in range(bursts):
            for call in [executor.call(act, False) for _ in range(1000)]:  # known to be short, and no batch is left
                executor.get(call)
            at = 3 + number % 20
            calls = [executor.call(act, index == at) for index in range(BURST)]
            starts = [executor.get(call) for call in calls]
            took.append((max(starts) - starts[at]) / 1e6)
    return {"p50": statistics.median(took), "p99": quantile(took, 0.99), "worst": max(took)}


def tables(plan: Plan) -> list[Table]:
    names = ["procsched", "multiprocessing.Pool", "concurrent.futures", "loky"]
    sides = [Side(name, ours_or_peer, {"name": name, "bursts": plan.size(40, 2)}) for name in names]
    table = Table(("last start of the others, ms after the long run's", "p50", "p99", "worst", "target"))
    table.note = (
        f"Bursts of {BURST} calls to two idle workers, one of which takes {LONG * 1000:.0f} ms and was not to be told "
        "from the others. The peers hand over one call at a time, or nearly, and so have nothing to take back; that is "
        "what they pay for with their rate of calls."
    )
    for name, values in in_turn(sides, plan.rounds).items():
        if isinstance(values, Failed):
            table.fail(name, values)
            continue
        cells = [figure(statistics.median(v[key] for v in values)) for key in ("p50", "p99", "worst")]
        table.add(name, *cells, "≤ 5" if name == "procsched" else "")
    return [table]
