"""Long lives: with a constant set of jobs everything is constant, and workers may be exchanged on the way."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from procsched import After, Daily, FixedDelay, ProcessScheduler, WorkerLost, WorkerReplaced

Make = Callable[..., ProcessScheduler]
MB = 1 << 20


def leak(megabytes: int) -> int:
    """By value: what a native library would do."""
    import os
    import sys

    kept = sys.modules.setdefault("kept", [])  # type: ignore[arg-type, call-overload]
    kept.append(b"x" * (megabytes << 20))
    return os.getpid()


def memory(pid: int | None = None) -> int:
    return int(psutil.Process(pid).memory_info().rss)


@pytest.mark.case("B98")
@pytest.mark.parametrize("limit", [{"max_tasks_per_child": 10}, {"max_memory_per_child": "150MiB"}])
def test_leaking_workers_are_replaced_between_runs(make: Make, account: Any, limit: dict[str, Any]) -> None:
    """However much the runs leak: none is lost or repeated, none counts as failed, and no worker as lost."""
    scheduler = make(workers=2, **limit)
    told: list[Any] = []
    scheduler.subscribe(told.append, WorkerLost, WorkerReplaced)
    pids = [future.result(60) for future in [scheduler.submit(leak, 10) for _ in range(60)]]
    scheduler.shutdown()
    assert all(pids.count(pid) <= 15 for pid in pids)
    assert {type(event) for event in told} == {WorkerReplaced}
    stats = scheduler.stats()
    assert (stats.succeeded, stats.crashed, stats.failed) == (60, 0, 0)
    account(scheduler)


@pytest.mark.case("B99")
@pytest.mark.parametrize(("tasks", "runs"), [(2, 10), (1, 40)])
def test_a_worker_that_has_done_its_share_while_work_waits(make: Make, tasks: int, runs: int) -> None:
    """One place, always followed by a new one; and a shutdown in the midst of it returns."""
    scheduler = make(workers=1, max_tasks_per_child=tasks)
    futures = [scheduler.submit(os.getpid) for _ in range(runs)]
    futures[3].result(30)
    scheduler.shutdown()
    pids = [future.result(0) for future in futures]
    assert len(set(pids)) == runs // tasks and max(pids.count(pid) for pid in pids) == tasks


@pytest.mark.case("B102")
def test_results_that_nobody_reads_are_not_kept(one: ProcessScheduler, up: Any, eventually: Any) -> None:
    """Thousands of them leave no trace in either process; and neither does a very large one that was the last."""
    [pid] = up(one)
    job = one.schedule(bytes, FixedDelay("1us").times(4000), args=(10_000,))
    following = job.next_future()
    following.result(30)
    before, before_there = memory(), memory(pid)
    for _ in range(20):
        futures = [one.submit(bytes, 10_000) for _ in range(100)]
        futures[-1].result(30)
        del futures
    assert job.wait(60)
    assert len(job.history) == 100
    gc.collect()
    assert memory() - before < 20 * MB and memory(pid) - before_there < 20 * MB
    large = one.submit(bytes, 200 * MB)
    assert len(large.result(30)) == 200 * MB
    del large
    eventually(lambda: memory() - before < 40 * MB and memory(pid) - before_there < 40 * MB, 5)


@pytest.mark.case("B103")
def test_the_memory_of_a_failed_run_is_let_go(one: ProcessScheduler, up: Any, eventually: Any) -> None:
    """The exception has frames that hold 100 MB: after each run the worker is as small as before."""

    def fail() -> None:
        large = b"x" * (100 << 20)
        raise ValueError(len(large))

    [pid] = up(one)
    before = memory(pid)
    job = one.schedule(fail, FixedDelay("1ms").times(5))
    assert job.wait(30) and job.stats.failed == 5
    errors = [one.submit(fail).exception(30) for _ in range(3)]
    eventually(lambda: memory(pid) - before < 30 * MB, 5)
    assert len(errors) == 3


@pytest.mark.case("B104")
def test_cancelled_jobs_leave_the_queue(one: ProcessScheduler) -> None:
    """Tens of thousands of jobs for tomorrow, each with its own 10 KB, scheduled and cancelled at once."""
    far = After("24h")
    one.schedule(len, far, args=(b"warm",)).cancel()
    gc.collect()
    before = memory()
    for n in range(20_000):
        one.schedule(len, far, args=(n.to_bytes(4, "big") * 2500,)).cancel()
    assert memory() - before < 30 * MB  # of 200 MB
    one._engine.check_valid()
    queues = one._engine.timetable.queues
    assert sum(1 for _ in queues.items()) < 1000 and one.get_jobs() == []


@pytest.mark.case("B62", "B102", "B104")
def test_a_constant_set_of_jobs_needs_constant_means(make: Make, up: Any) -> None:
    """Runs, failures, crashes, cancels and new jobs under old ids: threads, descriptors, tables stay as they are."""
    scheduler = make(workers=2)

    def cycle(rounds: int) -> None:
        for n in range(rounds):
            jobs = [scheduler.schedule(abs, FixedDelay("1ms").times(3), args=(1,), id=f"job{m}") for m in range(20)]
            jobs += [scheduler.schedule(int, After(0), args=("x",), id=f"bad{m}") for m in range(3)]
            jobs.append(scheduler.schedule(abs, Daily("12:00"), args=(1,), id="daily"))
            if n % 5 == 0:
                jobs.append(scheduler.schedule(os._exit, After(0), args=(1,), id="deadly"))
            scheduler.submit(abs, 1).result(30)
            scheduler.cancel("daily")
            assert scheduler.wait(30)

    def means() -> dict[str, int]:
        process = psutil.Process()
        up(scheduler)
        engine = scheduler._engine
        return {
            "threads": process.num_threads(),
            "descriptors": process.num_fds(),
            "children": len(process.children()),
            "queued": sum(1 for _ in engine.timetable.queues.items()),
            "jobs": len(engine.timetable.jobs),
            "ghosts": len(engine.timetable.ghosts),
            "open": len(engine.settling.open),
        }

    cycle(6)
    before = means()
    cycle(12)
    after = means()
    assert all(after[name] <= before[name] + 2 for name in before), (before, after)
    assert after["jobs"] == 0


@pytest.mark.case("B106")
def test_what_starts_fits_into_the_descriptors(program: Any) -> None:
    """A limit of 256: two hundred workers are refused before anything is started, and as many as fit do work."""
    done = program(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        before = sorted(os.listdir("/proc/self/fd")), threading.active_count()
        try: ProcessScheduler(workers=200)
        except ValueError as error: print(error)
        print((sorted(os.listdir("/proc/self/fd")), threading.active_count()) == before)
        with ProcessScheduler(workers=3) as s: print(s.submit(abs, -1).result())
        """
    )
    said, *rest = done.stdout.splitlines()
    assert (done.returncode, rest, done.stderr) == (0, ["True", "1"], "")
    assert "200 workers need" in said and "256" in said
