"""The scheduler beside its peers, in one run on this machine: ``tests/benchmarks/compare.py``, or ``tox -e bench``.

Trust the ratios, not the absolute numbers: all that is compared is measured within a few seconds.
"""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from os import getpid as nothing

from procsched import After, FixedRate, ProcessScheduler, RunEnded

WORKERS = 2


def rate(count: int, work: Callable[[int], object]) -> float:
    """Calls a second, the better of two rounds."""
    best = 0.0
    for _ in range(2):
        gc.collect()
        begin = time.perf_counter()
        work(count)
        best = max(best, count / (time.perf_counter() - begin))
    return best


def row(name: str, value: float, unit: str, other: float | None = None) -> None:
    ratio = f"{value / other:8.2f} x" if other else ""
    print(f"  {name:44} {value:12,.0f} {unit:8} {ratio}", flush=True)


def throughput() -> None:
    print(f"no-op calls with their results, {WORKERS} workers; against multiprocessing.Pool")
    with multiprocessing.get_context("forkserver").Pool(WORKERS) as pool:
        pool.apply(nothing)
        peer = rate(20_000, lambda n: [result.get() for result in [pool.apply_async(nothing) for _ in range(n)]])
    row("multiprocessing.Pool.apply_async", peer, "calls/s")
    with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("forkserver")) as executor:
        executor.submit(nothing).result()
        row("concurrent.futures, in order", rate(5_000, lambda n: in_order(executor, n)), "calls/s", peer)
    with ProcessScheduler(WORKERS) as scheduler:
        scheduler.submit(nothing).result()
        row("procsched, in order", rate(60_000, lambda n: in_order(scheduler, n)), "calls/s", peer)
        row("procsched, concurrent.futures.wait", rate(60_000, lambda n: waited(scheduler, n)), "calls/s", peer)


def in_order(executor: ProcessPoolExecutor | ProcessScheduler, count: int) -> None:
    for future in [executor.submit(nothing) for _ in range(count)]:
        future.result()


def waited(scheduler: ProcessScheduler, count: int) -> None:
    wait([scheduler.submit(nothing) for _ in range(count)])


def lateness() -> None:
    print("lateness of starts on an idle pool, and of a bare time.sleep loop")
    for frequency in (20, 200, 1000):
        count = min(2 * frequency, 1000)
        bare = sleep_lateness(frequency, count)
        late: list[float] = []
        with ProcessScheduler(WORKERS) as scheduler:
            scheduler.submit(nothing).result()
            scheduler.subscribe(lambda event, late=late: late.append(event.record.lateness), RunEnded)
            scheduler.schedule(nothing, FixedRate(1 / frequency, initial_delay=0.1).times(count)).wait()
        for name, values in (("time.sleep", bare), ("procsched", late)):
            values.sort()
            p50, p99 = statistics.median(values), values[int(len(values) * 0.99) - 1]
            print(f"  {frequency:5} Hz  {name:12} p50 {p50 * 1e6:8.0f} us   p99 {p99 * 1e6:8.0f} us", flush=True)


def sleep_lateness(frequency: int, count: int) -> list[float]:
    late = []
    due = time.monotonic()
    for _ in range(count):
        due += 1 / frequency
        time.sleep(max(0.0, due - time.monotonic()))
        late.append(time.monotonic() - due)
    return late


def jobs(count: int = 200_000) -> None:
    print(f"{count:,} jobs, a day away")
    with ProcessScheduler(WORKERS) as scheduler:
        when = After("1d")
        begin = time.perf_counter()
        handles = [scheduler.schedule(nothing, when) for _ in range(count)]
        row("schedule", count / (time.perf_counter() - begin), "jobs/s")
        begin = time.perf_counter()
        for handle in handles:
            handle.cancel()
        row("cancel", count / (time.perf_counter() - begin), "jobs/s")


def imports() -> None:
    print("import")
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    bare = time.perf_counter() - begin
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import procsched"], check=True)
    row("import procsched, beyond a bare interpreter", (time.perf_counter() - begin - bare) * 1e6, "us")


if __name__ == "__main__":
    imports()
    throughput()
    lateness()
    jobs()
