"""Clocks that jump, and times far away: no burst, no stall, no spin. What each job does is in the decision table."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from fake_pool import FakePool

from procsched import After, At, Cron, Daily, FixedRate, ProcessScheduler
from procsched.testing import FakeClock, ManualScheduler

START = datetime(2024, 3, 10, 12, tzinfo=UTC)


def work() -> None:
    """Nothing."""


def turns_during(step: str, hours: int) -> tuple[int, dict[str, int]]:
    """Turns of the loop in so many hours after a step of the wall clock, and runs per job."""
    clock = FakeClock(start=START)
    pool = FakePool(clock, lambda job_id, number: 1_000_000)
    scheduler = ManualScheduler(clock=clock, pool=pool, workers=2)
    scheduler.schedule(work, FixedRate("1h", initial_delay="1h"), id="interval")
    scheduler.schedule(work, Daily("14:00", timezone="Europe/Paris"), id="daily")
    scheduler.schedule(work, Cron("*/30 * * * *", timezone="UTC"), id="cron")
    engine = scheduler._engine
    engine.start()
    begin = clock.monotonic_ns()
    turns = 0
    stepped = False
    while clock.monotonic_ns() < begin + hours * 3600 * 10**9:
        engine.dispatcher.turn()
        turns += 1
        if not stepped and clock.monotonic_ns() > begin + 600 * 10**9:
            clock.step_wall(step)
            stepped = True
    runs = {job.id: job.stats.runs for job in scheduler.get_jobs()}
    scheduler.shutdown(timeout=0)
    return turns, runs


@pytest.mark.parametrize("step", ["1h", "-1h", "-2h", "8h", "8760h", "-70080h"])
@pytest.mark.case("B66", "B67")
def test_a_step_of_the_wall_clock(step: str) -> None:
    """Intervals don't notice; the calendar goes on; the loop turns a few times a minute, as without a step."""
    turns, runs = turns_during(step, 48)
    assert runs["interval"] == 47
    assert runs["daily"] in (2, 3)
    # A step back by up to 3 h serves no instant twice: then cron is silent for so long.
    assert 90 <= runs["cron"] <= 98
    # Every 30 s the wall clock is looked at, while a calendar job waits; each run takes a few turns more.
    assert turns < 48 * 120 + 8 * sum(runs.values()) + 50


@pytest.mark.parametrize("step", ["1h", "8h", "8760h"])
@pytest.mark.case("B68")
def test_a_step_is_noticed_within_half_a_minute(step: str) -> None:
    """The loop sleeps for a run that is an hour away; what a step makes due runs within 30 s, not after that sleep."""
    clock = FakeClock(start=START)
    pool = FakePool(clock, lambda job_id, number: 1_000_000)
    scheduler = ManualScheduler(clock=clock, pool=pool, workers=1)
    scheduler.schedule(work, At(START + timedelta(minutes=50)), id="calendar")
    engine = scheduler._engine
    engine.start()
    for _ in range(50):
        engine.dispatcher.turn()
    stepped_at = clock.monotonic_ns()
    clock.step_wall(step)
    while not pool.executed:
        engine.dispatcher.turn()
    assert clock.monotonic_ns() - stepped_at < 31 * 10**9
    scheduler.shutdown(timeout=0)


@pytest.mark.parametrize("far", [After("400d"), After(10**9), At(START.replace(year=9000)), After(10**12)])
@pytest.mark.case("B74")
def test_far_times_are_legal(far: After | At) -> None:
    """And one that is near still starts in time, on a real loop."""
    done = threading.Event()
    with ProcessScheduler(1) as scheduler:
        scheduler.schedule(work, far)
        scheduler.submit_after("50ms", work).add_done_callback(lambda _future: done.set())
        assert done.wait(20)
        assert scheduler.health().ok


@pytest.mark.case("B68")
def test_a_calendar_job_after_a_long_suspend() -> None:
    """Monotonic +10 s, wall +8 h: the daily run inside happens once, as soon as the loop looks, and says how late."""
    scheduler = ManualScheduler(clock=FakeClock(start=START))
    scheduler.schedule(work, Daily("14:00", timezone="UTC"), id="daily")
    scheduler.tick()
    scheduler.clock.advance("10s")
    scheduler.clock.step_wall("8h")
    (record,) = scheduler.tick()
    assert record.lateness == pytest.approx(6 * 3600 + 10)
    assert "suspended" in record.held_by
    assert scheduler["daily"].next_run_time == START.replace(hour=14) + timedelta(days=1)
    scheduler.shutdown()
