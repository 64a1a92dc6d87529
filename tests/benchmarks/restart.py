"""A worker is killed: when does its slot, or what the peers have instead, run again?"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import statistics
import time
from concurrent.futures import BrokenExecutor
from typing import Any

from harness import Failed, Plan, Side, Table, Unable, figure, in_turn
from peers import observed

TITLE = "A killed worker"
PACE = 0.3
"""Seconds between kills: procsched replaces five lost workers a second, after a first burst."""
PATIENCE = 3.0
KINDS = {"procsched": 0, "procsched, spare_workers=1": 1}


def ours(spares: int, kills: int) -> dict[str, float]:
    """Milliseconds from the kill of the only worker to the start of the next call; and of a bare boot, in turn."""
    logging.getLogger("procsched").setLevel(logging.CRITICAL)  # it tells of every kill
    took, bare = [], []
    with observed(1, spare_workers=spares) as (scheduler, _witness):
        for _ in range(kills):
            time.sleep(PACE)
            pid = scheduler.submit(os.getpid).result()
            begin = time.monotonic_ns()
            os.kill(pid, signal.SIGKILL)
            took.append((scheduler.submit(time.monotonic_ns).result() - begin) / 1e6)
            time.sleep(PACE)
            bare.append(_bare_boot())
    return {"ms": statistics.median(took), "worst": max(took), "bare": statistics.median(bare)}


def _bare_boot() -> float:
    """Milliseconds from the start of a stock loky process to its first message."""
    from loky.backend import get_context

    reader, writer = multiprocessing.Pipe(duplex=False)
    process = get_context("loky").Process(target=writer.send_bytes, args=(b"here",))
    begin = time.perf_counter()
    process.start()
    reader.recv_bytes()
    took = (time.perf_counter() - begin) * 1000
    process.join()
    return took


def rebuilt(name: str, kills: int) -> dict[str, float]:
    """An executor that breaks is thrown away: to the start of the next call of a new one."""
    took = []
    executor = _new(name)
    for _ in range(kills):
        pid = executor.submit(os.getpid).result()
        time.sleep(PACE)
        begin = time.monotonic_ns()
        os.kill(pid, signal.SIGKILL)
        started = None
        while started is None:
            try:
                started = executor.submit(time.monotonic_ns).result()
            except BrokenExecutor:
                executor.shutdown(wait=False)
                executor = _new(name)
        took.append((started - begin) / 1e6)
    executor.shutdown()
    return {"ms": statistics.median(took), "worst": max(took)}


def _new(name: str) -> Any:
    if name == "loky":
        from loky import get_reusable_executor

        return get_reusable_executor(1)
    from concurrent.futures import ProcessPoolExecutor

    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def pool(kills: int) -> dict[str, float]:
    """A Pool replaces its worker; whether that one can read the queue is another matter."""
    made, took = multiprocessing.get_context("spawn").Pool(1), []  # no with: its end hangs as well
    for _ in range(kills):
        pid = made.apply(os.getpid)
        time.sleep(PACE)
        begin = time.monotonic_ns()
        os.kill(pid, signal.SIGKILL)
        try:
            took.append((made.apply_async(time.monotonic_ns).get(PATIENCE) - begin) / 1e6)
        except multiprocessing.TimeoutError:
            raise Unable("hangs for good") from None
    made.terminate()
    return {"ms": statistics.median(took), "worst": max(took)}


def pebble(kills: int) -> dict[str, float]:
    from pebble import ProcessPool

    made, took = ProcessPool(1, context=multiprocessing.get_context("spawn")), []
    try:
        for _ in range(kills):
            pid = made.schedule(os.getpid).result()
            time.sleep(PACE)
            begin = time.monotonic_ns()
            os.kill(pid, signal.SIGKILL)
            took.append((made.schedule(time.monotonic_ns).result(PATIENCE) - begin) / 1e6)
    except (BrokenExecutor, TimeoutError):
        raise Unable("breaks for good") from None
    finally:
        made.stop()
    return {"ms": statistics.median(took), "worst": max(took)}


def tables(plan: Plan) -> list[Table]:
    kills = plan.size(12, 2)
    sides = [Side(name, ours, {"spares": spares, "kills": kills}) for name, spares in KINDS.items()]
    sides += [
        Side(f"{name}, built anew", rebuilt, {"name": name, "kills": kills}) for name in ("concurrent.futures", "loky")
    ]
    sides += [Side("pebble", pebble, {"kills": kills}), Side("multiprocessing.Pool", pool, {"kills": kills})]
    table = Table(
        ("SIGKILL of the only worker, idle", "ms to the next start", "worst", "against a bare boot", "target")
    )
    bare: list[float] = []
    for name, values in in_turn(sides, plan.rounds).items():
        if isinstance(values, Failed):
            table.fail(name, values)
            continue
        middle, worst = (statistics.median(v[key] for v in values) for key in ("ms", "worst"))
        against = ""
        if "bare" in values[0]:
            bare += [v["bare"] for v in values]
            against = f"{statistics.median(v['ms'] / v['bare'] for v in values):.2f} x"
        target = {"procsched": "≤ 0.6 x", "procsched, spare_workers=1": "≤ 20 ms"}.get(name, "")
        table.add(name, figure(middle), figure(worst), against, target)
    floor = f"{figure(statistics.median(bare))} ms" if bare else "not measured"
    table.note = (
        f"A bare boot is a stock loky process from its start to its first message, in turn with the kills: {floor}. "
        "`concurrent.futures` and loky lose every call that they hold, and have to be built anew by the caller."
    )
    return [table]
