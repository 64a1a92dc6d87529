"""What becomes of runs of jobs: attempts, limits, records, logs, and what a run knows about itself."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from procsched import (
    After,
    FixedDelay,
    FixedRate,
    JobState,
    Outcome,
    ProcessScheduler,
    Retry,
    RunEnded,
    RunProgress,
    RunRetrying,
    RunSlow,
    RunStarted,
    RunTimedOut,
    WorkerCrashed,
    WorkerLost,
    current_run,
)

Stage = Any
Make = Callable[..., ProcessScheduler]


def die_once(marker: str) -> str:
    if not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def die() -> None:
    import logging

    for number in range(80):
        logging.getLogger("mine").warning("step %d", number)
    os.kill(os.getpid(), signal.SIGKILL)


def null() -> None:
    ctypes.string_at(0)


def sleep_with_children(report: str) -> None:
    shell = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    assert shell.stdout is not None
    with open(report + ".new", "w") as file:
        file.write(f"{shell.pid} {shell.stdout.readline()}")
    os.rename(report + ".new", report)
    time.sleep(600)


def about() -> dict[str, Any]:
    run = current_run()
    return {
        "job_id": run.job_id,
        "number": run.number,
        "attempt": run.attempt,
        "planned": run.planned,
        "deadline": run.deadline,
        "stop": run.should_stop(),
        "now": datetime.now(UTC),
    }


def until_asked(entered: str) -> str:
    with open(entered, "wb", buffering=0) as file:
        file.write(b"x")
    while not current_run().should_stop():
        time.sleep(0.005)
    return "asked"


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_crash_is_retried_as_the_same_run(two: ProcessScheduler, tmp_path: Path) -> None:
    """One record, second attempt, succeeded; the lost worker and the retry are told."""
    told: list[Any] = []
    two.subscribe(told.append, RunRetrying, RunEnded, WorkerLost)
    job = two.schedule(die_once, After(100), args=(str(tmp_path / "marker"),), retry=Retry(2, backoff=0))
    assert job.run_now().result(30) == "alive"
    job.cancel()
    assert two.wait(30) and job.last is not None
    assert (job.last.attempt, job.last.outcome, job.stats.runs, job.stats.crashed) == (2, Outcome.SUCCEEDED, 1, 0)
    two.shutdown()
    kinds = [type(event) for event in told]
    assert kinds == [WorkerLost, RunRetrying, RunEnded] and told[1].record.outcome is Outcome.CRASHED


def test_on_crash_false_makes_one_attempt(one: ProcessScheduler, tmp_path: Path) -> None:
    """Then a dead worker ends the run."""
    retry = Retry(3, backoff=0, on_crash=False)
    job = one.schedule(die_once, After(100), args=(str(tmp_path / "marker"),), retry=retry)
    with pytest.raises(WorkerCrashed):
        job.run_now().result(30)


def test_a_crashed_record_says_why(one: ProcessScheduler) -> None:
    """Signal, the run's last 50 log records, the worker's memory; its Future has exit code and signal."""
    job = one.schedule(die, After(0))
    assert job.wait(30) and job.last is not None
    error = job.last.error
    assert job.last.outcome is Outcome.CRASHED and error is not None
    assert (error.type, error.signal, error.exitcode) == ("WorkerCrashed", "SIGKILL", None)
    assert len(error.logs) == 50 and "step 79" in error.logs[-1] and job.last.max_rss > 1 << 20
    crash = one.submit(os._exit, 7).exception(30)
    assert isinstance(crash, WorkerCrashed) and (crash.exitcode, crash.signal) == (7, None)


@pytest.mark.case("B15")
def test_a_native_crash_leaves_its_stack(one: ProcessScheduler) -> None:
    """SIGSEGV with the Python stack at the fault."""
    job = one.schedule(null, After(0))
    assert job.wait(30) and job.last is not None and job.last.error is not None
    assert job.last.error.signal == "SIGSEGV" and "in null" in job.last.error.traceback


def test_a_crash_counts_for_pause_after_failures(one: ProcessScheduler) -> None:
    """Crashes and timeouts are failures."""
    job = one.schedule(os._exit, FixedDelay("10ms"), args=(1,), pause_after_failures=2)
    assert job.wait(30)
    assert job.state is JobState.PAUSED and job.stats.crashed == 2


@pytest.mark.case("B16", "B54")
def test_a_timeout_ends_the_worker_and_its_descendants(one: ProcessScheduler, tmp_path: Path, eventually: Any) -> None:
    """TIMED_OUT, `RunTimedOut` (no TimeoutError), everything it had started gone, and the slot works again."""
    lost: list[Any] = []
    one.subscribe(lost.append, WorkerLost)
    report = tmp_path / "children"
    job = one.schedule(sleep_with_children, After(100), args=(str(report),), timeout="1s")
    future = job.run_now()
    worker = eventually(lambda: one.workers()[0].pid)
    error = future.exception(30)
    assert isinstance(error, RunTimedOut) and not isinstance(error, TimeoutError)
    pids = [worker, *map(int, report.read_text().split())]
    eventually(lambda: not any(map(alive, pids)))
    assert job.last is not None and job.last.outcome is Outcome.TIMED_OUT and 1 <= job.last.duration < 5
    assert job.last.error is not None and job.last.error.type == "RunTimedOut"
    assert one.submit(abs, -1).result(30) == 1 and one.stats().timed_out == 1 and job.stats.timed_out == 1
    job.cancel()
    one.shutdown()
    assert lost == []  # it was asked for


def test_waiting_is_no_execution(one: ProcessScheduler, stage: Stage) -> None:
    """A timeout counts from the start, not while the run waits for a worker."""
    one.submit(stage.hold, *stage.at)
    stage.entered()
    job = one.schedule(abs, After(0), args=(-1,), timeout="50ms")
    started = time.monotonic()
    assert not job.wait(0.2)
    stage.open()
    assert job.wait(30) and job.last is not None and time.monotonic() - started > 0.2
    assert job.last.outcome is Outcome.SUCCEEDED and job.last.lateness > 0.15


def test_a_timed_out_attempt_is_retried(one: ProcessScheduler) -> None:
    """Each attempt has the whole time."""
    told: list[RunRetrying] = []
    one.subscribe(told.append, RunRetrying)
    job = one.schedule(time.sleep, After(0), args=(60,), timeout="100ms", retry=Retry(2, backoff=0))
    assert job.wait(30) and job.last is not None
    assert (job.last.attempt, job.last.outcome) == (2, Outcome.TIMED_OUT)
    assert [event.record.outcome for event in told] == [Outcome.TIMED_OUT]


def test_a_slow_run_is_told_with_its_stack(one: ProcessScheduler, stage: Stage, caplog: Any, eventually: Any) -> None:
    """RunSlow once, logged, with the worker's Python stack; the run goes on."""
    told: list[RunSlow] = []
    one.subscribe(told.append, RunSlow)
    stage.open()
    one.submit(stage.hold, *stage.at).result(30)  # its module is imported
    stage.entered()
    job = one.schedule(stage.hold, After(100), args=(*stage.at, 5), warn_after="100ms")
    future = job.run_now()
    stage.entered()
    event = eventually(lambda: told)[0]
    stage.open()
    assert future.result(30) == 5 and len(told) == 1
    assert event.elapsed >= 0.1 and "in hold" in event.stack and event.job_id == job.id and event.number == 1
    assert "in hold" in caplog.text


def test_a_quick_run_isnt_slow(one: ProcessScheduler) -> None:
    """No RunSlow for a run within its `warn_after`, nor a timeout."""
    told: list[RunSlow] = []
    one.subscribe(told.append, RunSlow)
    job = one.schedule(abs, FixedRate("10ms").times(20), args=(-1,), warn_after="5s", timeout="5s")
    assert job.wait(30) and job.stats.succeeded == 20
    one.shutdown()
    assert told == []


def test_a_records_fields(two: ProcessScheduler) -> None:
    """Aware datetimes, seconds, bytes, who ran it."""
    before = datetime.now(UTC)
    job = two.schedule(sum, FixedRate("1h"), args=(range(3_000_000),), id="sum")
    pids = {job.run_now().result(30) and worker.pid for worker in two.workers()}
    assert pids
    record = job.history[-1]
    assert record.planned.tzinfo is not None and record.started is not None and record.started.tzinfo is not None
    assert before - timedelta(seconds=1) <= record.started <= record.finished <= datetime.now(UTC)
    assert 0 < record.cpu_time <= record.duration * 2 + 0.05 and record.max_rss > 1 << 20 and record.lateness >= 0
    assert (record.job_id, record.attempt, record.error) == ("sum", 1, None)
    assert record.worker in (0, 1) and record.pid in {worker.pid for worker in two.workers()}
    assert abs((record.finished - record.started).total_seconds() - record.duration) < 0.001
    sized = [each.result_size for each in job.history if each.result_size is not None]
    assert sized and all(0 < size < 100 for size in sized)
    job.cancel()


def test_why_a_run_was_late(one: ProcessScheduler, stage: Stage) -> None:
    """`waited` splits it, `held_by` names who had the workers."""
    holder = one.schedule(stage.hold, After(0), args=stage.at, id="holder")
    stage.entered()
    job = one.schedule(abs, After(0), args=(-1,))
    assert not job.wait(0.1)
    stage.open()
    assert job.wait(30) and job.last is not None and holder.wait(30)
    assert job.last.lateness > 0.09 and job.last.waited is not None
    assert job.last.waited.worker > 0.09 > job.last.waited.loop
    assert job.last.held_by == "1 of 1 workers busy, 1 with holder"


@pytest.mark.case("B91")
def test_a_failed_run_logs_both_tracebacks(one: ProcessScheduler, caplog: Any) -> None:
    """At ERROR, with job, run, pid and the causes."""

    def outer() -> None:
        try:
            raise KeyError("inner one")
        except KeyError as error:
            raise ValueError("outer one") from error

    pid = one.submit(os.getpid).result(30)
    one.schedule(outer, After(0), id="failing")
    assert one.wait(30)
    one.shutdown()
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.name.startswith("procsched") and (record.job, record.run, record.pid) == ("failing", 1, pid)
    for text in ("failing", "KeyError: 'inner one'", "ValueError: outer one", "direct cause", "in outer"):
        assert text in record.getMessage()


@pytest.mark.case("B92")
def test_a_lost_worker_is_logged(one: ProcessScheduler, stage: Stage, caplog: Any) -> None:
    """With job, run, pid, signal, seconds into the run, and for SIGKILL a hint at the OOM killer."""
    future = one.schedule(stage.hold, After(100), args=stage.at, id="victim").run_now()
    stage.entered()
    pid = one.workers()[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert isinstance(future.exception(30), WorkerCrashed)
    one.shutdown()
    text = "\n".join(record.getMessage() for record in caplog.records if "worker" in record.name)
    for part in ("victim #1", str(pid), "SIGKILL", "out-of-memory", "into"):
        assert part in text


@pytest.mark.case("B93")
def test_log_records_reach_the_parents_loggers(two: ProcessScheduler, caplog: Any) -> None:
    """Once, whole, with job, run and pid; by the parent's levels."""

    def chatty() -> int:
        import logging

        for number in range(50):
            logging.getLogger("mine.part").info("hello %d %s", number, "x" * 200)
            logging.getLogger("mine.part").debug("unwanted")
        return os.getpid()

    caplog.set_level(logging.INFO)
    job = two.schedule(chatty, After(100), id="chatty")
    pid = job.run_now().result(30)
    job.cancel()
    two.shutdown()
    mine = [record for record in caplog.records if record.name == "mine.part"]
    assert [record.getMessage() for record in mine] == [f"hello {n} {'x' * 200}" for n in range(50)]
    assert {(record.job, record.run, record.pid, record.process) for record in mine} == {("chatty", 1, pid, pid)}


def test_current_run_tells(two: ProcessScheduler) -> None:
    """Who it is, its planned time, its deadline, and nobody asks it to stop."""
    job = two.schedule(about, FixedRate("1h", initial_delay="1h"), id="me", timeout="100s")
    first, second = job.run_now().result(30), job.run_now().result(30)
    assert (first["job_id"], first["number"], first["attempt"], first["stop"]) == ("me", 1, 1, False)
    assert second["number"] == 2 and abs((first["now"] - first["planned"]).total_seconds()) < 5
    assert 90 < (first["deadline"] - first["now"]).total_seconds() <= 100
    assert two.submit(about).result(30)["deadline"] is None
    with pytest.raises(LookupError):
        current_run()
    job.cancel()


def test_should_stop_when_the_job_is_cancelled(two: ProcessScheduler, stage: Stage) -> None:
    """And only for that job's run."""
    mine = two.schedule(until_asked, After(100), args=stage.at[:1])
    other = two.schedule(stage.hold, After(100), args=stage.at)
    future, held = mine.run_now(), other.run_now()
    stage.entered(2)
    mine.cancel()
    assert future.result(30) == "asked" and not held.done()
    assert two.submit(about).result(30)["stop"] is False
    stage.open()
    held.result(30)


def test_should_stop_when_the_scheduler_stops(two: ProcessScheduler, stage: Stage) -> None:
    """For calls too, also those that start afterwards."""
    futures = [two.submit(until_asked, stage.at[0]) for _ in range(3)]
    stage.entered(2)
    two.shutdown()
    assert [future.result(0) for future in futures] == ["asked"] * 3


def test_progress_is_told(one: ProcessScheduler, eventually: Any) -> None:
    """RunProgress with the fraction and the message."""

    def work() -> None:
        current_run().progress(0.5, "half")

    told: list[RunProgress] = []
    one.subscribe(told.append, RunProgress)
    job = one.schedule(work, After(0), id="w")
    assert job.wait(30)
    event = eventually(lambda: told)[0]
    assert (event.job_id, event.number, event.fraction, event.message) == ("w", 1, 0.5, "half")


@pytest.mark.case("B22")
def test_each_run_starts_from_the_snapshot(one: ProcessScheduler) -> None:
    """What a run does to its arguments or its function's cells isn't seen by the next one."""
    cell: list[int] = []

    def work(items: list[int]) -> list[int]:
        cell.append(1)
        items.append(1)
        return [len(cell), len(items)]

    job = one.schedule(work, FixedRate("1h", initial_delay="1h"), args=([],))
    assert [job.run_now().result(30) for _ in range(3)] == [[1, 1]] * 3
    job.cancel()


def test_prints_are_out_before_the_run_is_reported(program: Any) -> None:
    """Whole lines, on the parent's own streams."""
    done = program(
        """
        def say(n):
            print("line", n, "x" * 200)
            print("error", n, file=sys.stderr)
        with ProcessScheduler(workers=2) as s:
            for n in range(50):
                s.submit(say, n).result()
                print("parent", n, flush=True)
        """
    )
    lines = done.stdout.splitlines()
    assert lines == [text for n in range(50) for text in (f"line {n} {'x' * 200}", f"parent {n}")]
    assert done.returncode == 0 and sorted(done.stderr.splitlines()) == sorted(f"error {n}" for n in range(50))


def test_events_of_a_run_in_order(two: ProcessScheduler) -> None:
    """Started before ended, for every run, however short."""
    told: list[Any] = []
    two.subscribe(told.append, RunStarted, RunEnded)
    list(two.map(abs, range(200)))
    jobs = [two.schedule(abs, FixedRate("1ms").times(50), args=(-1,), id=f"j{n}") for n in range(3)]
    assert two.wait(30) and all(job.stats.runs == 50 for job in jobs)
    two.shutdown()
    state: dict[Any, str] = {}
    for event in told:
        if isinstance(event, RunStarted):
            assert (event.job_id, event.number) not in state
            state[event.job_id, event.number] = "started"
        else:
            assert state[event.record.job_id, event.record.number] == "started"
            state[event.record.job_id, event.record.number] = "ended"
    assert set(state.values()) == {"ended"} and len(state) == 350


def test_fixed_delay_counts_from_a_loss(one: ProcessScheduler) -> None:
    """The next run follows one delay after the crash was noticed."""
    job = one.schedule(os._exit, FixedDelay("200ms").times(2), args=(3,))
    assert job.wait(30)
    first, second = job.history
    assert (second.planned - first.finished).total_seconds() == pytest.approx(0.2, abs=0.005)


def test_a_job_whose_function_is_replaced(two: ProcessScheduler, stage: Stage) -> None:
    """A run executing finishes, and changes nothing of the new generation, which waits for it."""
    told: list[RunEnded] = []
    two.subscribe(told.append, RunEnded)
    old = two.schedule(stage.hold, FixedRate("1h"), args=stage.at, id="a", pause_after_failures=1)
    stage.entered()
    new = two.schedule(abs, After(0), args=(-1,), id="a", replace_existing=True)
    assert not new.wait(0.1) and old.state is JobState.CANCELLED and two["a"] == new
    stage.open()
    assert new.wait(30) and two.wait(30)
    two.shutdown()
    assert [event.record.generation for event in told] == [old.generation, new.generation]
    assert old.stats.runs == new.stats.runs == 1 and new.history[0].started is not None
    assert new.history[0].started >= old.history[0].finished
    assert "max_instances" in new.history[0].held_by


def test_overlap_up_to_max_instances(make: Make, stage: Stage) -> None:
    """Runs of one job overlap that far and no further."""
    scheduler = make(workers=3)
    job = scheduler.schedule(stage.hold, FixedRate("10ms"), args=stage.at, max_instances=2)
    stage.entered(2)
    assert not scheduler.wait(0.2) and stage.nobody() and job.executing == 2
    job.cancel()
    stage.open(2)
    assert scheduler.wait(30) and job.stats.runs == 2
