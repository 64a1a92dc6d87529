"""Figures of the process pool alone, without scheduler: ``PYTHONPATH=src python tests/benchmarks/bench_pool.py``.

Trust ratios within one run, not absolute numbers.
"""

from __future__ import annotations

import pickle
import statistics
import time

from procsched.pool.api import Died, Ended, PoolSettings, Up
from procsched.pool.process_pool import ProcessPool
from procsched.wire import Function

BATCH = 64


def noop() -> None:
    """Nothing."""


def _open(workers: int, spares: int = 0) -> ProcessPool:
    pool = ProcessPool()
    pool.open(PoolSettings(workers=workers, spares=spares), lambda message: None)
    for slot in range(workers):
        pool.spawn(slot)
    missing = workers
    while missing:
        missing -= sum(isinstance(event, Up) for event in pool.poll(10))
    return pool


def _function() -> Function:
    return Function(pickle.dumps(time.monotonic_ns), True, "noop")


def throughput(runs: int = 200_000) -> float:
    """No-op runs a second through 2 workers, offered by 64, topped up when half are reported."""
    pool, function = _open(2), _function()
    key, functions, ticket, ended = function.key, [function], 0, 0
    outstanding = {0: 0, 1: 0}
    started = time.perf_counter()
    while ended < runs:
        for slot, count in outstanding.items():
            if count <= BATCH and ticket < runs:
                orders = [(number, key, 0, 0, number, 1, 0, 0, "", b"") for number in range(ticket, ticket + BATCH)]
                ticket += BATCH
                outstanding[slot] += BATCH
                pool.offer(slot, orders, functions)
        for event in pool.poll(1):
            if type(event) is Ended:
                outstanding[event.slot] -= 1
                ended += 1
    rate = ended / (time.perf_counter() - started)
    pool.close(2)
    return rate


def lateness(rate: int = 200, seconds: float = 2.0) -> tuple[list[float], list[float]]:
    """Microseconds late: armed orders, and a bare ``time.sleep`` loop in this process, one after the other."""
    period, count = 1_000_000_000 // rate, int(rate * seconds)
    pool, function = _open(1), _function()
    armed: list[float] = []
    first = time.monotonic_ns() + 10_000_000
    for i in range(count):
        due = first + i * period
        pool.poll(max(0.0, (due - 2_500_000 - time.monotonic_ns()) / 1e9))
        pool.offer(0, [(i, function.key, due, 0, i, 1, 0, 0, "", b"")], [function])
        ended = None
        while ended is None:
            ended = next((event for event in pool.poll(1) if isinstance(event, Ended)), None)
        armed.append((ended.started - due) / 1000)
    pool.close(2)
    bare: list[float] = []
    first = time.monotonic_ns() + 10_000_000
    for i in range(count):
        due = first + i * period
        time.sleep(max(0.0, (due - time.monotonic_ns()) / 1e9))
        bare.append((time.monotonic_ns() - due) / 1000)
    return armed, bare


def boot(times: int = 15) -> tuple[float, float]:
    """Milliseconds from spawn to Up, and of a stock loky process from start to its first message; medians."""
    from loky.backend import get_context

    ours = []
    pool = _open(1)
    for slot in range(1, times + 1):
        started = time.perf_counter()
        pool.spawn(slot)
        while not any(isinstance(event, Up) for event in pool.poll(10)):
            pass
        ours.append((time.perf_counter() - started) * 1000)
        pool.kill(slot)
        while not any(isinstance(event, Died) for event in pool.poll(10)):
            pass
    pool.close(5)
    context, stock = get_context("loky"), []
    for _ in range(times):
        reader, writer = context.Pipe(duplex=False)
        process = context.Process(target=_say_hello, args=(writer,))
        started = time.perf_counter()
        process.start()
        reader.recv()
        stock.append((time.perf_counter() - started) * 1000)
        process.join()
    return statistics.median(ours), statistics.median(stock)


def _say_hello(writer: object) -> None:
    writer.send(b"hello")  # type: ignore[attr-defined]


def replacement(spares: int, times: int = 15) -> float:
    """Milliseconds from kill to the Up of the replacement, median."""
    pool, took = _open(1, spares), []
    for _ in range(times):
        settle = time.perf_counter() + (0.15 if spares else 0.02)
        while time.perf_counter() < settle:
            pool.poll(0.01)
        started = time.perf_counter()
        pool.kill(0)
        up = False
        while not up:
            for event in pool.poll(10):
                if isinstance(event, Died):
                    pool.spawn(0)
                up = up or isinstance(event, Up)
        took.append((time.perf_counter() - started) * 1000)
    pool.close(5)
    return statistics.median(took)


def _at(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main() -> None:
    """Print all figures."""
    print("no-op runs/s, 2 workers, by 64:", " ".join(f"{throughput():,.0f}" for _ in range(3)))
    for _ in range(3):
        armed, bare = lateness()
        print(
            f"lateness at 200 Hz, µs: armed p50 {_at(armed, 0.5):.0f} p99 {_at(armed, 0.99):.0f}; "
            f"bare sleep p50 {_at(bare, 0.5):.0f} p99 {_at(bare, 0.99):.0f}"
        )
    ours, stock = boot()
    print(f"boot, ms: ours {ours:.1f}, stock loky {stock:.1f}")
    print(f"kill to Up, ms: {replacement(0):.1f}, with a spare {replacement(1):.1f}")


if __name__ == "__main__":
    main()
