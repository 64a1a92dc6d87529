"""`ManualScheduler.tick`: what runs, when, and what has happened by the time it returns."""

from __future__ import annotations

import gc
import threading
import weakref
from datetime import UTC, datetime, timedelta, timezone

import pytest

from procsched import After, At, Daily, FixedDelay, FixedRate, Missed, Outcome, RunEnded, RunStarted, testing
from procsched.testing import FakeClock, InlinePool, ManualScheduler

UTC = UTC


def test_runs_when_the_clock_advances() -> None:
    """The seed test of the contract, word for word."""
    scheduler, ran = ManualScheduler(), []
    scheduler.schedule(ran.append, After("5s"), args=(1,))
    assert scheduler.tick() == []
    scheduler.clock.advance("5s")
    assert [r.outcome for r in scheduler.tick()] == [Outcome.SUCCEEDED] and ran == [1]


def test_nothing_moves_without_a_tick() -> None:
    """A due run waits for `tick`, and there is no thread that could make it."""
    before = threading.active_count()
    scheduler, ran = ManualScheduler(), []
    scheduler.submit(ran.append, 1)
    assert ran == [] and threading.active_count() == before


def test_a_tick_serves_futures_and_subscribers() -> None:
    """When `tick` returns, Futures are done and subscribers were told."""
    scheduler, told = ManualScheduler(), []
    scheduler.subscribe(told.append, RunEnded)
    future = scheduler.submit(pow, 2, 5)
    scheduler.tick()
    assert future.result(0) == 32 and [event.record.outcome for event in told] == [Outcome.SUCCEEDED]


def test_a_run_may_advance_the_clock() -> None:
    """What becomes due while a tick runs is run by that tick."""
    scheduler, ran = ManualScheduler(), []
    scheduler.schedule(lambda: scheduler.clock.advance("10s"), After("1s"))
    scheduler.schedule(ran.append, After("5s"), args=("later",))
    scheduler.clock.advance("1s")
    assert len(scheduler.tick()) == 2 and ran == ["later"]


def test_a_run_may_schedule() -> None:
    """A job made by a run, due at once, is run by the same tick."""
    scheduler, ran = ManualScheduler(), []
    scheduler.submit(lambda: scheduler.submit(ran.append, 1))
    assert len(scheduler.tick()) == 2 and ran == [1]


def test_a_tick_without_end_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that stays due without any time passing ends in an error after 100,000 runs, not in a hang."""
    assert testing._MOST_RUNS == 100_000
    monkeypatch.setattr(testing, "_MOST_RUNS", 500)
    scheduler = ManualScheduler()

    def again() -> None:
        scheduler.submit(again)

    scheduler.submit(again)
    with pytest.raises(RuntimeError, match="500 runs"):
        scheduler.tick()


def test_records_come_once() -> None:
    """Each tick returns the records of its own runs."""
    scheduler = ManualScheduler()
    scheduler.submit(int)
    assert len(scheduler.tick()) == 1
    assert scheduler.tick() == []


def test_a_fake_clock_starts_where_it_is_told() -> None:
    """`start` is the wall clock's first reading; a naive one is refused."""
    start = datetime(2030, 5, 17, 12, 30, tzinfo=UTC)
    assert FakeClock(start).wall_ns() == int(start.timestamp()) * 10**9
    assert FakeClock(start=start).wall_ns() == FakeClock(start.astimezone(timezone(timedelta(hours=5)))).wall_ns()
    with pytest.raises(ValueError, match="aware"):
        FakeClock(datetime(2030, 5, 17))


def test_advance_moves_both_clocks_and_step_wall_one() -> None:
    """Intervals see `advance` only; the calendar sees `step_wall` too, negative as well."""
    clock = FakeClock()
    mono, wall = clock.monotonic_ns(), clock.wall_ns()
    clock.advance("90s")
    assert (clock.monotonic_ns() - mono, clock.wall_ns() - wall) == (90 * 10**9, 90 * 10**9)
    clock.step_wall("-1h")
    assert (clock.monotonic_ns() - mono, clock.wall_ns() - wall) == (90 * 10**9, (90 - 3600) * 10**9)
    with pytest.raises(ValueError, match="advance"):
        clock.advance("-1s")


def test_a_wall_step_moves_the_calendar_and_no_interval() -> None:
    """`step_wall("1h")` makes `At` due, and leaves `FixedRate` alone."""
    clock = FakeClock(datetime(2024, 1, 1, tzinfo=UTC))
    scheduler, ran = ManualScheduler(clock), []
    scheduler.schedule(ran.append, At(datetime(2024, 1, 1, 0, 30, tzinfo=UTC)), args=("at",))
    scheduler.schedule(ran.append, FixedRate("10m", initial_delay="10m"), args=("rate",))
    clock.step_wall("1h")
    scheduler.tick()
    assert ran == ["at"]


def test_daily_runs_once_a_day() -> None:
    """A daily job advanced by three days, hour by hour, runs three times at its time."""
    scheduler = ManualScheduler(FakeClock(datetime(2024, 3, 1, tzinfo=UTC)))
    scheduler.schedule(int, Daily("02:00", timezone="UTC"), id="d")
    planned = []
    for _ in range(72):
        scheduler.clock.advance("1h")
        planned += [record.planned for record in scheduler.tick()]
    assert planned == [datetime(2024, 3, day, 2, tzinfo=UTC) for day in (1, 2, 3)]


@pytest.mark.parametrize(
    ("missed", "starts"),
    [(Missed.SKIP, [0, 40]), (Missed.COALESCE, [0, 30, 40]), (Missed.CATCH_UP, [0, 10, 20, 30, 40])],
)
def test_missed_slots(missed: Missed, starts: list[int]) -> None:
    """Due at 0, period 10, the first run lasts until 35: the three traces of the contract, by planned times."""
    clock = FakeClock(datetime(2024, 1, 1, tzinfo=UTC))
    scheduler = ManualScheduler(clock)
    lasted = iter([35])

    def work() -> None:
        clock.advance(next(lasted, 0))

    scheduler.schedule(work, FixedRate(10, missed=missed))
    records = scheduler.tick()
    clock.advance(5)
    records += scheduler.tick()
    origin = datetime(2024, 1, 1, tzinfo=UTC)
    assert [(record.planned - origin).total_seconds() for record in records] == starts


@pytest.mark.parametrize(("missed", "dropped"), [(Missed.SKIP, 3), (Missed.COALESCE, 2), (Missed.CATCH_UP, 0)])
def test_dropped_slots_count_as_missed(missed: Missed, dropped: int) -> None:
    """Dropped slots leave no record, and count in both stats."""
    clock = FakeClock()
    scheduler = ManualScheduler(clock)
    lasted = iter([35])
    job = scheduler.schedule(lambda: clock.advance(next(lasted, 0)), FixedRate(10, missed=missed))
    scheduler.tick()
    assert (job.stats.missed, scheduler.stats().missed) == (dropped, dropped)


def test_fixed_delay_counts_from_the_end() -> None:
    """The next start is `finished + delay`, after a failure too."""
    clock = FakeClock(datetime(2024, 1, 1, tzinfo=UTC))
    scheduler = ManualScheduler(clock)

    def work() -> None:
        clock.advance(7)
        raise ValueError

    job = scheduler.schedule(work, FixedDelay(10))
    scheduler.tick()
    assert job.next_run_time == datetime(2024, 1, 1, 0, 0, 17, tzinfo=UTC)
    clock.advance(9)
    assert scheduler.tick() == []
    clock.advance(1)
    assert len(scheduler.tick()) == 1


def test_a_manual_scheduler_is_collectable() -> None:
    """Nothing global keeps an unreferenced `ManualScheduler` alive."""
    scheduler = ManualScheduler()
    scheduler.submit(int)
    scheduler.tick()
    ref = weakref.ref(scheduler)
    del scheduler
    gc.collect()
    assert ref() is None


def test_its_parts_can_be_given() -> None:
    """Clock, pool and the arguments of `ProcessScheduler` are taken."""
    clock, pool = FakeClock(), InlinePool()
    scheduler = ManualScheduler(clock, pool, workers=3, name="mine")
    assert scheduler.clock is clock and scheduler.pool is pool and len(scheduler.workers()) == 3


def test_waiting_doesnt_block() -> None:
    """`wait` and `job.wait` answer at once: nothing moves by itself."""
    scheduler = ManualScheduler()
    job = scheduler.schedule(int, After("1h"))
    assert scheduler.wait() is False and job.wait() is False
    scheduler.clock.advance("1h")
    assert scheduler.wait() is True and job.wait() is True


def test_starts_come_before_ends() -> None:
    """Each run is told as started and then as ended."""
    scheduler, told = ManualScheduler(), []
    scheduler.subscribe(told.append, RunStarted, RunEnded)
    scheduler.submit(int)
    scheduler.submit(int)
    scheduler.tick()
    assert [type(event) for event in told] in (
        [RunStarted, RunEnded, RunStarted, RunEnded],
        [RunStarted, RunStarted, RunEnded, RunEnded],
    )


def test_it_ends_with_its_block() -> None:
    """In a `with` block, calls for now complete at its end, and later ones are cancelled."""
    with ManualScheduler() as scheduler:
        now, later = scheduler.submit(int), scheduler.submit_after("1s", int)
    assert now.result(0) == 0 and later.cancelled()
