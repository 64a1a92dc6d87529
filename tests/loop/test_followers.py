"""Who looks on at a run that is taken back before it started, looks on at the next one."""

from __future__ import annotations

from procsched import FixedRate
from procsched.testing import ManualScheduler


def test_a_pause_hands_them_on_to_the_next_run() -> None:
    scheduler = ManualScheduler()
    job = scheduler.schedule(int, FixedRate("10s", initial_delay="2ms"), id="job")
    future, series = job.next_future(), job.results()
    assert scheduler.tick() == []
    assert scheduler._engine.roster.holding(), "the run was handed over before its time"
    job.pause()
    scheduler.clock.advance("5s")
    assert scheduler.tick() == []
    assert not future.done()
    job.resume()
    scheduler.clock.advance("10s")
    assert len(scheduler.tick()) == 1
    assert future.result(0) == 0
    assert next(series).result(0) == 0
    assert job.last.number == 1
    scheduler._engine.check_valid()
    scheduler.shutdown()


def test_a_cancel_after_the_pause_tells_them() -> None:
    scheduler = ManualScheduler()
    job = scheduler.schedule(int, FixedRate("10s", initial_delay="2ms"), id="job")
    future = job.next_future()
    scheduler.tick()
    job.pause()
    job.cancel()
    scheduler.tick()
    assert future.cancelled()
    scheduler.shutdown()
