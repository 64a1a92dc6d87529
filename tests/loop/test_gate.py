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


def test_a_call_on_its_way_in_is_not_taken_for_a_forgotten_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop mends the books, after an interrupt elsewhere, at the very moment between two steps of a submit."""
    scheduler = ManualScheduler(workers=1)
    scheduler.submit(int)
    scheduler.tick()
    queues = scheduler._engine.timetable.queues
    arrive = type(queues).arrive

    def mend_first(self: Any, run: Any) -> None:
        scheduler._engine.mend(scheduler._engine.now())
        arrive(self, run)

    monkeypatch.setattr(type(queues), "arrive", mend_first)
    future = scheduler.submit(abs, -1)
    monkeypatch.undo()
    scheduler.tick()
    assert future.result(0) == 1
    scheduler.shutdown()
