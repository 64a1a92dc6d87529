"""A cancel and a claim at the same moment: exactly one of them wins, and the run's own word says which."""

from __future__ import annotations

import random
import time
from pathlib import Path

from misdeeds import act, ready
from oracle import Case, read_testimony

from procsched import FixedRate, ProcessScheduler

CALLS, JOBS = 1500, 150


def test_a_cancel_races_its_claim(tmp_path: Path) -> None:
    """A Future that says it was cancelled has no run; one that doesn't has a value."""
    path, rng = str(tmp_path / "testimony"), random.Random()
    with ProcessScheduler(2, initializer=ready) as scheduler:
        scheduler.submit(int).result(30)
        futures = {}
        for number in range(CALLS):
            name = f"n{number}"
            futures[name] = scheduler.submit(act, path, name, "value")
            time.sleep(rng.uniform(0, 0.0005))
            futures[name].cancel()
    case = Case()
    read_testimony(Path(path).read_text(), case)
    ran = {who[0] for who, _ in case.starts}
    assert len(ran) == len(case.starts)
    assert ran == {name for name, future in futures.items() if not future.cancelled()}
    assert all(future.result()[0] == name for name, future in futures.items() if not future.cancelled())
    assert 0 < len(ran) < CALLS


def test_a_replacement_races_a_claim(tmp_path: Path) -> None:
    """After `schedule(replace_existing=True)` and `cancel()` have returned, the old generation starts nothing."""
    path, rng = str(tmp_path / "testimony"), random.Random()
    over: dict[str, int] = {}
    with ProcessScheduler(2, initializer=ready) as scheduler:
        scheduler.submit(int).result(30)
        for number in range(JOBS):
            job = scheduler.schedule(
                act, FixedRate(0.001), args=(path, f"n{number}", "value"), id="one", replace_existing=True
            )
            if number:
                over[f"n{number - 1}"] = time.monotonic_ns()
            time.sleep(rng.uniform(0, 0.01))
            if rng.random() < 0.3:
                job.cancel()
                over[f"n{number}"] = time.monotonic_ns()
    case = Case()
    read_testimony(Path(path).read_text(), case)
    # Between its claim and its line a worker may lose the processor for some milliseconds: that one run is the only
    # one of its name that may be late.
    late = [who[0] for who, start in case.starts if start.at > over.get(who[0], 1 << 62)]
    assert len(late) == len(set(late)), late
    assert len(late) <= JOBS // 10, late
    spans = sorted(
        [(start.at, 1) for _, start in case.starts] + [(end.at, -1) for _, end in case.ends]
    )  # never two of one id at once, across generations
    count = 0
    for at, step in spans:
        count += step
        assert count <= 1, at
