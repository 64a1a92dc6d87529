"""Calls of some length: from where on the cost of handing them over is no longer to be seen."""

from __future__ import annotations

import statistics
from functools import partial

from harness import Failed, Plan, Side, Table, figure, in_turn
from peers import EXECUTORS, WORKERS, busy, timed

TITLE = "Calls of some length"
NAMES = ("procsched", "multiprocessing.Pool", "concurrent.futures", "loky")
LENGTHS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.02)
"""Seconds of CPU time."""


def use(name: str, length: float, spent: float) -> dict[str, float]:
    """Calls a second that take so long, against what as many workers could do if nothing else cost anything."""
    count = max(8, round(spent * WORKERS / length))
    with EXECUTORS[name]() as executor:
        get, task = executor.get, partial(busy, length)  # a Pool's way of taking arguments is its own
        for call in [executor.submit(task) for _ in range(4 * WORKERS)]:
            get(call)

        def work() -> None:
            for call in [executor.submit(task) for _ in range(count)]:
                get(call)

        return {"part": count / timed(work) * length / WORKERS}


def tables(plan: Plan) -> list[Table]:
    table = Table(("of two workers' time, in the calls", *(f"{length * 1000:g} ms" for length in LENGTHS)))
    table.note = "1 would be all of it, with two whole cores for the workers; here the parent has to share them."
    spent = plan.size(20, 1) / 20  # seconds of each worker
    cells: dict[str, list[str]] = {name: [] for name in NAMES}
    for length in LENGTHS:
        sides = [Side(name, use, {"name": name, "length": length, "spent": spent}) for name in NAMES]
        for name, values in in_turn(sides, plan.rounds).items():
            failed = isinstance(values, Failed)
            cells[name].append("failed" if failed else figure(statistics.median(v["part"] for v in values)))
    for name in NAMES:
        table.add(name, *cells[name])
    return [table]
