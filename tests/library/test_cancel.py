"""The guarantee of cancel: after it has returned, no run of that generation starts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

from procsched import After, FixedRate, JobState, Outcome, ProcessScheduler, RunEnded

Stage = Any
Make = Callable[..., ProcessScheduler]


def test_cancel_from_several_threads_under_load(make: Make) -> None:
    """By time stamps: no run's recorded start lies after the return of its job's cancel(), replace or pause."""
    scheduler = make(workers=2)
    ends: list[RunEnded] = []
    scheduler.subscribe(ends.append, RunEnded)
    returned: dict[int, float] = {}
    wrong: list[str] = []
    over = threading.Event()

    def load() -> None:
        while not over.is_set():
            try:
                list(scheduler.map(abs, range(50)))
            except RuntimeError:
                return

    def churn(number: int) -> None:
        for n in range(150):
            when = After(n % 7 * 0.0005) if n % 2 else FixedRate("1ms", initial_delay=n % 5 * 0.0007)
            job = scheduler.schedule(abs, when, args=(-1,), id=f"{number}", replace_existing=True)
            time.sleep(n % 5 * 0.0008)
            prevented = job.cancel()
            returned[job.generation] = time.time()
            if job.state not in (JobState.CANCELLED, JobState.FINISHED) or job.next_run_time is not None:
                wrong.append(f"{job!r} after cancel")
            if job.cancel() or (not prevented and job.stats.cancelled):
                wrong.append(f"{job!r}: cancel told the wrong thing")

    threads = [threading.Thread(target=churn, args=(number,)) for number in range(3)] + [threading.Thread(target=load)]
    for thread in threads:
        thread.start()
    for thread in threads[:-1]:
        thread.join(60)
    over.set()
    threads[-1].join(60)
    assert scheduler.wait(30)
    scheduler.shutdown()
    scheduler._engine.check_valid()
    assert wrong == []
    started = [end.record for end in ends if end.record.generation in returned and end.record.started is not None]
    late = [r for r in started if r.started is not None and r.started.timestamp() > returned[r.generation] + 2e-6]
    assert started and late == []
    unstarted = [end.record for end in ends if end.record.started is None]
    assert all(record.outcome is Outcome.CANCELLED for record in unstarted)


def stamp(path: str, name: str) -> None:
    """In a worker: that it was there."""
    import os

    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{name}\n".encode())
    os.close(fd)


def test_either_the_cancel_or_the_run(two: ProcessScheduler, tmp_path: Path) -> None:
    """By what the runs wrote down: a single run has happened exactly if its cancel() returned False."""
    path = tmp_path / "starts"
    path.touch()
    said: dict[str, bool] = {}

    def churn(thread: int) -> None:
        for n in range(100):
            name = f"{thread}.{n}"
            job = two.schedule(stamp, After(n % 7 * 0.0006), args=(str(path), name))
            time.sleep(n % 11 * 0.0006)  # before it, at it and behind it
            said[name] = job.cancel()

    threads = [threading.Thread(target=churn, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert two.wait(30)
    started = path.read_text().split()
    assert sorted(started) == sorted(name for name, prevented in said.items() if not prevented)
    assert 0 < len(started) < len(said) == 400


def test_cancel_of_a_run_that_a_worker_holds(one: ProcessScheduler) -> None:
    """Armed in a worker just before its time, it is still prevented."""
    one.submit(abs, 1).result(30)
    prevented = 0
    for n in range(100):
        job = one.schedule(abs, After("3ms"), args=(1,))
        time.sleep(0.001 + n % 10 * 0.0002)
        if job.cancel():
            prevented += 1
            assert job.stats.runs == 0
    assert prevented > 50 and one.wait(30)


@pytest.mark.case("B80")
def test_a_run_executing_is_never_killed(one: ProcessScheduler, stage: Stage) -> None:
    """It finishes and is recorded; cancel tells that further runs were prevented, or that nothing was."""
    recurring = one.schedule(stage.hold, FixedRate("1h"), args=stage.at)
    stage.entered()
    assert recurring.cancel() is True and recurring.executing == 1 and recurring.state is JobState.CANCELLED
    stage.open()
    assert recurring.wait(30) and recurring.last is not None and recurring.last.outcome is Outcome.SUCCEEDED
    once = one.schedule(stage.hold, After(0), args=stage.at)
    stage.entered()
    assert once.cancel() is False
    stage.open()
    assert once.wait(30) and once.stats.succeeded == 1


def test_cancel_frees_function_and_arguments(one: ProcessScheduler) -> None:
    """At once, not when its time comes; 20,000 jobs leave no heap behind."""
    jobs = [one.schedule(abs, After("1d"), args=(n,)) for n in range(20_000)]
    started = time.monotonic()
    assert all(job.cancel() for job in jobs)
    assert (time.monotonic() - started) / 20_000 < 0.0005
    engine = one._engine
    assert one.wait(30) and one.stats().scheduled == 0
    queues = engine.timetable.queues
    assert len(queues._mono._entries) + len(queues._ready.line) + len(queues._ready.heap) < 1000
    assert all(job._row.payload is None for job in jobs)


@pytest.mark.parametrize("verb", ["cancel", "pause", "replace", "reschedule"])
@pytest.mark.case("B80")
def test_what_waits_for_a_worker_is_prevented(one: ProcessScheduler, stage: Stage, verb: str) -> None:
    """Due, behind a run that executes: it never starts."""
    one.submit(stage.hold, *stage.at)
    stage.entered()
    job = one.schedule(stage.hold, After(0), args=stage.at, id="a")
    assert not job.wait(0.05)
    if verb == "replace":
        one.schedule(abs, After(0), args=(1,), id="a", replace_existing=True)
    elif verb == "reschedule":
        job.reschedule(After("1h"))
    else:
        getattr(job, verb)()
    stage.open()
    one.submit(abs, 1).result(30)
    assert stage.nobody()


def test_a_calls_cancel_races_with_its_start(one: ProcessScheduler) -> None:
    """Whichever wins, the Future and the account agree."""
    one.submit(abs, 1).result(30)
    cancelled = 0
    for n in range(500):
        future = one.submit(abs, -n)
        if n % 3:
            time.sleep(n % 5 * 0.00005)
        if future.cancel():
            cancelled += 1
            assert future.cancelled()
        else:
            assert future.result(30) == n
    assert one.wait(30)
    stats = one.stats()
    assert (stats.cancelled, stats.succeeded, stats.executing) == (cancelled, 501 - cancelled, 0)


@pytest.mark.case("B85")
def test_threads_change_everything_at_once(make: Make) -> None:
    """Schedule, cancel, pause, resume, run_now and list from many threads: no error, and the laws hold."""
    scheduler = make(workers=2)
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        from procsched import JobLookupError

        for n in range(200):
            try:
                job = scheduler.schedule(abs, FixedRate("2ms"), args=(n,), id=f"{n % 5}", replace_existing=True)
                job.pause()
                scheduler.get_jobs()
                job.run_now()
                job.resume()
                scheduler.stats(), scheduler.workers(), scheduler.health(), job.next_run_time
                job.reschedule(FixedRate("3ms"))
                if (n + seed) % 3 == 0:
                    scheduler.cancel(job.id)
            except JobLookupError:
                pass
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    scheduler._engine.check_valid()
    for job in scheduler.get_jobs():
        job.cancel()
    assert scheduler.wait(30)
    stats = scheduler.stats()
    assert stats.started == stats.ended and scheduler.health().ok


@pytest.mark.parametrize("end", ["resume", "cancel", "shutdown"])
def test_who_waits_for_a_run_that_a_pause_undoes_waits_for_the_next(one: ProcessScheduler, end: str) -> None:
    """Its Future isn't forgotten with the run: it gets the next one, or is cancelled with the job."""
    one.submit(int).result(30)
    futures = []
    for _ in range(30):
        job = one.schedule(int, FixedRate("10ms"))
        future = job.next_future()
        futures.append(future)
        roster = one._engine.roster
        while not roster[0].runs and not future.done():  # due in a moment, it is handed over before its time
            time.sleep(0.0001)
        job.pause()
        if end == "resume":
            job.resume()
            assert future.result(30) == 0
        if end != "shutdown":
            job.cancel()
    if end == "shutdown":
        one.shutdown(timeout=5)
    assert not wait(futures, 30).not_done
