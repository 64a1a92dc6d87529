"""Memory or descriptors run out in one of the scheduler's threads, with real workers: it goes on, or it ends loudly.

Each thread in turn: at the n-th call that it makes, once. "Alive but not working" is what there must never be: every
Future is done in the end, and a call given afterwards either has its value or is refused.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import sys
import threading
import time
from collections import Counter
from concurrent.futures import wait
from typing import Any

import psutil
import pytest
from injector import Injector, Site, chosen
from misdeeds import chat, hang, leave

from procsched import FixedRate, ProcessScheduler, ProcschedError

ROLES = ("loop", "delivery", "events", "starter", "reaper", "listener")
BOUND = 20.0


def ordeal() -> list[str]:
    """A little of everything; what went wrong."""
    wrong: list[str] = []
    scheduler = ProcessScheduler(2, spare_workers=1, name="fault")
    futures: list[Any] = []
    try:
        for deed in (_calls, _deaths, _jobs):
            try:
                futures += deed(scheduler)
            except ProcschedError:  # it has ended meanwhile: that is an answer
                pass
        pending = wait(futures, timeout=BOUND).not_done
        if pending:
            wrong.append(f"{len(pending)} of {len(futures)} Futures are pending, health {scheduler.health()}")
        try:
            if scheduler.submit(abs, -1).result(BOUND) != 1:
                wrong.append("a wrong value")
        except TimeoutError:
            wrong.append(f"a call after it isn't answered, health {scheduler.health()}")
        except ProcschedError:
            if scheduler.health().ok:
                wrong.append("refused by a scheduler that is well")
    finally:
        ender = threading.Thread(target=scheduler.shutdown, kwargs={"timeout": 1, "cancel_futures": True}, daemon=True)
        ender.start()
        ender.join(BOUND + 10)
        if ender.is_alive():
            wrong.append("shutdown hangs")
    stats = scheduler.stats()
    if stats.started != stats.ended:
        wrong.append(f"books: {stats}")
    return wrong


def _calls(scheduler: ProcessScheduler) -> list[Any]:
    futures = [scheduler.submit(abs, number) for number in range(10)]
    return [*futures, scheduler.submit(chat, b"x" * 100), scheduler.submit(chat, b"x" * 3_000_000)]


def _deaths(scheduler: ProcessScheduler) -> list[Any]:
    hanging = scheduler.schedule(hang, FixedRate(3600), timeout="100ms", warn_after="50ms")
    return [hanging.next_future(), scheduler.submit(leave)]


def _jobs(scheduler: ProcessScheduler) -> list[Any]:
    job = scheduler.schedule(chat, FixedRate("20ms").times(3), args=(b"",))
    following = job.next_future()
    other = scheduler.schedule(chat, FixedRate("10ms"), args=(b"",))
    time.sleep(0.03)
    other.cancel()
    return [following, other.next_future()]


def _left() -> list[str]:
    deadline = time.monotonic() + 10
    while left := [thread.name for thread in threading.enumerate() if thread.name.startswith("fault-")] + _children():
        if time.monotonic() > deadline:
            return [f"left: {left}"]
        time.sleep(0.005)
    return []


def _children() -> list[str]:
    return [f"{child}" for child in psutil.Process().children() if not _is_tracker(child)]


def _is_tracker(child: psutil.Process) -> bool:
    """Python's own, which stays."""
    try:
        return "resource_tracker" in " ".join(child.cmdline())
    except psutil.Error:  # a corpse
        return False


def _out_of_descriptors() -> OSError:
    return OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.timeout(7200)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("role", ROLES)
def test_a_fault_in_a_thread(role: str, pytestconfig: pytest.Config, caplog: Any) -> None:
    """All Futures are done, shutdown returns, and nothing of it stays."""
    if pytestconfig.getoption("--chaos-faults") <= 100:
        pytest.skip("explores other points each time, and some leave a descriptor for a moment: --chaos-faults=400")
    caplog.set_level(logging.CRITICAL + 1, "procsched")
    with Injector(f"fault-{role}") as counting:
        assert ordeal() == []
    sites = dict(counting.sites)
    faults = max(2, pytestconfig.getoption("--chaos-faults") // 50)
    wrong: list[tuple[Site | None, str]] = []
    hits: Counter[str] = Counter()
    for number, step in enumerate(chosen(sites, faults, random.randrange(1 << 20))):
        error = _out_of_descriptors if number % 2 else MemoryError
        with Injector(f"fault-{role}", step, error) as injector:
            found = ordeal()
        hits["hit" if injector.hit else "missed"] += 1  # threads take their time: no two ordeals are the same
        wrong += [(injector.hit, what) for what in found + _left()]
    sys.stdout.write(f"{role}: {len(sites)} sites, {counting.count} calls, {dict(hits)}\n")
    assert wrong == [], "\n".join(map(str, wrong))
