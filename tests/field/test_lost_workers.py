"""A worker is disposable: whatever ends it costs the run that it executed, and nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from procsched import After, FixedDelay, Outcome, ProcessScheduler, WorkerCrashed, WorkerLost, WorkerStarted

Make = Callable[..., ProcessScheduler]


def die_on(number: int) -> None:
    """By value: the third run, say, ends its own worker."""
    import os

    from procsched import current_run

    if current_run().number == number:
        os.kill(os.getpid(), 9)


def megabytes(count: int) -> bytes:
    return b"x" * (count << 20)


class DeadlyToRead:
    """An argument on which the worker dies while it is being read."""

    def __init__(self) -> None:
        self.ballast = b"x" * (50 << 20)

    def __reduce__(self) -> Any:
        return eval, ("__import__('os').kill(__import__('os').getpid(), 9)",), self.ballast


@pytest.mark.case("B01")
def test_a_job_goes_on_one_delay_after_its_worker_was_lost(two: ProcessScheduler, probe: Any, account: Any) -> None:
    """The run is told as crashed, by which signal; the next one counts from the moment the loss was noticed."""
    felt = probe(two)
    job = two.schedule(die_on, FixedDelay("100ms").times(4), args=(3,))
    assert job.wait(30)
    first, second, third, fourth = job.history
    assert [run.outcome.value for run in (first, second, fourth)] == ["succeeded"] * 3
    assert third.outcome is Outcome.CRASHED and third.error is not None
    assert third.error.signal == "SIGKILL" and "died" in third.error.message
    assert (fourth.planned - third.finished).total_seconds() == pytest.approx(0.1, abs=0.001)
    assert fourth.pid is not None
    felt.check()
    account(two)


@pytest.mark.case("B02")
def test_hard_exits_without_end_are_one_failed_run_each(make: Make, probe: Any, account: Any) -> None:
    """With their exit code; new processes are paced, and others keep their pace."""
    scheduler = make(workers=2)
    started: list[Any] = []
    scheduler.subscribe(started.append, WorkerStarted, WorkerLost)
    felt = probe(scheduler)
    began = time.monotonic()
    job = scheduler.schedule(os._exit, FixedDelay("1ms"), args=(3,))
    assert not job.wait(2)
    job.cancel()
    felt.check()
    scheduler.shutdown()
    ends = [(run.outcome, run.error and run.error.exitcode) for run in job.history]
    assert set(ends) - {(Outcome.CANCELLED, None)} == {(Outcome.CRASHED, 3)}
    lost = [event for event in started if isinstance(event, WorkerLost)]
    assert len(lost) == job.stats.crashed and 3 <= len(lost) <= 6 + 5 * (time.monotonic() - began + 1)
    assert {event.exitcode for event in lost} == {3}
    account(scheduler)


@pytest.mark.case("B04")
def test_deaths_in_the_midst_of_large_messages_hold_up_nobody(make: Make, account: Any, up: Any) -> None:
    """5 MB each way without pause, and a worker is killed again and again: every Future is released, once."""
    scheduler = make(workers=3)
    up(scheduler)
    futures = []
    for kill in range(10):
        futures += [scheduler.submit(megabytes, 5) for _ in range(8)]
        futures[kill * 5].exception(30)  # somewhere in the stream
        pid = scheduler.workers()[kill % 3].pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):  # of the last kill, not replaced yet
                os.kill(pid, signal.SIGKILL)
    ends = [future.exception(30) for future in futures]
    assert {type(end) for end in ends} <= {type(None), WorkerCrashed} and len(ends) == 80
    assert scheduler.submit(megabytes, 5).result(30) == megabytes(5)
    assert scheduler.stats().crashed == sum(end is not None for end in ends) <= 10
    account(scheduler)


@pytest.mark.case("B06")
def test_a_death_while_a_large_argument_is_read(two: ProcessScheduler, probe: Any, account: Any) -> None:
    """The run that was reading it has crashed; the parent, which wrote it to memory of its own, waits for nobody."""
    felt = probe(two)
    future = two.submit(len, DeadlyToRead())
    assert isinstance(future.exception(30), WorkerCrashed)
    felt.check()
    two.shutdown(cancel_futures=True)
    account(two)


@pytest.mark.case("B06")
def test_a_death_before_a_large_argument_is_read(one: ProcessScheduler, up: Any) -> None:
    """Nothing has started, so nothing is charged: the run is handed to the next worker."""
    [pid] = up(one)
    os.kill(pid, signal.SIGSTOP)
    futures = [one.submit(len, megabytes(50)) for _ in range(3)]
    os.kill(pid, signal.SIGKILL)
    assert [future.result(30) for future in futures] == [50 << 20] * 3
    assert one.stats().crashed == 0


@pytest.mark.case("B07")
@pytest.mark.parametrize("code", [0, 1, "so long"])
def test_sys_exit_is_a_failed_run_and_the_worker_lives_on(one: ProcessScheduler, code: Any) -> None:
    """Also with 0: it didn't return. Whoever waits gets the SystemExit."""
    job = one.schedule(sys.exit, FixedDelay("10ms").times(2), args=(code,))
    with pytest.raises(SystemExit) as caught:
        job.next_future().result(30)
    assert caught.value.code == code
    assert job.wait(30)
    assert [run.outcome for run in job.history] == [Outcome.FAILED] * 2
    assert len({run.pid for run in job.history}) == 1
    for run in job.history:
        assert run.error is not None and (run.error.type, run.error.message) == ("SystemExit", str(code))


@pytest.mark.case("B09")
def test_the_dead_are_buried_and_replaced(two: ProcessScheduler, stage: Any, up: Any, eventually: Any) -> None:
    """A busy and an idle one are killed: two new pids, no zombie."""
    up(two)
    held = two.submit(stage.hold, *stage.at)
    stage.entered()
    old = up(two)
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    assert isinstance(held.exception(30), WorkerCrashed)
    eventually(lambda: two.health().workers_up == 2 and not {w.pid for w in two.workers()} & set(old))
    assert not [child for child in psutil.Process().children() if child.pid in old or child.status() == "zombie"]


@pytest.mark.case("B10")
@pytest.mark.parametrize("way", ["submit", "run_now", "next_future"])
def test_who_waits_for_the_lost_run_is_released(one: ProcessScheduler, way: str, account: Any, capfd: Any) -> None:
    """With an error that says how the worker died, and the books agree at once."""
    job = one.schedule(os.abort, After("1h" if way != "next_future" else "50ms"))
    future = one.submit(os.abort) if way == "submit" else getattr(job, way)()
    error = future.exception(30)
    assert isinstance(error, WorkerCrashed) and error.signal == "SIGABRT"
    stats = one.stats()
    assert (stats.crashed, stats.executing) == (1, 0)
    account(one)


@pytest.mark.case("B12")
def test_the_command_line_outlives_its_workers(start: Any, write: Any, tmp_path: Path) -> None:
    """All of them are killed: it goes on, and ends with 0 because it was asked to, not because they died."""
    program = start("run", write("@job(FixedDelay('20ms'))\ndef work(): ..."), "--workers", 2)
    program.wait_for("succeeded")
    victims = [child.pid for child in psutil.Process(program.process.pid).children() if _is_worker(child)]
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    program.wait_for("SIGKILL", times=len(victims))
    seen = program.stderr.count("succeeded")
    program.wait_for("succeeded", times=seen + 3)
    program.signal(signal.SIGTERM)
    assert program.end() == 0


def _is_worker(process: psutil.Process) -> bool:
    return "resource_tracker" not in " ".join(process.cmdline())


@pytest.mark.case("B15")
def test_a_native_crash_is_told_with_its_stack(two: ProcessScheduler, probe: Any, capfd: Any) -> None:
    """The signal by name, where it was in Python, and the job goes on."""

    def null_pointer() -> None:
        import ctypes

        ctypes.string_at(0)

    felt = probe(two)
    job = two.schedule(null_pointer, FixedDelay("20ms").times(2), id="native")
    assert job.wait(30)
    for run in job.history:
        assert run.outcome is Outcome.CRASHED and run.error is not None
        assert run.error.signal == "SIGSEGV" and "null_pointer" in run.error.traceback
    felt.check()


@pytest.mark.case("B16")
def test_a_timeout_ends_what_no_exception_could(two: ProcessScheduler) -> None:
    """An hour in one C call, eight times on two workers: all time out, and both places still work."""
    jobs = [two.schedule(time.sleep, After(0), args=(3600,), timeout="100ms") for _ in range(8)]
    assert all(job.wait(60) for job in jobs)
    assert [job.last.outcome if job.last else None for job in jobs] == [Outcome.TIMED_OUT] * 8
    assert two.submit(abs, -1).result(30) == 1 and two.stats().timed_out == 8
