"""`max_pending` when a call is cut short: its place is free again, wherever the interrupt struck."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from interrupting import interrupted

import procsched
from procsched import SchedulerFull
from procsched.testing import ManualScheduler

SOURCES = tuple(str(Path(procsched.__file__).parent / name) for name in ("core", "engine.py", "gate.py"))


@pytest.mark.parametrize("deed", ["submit", "submit_after"])
def test_an_interrupted_call_keeps_no_place(deed: str) -> None:
    """Neither one too few nor one too many: afterwards exactly as many calls fit as before."""
    step, cut_short = 1, True
    while cut_short:
        scheduler = ManualScheduler(workers=1, max_pending=3, on_full="raise")
        scheduler.submit(int)
        scheduler.tick()
        call: Callable[[], Any] = {
            "submit": lambda scheduler=scheduler: scheduler.submit(int),
            "submit_after": lambda scheduler=scheduler: scheduler.submit_after("1s", int),
        }[deed]
        cut_short = interrupted(call, step, SOURCES)
        scheduler.tick()
        scheduler.clock.advance("2s")  # type: ignore[attr-defined]
        scheduler.tick()
        for _ in range(3):
            scheduler.submit(int)
        with pytest.raises(SchedulerFull):
            scheduler.submit(int)
        assert len(scheduler.tick()) == 3
        scheduler.submit(int)
        scheduler._engine.check_valid()
        scheduler.shutdown()
        step += 1
    assert step > 20
