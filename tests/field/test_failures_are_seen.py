"""Failures are seen: every one is reported, with its place, and the loop never dies quietly."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from procsched import After, FixedDelay, FixedRate, Outcome, ProcessScheduler, RunEnded

Make = Callable[..., ProcessScheduler]


def fail_on(*numbers: int) -> None:
    from procsched import current_run

    if current_run().number in numbers:
        raise ValueError(f"run {current_run().number} fails")


@pytest.mark.case("B88")
def test_a_job_goes_on_after_its_failures(two: ProcessScheduler, probe: Any, caplog: Any) -> None:
    """Runs 3 and 4 raise: both are told, and run 5 comes one delay later; others don't notice."""
    felt = probe(two)
    job = two.schedule(fail_on, FixedDelay("20ms").times(6), args=(3, 4), id="moody")
    assert job.wait(30)
    assert "".join(run.outcome.name[0] for run in job.history) == "SSFFSS"
    fourth, fifth = job.history[3:5]
    assert (fifth.planned - fourth.finished).total_seconds() == pytest.approx(0.02, abs=0.001)
    two.shutdown()
    assert [n for n in range(1, 7) if f"moody #{n} failed" in caplog.text] == [3, 4]
    felt.check()


@pytest.mark.case("B89")
def test_hostile_objects_do_not_reach_the_loop(two: ProcessScheduler, probe: Any) -> None:
    """Values and errors whose every special method raises a BaseException: whatever they break, it isn't the loop."""

    def hostile(raises: bool) -> Any:
        class Hostile(Exception):
            def bite(self, *_: Any) -> Any:
                raise KeyboardInterrupt("bitten")

            __eq__ = __repr__ = __str__ = __len__ = __bool__ = __setstate__ = bite
            __hash__ = bite  # type: ignore[assignment]

        if raises:
            raise Hostile
        return Hostile()

    felt = probe(two)
    ends = [two.submit(hostile, raises) for raises in (True, False, True)]
    for end in ends:
        end.exception(30)
    job = two.schedule(hostile, FixedDelay("5ms").times(3), args=(True,))
    assert job.wait(30) and {run.outcome for run in job.history} == {Outcome.FAILED}
    assert two.health().ok
    felt.check()


@pytest.mark.case("B89")
def test_subscribers_and_callbacks_may_raise_or_block(one: ProcessScheduler, caplog: Any) -> None:
    """Anything at all: runs go on, and so does who comes behind it in the order."""
    heard: list[Any] = []
    gate = threading.Event()

    def bad(event: Any) -> None:
        raise SystemExit("from a subscriber")

    one.subscribe(bad, RunEnded)
    one.subscribe(heard.append, RunEnded)
    future = one.submit(abs, 1)
    blocked = threading.Event()
    future.add_done_callback(lambda _: (blocked.set(), gate.wait()))
    assert blocked.wait(30)
    job = one.schedule(abs, FixedDelay("1ms").times(20), args=(1,))
    assert job.wait()  # although the callback waits for what comes after this
    gate.set()
    one.shutdown()
    assert len([event for event in heard if event.record.job_id == job.id]) == 20
    assert "from a subscriber" in caplog.text


@pytest.mark.case("B91")
def test_where_a_failure_came_from(run: Any, write: Any) -> None:
    """Five frames deep, one error from another: id, run, pid, and both tracebacks with the user's file and lines."""
    frames = "\n".join(f"def f{n}(): f{n + 1}()" for n in range(5))
    path = write(
        f"{frames}\n"
        "def f5():\n"
        "    try: {}['host']\n"
        "    except KeyError as error: raise ValueError('no host') from error\n"
        "@job(After(0), id='deep')\n"
        "def work(): f0()\n"
    )
    said = run("run", path, "--workers", 1, "--until-idle").stderr
    assert re.search(r"deep +#1 +failed", said) and "pid" in said
    assert said.count("Traceback (most recent call last)") == 2 and "direct cause" in said
    assert len(re.findall(r'tasks.py", line \d+, in f\d', said)) == 7  # f0 to f5, and f5 once more
    assert "KeyError: 'host'" in said and "ValueError: no host" in said


@pytest.mark.case("B92")
@pytest.mark.parametrize(
    ("deed", "how"),
    [
        ("os.abort()", "SIGABRT"),
        ("os._exit(7)", "status 7"),
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
        ("os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("[signal.signal(15, signal.SIG_DFL), os.kill(os.getpid(), 15)]", "SIGTERM"),
    ],
)
def test_what_is_told_of_a_death(one: ProcessScheduler, caplog: Any, capfd: Any, deed: str, how: str) -> None:
    """Job, run, pid, how, and how far into the run; for SIGKILL a hint at who might have done it."""

    def die() -> None:
        import os
        import signal

        eval(deed, {"os": os, "signal": signal})

    job = one.schedule(die, After(0), id="fated")
    assert job.wait(30)
    one.shutdown()
    [told] = [record.getMessage() for record in caplog.records if record.name == "procsched.worker"]
    assert job.last is not None and f"pid {job.last.pid}" in told
    assert how in told and re.search(r"\d+(\.\d+)? (us|ms|s) into fated #1", told)
    assert ("memory" in told) == (how == "SIGKILL")


@pytest.mark.case("B93")
def test_log_records_of_runs_arrive_in_the_parents_file(make: Make, tmp_path: Path) -> None:
    """By the parent's levels, handlers and format, each once, in whole lines, with process and job."""

    def talk(lines: int) -> None:
        import logging

        for n in range(lines):
            logging.getLogger("mine").info("line %d %s", n, "x" * 100)
            logging.getLogger("mine").debug("not wanted")
            logging.getLogger("mine").warning("again %d", n)

    root, handler = logging.getLogger(), logging.FileHandler(tmp_path / "log")
    handler.setFormatter(logging.Formatter("%(name)s %(levelname)s %(job)s %(pid)s %(message)s", defaults={"job": "-"}))
    handler.addFilter(lambda record: record.name == "mine")
    old = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        scheduler = make(workers=4)
        jobs = [scheduler.schedule(talk, After(0), args=(50,), id=f"job{n}") for n in range(4)]
        assert scheduler.wait(60)
        scheduler.shutdown()
    finally:
        root.setLevel(old)
        root.removeHandler(handler)
        handler.close()
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == len(set(lines)) == 4 * 100
    for job in jobs:
        assert job.last is not None
        mine = [line for line in lines if f" {job.id} {job.last.pid} " in line]
        assert len(mine) == 100 and all(
            re.match(r"mine (INFO|WARNING) .* (line \d+ x{100}|again \d+)$", m) for m in mine
        )


@pytest.mark.case("B95")
@pytest.mark.parametrize("to", ["file", "pipe"])
def test_printed_lines_of_many_workers_are_whole(program: Any, tmp_path: Path, to: str) -> None:
    """Thousands of lines from several at once, none torn and none lost."""
    redirect = f"fd = os.open({str(tmp_path / 'out')!r}, os.O_CREAT | os.O_APPEND | os.O_WRONLY); os.dup2(fd, 1)"
    done = program(
        f"""
        {redirect if to == "file" else ""}
        def talk(worker):
            for n in range(500): print(f"{{worker}} {{n:03}} " + str(worker) * 200)
        with ProcessScheduler(workers=6) as s:
            list(s.map(talk, range(6)))
        """
    )
    text = (tmp_path / "out").read_text() if to == "file" else done.stdout
    assert done.returncode == 0
    assert sorted(text.splitlines()) == [f"{w} {n:03} " + str(w) * 200 for w in range(6) for n in range(500)]


@pytest.mark.case("B93", "B95")
def test_the_last_words_of_a_dying_run(program: Any) -> None:
    """What it printed and logged just before its worker died has arrived."""
    done = program(
        """
        import logging
        logging.basicConfig(format="%(message)s")
        def die():
            print("printed")
            logging.getLogger("mine").warning("logged")
            os.kill(os.getpid(), 9)
        with ProcessScheduler(workers=1) as s:
            s.schedule(die, After(0)).wait()
        """
    )
    assert (done.returncode, done.stdout) == (0, "printed\n")
    assert "logged" in done.stderr.splitlines()


@pytest.mark.case("B89", "B92")
def test_health_shows_what_an_outsider_needs(one: ProcessScheduler, stage: Any, up: Any, eventually: Any) -> None:
    """The age of the loop's last turn, what is due and waits, and how many workers are up."""
    up(one)
    one.submit(stage.hold, *stage.at)
    stage.entered()
    one.schedule(abs, FixedRate("1h"), args=(1,))
    eventually(lambda: (one.health().oldest_due or 0) > 0.05)
    assert one.health().ok and one.health().workers_up == 1
    pid = one.workers()[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: one.health().workers_up == 1 and one.workers()[0].pid != pid and not one.health().oldest_due)
