"""Alive but not scheduling must be impossible: a loop that can't go on ends the scheduler loudly."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from procsched import FixedDelay, FixedRate, InternalError, ProcessScheduler, SchedulerClosed, SchedulerStopped


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("timetable.promote", MemoryError),
        ("offering.hand_over", RecursionError),
        ("alarms.ring", KeyboardInterrupt),
        ("staff.tend", SystemExit),
    ],
)
@pytest.mark.case("B89")
def test_an_error_in_the_loop(
    one: ProcessScheduler,
    stage: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
    place: str,
    error: type[BaseException],
) -> None:
    """Everybody who waits is released with it, it is logged, and nothing is taken any more."""
    told: list[Any] = []
    one.subscribe(told.append, SchedulerStopped)
    held = one.submit(stage.hold, *stage.at)
    stage.entered()
    waiting, job = one.submit(abs, 1), one.schedule(abs, FixedRate("1h"), args=(1,))
    following, series = job.next_future(), job.results()

    def broken(*_: Any) -> None:
        raise error("injected")

    part, _, name = place.partition(".")
    if part == "timetable":
        monkeypatch.setattr(type(one._engine.timetable), name, broken)
    else:
        monkeypatch.setattr(getattr(one._engine, part), name, broken)
    later = one.submit(abs, 2)
    with pytest.raises(InternalError, match="injected"):
        one.wait(30)
    for future in (held, waiting, later):
        assert isinstance(future.exception(30), InternalError)
    assert following.cancelled() or following.exception(30)
    assert list(series) is not None and not one.health().ok
    with pytest.raises(SchedulerClosed):
        one.submit(abs, 1)
    one.shutdown()
    stats = one.stats()
    assert stats.started == stats.ended and len(told) == 1
    assert "please report" in caplog.text


def test_a_schedule_that_exits_is_the_jobs_own_fault(one: ProcessScheduler) -> None:
    """An exception in a user's schedule pauses that job, and others go on."""
    from procsched import Schedule, Timebase

    class Broken(Schedule):
        timebase = Timebase.MONOTONIC

        def first(self, now: int) -> int:
            return now

        def next(self, planned: int, finished: int) -> int:
            raise RecursionError

    job = one.schedule(abs, Broken(), args=(1,))
    assert job.wait(30) and job.state.value == "paused" and one.submit(abs, -1).result(30) == 1


def test_who_waits_for_a_job_that_was_replaced_when_the_loop_dies(one: ProcessScheduler, monkeypatch: Any) -> None:
    """The error strikes where just these would have been told: they are released all the same."""
    old = one.schedule(abs, FixedDelay("1h", initial_delay="1h"), args=(1,), id="x")
    waiting, series = old.next_future(), old.results()
    one.submit(abs, 1).result(30)
    real, struck = type(one._engine.settling).job_over, threading.Event()

    def broken(self: Any, row: Any) -> None:
        if not struck.is_set():
            struck.set()
            raise MemoryError("injected")
        real(self, row)

    monkeypatch.setattr(type(one._engine.settling), "job_over", broken)
    one.schedule(abs, FixedDelay("1h", initial_delay="1h"), args=(1,), id="x", replace_existing=True)
    with pytest.raises(InternalError, match="injected"):
        one.wait(30)
    assert waiting.cancelled() or waiting.exception(10)
    assert list(series) == []
