"""Nothing grows: runs, cancels, replacements and deaths by the thousand, and the parent is as it was after a tenth."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
import threading
import time
from concurrent.futures import wait
from typing import Any

import pytest
from misdeeds import leave

from procsched import FixedRate, ProcessScheduler

GROWTH = 12 << 20
"""Bytes of resident memory, from the warm-up to the end, however long it is: malloc's own doing."""


def sizes(scheduler: ProcessScheduler) -> dict[str, int]:
    """Of everything in the parent that could grow with the number of runs."""
    engine = scheduler._engine
    queues, settling = engine.timetable.queues, engine.settling
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "jobs": len(engine.timetable.jobs),
        "ghosts": len(engine.timetable.ghosts),
        "timers": queues.timers,
        "ready": queues.ready,
        "open": len(settling.open),
        "followed": len(settling.followed),
        "old pids": len(engine.staff._old_pids),
        "pool timers": len(engine.pool._timers),
    }


def resident() -> int:
    """Bytes, without what malloc merely keeps."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:  # not the GNU C library
        pass
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def lap(scheduler: ProcessScheduler, runs: int, changes: int, deaths: int) -> None:
    """A tenth of it all."""
    left = runs
    while left > 0:
        wait([scheduler.submit(abs, number) for number in range(min(left, 2000))])
        left -= 2000
    for number in range(changes):
        job = scheduler.schedule(abs, FixedRate(0.002), args=(1,), id=f"job{number % 7}", replace_existing=True)
        if number % 3 == 0:
            job.next_future()
        if number % 2:
            job.cancel()
    for job in scheduler.get_jobs():
        job.cancel()
    for _ in range(deaths):
        assert scheduler.submit(leave).exception(60) is not None
    assert scheduler.submit(abs, -1).result(60) == 1


def settled(scheduler: ProcessScheduler, wanted: dict[str, int]) -> dict[str, int]:
    """The sizes, as soon as they are these or ten seconds have passed."""
    deadline = time.monotonic() + 10
    while (found := sizes(scheduler)) != wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


@pytest.mark.timeout(7200)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_nothing_grows(pytestconfig: pytest.Config, caplog: Any) -> None:
    """Descriptors, threads, tables and heaps exactly, memory within a bound."""
    caplog.set_level(logging.CRITICAL, "procsched")
    runs = pytestconfig.getoption("--chaos-runs")
    parts = (runs // 10, runs // 100, max(2, runs // 10_000))
    with ProcessScheduler(2) as scheduler:
        lap(scheduler, *parts)
        wait_up(scheduler)
        before, memory = sizes(scheduler), resident()
        for _ in range(9):
            lap(scheduler, *parts)
        wait_up(scheduler)
        after = settled(scheduler, before)
        growth = resident() - memory
        heap = scheduler._engine.timetable.queues
        heap.check_valid()
    stats = scheduler.stats()
    sys.stdout.write(f"{stats}, {growth >> 10} KiB more, {after}\n")
    assert after == before
    assert growth < GROWTH


def wait_up(scheduler: ProcessScheduler) -> None:
    """Until every slot has a worker, so that descriptors can be compared."""
    deadline = time.monotonic() + 60
    while scheduler.health().workers_up < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
