"""Shutdown in all its forms: the table of the contract, from every thread, any number of times, in bounded time."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import procsched.life as life
from procsched import (
    After,
    FixedRate,
    JobState,
    Outcome,
    ProcessScheduler,
    Retry,
    RunAborted,
    RunEnded,
    SchedulerClosed,
    SchedulerStopped,
)

Stage = Any
Make = Callable[..., ProcessScheduler]


def fail() -> None:
    raise ValueError("attempt")


def stopping(scheduler: ProcessScheduler, **how: Any) -> threading.Thread:
    """A thread that shuts down and waits."""
    thread = threading.Thread(target=scheduler.shutdown, kwargs=how)
    thread.start()
    deadline = time.monotonic() + 10
    while "shut down" not in repr(scheduler):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return thread


def test_executing_runs_finish(one: ProcessScheduler, stage: Stage) -> None:
    """A call and a job's run alike; shutdown returns when they have."""
    job = one.schedule(stage.hold, FixedRate("10ms"), args=stage.at)
    stage.entered()
    thread = stopping(one)
    assert thread.is_alive()
    stage.open()
    thread.join(30)
    assert not thread.is_alive()
    # A slot may have come due before the loop heard of the shutdown: then it was dropped, with a record.
    assert [record.outcome for record in job.history if record.outcome.started] == [Outcome.SUCCEEDED]
    assert job.state is JobState.CANCELLED and one.get_jobs() == []


def test_calls_for_now_complete(one: ProcessScheduler, stage: Stage) -> None:
    """What was submitted and waits for a worker runs."""
    held = one.submit(stage.hold, *stage.at, 1)
    stage.entered()
    waiting = [one.submit(abs, -n) for n in range(20)]
    thread = stopping(one)
    stage.open()
    thread.join(30)
    assert held.result(0) == 1 and [future.result(0) for future in waiting] == list(range(20))


def test_cancel_futures_cancels_what_waits(one: ProcessScheduler, stage: Stage) -> None:
    """The executing one finishes, those in the worker's queue or ours are cancelled."""
    [one.submit(abs, n).result(30) for n in range(10)]
    held = one.submit(stage.hold, *stage.at, 1)
    stage.entered()
    waiting = [one.submit(abs, -n) for n in range(100)]
    thread = stopping(one, cancel_futures=True)
    assert wait(waiting, 30).not_done == set() and all(future.cancelled() for future in waiting)
    stage.open()
    thread.join(30)
    assert held.result(0) == 1 and one.stats().cancelled == 100


def test_delayed_calls_are_cancelled(one: ProcessScheduler, caplog: Any) -> None:
    """submit_after, submit_at: cancelled, notified, and their number is logged on leaving `with`."""
    caplog.set_level(logging.INFO)
    with one:
        futures = [
            one.submit_after("1h", abs, 1),
            one.submit_at(datetime.now(UTC) + timedelta(hours=1), abs, 1),
        ]
    assert wait(futures, 0).not_done == set() and all(future.cancelled() for future in futures)
    assert "cancelled 2 delayed" in caplog.text


def test_a_delayed_call_that_is_due_is_one_for_now(one: ProcessScheduler, stage: Stage, eventually: Any) -> None:
    """It waits for a worker as the others do, and runs."""
    held = one.submit(stage.hold, *stage.at, 1)
    stage.entered()
    due = one.submit_after("1ms", abs, -5)
    eventually(lambda: one.stats().ready == 1)
    thread = stopping(one)
    stage.open()
    thread.join(30)
    assert (held.result(0), due.result(0)) == (1, 5)


@pytest.mark.parametrize("cancel_futures", [False, True])
def test_a_due_run_of_a_job_is_dropped(one: ProcessScheduler, stage: Stage, cancel_futures: bool) -> None:
    """CANCELLED, recorded; later ones make none; extra runs too."""
    held = one.submit(stage.hold, *stage.at)
    stage.entered()
    job = one.schedule(abs, FixedRate("1h"), args=(1,))
    other = one.schedule(abs, After("1h"), args=(1,))
    extra, following = other.run_now(), job.next_future()
    thread = stopping(one, cancel_futures=cancel_futures)
    assert wait([extra, following], 30).not_done == set() and extra.cancelled() and following.cancelled()
    stage.open()
    thread.join(30)
    assert held.done() and job.last is not None and job.last.outcome is Outcome.CANCELLED
    assert job.stats.runs == other.stats.runs == 0 and {job.state, other.state} == {JobState.CANCELLED}


def test_a_run_in_back_off_ends_with_its_last_outcome(one: ProcessScheduler, eventually: Any) -> None:
    """No further attempt."""
    job = one.schedule(fail, After(0), retry=Retry(5, backoff="1h"))
    future = job.next_future()
    eventually(lambda: one.stats().executing == 1 and one.workers()[0].current is None and one.workers()[0].runs_done)
    one.shutdown()
    assert job.last is not None and (job.last.outcome, job.last.attempt) == (Outcome.FAILED, 1)
    assert isinstance(future.exception(0), ValueError)
    stats = one.stats()
    assert (stats.started, stats.ended, stats.executing) == (1, 1, 0)


def test_an_attempt_that_fails_in_shutdown_is_the_last(one: ProcessScheduler, stage: Stage) -> None:
    """The executing attempt finishes, and isn't tried again."""

    def work(entered: str, gate: str) -> None:
        with open(entered, "wb", buffering=0) as file:
            file.write(b"x")
        with open(gate, "rb", buffering=0) as file:
            file.read(1)
        raise ValueError

    job = one.schedule(work, After(0), args=stage.at, retry=Retry(5, backoff=0))
    stage.entered()
    thread = stopping(one)
    stage.open()
    thread.join(30)
    assert job.last is not None and (job.last.outcome, job.last.attempt) == (Outcome.FAILED, 1)


@pytest.mark.case("B38")
def test_past_the_timeout_runs_are_aborted(two: ProcessScheduler, stage: Stage, caplog: Any) -> None:
    """Ended with their descendants, ABORTED, named in the log; what waits is cancelled; it returns soon after."""
    told: list[Any] = []
    two.subscribe(told.append, RunEnded)
    held = two.submit(stage.hold, *stage.at)
    job = two.schedule(stage.hold, After(100), args=stage.at, id="hanging")
    extra = job.run_now()
    stage.entered(2)
    waiting = [two.submit(abs, 1) for _ in range(3)]
    started = time.monotonic()
    two.shutdown(timeout=0.3)
    assert 0.3 <= time.monotonic() - started < 3
    for future in (held, extra):
        assert isinstance(future.exception(0), RunAborted)
    assert all(future.cancelled() for future in waiting)
    stats = two.stats()
    assert (stats.started, stats.ended, stats.aborted, stats.cancelled, stats.executing) == (2, 2, 2, 3, 0)
    assert job.last is not None and job.last.outcome is Outcome.ABORTED and "hanging #1" in caplog.text
    assert len(told) == 5


def test_a_timeout_doesnt_touch_what_ends_before(two: ProcessScheduler, stage: Stage) -> None:
    """The quick run completes, the hanging one is aborted."""
    held, quick = two.submit(stage.hold, *stage.at), two.submit(time.sleep, 0.1)
    stage.entered()
    two.shutdown(timeout=1)
    assert quick.result(0) is None and isinstance(held.exception(0), RunAborted)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon", True])
def test_a_senseless_timeout(one: ProcessScheduler, timeout: Any) -> None:
    """Refused, and the scheduler stays open."""
    with pytest.raises((ValueError, TypeError), match="timeout"):
        one.shutdown(timeout=timeout)
    assert one.submit(abs, -1).result(30) == 1


def test_again_and_stricter(one: ProcessScheduler, stage: Stage) -> None:
    """A second call may cancel more and wait less; idempotent from all threads."""
    held = one.submit(stage.hold, *stage.at)
    stage.entered()
    waiting = one.submit(abs, 1)
    threads = [stopping(one) for _ in range(3)]
    one.shutdown(wait=False, cancel_futures=True)
    assert wait([waiting], 30).not_done == set() and waiting.cancelled()
    one.shutdown(timeout=0.1)
    assert isinstance(held.exception(0), RunAborted)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    one.shutdown()
    one.shutdown(wait=False, cancel_futures=True, timeout=0)


def test_before_anything_was_started() -> None:
    """It returns, and nothing is taken afterwards."""
    scheduler = ProcessScheduler(workers=1)
    scheduler.shutdown()
    scheduler.shutdown()
    assert scheduler.wait(1) is True
    with pytest.raises(SchedulerClosed):
        scheduler.submit(abs, 1)


def test_new_work_is_refused_at_once(one: ProcessScheduler, stage: Stage) -> None:
    """`SchedulerClosed`, a RuntimeError, from the moment shutdown was called."""
    one.submit(stage.hold, *stage.at)
    job = one.schedule(abs, After("1h"), args=(1,))
    stage.entered()
    one.shutdown(wait=False)
    for call in (
        lambda: one.submit(abs, 1),
        lambda: one.submit_after(1, abs, 1),
        lambda: one.schedule(abs, After(1)),
        lambda: one.map(abs, [1]),
        lambda: one.load("tasks.py"),
        job.run_now,
    ):
        with pytest.raises(RuntimeError) as caught:
            call()
        assert isinstance(caught.value, SchedulerClosed)
    stage.open()


def test_from_a_futures_callback(one: ProcessScheduler) -> None:
    """There it doesn't wait, and doesn't hang."""
    returned: Future[float] = Future()

    def callback(_: Any) -> None:
        started = time.monotonic()
        one.shutdown(wait=True)
        returned.set_result(time.monotonic() - started)

    one.submit(abs, 1).add_done_callback(callback)
    assert returned.result(30) < 2
    one.shutdown()


def test_from_a_subscriber(one: ProcessScheduler) -> None:
    """Neither there."""
    returned = threading.Event()

    def callback(_: Any) -> None:
        one.shutdown(wait=True)
        returned.set()

    one.subscribe(callback, RunEnded)
    one.submit(abs, 1)
    assert returned.wait(30)
    one.shutdown()


def test_a_subscriber_that_never_returns(one: ProcessScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shutdown gives it some seconds, no more."""
    monkeypatch.setattr(life, "LAST_WORDS", 0.5)
    release = threading.Event()
    one.subscribe(lambda _: release.wait(60), RunEnded)
    assert one.submit(abs, -1).result(30) == 1
    started = time.monotonic()
    one.shutdown()
    assert 0.4 < time.monotonic() - started < 3
    release.set()


def test_nothing_of_it_stays(two: ProcessScheduler, eventually: Any) -> None:
    """No worker, no thread."""
    two.submit(abs, 1).result(30)
    pids = [worker.pid for worker in two.workers()]
    two.shutdown()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("procsched")]


def test_the_last_event(one: ProcessScheduler) -> None:
    """SchedulerStopped, told before shutdown returns."""
    told: list[Any] = []
    one.subscribe(told.append)
    one.submit(abs, 1)
    one.shutdown()
    assert isinstance(told[-1], SchedulerStopped) and sum(isinstance(e, SchedulerStopped) for e in told) == 1


def test_while_workers_boot() -> None:
    """Shutdown right after the first call: the call completes, or is cancelled when asked."""
    scheduler = ProcessScheduler(workers=2)
    future = scheduler.submit(abs, -1)
    scheduler.shutdown()
    assert future.result(0) == 1
    scheduler = ProcessScheduler(workers=2)
    future = scheduler.submit(abs, -1)
    scheduler.shutdown(cancel_futures=True)
    assert future.cancelled()


def test_recycling_while_stopping(make: Make) -> None:
    """Workers that are replaced after each run don't keep a shutdown from ending, and nothing is lost."""
    scheduler = make(workers=1, max_tasks_per_child=1)
    futures = [scheduler.submit(os.getpid) for _ in range(4)]
    scheduler.shutdown()
    assert len({future.result(0) for future in futures}) == 4
