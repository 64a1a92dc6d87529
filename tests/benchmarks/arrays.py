"""A hundred megabytes as a result, and as an argument; and a 10 ms job on another worker meanwhile."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

from harness import Failed, Plan, Side, Table, figure, in_turn, quantile
from peers import EXECUTORS, nothing, observed

from procsched import FixedRate

TITLE = "Large arrays"
PAGE = 512
"""float64 in 4 KiB."""
NAMES = ["procsched", "multiprocessing.Pool", "concurrent.futures", "loky", "joblib"]
TARGETS = {"result": "≥ 5 x", "argument": "≥ 2 x"}


@functools.cache
def prepared(size: int) -> Any:
    """In a worker, once."""
    import numpy

    return numpy.ones(size)


def give(size: int) -> Any:
    """In a worker: an array that is there already, so that only its way is measured."""
    return prepared(size)


def take(array: Any) -> float:
    """In a worker: touches every page."""
    return float(array[::PAGE].sum())


def transfers(name: str, way: str, megabytes: int, times: int) -> dict[str, float]:
    """Milliseconds of a call, until every page was touched on the other side."""
    if name == "joblib":
        from joblib import Parallel, delayed

        with Parallel(n_jobs=2) as parallel:
            return _measure(lambda fn, *args: parallel([delayed(fn)(*args)])[0], way, megabytes, times)
    with EXECUTORS[name]() as executor:
        return _measure(lambda fn, *args: executor.get(executor.call(fn, *args)), way, megabytes, times)


def beside(way: str, megabytes: int, times: int) -> dict[str, float]:
    """Milliseconds late of a 10 ms job, while two workers are enough for both."""
    with observed() as (scheduler, witness):
        scheduler.schedule(nothing, FixedRate("10ms"), id="tick")
        time.sleep(0.1)

        def call(fn: Callable[..., Any], *args: Any) -> Any:
            return scheduler.submit(fn, *args).result()

        _measure(call, way, megabytes, 2)  # imports numpy
        found = witness.lateness["tick"] = []
        _measure(call, way, megabytes, times)
        scheduler["tick"].cancel()
    return {"p50": quantile(found, 0.5) * 1000, "p99": quantile(found, 0.99) * 1000}


def _measure(call: Callable[..., Any], way: str, megabytes: int, times: int) -> dict[str, float]:
    import numpy

    size, took = megabytes * 125_000, []
    for number in range(-2, times):  # the first ones import numpy, in each worker
        array = numpy.full(size, float(number))  # a new one: joblib would send the old one again
        begin = time.perf_counter()
        if way == "result":
            total = take(call(give, size))
        else:
            total = call(take, array)
        if number >= 0:
            took.append((time.perf_counter() - begin) * 1000)
            assert total == (1 if way == "result" else number) * -(-size // PAGE), total
    return {"ms": statistics.median(took)}


def tables(plan: Plan) -> list[Table]:
    megabytes, times = plan.size(100, 1), plan.size(9, 2)
    return [_table(plan, way, megabytes, times) for way in ("result", "argument")]


def _table(plan: Plan, way: str, megabytes: int, times: int) -> Table:
    given = {"way": way, "megabytes": megabytes, "times": times}
    found = in_turn([Side(name, transfers, {"name": name, **given}) for name in NAMES], plan.rounds)
    late = in_turn([Side("procsched", beside, given)], plan.rounds)["procsched"]
    table = Table((f"{megabytes} MB of float64 as {way}", "ms a call", "procsched against it", "target"))
    ours = found["procsched"]
    for name, values in found.items():
        if isinstance(values, Failed):
            table.fail(name, values)
            continue
        against = ""
        if name != "procsched" and not isinstance(ours, Failed):
            each = statistics.median(their["ms"] / our["ms"] for our, their in zip(ours, values, strict=True))
            against = f"{each:.2f} x"
        target = TARGETS[way] if name not in ("procsched", "loky") else ""
        table.add(name, figure(statistics.median(v["ms"] for v in values)), against, target)
    if isinstance(late, Failed):
        table.fail("procsched, 10 ms job meanwhile", late)
    else:
        p50, p99 = (figure(statistics.median(v[key] for v in late)) for key in ("p50", "p99"))
        table.note = f"A 10 ms job on the other worker was late meanwhile by {p50} ms (p50) and {p99} ms (p99)."
    return table
