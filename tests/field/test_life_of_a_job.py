"""The life of a job: what cancel and replace promise holds in every state, from every thread."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from procsched import (
    After,
    ConflictingIdError,
    FixedDelay,
    JobLookupError,
    JobState,
    NotShippable,
    Outcome,
    ProcessScheduler,
    RunEnded,
)

Make = Callable[..., ProcessScheduler]


@pytest.mark.case("B76")
@pytest.mark.parametrize("by", ["cancel and schedule", "replace_existing"])
def test_an_id_scheduled_again_while_its_old_run_executes(two: ProcessScheduler, stage: Any, by: str) -> None:
    """The new job waits for that run, whose end changes nothing of it: no count, no record, no schedule."""
    old = two.schedule(stage.hold, FixedDelay("1h"), args=stage.at, id="x")
    stage.entered()
    if by == "replace_existing":
        new = two.schedule(abs, FixedDelay("10ms").times(3), args=(1,), id="x", replace_existing=True)
    else:
        old.cancel()
        new = two.schedule(abs, FixedDelay("10ms").times(3), args=(1,), id="x")
    assert not new.wait(0.2) and new.stats.runs == 0
    stage.open()
    assert new.wait(30)
    assert old.last is not None and old.last.outcome is Outcome.SUCCEEDED
    assert [run.generation for run in new.history] == [new.generation] * 3
    assert all(run.started >= old.last.finished for run in new.history if run.started)
    assert (new.stats.succeeded, new.stats.skipped, new.stats.missed) == (3, 0, 0)


@pytest.mark.case("B78")
@pytest.mark.parametrize("when", ["before the start", "after the start", "from many threads"])
def test_one_id_is_one_job(one: ProcessScheduler, when: str) -> None:
    """The second is refused, by one rule, before and after the start; of many at once exactly one gets in."""
    if when == "after the start":
        one.submit(abs, 1).result(30)
    ends: list[object] = []

    def add() -> None:
        try:
            ends.append(one.schedule(abs, FixedDelay("5ms").times(3), args=(1,), id="x"))
        except ConflictingIdError as error:
            ends.append(error)

    threads = [threading.Thread(target=add) for _ in range(8 if when == "from many threads" else 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(threads) == 1 and one.get_jobs():
        with pytest.raises(ConflictingIdError):
            one.schedule(abs, FixedDelay("5ms").times(3), args=(1,), id="x")
    [job] = [end for end in ends if not isinstance(end, Exception)]
    assert one.wait(30)
    assert job.stats.runs == 3  # type: ignore[attr-defined]


@pytest.mark.case("B79")
def test_a_job_cancelled_by_who_hears_of_its_end(two: ProcessScheduler, eventually: Any) -> None:
    """Whatever starts after the cancel has returned isn't of that job: by the records' own clock."""
    cancelled: dict[str, float] = {}

    def cancel(event: RunEnded) -> None:
        import time

        job_id = event.record.job_id
        if job_id not in cancelled:
            try:
                two.cancel(job_id)
            except JobLookupError:
                return
            cancelled[job_id] = time.time()

    two.subscribe(cancel, RunEnded)
    jobs = [two.schedule(abs, FixedDelay("1ms"), args=(1,), id=f"job{n}") for n in range(300)]
    eventually(lambda: len(cancelled) == 300)
    two.shutdown()
    for job in jobs:
        starts = [run.started.timestamp() for run in job.history if run.started is not None]
        assert job.state is JobState.CANCELLED and starts
        assert max(starts) <= cancelled[job.id] + 0.001  # the wall clock's steps, in a record


@pytest.mark.case("B80")
def test_cancel_says_which_case_it_was(one: ProcessScheduler, stage: Any) -> None:
    """Waiting for a worker: prevented, and it never starts. Executing: nothing was prevented, and it goes on."""
    executing = one.schedule(stage.hold, After(0), args=stage.at)
    stage.entered()
    waiting = [one.schedule(stage.hold, After(0), args=stage.at) for _ in range(5)]
    assert not waiting[-1].wait(0.05)
    assert [job.cancel() for job in waiting] == [True] * 5
    assert executing.cancel() is False
    stage.open(6)
    assert executing.wait(30) and one.wait(30)
    assert executing.last is not None and executing.last.outcome is Outcome.SUCCEEDED
    assert stage.nobody() and one.stats().started == 1


@pytest.mark.case("B82")
def test_a_scheduler_in_a_worker_says_so(one: ProcessScheduler, run: Any, write: Any) -> None:
    """Given as an argument: refused. The one of the task file, used in a run: an error that names the reason."""
    job = one.schedule(abs, After("1h"), args=(1,))
    for thing in (one, job, [one], {"job": job}):
        with pytest.raises(NotShippable, match=r"(scheduler|[Jj]ob)"):
            one.submit(print, thing)
    path = write("""
        scheduler = ProcessScheduler()

        @job(After(0))
        def work(): scheduler.cancel("work")
        @job(After(0))
        def more(): scheduler.schedule(print, After(0))
    """)
    program = run("run", path, "--until-idle", "--workers", 1)
    assert program.stderr.count("SchedulerClosed: this is a worker") >= 2 and "succeeded" not in program.stderr


@pytest.mark.case("B83")
@pytest.mark.parametrize("state", ["far", "due", "executing", "waiting", "paused", "in back-off"])
def test_shutdown_after_a_cancel(make: Make, stage: Any, state: str, eventually: Any) -> None:
    """Of one of two jobs, in every state that it can be in: it returns."""
    from procsched import Retry

    scheduler = make(workers=1)
    other = scheduler.schedule(abs, FixedDelay("7d", initial_delay="7d"), args=(1,))
    if state == "waiting":
        scheduler.submit(stage.hold, *stage.at)
        stage.entered()
    delay = FixedDelay("7d", initial_delay="7d" if state in ("far", "paused") else 0)
    fn, args = (stage.hold, stage.at) if state == "executing" else (len, (5,) if state == "in back-off" else ("",))
    job = scheduler.schedule(fn, delay, args=args, retry=Retry(3, backoff="1h"))
    if state == "executing":
        stage.entered()
    elif state == "paused":
        job.pause()
    elif state == "in back-off":
        eventually(lambda: job.executing and not any(worker.current for worker in scheduler.workers()))
    job.cancel()
    stage.open(2)
    stopping = threading.Thread(target=scheduler.shutdown)
    stopping.start()
    stopping.join(20)
    assert not stopping.is_alive()
    assert (job.state, other.state) == (JobState.CANCELLED, JobState.CANCELLED) and job.executing == 0


@pytest.mark.case("B85")
def test_many_threads_while_workers_crash(make: Make, account: Any, up: Any) -> None:
    """Schedule, cancel and list from eight threads, while workers are killed: no error, and the list is right."""
    scheduler = make(workers=2)
    up(scheduler)
    errors: list[BaseException] = []
    kept: list[set[str]] = []
    over = threading.Event()

    def change(seed: int) -> None:
        chance = random.Random(seed)
        mine: set[str] = set()
        try:
            for n in range(80):
                job_id = f"{seed}-{n % 7}"
                if job_id in mine and chance.random() < 0.6:
                    scheduler.cancel(job_id)
                    mine.discard(job_id)
                else:
                    scheduler.schedule(abs, FixedDelay("2ms"), args=(1,), id=job_id, replace_existing=job_id in mine)
                    mine.add(job_id)
                assert mine <= {job.id for job in scheduler.get_jobs()}
                scheduler.stats(), scheduler.workers(), scheduler.health()
        except BaseException as error:
            errors.append(error)
        kept.append(mine)

    def kill() -> None:
        while not over.wait(0.03):
            for worker in scheduler.workers()[:1]:
                if worker.pid is not None:
                    try:
                        os.kill(worker.pid, signal.SIGKILL)
                    except ProcessLookupError:  # it was quicker
                        pass

    killer = threading.Thread(target=kill)
    threads = [threading.Thread(target=change, args=(seed,)) for seed in range(8)]
    for thread in (killer, *threads):
        thread.start()
    for thread in threads:
        thread.join(60)
    over.set()
    killer.join()
    assert errors == []
    assert {job.id for job in scheduler.get_jobs()} == set(itertools.chain(*kept))
    assert scheduler.submit(abs, -1).result(30) == 1 and scheduler.health().ok
    scheduler._engine.check_valid()
    account(scheduler)


@pytest.mark.case("B86")
def test_a_nearer_job_wakes_the_loop(one: ProcessScheduler) -> None:
    """A hundred times at odd moments: what is due in a moment doesn't wait for what is due in an hour."""
    one.schedule(abs, FixedDelay("1h", initial_delay="1h"), args=(1,))
    one.submit(abs, 1).result(30)
    chance = random.Random(86)
    for _ in range(100):
        threading.Event().wait(chance.uniform(0, 0.003))
        if chance.random() < 0.5:
            assert one.submit_after(chance.uniform(0, 0.005), abs, -1).result(30) == 1
        else:
            assert one.schedule(abs, After(chance.uniform(0, 0.005)), args=(1,)).wait(30)
