"""Nothing is lost, nothing happens twice, whatever dies: seconds of torment, and an oracle that the runs write."""

from __future__ import annotations

import ctypes
import logging
import os
import random
import resource
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from oracle import judge, read_testimony
from torment import Ordeal

from procsched import ProcessScheduler

KEPT_PER_RUN = 4096
"""Bytes that this test itself keeps of a run, generously: its line, its record, its Future."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each size of pool that was asked for."""
    sizes = [int(word) for word in metafunc.config.getoption("--chaos-workers").split(",")]
    metafunc.parametrize("workers", sizes)


@pytest.mark.case("B62")
@pytest.mark.timeout(7200)
def test_chaos(tmp_path: Path, caplog: Any, pytestconfig: pytest.Config, workers: int) -> None:
    """Every run ends once, with its true outcome, and none starts after its cancel; all that was opened is closed."""
    caplog.set_level(logging.CRITICAL, "procsched")
    caplog.handler.setLevel(logging.CRITICAL)
    seconds = pytestconfig.getoption("--chaos-seconds")
    seed = pytestconfig.getoption("--chaos-seed") or random.randrange(1 << 30)
    with ProcessScheduler(1) as warm:  # what loky, psutil and logging open and import once for all
        warm.submit(int).result(30)
        assert warm.workers()
    before = _resident()
    ordeal = Ordeal(str(tmp_path / "testimony"), workers, seed)
    ordeal.scheduler.submit(int).result(30)
    ordeal.begin()
    time.sleep(seconds)
    begun = time.monotonic()
    ordeal.end(timeout=2)
    took = time.monotonic() - begun
    if ordeal.errors:
        raise ordeal.errors[0]
    ordeal.scheduler._engine.check_valid()
    # The first call of all was no `act`: it has no line.
    ordeal.case.told = [one for one in ordeal.case.told if not (one.name is None and one.number == 1)]
    ordeal.case.counts["SUCCEEDED"] -= 1
    read_testimony(Path(ordeal.path).read_text(), ordeal.case)
    complaints = judge(ordeal.case)
    growth = _resident() - before
    sys.stdout.write(_figures(ordeal, workers, seed, took, growth))
    assert complaints == []
    assert not ordeal.waiting, f"{len(ordeal.waiting)} Futures were never told"
    assert took < 2 + 10
    assert growth < (96 << 20) + KEPT_PER_RUN * len(ordeal.case.told)


def _figures(ordeal: Ordeal, workers: int, seed: int, took: float, growth: int) -> str:
    case = ordeal.case
    outcomes = {name: count for name, count in case.counts.items() if count}
    deaths = len({one.pid for one in case.told if one.outcome in ("CRASHED", "TIMED_OUT", "ABORTED")})
    return (
        f"workers {workers}, seed {seed}: {len(case.starts)} starts, {len(case.told)} told, {outcomes}, "
        f"{len(case.killed)} killed, {deaths} workers lost with a run, "
        f"{len(case.cancels)} cancels and replacements, {len(case.prevented)} calls prevented, "
        f"{dict(ordeal.deeds)}, {dict(ordeal.signals)}, end took {took:.1f} s, grew {growth >> 20} MiB\n"
    )


def _resident() -> int:
    """Bytes, without what malloc merely keeps."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:  # not the GNU C library
        pass
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
