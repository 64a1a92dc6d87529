"""Calls that do nothing, with their results: in order, and through ``concurrent.futures.wait``."""

from __future__ import annotations

import time
from concurrent.futures import wait
from typing import Any

from bare import pipes
from harness import Failed, Plan, Side, Table, figure, in_turn, medians, ratio
from peers import EXECUTORS, nothing, timed

TITLE = "Calls"
LIMIT = "bare pipes"
TARGETS = {"multiprocessing.Pool": 4, "concurrent.futures": 12, "loky": 12, "APScheduler": 20}
TARGETS_WAIT = {"multiprocessing.Pool": 1.8, "concurrent.futures": 5}


def in_order(name: str, count: int) -> dict[str, float]:
    """Calls a second: all submitted, then each asked for its result. Also CPU seconds of this process, per call."""
    with EXECUTORS[name]() as executor:
        get = executor.get

        def work() -> None:
            for call in [executor.submit(nothing) for _ in range(count)]:
                get(call)

        return _rate(count, work)


def waited(name: str, count: int) -> dict[str, float]:
    """The same through ``wait``, or one by one where calls have no Futures."""
    with EXECUTORS[name]() as executor:
        submit = executor.submit
        if name == "multiprocessing.Pool":

            def work() -> None:
                for result in [submit(nothing) for _ in range(count)]:
                    result.wait()
        else:

            def work() -> None:
                assert not wait([submit(nothing) for _ in range(count)]).not_done

        return _rate(count, work)


def _rate(count: int, work: Any) -> dict[str, float]:
    cpu = time.process_time()
    seconds = timed(work)
    return {"rate": count / seconds, "cpu": (time.process_time() - cpu) / count * 1e6}


def tables(plan: Plan) -> list[Table]:
    count = plan.size(60_000, 1_000)
    counts = dict.fromkeys(EXECUTORS, count) | {"APScheduler": plan.size(4_000, 100)}
    ordered = [Side(name, in_order, {"name": name, "count": counts[name]}) for name in EXECUTORS]
    ordered.append(Side(LIMIT, pipes, {"count": 5 * count}))
    waiting = [
        Side(name, waited, {"name": name, "count": count})
        for name in EXECUTORS
        if name in ("procsched", "multiprocessing.Pool", "concurrent.futures", "loky", "pebble")
    ]
    return [
        _table("in order", ordered, TARGETS, plan, counts),
        _table("through wait()", waiting, TARGETS_WAIT, plan, counts),
    ]


def _table(how: str, sides: list[Side], targets: dict[str, float], plan: Plan, counts: dict[str, int]) -> Table:
    found = in_turn(sides, plan.rounds)
    table = Table((f"{how}", "calls", "calls/s", "CPU µs/call", "procsched against it", "target"))
    table.note = (
        "CPU is that of the parent alone. `bare pipes` is no executor: a parent that writes tickets and reads "
        "reports of two children that do nothing else."
        if how == "in order"
        else "`multiprocessing.Pool` has results of its own, and is asked for each of them."
    )
    ours = found["procsched"]
    for name, values in found.items():
        if isinstance(values, Failed):
            table.fail(name, values)
            continue
        middle = medians(values)
        against = ""
        if not isinstance(ours, Failed) and name != "procsched":
            against = f"{ratio([v['rate'] for v in ours], [v['rate'] for v in values]):.2f} x"
        target = f"≥ {targets[name]} x" if name in targets else ""
        calls = f"{counts[name]:,}" if name in counts else ""
        table.add(name, calls, figure(middle["rate"]), figure(middle["cpu"]), against, target)
    return table
