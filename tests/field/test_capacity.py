"""Capacity and fairness: many jobs, many workers, few workers, and what the machine has."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest

from procsched import After, FixedDelay, FixedRate, ProcessScheduler
from procsched.testing import ManualScheduler

Make = Callable[..., ProcessScheduler]


class Incomparable:
    """An argument that nobody may compare."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __lt__(self, other: object) -> bool:
        raise AssertionError("compared")

    __eq__ = __gt__ = __le__ = __ge__ = __lt__
    __hash__ = None  # type: ignore[assignment]


@pytest.mark.case("B108")
@pytest.mark.parametrize("kind", ["jobs", "calls", "replaced"])
def test_ties_go_by_arrival_and_compare_nothing_of_the_users(kind: str) -> None:
    """A thousand due at one instant."""
    scheduler = ManualScheduler()
    order: list[int] = []

    def note(thing: Incomparable) -> None:
        order.append(thing.n)

    for n in range(1000):
        if kind == "calls":
            scheduler.submit_after("5s", note, Incomparable(n))
        else:
            scheduler.schedule(note, After("5s"), args=(Incomparable(n),), id=f"job{n}", replace_existing=True)
    if kind == "replaced":
        for n in range(500):
            scheduler.schedule(note, After("5s"), args=(Incomparable(n),), id=f"job{n}", replace_existing=True)
    scheduler.clock.advance("5s")  # type: ignore[attr-defined]
    scheduler.tick()
    assert order == ([*range(500, 1000), *range(500)] if kind == "replaced" else list(range(1000)))


@pytest.mark.case("B109")
def test_descriptors_beyond_a_thousand(program: Any) -> None:
    """The parent has 1,100 files open, so all that is waited for has higher numbers than select() could take."""
    done = program(
        """
        import resource
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
        files = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
        with ProcessScheduler(workers=2) as s:
            s.submit(os._exit, 1).exception()
            print(sum(s.map(abs, range(100))), s.submit(bytes, 1 << 20).result() == bytes(1 << 20))
        """
    )
    assert (done.returncode, done.stdout.split()) == (0, ["4950", "True"]), done.stderr


@pytest.mark.case("B109")
def test_more_workers_than_some_platforms_can_wait_for(make: Make, up: Any) -> None:
    """Seventy: all come up, and all are waited for."""
    scheduler = make(workers=70)
    pids = up(scheduler)
    assert len(set(pids)) == 70
    assert sum(scheduler.map(abs, range(200))) == 19900


@pytest.mark.case("B110")
def test_the_default_follows_what_may_be_used(program: Any) -> None:
    """One core by affinity, or by quota: one worker; an explicit number wins; the number is logged."""
    done = program(
        """
        import logging
        logging.basicConfig(format="%(message)s", level=logging.INFO)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        with ProcessScheduler() as s: print(len(s.workers())); s.submit(int).result()
        with ProcessScheduler(workers=3) as s: print(len(s.workers()))
        """
    )
    assert (done.returncode, done.stdout.split()) == (0, ["1", "3"])
    assert "1 worker" in done.stderr


@pytest.mark.case("B111")
def test_numeric_threads_are_shared_out_in_replacements_too(make: Make, monkeypatch: Any, up: Any) -> None:
    """The share is set before anything is imported, and what the user has set wins, in each worker's life."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "7")

    def threads() -> tuple[str | None, str | None]:
        import os

        return os.environ.get("OMP_NUM_THREADS"), os.environ.get("MKL_NUM_THREADS")

    scheduler = make(workers=1, max_tasks_per_child=1, threads_per_worker=2)
    assert {scheduler.submit(threads).result(30) for _ in range(3)} == {("2", "7")}
    assert os.environ.get("OMP_NUM_THREADS") is None


@pytest.mark.case("B112")
@pytest.mark.parametrize("kind", [FixedDelay, FixedRate])
def test_with_too_few_workers_everybody_gets_a_turn(two: ProcessScheduler, kind: Any) -> None:
    """Twelve jobs that always want to run, on two workers: at any moment they have had their turns, but for two."""
    jobs = [two.schedule(time.sleep, kind("1ms"), args=(0.01,)) for _ in range(12)]
    while min(job.stats.runs for job in jobs) < 10:
        time.sleep(0.02)
        with two._engine.lock:
            runs = [job.stats.runs for job in jobs]
        assert max(runs) - min(runs) <= 3, runs


@pytest.mark.case("B115")
def test_the_cost_of_a_change_does_not_grow_with_the_number_of_jobs() -> None:
    """Among 30,000 jobs, schedule and cancel take about what they take among 300."""
    scheduler = ManualScheduler()

    def fill(upto: int) -> None:
        for n in range(len(scheduler.get_jobs()), upto):
            scheduler.schedule(abs, After("24h"), args=(1,), id=f"far{n}")

    def cost() -> float:
        rounds = []
        for _ in range(30):
            began = time.perf_counter()
            for n in range(10):
                scheduler.schedule(abs, After("12h"), args=(1,), id=f"near{n}")
                scheduler.cancel(f"near{n}")
            rounds.append(time.perf_counter() - began)
        return statistics.median(rounds)

    fill(300)
    few = cost()
    fill(30_000)
    assert cost() < 4 * few


@pytest.mark.case("B115")
def test_far_jobs_cost_nothing_while_nothing_is_due(one: ProcessScheduler, asleep: Any) -> None:
    """However many there are, the loop sleeps."""
    for _ in range(5_000):
        one.schedule(abs, After("24h"), args=(1,))
    one.submit(abs, 1).result(30)
    asleep(one)


@pytest.mark.case("B115")
def test_many_due_at_once_are_all_made(two: ProcessScheduler) -> None:
    """Five thousand jobs with one due time: each once, in the order of scheduling."""
    jobs = [two.schedule(abs, After("300ms"), args=(1,)) for _ in range(5_000)]
    assert two.wait(60)
    assert {job.stats.succeeded for job in jobs} == {1}
