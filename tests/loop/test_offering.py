"""What is handed over early or in batches is taken back when something better comes, and nobody spins meanwhile."""

from __future__ import annotations

import pytest
from fake_pool import FakePool

from procsched import After, FixedRate, Missed, ProcessScheduler, ReadyOrder
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


def known(bench: Bench, *ids: str) -> None:
    """Runs each job once, so that its cost is known, and ends it."""
    for name in ids:
        job = bench.scheduler.schedule(work, FixedRate("1h"), id=name)
        bench.turn_for(60)
        job.pause()


def again(bench: Bench, *ids: str) -> None:
    """Each once more, all due now."""
    for name in ids:
        bench.scheduler.get_job(name).run_now()


def test_behind_a_run_of_some_milliseconds_one_more_waits() -> None:
    """While there is a backlog: the worker doesn't idle for a round trip, and holds no more than that."""
    ids = [f"job{number}" for number in range(6)]
    bench = Bench(1, dict.fromkeys(ids, 5 * MS))
    known(bench, *ids)
    again(bench, *ids)
    bench.turn_for(3)
    assert len(bench.engine.roster[0].runs) == 2
    bench.turn_for(40)
    assert bench.executed[6:] == ids
    bench.scheduler.shutdown(timeout=0)


def test_what_waits_behind_a_run_goes_to_a_worker_that_is_free() -> None:
    """At once: nobody idles while something waits elsewhere."""
    bench = Bench(2, {"long": 18 * MS, "short": 2 * MS, "a": 5 * MS, "b": 5 * MS})
    known(bench, "long", "short", "a", "b")
    again(bench, "long", "short", "a", "b")
    bench.turn_for(16)
    assert sorted(bench.executed[4:]) == ["a", "b", "long", "short"]  # all have begun before the long one has ended
    bench.scheduler.shutdown(timeout=0)


def test_what_waits_behind_a_run_that_takes_more_than_twice_its_time_is_taken_back() -> None:
    """It goes first when any worker is free again."""
    durations = {"liar": 5 * MS, "a": 5 * MS, "b": 5 * MS, "c": 5 * MS}
    bench = Bench(1, durations)
    known(bench, "liar", "a", "b", "c")
    durations["liar"] = 100 * MS
    again(bench, "liar", "a", "b", "c")
    bench.turn_for(3)
    assert len(bench.engine.roster[0].runs) == 2
    bench.turn_for(15)
    assert len(bench.engine.roster[0].runs) == 1
    bench.turn_for(200)
    assert bench.executed[4:] == ["liar", "a", "b", "c"]
    bench.scheduler.shutdown(timeout=0)


def test_nothing_waits_behind_a_run_where_priority_comes_first() -> None:
    """Something better could come, and would find it handed over."""
    clock = FakeClock()
    pool = FakePool(clock, lambda job_id, number: 5 * MS)
    scheduler: ProcessScheduler = ManualScheduler(
        clock=clock, pool=pool, workers=1, ready_order=ReadyOrder.PRIORITY
    )
    bench = Bench.__new__(Bench)
    bench.clock, bench.pool, bench.scheduler, bench.engine, bench.turns = clock, pool, scheduler, scheduler._engine, 0
    bench.engine.start()
    bench.turn_for(100)
    known(bench, "a", "b", "c")
    again(bench, "a", "b", "c")
    bench.turn_for(2)
    assert len(bench.engine.roster[0].runs) == 1
    scheduler.shutdown(timeout=0)
