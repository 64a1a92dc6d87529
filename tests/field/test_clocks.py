"""Clocks and calendars: no step of the wall clock moves an interval, and a date has its run once."""

from __future__ import annotations

import ast
import itertools
from datetime import date, datetime, timedelta
from datetime import time as clock_time
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import procsched
from procsched import After, At, Daily, FixedDelay, FixedRate, ProcessScheduler
from procsched.testing import FakeClock, ManualScheduler

NEW_YORK = ZoneInfo("America/New_York")
NOON = datetime(2024, 5, 1, 12, tzinfo=ZoneInfo("UTC"))


def a_while(scheduler: ManualScheduler, step: str, times: int) -> None:
    for _ in range(times):
        scheduler.clock.advance(step)  # type: ignore[attr-defined]
        scheduler.tick()


@pytest.mark.case("B66", "B67")
@pytest.mark.parametrize(("step", "more"), [("1h", 0), ("3h", 1), ("8760h", 1), ("-2h", 0), ("-70080h", 0)])
def test_a_step_of_the_wall_clock_is_no_burst_and_no_stall(step: str, more: int) -> None:
    """An interval keeps its pace; a daily time that was jumped over is one run, one that comes again isn't repeated."""
    clock = FakeClock(start=NOON)
    scheduler = ManualScheduler(clock=clock)
    often = scheduler.schedule(abs, FixedDelay("10s"), args=(1,))
    daily = scheduler.schedule(abs, Daily("11:00", "14:30", timezone="UTC"), args=(1,))
    a_while(scheduler, "10s", 30)
    clock.step_wall(step)
    a_while(scheduler, "10s", 30)
    assert often.stats.runs == pytest.approx(60, abs=1) and daily.stats.runs == more
    following = daily.next_run_time
    assert following is not None and timedelta(0) < following - _wall(clock) <= timedelta(hours=24)


def _wall(clock: FakeClock) -> datetime:
    return datetime.fromtimestamp(clock.wall_ns() / 1e9, ZoneInfo("UTC"))


@pytest.mark.case("B67")
def test_a_small_step_back_serves_no_date_twice() -> None:
    """The daily time has just been served when the clock goes back over it."""
    clock = FakeClock(start=NOON)
    scheduler = ManualScheduler(clock=clock)
    daily = scheduler.schedule(abs, Daily("12:05", timezone="UTC"), args=(1,))
    a_while(scheduler, "1m", 10)
    clock.step_wall("-30m")
    a_while(scheduler, "1m", 60)
    assert [run.planned.date() for run in daily.history] == [date(2024, 5, 1)]
    a_while(scheduler, "10m", 6 * 24)
    assert daily.stats.runs == 2


@pytest.mark.case("B68")
def test_a_suspend_over_a_daily_time() -> None:
    """The monotonic clock stood still for 8 h: one run, promptly, and the interval didn't notice."""
    clock = FakeClock(start=NOON)
    scheduler = ManualScheduler(clock=clock)
    often = scheduler.schedule(abs, FixedRate("10s", initial_delay="10s"), args=(1,))
    daily = scheduler.schedule(abs, Daily("15:00", timezone="UTC"), args=(1,))
    clock.step_wall("8h")
    a_while(scheduler, "10s", 6)
    assert daily.stats.runs == 1 and often.stats.runs == 6
    assert daily.last is not None and daily.last.lateness > 4 * 3600


@pytest.mark.case("B69", "B70")
@pytest.mark.parametrize("zone", ["America/Los_Angeles", "America/Havana", "Asia/Beirut", "Europe/Berlin"])
@pytest.mark.parametrize("at", ["00:00", "02:00", "02:30", "02:59", "03:00"])
def test_a_year_has_one_run_for_each_date(zone: str, at: str) -> None:
    """Gaps and repeated hours included, in zones that change at midnight and at two; never earlier than asked."""
    schedule = Daily(at, timezone=zone)
    place = ZoneInfo(zone)
    now = int(datetime(2022, 1, 1, tzinfo=place).timestamp()) * 10**9 - 1
    served = []
    while (following := schedule.first(now)) is not None and following > now:
        moment = datetime.fromtimestamp(following / 1e9, place)
        if moment.year > 2022:
            break
        served.append(moment)
        now = following
    assert [moment.date() for moment in served] == [date(2022, 1, 1) + timedelta(n) for n in range(365)]
    wanted = clock_time.fromisoformat(at)
    odd = [moment for moment in served if moment.time() != wanted]
    assert len(odd) <= 1 and all(moment.time() > wanted and moment.fold == 0 for moment in odd)


@pytest.mark.case("B71")
@pytest.mark.parametrize("day", [date(2024, 3, 10), date(2024, 11, 3)])
def test_no_silence_at_a_change_of_the_offset(monkeypatch: Any, day: date) -> None:
    """In a host zone with a change: a job every 7 s goes on, and the daily one comes once."""
    import time

    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        clock = FakeClock(start=datetime(day.year, day.month, day.day, 0, 59, tzinfo=NEW_YORK))
        scheduler = ManualScheduler(clock=clock)
        often = scheduler.schedule(abs, FixedDelay("7s"), args=(1,))
        daily = scheduler.schedule(abs, Daily("02:30"), args=(1,))
        a_while(scheduler, "7s", 3 * 3600 // 7)
    finally:
        monkeypatch.undo()
        time.tzset()
    gaps = {(b.started - a.started).total_seconds() for a, b in itertools.pairwise(often.history) if a.started}  # type: ignore[operator]
    assert gaps == {7.0} and often.stats.runs == 3 * 3600 // 7 and daily.stats.runs == 1


@pytest.mark.case("B71")
def test_only_the_calendar_knows_of_local_times() -> None:
    """Everything else counts nanoseconds: local times, whose difference isn't elapsed time, are met nowhere else."""
    source = Path(procsched.__file__).parent
    local = {"astimezone", "ZoneInfo", "utcoffset", "tzlocal", "localtime", "mktime"}
    users = set()
    for path in source.rglob("*.py"):
        names = {getattr(n, "attr", getattr(n, "id", "")) for n in ast.walk(ast.parse(path.read_bytes()))}
        if names & local:
            users.add(path.relative_to(source).as_posix())
    # the command line and pictures show times, and so do answers to whoever asks from outside: they do nothing by them
    showing = ("cli/", "control/", "observe/charts.py")
    scheduling = {name for name in users if not name.startswith(showing)}
    assert scheduling <= {"core/walltime.py", "testing.py"}  # and a fake clock starts where it is told


@pytest.mark.case("B74")
@pytest.mark.parametrize("far", [After("400d"), After(10**9), At(datetime(9000, 1, 1, tzinfo=ZoneInfo("UTC")))])
def test_a_far_job_and_then_a_near_one(one: ProcessScheduler, far: Any, asleep: Any) -> None:
    """The wait for the far one is a sleep, not a spin, and the near one ends it."""
    one.schedule(abs, far, args=(1,))
    one.submit(abs, 1).result(30)
    asleep(one)
    assert one.submit_after("20ms", abs, -1).result(30) == 1
