"""Cancel of runs that a worker holds already, and that none starts once its cancel has returned True."""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from harness import Failed, Plan, Side, Table, figure, in_turn, quantile
from peers import nothing, observed

from procsched import After, FixedRate, RunEnded

TITLE = "Cancel"
THREADS = 4


def stamp(path: str, name: str) -> None:
    """In a worker: that it started, and when. One write, so that a line is whole."""
    at = time.monotonic_ns()
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{name} {at}\n".encode())
    os.close(fd)


def spin() -> None:
    """In a worker: load."""
    until = time.monotonic() + 0.0005
    while time.monotonic() < until:
        pass


def handed_over(cancels: int) -> dict[str, float]:
    """Microseconds of cancel() while a worker sleeps towards the run's time, on an idle pool."""
    with observed() as (scheduler, _witness):
        took: list[float] = []
        roster = scheduler._engine.roster
        while len(took) < cancels:
            job = scheduler.schedule(nothing, After("4ms"))
            give_up = time.monotonic() + 0.1
            while not any(slot.armed for slot in roster) and time.monotonic() < give_up:
                time.sleep(0.0001)
            begin = time.perf_counter()
            if job.cancel():
                took.append((time.perf_counter() - begin) * 1e6)
    return {"p50": quantile(took, 0.5), "p99": quantile(took, 0.99), "cancels": len(took)}


def under_load(cancels: int) -> dict[str, float]:
    """Random cancels from several threads, both workers busy all the time; judged by what the runs wrote down."""
    took: list[float] = []
    returned: dict[str, tuple[bool, bool, int]] = {}
    """By id: whether it was a single run, what cancel() said, and when it had returned."""
    over = threading.Event()
    with tempfile.TemporaryDirectory() as folder, observed() as (scheduler, _witness):
        path = os.path.join(folder, "starts")
        Path(path).touch()
        claimed: dict[str, float] = {}

        def note(event: RunEnded) -> None:
            record = event.record
            if record.started is not None:
                at = record.started.timestamp()
                claimed[record.job_id] = max(claimed.get(record.job_id, 0.0), at)

        scheduler.subscribe(note, RunEnded)
        wall = time.time_ns() - time.monotonic_ns()

        def load() -> None:
            while not over.is_set():
                for future in [scheduler.submit(spin) for _ in range(4)]:
                    future.result()

        def churn(thread: int) -> None:
            dice = random.Random(thread)
            for number in range(cancels // THREADS):
                name = f"{thread}.{number}"
                single = dice.random() < 0.5
                delay = dice.uniform(0, 0.004)
                when = After(delay) if single else FixedRate("2ms", initial_delay=delay)
                job = scheduler.schedule(stamp, when, args=(path, name), id=name)
                time.sleep(dice.uniform(0, 0.008))
                begin = time.perf_counter()
                prevented = job.cancel()
                took.append((time.perf_counter() - begin) * 1e6)
                returned[name] = (single, prevented, time.monotonic_ns())

        threads = [threading.Thread(target=churn, args=(number,)) for number in range(THREADS)]
        loads = [threading.Thread(target=load) for _ in range(2)]
        for thread in threads + loads:
            thread.start()
        for thread in threads:
            thread.join()
        over.set()
        for thread in loads:
            thread.join()
        scheduler.shutdown()
        lines = [line.split() for line in Path(path).read_text().splitlines()]
    last: dict[str, int] = {}
    for name, at in lines:
        last[name] = max(last.get(name, 0), int(at))
    prevented = [name for name, (_single, said, _at) in returned.items() if said]
    singles = {name for name in prevented if returned[name][0]}
    late = [name for name in prevented if last.get(name, 0) > returned[name][2]]
    # A run is claimed a moment before it can write its stamp: the worker may have lost the processor in between.
    wrong = singles & last.keys()
    unexplained = [n for n in late if claimed.get(n, 1e18) * 1e9 - wall > returned[n][2] + 2_000]
    return {
        "p50": quantile(took, 0.5),
        "p99": quantile(took, 0.99),
        "cancels": len(returned),
        "prevented": len(prevented),
        "starts": len(lines),
        "late": len(late),
        "broken": len(wrong) + len(unexplained),
    }


def tables(plan: Plan) -> list[Table]:
    sides = [
        Side("procsched, armed run, idle pool", handed_over, {"cancels": plan.size(1_000, 20)}),
        Side("procsched, full load, 4 threads", under_load, {"cancels": plan.size(10_000, 80)}),
    ]
    table = Table(("cancel()", "p50 µs", "p99 µs", "cancels", "prevented a run", "started after True", "target"))
    table.note = (
        "Of runs that a worker holds already, so that the loop has to ask for them back; under load, of any. Every run "
        "writes a time stamp first thing. A single run whose cancel returned True must have left none; one of a "
        "recurring job none that is later than the return, unless its record says that it had been claimed before."
    )
    for name, values in in_turn(sides, plan.rounds).items():
        if isinstance(values, Failed):
            table.fail(name, values)
            continue
        middle: dict[str, Any] = {key: statistics.median(v[key] for v in values) for key in values[0]}
        broken = sum(v.get("broken", 0) for v in values)
        if broken:
            table.broken.append(f"{broken} runs started after their cancel had returned True")
        table.add(
            name,
            figure(middle["p50"]),
            figure(middle["p99"]),
            f"{middle['cancels']:,.0f}",
            f"{middle.get('prevented', middle['cancels']):,.0f}",
            f"{broken}" if "broken" in middle else "",
            "p50 ≤ 300, p99 ≤ 5,000" if "idle" in name else "none",
        )
    return [table]
