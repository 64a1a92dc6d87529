"""A dead worker is a detail: only its run is lost, everything else goes on."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from procsched import (
    FixedDelay,
    FixedRate,
    Outcome,
    PoolUnusable,
    ProcessScheduler,
    RunEnded,
    WorkerCrashed,
    WorkerLost,
    WorkerReplaced,
    WorkerStarted,
)
from procsched.pool import tenant

Stage = Any
Make = Callable[..., ProcessScheduler]


def tracer() -> Callable[[str, str, float], str]:
    """By value, so that a fresh worker needn't import this module first."""

    def trace(path: str, token: str, seconds: float) -> str:
        """The side channel: what user code really did, one line each, by atomic appends."""
        import os
        import time

        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, f"+{token}\n".encode())
        if seconds:
            time.sleep(seconds)
        os.write(fd, f"-{token}\n".encode())
        os.close(fd)
        return token

    return trace


@pytest.mark.case("B10")
def test_only_the_executing_run_is_lost(two: ProcessScheduler, stage: Stage) -> None:
    """What waited in the dead worker's queue is handed on, once."""
    list(two.map(abs, range(100)))
    futures = [two.submit(stage.hold, *stage.at, n) for n in range(2)]
    stage.entered(2)
    waiting = [two.submit(abs, n) for n in range(100)]
    pid = two.workers()[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert [future.result(30) for future in waiting] == list(range(100))
    stage.open(2)
    ends = [future.exception(30) for future in futures]
    assert sorted(type(end).__name__ for end in ends) == ["NoneType", "WorkerCrashed"]
    stats = two.stats()
    assert (stats.crashed, stats.succeeded, stats.executing) == (1, 201, 0)


def test_an_idle_worker_that_dies_costs_no_run(two: ProcessScheduler, eventually: Any) -> None:
    """It is replaced, and told as lost without a run."""
    told: list[Any] = []
    two.subscribe(told.append, WorkerLost, WorkerReplaced, WorkerStarted)
    list(two.map(abs, range(10)))
    eventually(lambda: two.health().workers_up == 2)
    pid = two.workers()[1].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: two.workers()[1].pid not in (None, pid) and two.health().workers_up == 2)
    two.shutdown()
    assert [type(event) for event in told] == [WorkerStarted, WorkerStarted, WorkerLost, WorkerReplaced]
    assert (told[2].worker, told[2].pid, told[2].job_id, told[2].signal) == (1, pid, None, "SIGKILL")
    assert told[3].old_pid == pid and two.stats().crashed == 0


def test_a_job_goes_on_behind_its_crash(two: ProcessScheduler) -> None:
    """The next runs follow their schedule; other jobs keep their pace."""
    job = two.schedule(os._exit, FixedDelay("20ms").times(5), args=(3,))
    probe = two.schedule(abs, FixedRate("20ms").times(30), args=(1,))
    assert two.wait(60)
    assert job.stats.crashed == 5 and probe.stats.succeeded == 30
    assert all(record.error is not None and record.error.exitcode == 3 for record in job.history)


@pytest.mark.case("B02")
def test_a_crash_loop_is_paced(one: ProcessScheduler) -> None:
    """A job that kills its worker on every run can't start processes without bound."""
    lost: list[Any] = []
    one.subscribe(lost.append, WorkerLost)
    job = one.schedule(os._exit, FixedDelay("1ms"), args=(3,))
    assert not job.wait(1.5)
    job.cancel()
    one.shutdown()
    assert 3 <= len(lost) <= 6 + 5 * 3  # a burst, then five a second


def test_spare_workers_take_over(make: Make, eventually: Any) -> None:
    """A started one is moved in."""
    scheduler = make(workers=1, spare_workers=1)
    first = scheduler.submit(os.getpid).result(30)

    def ready() -> list[int]:
        spares = list(scheduler._engine.pool._spares)  # type: ignore[attr-defined]
        return [spare.handle.pid for spare in spares if spare.stage is tenant.Stage.UP]

    eventually(ready)
    spare = ready()
    os.kill(first, signal.SIGKILL)
    assert scheduler.submit(os.getpid).result(30) in spare


@pytest.mark.case("B13")
def test_a_failing_initializer_ends_the_scheduler(make: Make, caplog: Any) -> None:
    """Within about 10 s: Futures and wait() get PoolUnusable, with the user's traceback in the log, once."""

    def broken() -> None:
        raise ImportError("no such library")

    scheduler = make(workers=2, initializer=broken)
    started = time.monotonic()
    future, delayed = scheduler.submit(abs, 1), scheduler.submit_after("1h", abs, 1)
    job = scheduler.schedule(abs, FixedRate("1h", initial_delay="1h"), args=(1,))
    extra, following, series = job.run_now(), job.next_future(), job.results()
    with pytest.raises(PoolUnusable, match="no such library"):
        scheduler.wait(30)
    assert 5 < time.monotonic() - started < 20
    for each in (future, delayed, extra):
        assert isinstance(each.exception(5), PoolUnusable)
    assert following.cancelled() and list(series) == []
    with pytest.raises(PoolUnusable):
        scheduler.wait()
    with pytest.raises(PoolUnusable):
        job.wait()
    with pytest.raises(RuntimeError, match="no such library"):
        scheduler.submit(abs, 1)
    assert not scheduler.health().ok and scheduler.health().workers_up == 0
    assert job.next_future().cancelled() and list(job.results()) == []
    scheduler.shutdown()
    assert caplog.text.count("in broken") <= 2
    stats = scheduler.stats()
    assert (stats.started, stats.ended, stats.executing) == (0, 0, 0)


def test_a_slow_boot_is_ended_and_tried_again(make: Make, tmp_path: Path, caplog: Any) -> None:
    """A worker that isn't ready within `start_timeout` is logged with its pid; the next one does."""
    marker = str(tmp_path / "marker")

    def slow_once(marker: str) -> None:
        if not os.path.exists(marker):
            open(marker, "w").close()
            time.sleep(60)

    scheduler = make(workers=1, initializer=slow_once, initargs=(marker,), start_timeout="500ms")
    assert scheduler.submit(abs, -1).result(30) == 1
    scheduler.shutdown()
    assert "not ready within 0.5 s" in caplog.text and "pid" in caplog.text


@pytest.mark.case("B01")
def test_kill_any_worker_at_any_moment(make: Make, tmp_path: Path) -> None:
    """Chaos for some seconds, with a side channel as the oracle: each run ends once, and truly so."""
    path, trace = str(tmp_path / "trace"), tracer()
    scheduler = make(workers=3)
    ends: list[RunEnded] = []
    scheduler.subscribe(ends.append, RunEnded)
    dice = random.Random(5)
    over = threading.Event()
    kills = 0

    def killer() -> None:
        nonlocal kills
        while not over.wait(0.15):
            pids = [worker.pid for worker in scheduler.workers() if worker.pid]
            if pids:
                try:
                    os.kill(dice.choice(pids), dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV]))
                    kills += 1
                except ProcessLookupError:
                    pass

    thread = threading.Thread(target=killer)
    thread.start()
    futures = {}
    for n in range(3000):
        futures[f"c{n}"] = scheduler.submit(trace, path, f"c{n}", 0.02 if n % 25 == 0 else 0)
    jobs = [scheduler.schedule(trace, FixedRate("20ms").times(60), args=(path, f"j{n}", 0.001)) for n in range(3)]
    scheduler.wait(4)
    over.set()
    finished = scheduler.wait(30)
    thread.join()
    assert finished and kills > 5
    scheduler.shutdown()
    scheduler._engine.check_valid()
    lines = Counter(Path(path).read_text().split())
    for token, future in futures.items():
        assert future.done()
        error = future.exception(0)
        if error is None:
            assert future.result() == token and lines[f"+{token}"] == lines[f"-{token}"] == 1
        else:
            assert isinstance(error, WorkerCrashed) and lines[f"+{token}"] <= 1
    crashed = sum(1 for future in futures.values() if future.exception(0))
    crashed += sum(job.stats.crashed for job in jobs)
    stats = scheduler.stats()
    assert stats.started == stats.ended == 3000 + sum(job.stats.runs for job in jobs) and stats.executing == 0
    assert crashed == stats.crashed <= kills and len(ends) == stats.ended
    assert all(job.stats.runs + job.stats.missed == 60 or job.stats.runs == 60 for job in jobs)
    for n, job in enumerate(jobs):
        assert job.stats.succeeded <= lines[f"+j{n}"] <= job.stats.runs
    keys = Counter((end.record.job_id, end.record.number) for end in ends)
    assert set(keys.values()) == {1} and all(end.record.outcome in (Outcome.SUCCEEDED, Outcome.CRASHED) for end in ends)
