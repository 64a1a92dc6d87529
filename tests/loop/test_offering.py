"""What is handed over early or in batches is taken back when something better comes, and nobody spins meanwhile."""

from __future__ import annotations

import pytest
from fake_pool import FakePool

from procsched import After, FixedRate, Missed, ProcessScheduler
from procsched.testing import FakeClock, ManualScheduler

MS = 1_000_000


def work() -> None:
    """Never called: the pool only pretends."""


class Bench:
    """A scheduler on a `FakePool`, whose turns are counted."""

    def __init__(self, workers: int, durations: dict[str, int]) -> None:
        self.clock = FakeClock()
        self.pool = FakePool(self.clock, lambda job_id, number: durations.get(job_id, MS))
        self.scheduler: ProcessScheduler = ManualScheduler(clock=self.clock, pool=self.pool, workers=workers)
        self.engine = self.scheduler._engine
        self.engine.start()
        self.begin = self.clock.monotonic_ns()
        self.turns = 0
        self.turn_for(100)  # until the workers are up

    def turn_for(self, ms: float, most: int = 1000) -> None:
        """Turns until so many milliseconds have passed."""
        until = self.clock.monotonic_ns() + round(ms * MS)
        before = self.turns
        while self.clock.monotonic_ns() < until and not self.engine.stopping.finished():
            self.engine.dispatcher.turn((until - self.clock.monotonic_ns()) / 1e9)
            self.engine.check_valid()
            self.turns += 1
            assert self.turns - before < most, "the loop spins"

    @property
    def executed(self) -> list[str]:
        return [job_id for job_id, _number, _attempt in self.pool.executed]


def test_an_armed_run_gives_way_to_one_that_is_due() -> None:
    """The only worker was given a run that is due in 2 ms; what is due at once goes first."""
    bench = Bench(1, {})
    bench.scheduler.schedule(work, After("12ms"), id="armed")
    bench.turn_for(10.5)
    assert bench.engine.roster[0].armed
    bench.scheduler.schedule(work, After(0), id="due")
    bench.turn_for(10)
    assert bench.executed == ["due", "armed"]
    bench.scheduler.shutdown(timeout=0)


def test_the_loop_does_not_spin_for_a_run_that_its_own_job_holds_up() -> None:
    """A slot is due in a moment, a worker is free, but the job executes: the loop sleeps until the slot is due."""
    bench = Bench(2, {"job": 50 * MS})
    job = bench.scheduler.schedule(work, FixedRate("20ms", initial_delay="10ms"), id="job")
    job.run_now()
    bench.turn_for(40, most=40)
    bench.turn_for(200, most=200)
    assert job.stats.runs >= 3
    bench.scheduler.shutdown(timeout=0)


def test_shutdown_takes_back_what_a_worker_has_not_claimed() -> None:
    """A batch of calls is in the worker's hands and its first one executes: ``cancel_futures`` cancels the others."""
    bench = Bench(1, {"": MS // 100})
    for _ in range(30):  # so that it is known to be quick, and goes in batches
        bench.scheduler.submit(work)
        bench.turn_for(1)
    bench.pool._duration_of = lambda job_id, number: 10 * MS
    futures = [bench.scheduler.submit(work) for _ in range(10)]
    bench.engine.dispatcher.turn(0)
    bench.engine.dispatcher.turn(0)
    assert len(bench.engine.roster[0].runs) > 1
    bench.engine.shutdown(wait=False, cancel_calls=True)
    bench.turn_for(30)
    bench.engine.delivery.flush()
    assert [future.cancelled() for future in futures] == [False] + [True] * 9
    assert futures[0].done()
    bench.scheduler.shutdown()


def test_what_waits_behind_a_run_that_overstays_goes_elsewhere() -> None:
    """At once, to the worker that is idle, although nothing else happens that would wake the loop."""
    bench = Bench(2, {"": MS // 100})
    for _ in range(30):  # so that it is known to be quick, and goes in batches
        bench.scheduler.submit(work)
        bench.turn_for(1)
    latest = bench.pool.executed[-1][1]
    bench.pool._duration_of = lambda job_id, number: 500 * MS if number == latest + 3 else MS // 100
    for _ in range(40):
        bench.scheduler.submit(work)
    bench.turn_for(5)
    assert len(bench.executed) == 30 + 40
    assert bench.engine.roster[0].owes  # it executes: it could not have acknowledged that it lost the others
    bench.turn_for(500)
    bench.scheduler.shutdown(timeout=0)


@pytest.mark.parametrize("missed", [Missed.COALESCE, Missed.CATCH_UP])
def test_jobs_that_want_too_much_get_equal_shares(missed: Missed) -> None:
    """Twelve jobs of 200 ms, due every 100 ms, on two workers: equal within two runs, and no time is lost."""
    names = [f"job {number}" for number in range(12)]
    bench = Bench(2, dict.fromkeys(names, 200 * MS))
    jobs = [bench.scheduler.schedule(work, FixedRate("100ms", missed=missed), id=name) for name in names]
    bench.turn_for(30_000, most=10_000)
    runs = [job.stats.runs for job in jobs]
    assert max(runs) - min(runs) <= 2
    assert sum(runs) >= 0.98 * 2 * 30 / 0.2
    bench.scheduler.shutdown(timeout=0)
