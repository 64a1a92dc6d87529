"""Cadence: one run at a time, a delay from finish to start, one late run however much was missed."""

from __future__ import annotations

import itertools
import os
import random
import signal
import statistics
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from procsched import After, Daily, FixedDelay, FixedRate, Outcome, ProcessScheduler
from procsched.testing import FakeClock, ManualScheduler

Make = Callable[..., ProcessScheduler]


@pytest.mark.case("B57")
def test_a_stop_of_the_parent_is_one_late_run(program: Any) -> None:
    """Stopped for twenty delays and continued: the next run soon, and then one delay after another."""
    done = program(
        """
        import subprocess
        s = ProcessScheduler(workers=1)
        delayed = s.schedule(abs, FixedDelay("50ms"), args=(1,))
        at_rate = s.schedule(abs, FixedRate("50ms"), args=(1,))
        delayed.next_future().result()
        before, missed = len(delayed.history) + len(at_rate.history), at_rate.stats.missed
        subprocess.run(["sh", "-c", f"kill -STOP {os.getpid()}; sleep 1; kill -CONT {os.getpid()}"])
        for _ in range(5): delayed.next_future().result()
        runs = delayed.history
        gaps = [(b.started - a.finished).total_seconds() for a, b in zip(runs, runs[1:])]
        print(min(gaps) >= 0.05, any(gap > 0.8 for gap in gaps), at_rate.stats.missed - missed >= 15)
        s.shutdown()
        """
    )
    assert (done.returncode, done.stdout.split()) == (0, ["True", "True", "True"]), done.stderr


@pytest.mark.case("B57")
def test_a_stop_of_the_worker_is_a_long_run(one: ProcessScheduler, stage: Any, up: Any) -> None:
    """It is in no hurry afterwards either: the next run comes one delay after the end."""
    [pid] = up(one)
    job = one.schedule(stage.hold, FixedDelay("100ms").times(2), args=stage.at)
    stage.entered()
    os.kill(pid, signal.SIGSTOP)
    stage.open(2)
    assert not job.wait(0.5) and job.executing == 1
    os.kill(pid, signal.SIGCONT)
    assert job.wait(30)
    first, second = job.history
    assert first.duration >= 0.5 and first.outcome is second.outcome is Outcome.SUCCEEDED
    assert (second.planned - first.finished).total_seconds() == pytest.approx(0.1, abs=0.001)


@pytest.mark.case("B58")
def test_one_run_of_ten_hours() -> None:
    """Daily jobs beside it run once each, late and marked so; nobody runs twice for one date."""
    clock = FakeClock(start=datetime(2024, 5, 1, 1, tzinfo=ZoneInfo("UTC")))
    scheduler = ManualScheduler(clock=clock)
    long = scheduler.schedule(lambda: clock.advance("10h"), Daily("02:00", timezone="UTC").times(1))
    others = [scheduler.schedule(abs, Daily(f"0{n}:00", timezone="UTC"), args=(1,)) for n in (3, 4)]
    for _ in range(60 * 24 * 2):
        clock.advance("1m")
        scheduler.tick()
    assert long.stats.runs == 1
    for job, hours in zip(others, (9, 8), strict=True):
        assert [run.planned.day for run in job.history] == [1, 2, 3]  # each date once
        assert job.history[0].lateness == pytest.approx(hours * 3600, abs=120)
        assert job.history[0].waited is not None and job.history[1].lateness < 120


@pytest.mark.case("B60")
def test_intervals_do_not_slide() -> None:
    """On a clock that only moves by waiting and working: starts are exactly one delay, or one period, apart."""
    clock = FakeClock(start=datetime(2024, 5, 1, tzinfo=ZoneInfo("UTC")))
    scheduler = ManualScheduler(clock=clock)
    delayed = scheduler.schedule(lambda: clock.advance("30ms"), FixedDelay("500ms").times(20))
    at_rate = scheduler.schedule(lambda: clock.advance("30ms"), FixedRate("500ms").times(20))
    while scheduler.get_jobs():
        scheduler.tick()
        clock.advance("10ms")
    for job in (delayed, at_rate):
        assert {run.lateness for run in job.history} <= {0.0, 0.01, 0.02, 0.03}  # the other one was running
    ends = itertools.pairwise(delayed.history)
    assert {later.planned - earlier.finished for earlier, later in ends} == {timedelta(seconds=0.5)}
    slots = itertools.pairwise(run.planned for run in at_rate.history)
    assert {later - earlier for earlier, later in slots} == {timedelta(seconds=0.5)}


@pytest.mark.case("B60")
def test_nothing_is_polled_for(two: ProcessScheduler, up: Any) -> None:
    """Twenty jobs with odd delays: what a start is late by is what a plain sleep is, too."""
    up(two)
    jobs = [two.schedule(abs, FixedDelay(0.05 + n / 1370).times(10), args=(1,)) for n in range(20)]
    sleeps = []
    for _ in range(20):
        began = time.monotonic()
        time.sleep(0.02)
        sleeps.append(time.monotonic() - began - 0.02)
    assert all(job.wait(30) for job in jobs)
    late = [run.lateness for job in jobs for run in job.history]
    assert statistics.median(late) < statistics.median(sleeps) + 0.02


@pytest.mark.case("B62")
def test_a_mix_of_every_ending_never_loses_a_job(make: Make, account: Any, eventually: Any) -> None:
    """Success, failure, a value that can't be sent, exits and kills: afterwards every job runs again, and the marks of
    what executes agree with what does."""

    def act(seed: int, calm: str) -> Any:
        import os
        import random
        import sys
        import threading

        from procsched import current_run

        if os.path.exists(calm):
            return None
        chance = random.Random(seed * 1000 + current_run().number).random()
        if chance < 0.3:
            raise ValueError("sometimes")
        if chance < 0.45:
            return threading.Lock()
        if chance < 0.5:
            sys.exit("early")
        if chance < 0.56:
            os._exit(3)
        if chance < 0.6:
            os.kill(os.getpid(), 9)
        return seed

    scheduler = make(workers=3, spare_workers=1)
    calm = os.path.join(os.environ["TMPDIR"], "calm")
    jobs = [
        scheduler.schedule(act, FixedDelay(random.Random(n).uniform(0.02, 0.1)), args=(n, calm), id=f"job{n}")
        for n in range(12)
    ]
    readers = [job.results() for job in jobs]  # so that values are sent
    eventually(lambda: scheduler.stats().crashed >= 8 and scheduler.stats().ended >= 100)
    with open(calm, "w"):
        pass
    try:
        seen = {job: job.stats.succeeded for job in jobs}
        eventually(lambda: all(job.stats.succeeded >= seen[job] + 3 for job in jobs), 10)
    finally:
        os.remove(calm)
    account(scheduler)
    executing = {worker.current for worker in scheduler.workers() if worker.current}
    assert len(executing) <= 3 and readers
    scheduler.shutdown()
    assert all(job.executing == 0 for job in jobs) and scheduler.stats().executing == 0


@pytest.mark.case("B63")
def test_a_late_run_is_made_and_says_how_late(one: ProcessScheduler, stage: Any) -> None:
    """Nothing is dropped by default, whatever the lateness; who held it up is in the record."""
    long = one.schedule(stage.hold, After(0), args=stage.at, id="long")
    stage.entered()
    late = one.schedule(abs, After(0), args=(1,))
    daily = one.schedule(abs, FixedRate("10ms").times(3), args=(1,))
    assert not late.wait(0.3)
    stage.open()
    assert long.wait(30) and late.wait(30) and daily.wait(30)
    assert late.last is not None and late.last.lateness >= 0.3
    assert late.last.outcome is Outcome.SUCCEEDED and "long" in late.last.held_by
    assert late.stats.skipped == daily.stats.skipped == 0


@pytest.mark.case("B64")
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e-9, True, "5", None, timedelta(0), 10**12])
def test_senseless_intervals(one: ProcessScheduler, value: Any, asleep: Any) -> None:
    """They raise at once; what is accepted starts no more often than it says."""
    for kind in (FixedRate, FixedDelay):
        if value == 10**12:
            one.schedule(abs, kind(value, initial_delay=value), args=(1,))
            continue
        with pytest.raises((ValueError, TypeError)):
            kind(value)
    one.submit(abs, 1).result(30)
    asleep(one)
