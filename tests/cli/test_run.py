"""``procsched run``: what it does, what it says, how it ends by itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Fixture = Callable[..., Any]

TWO_JOBS = """
@job(FixedRate("20ms").times(3))
def quick(): print("quick ran")

@job(After("10ms"), id="a-report")
def report():
    try: {}["host"]
    except KeyError as error: raise ValueError("no host") from error
"""


def test_one_line_per_run_and_a_table(run: Fixture, write: Fixture) -> None:
    """Job, run number, outcome, duration, lateness, worker; failed runs don't change the exit status."""
    program = run("run", write(TWO_JOBS), "--workers", 2, "--until-idle")
    line = r"\d\d:\d\d:\d\d  quick     #%d     succeeded +[\d.]+ .?s +[\d.]+ .?s late  worker [01]"
    for number in (1, 2, 3):
        assert re.search(line % number, program.stderr), program.stderr
    assert "started with 2 workers" in program.stderr
    assert program.stderr.count("quick ran") == 0
    assert program.stdout.count("quick ran") == 3
    table = program.stdout[program.stdout.index("job ") :].splitlines()
    assert table[0].split() == ["job", "runs", "failed", "mean", "max", "mean", "late", "max", "late"]
    assert table[2].split()[:3] == ["quick", "3", "0"]
    assert table[3].split()[:3] == ["a-report", "1", "1"]


@pytest.mark.case("B91")
def test_a_failure_is_shown_with_both_tracebacks(run: Fixture, write: Fixture) -> None:
    """On stderr, by default: job, run, pid, and where in the user's file."""
    path = write(TWO_JOBS)
    program = run("run", path, "--until-idle")
    failure = program.stderr[program.stderr.index("a-report") :]
    assert re.search(r"a-report  #1     failed .* pid \d+ .*ValueError: no host\n", failure)
    assert "KeyError: 'host'" in failure
    assert "direct cause" in failure
    assert failure.count(f'File "{path}", line') == 2


def test_it_ends_after_a_time(run: Fixture, write: Fixture) -> None:
    program = run("run", write("@job(FixedDelay('10ms'))\ndef tick(): ..."), "--for", "2s", "--workers", 1)
    assert "tick      #2     succeeded" in program.stderr
    assert "stopping" in program.stderr


@pytest.mark.case("B28")
def test_it_runs_from_anywhere_with_what_is_beside_the_file(run: Fixture, write: Fixture, tmp_path: Path) -> None:
    """A sibling module, a constant, a dataclass, a helper function: all of them by the file's own name."""
    write("def double(x): return 2 * x", "elsewhere/helpers.py", head="")
    path = write(
        """
        from dataclasses import dataclass
        import helpers

        FACTOR = 3

        @dataclass
        class Point:
            x: int

        def helper(point): return helpers.double(point.x) * FACTOR

        @job(After(0), args=(Point(7),))
        def work(point):
            assert type(point) is Point
            print("result", helper(point), __name__)
        """,
        "elsewhere/tasks.py",
    )
    program = run("run", path, "--until-idle", cwd="/")
    assert "result 42 tasks" in program.stdout


@pytest.mark.case("B30")
def test_the_file_is_imported_once_per_process(run: Fixture, write: Fixture, tmp_path: Path) -> None:
    """Once here and once in each worker that came up in time, however many runs there are."""
    path = write("""
        import os
        with open("imports", "a") as file: file.write(f"{os.getpid()}\\n")

        @job(FixedDelay("1ms").times(10))
        def one(): ...

        @job(FixedDelay("1ms").times(10))
        def two(): ...
    """)
    run("run", path, "--workers", 2, "--until-idle")
    pids = (tmp_path / "imports").read_text().split()
    assert len(pids) == len(set(pids))
    assert len(pids) in (2, 3)


@pytest.mark.case("B31")
def test_an_unguarded_main_starts_no_second_scheduler(run: Fixture, write: Fixture, tmp_path: Path) -> None:
    """Neither here nor in a worker: what was defined before it is what there is."""
    path = write("""
        @job(FixedRate("10ms").times(3))
        def work(): print("work ran")

        with ProcessScheduler(workers=2) as scheduler:
            scheduler.submit(print, "from the main").result()
            scheduler.wait()
        open("past the main", "w")
    """)
    program = run("run", path, "--until-idle")
    assert program.stdout.count("work ran") == 3
    assert "from the main" not in program.stdout
    assert not (tmp_path / "past the main").exists()


def test_only_some_jobs(run: Fixture, write: Fixture) -> None:
    path = write("""
        @job(After(0))
        def one(): print("one ran")

        @job(After(0))
        def two(): print("two ran")

        def setup(scheduler):
            for n in range(2):
                scheduler.schedule(print, After(0), args=(f"made {n} ran",), id=f"made-{n}")
    """)
    program = run("run", path, "--only", "two", "--only", "made-1", "--until-idle")
    assert sorted(re.findall(r"\w+(?: \d)? ran", program.stdout)) == ["made 1 ran", "two ran"]


def test_an_unknown_id_starts_nothing(run: Fixture, write: Fixture) -> None:
    """Also when some of the ids exist, and when setup() makes jobs too."""
    path = write("""
        @job(After(0))
        def thumbnails(): print("ran")
        def setup(scheduler): ...
    """)
    program = run("run", path, "--only", "thumbnail", "--only", "thumbnails", status=2)
    assert "no job has the id 'thumbnail'; did you mean thumbnails?" in program.stderr
    assert "ran" not in program.stdout


def test_json_is_one_object_a_line(run: Fixture, write: Fixture) -> None:
    """The log alone is on stderr, so each of its lines can be read; the last ones sum up."""
    program = run("run", write(TWO_JOBS), "--until-idle", "--log-format", "json")
    lines = [json.loads(line) for line in program.stderr.splitlines()]
    ended = [line for line in lines if line.get("event") == "RunEnded"]
    assert len(ended) == 4
    failed = next(line for line in ended if line["job"] == "a-report")
    assert failed["level"] == "ERROR"
    assert failed["record"]["error"]["type"] == "ValueError"
    assert {line["job"]: line["summary"]["runs"] for line in lines if "summary" in line} == {"quick": 3, "a-report": 1}
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)


def test_logging_of_runs_arrives_with_its_run(run: Fixture, write: Fixture) -> None:
    """Without any configuration in the task file; and the level is the command line's."""
    path = write("""
        import logging

        @job(After(0))
        def work():
            logging.getLogger("mine").info("100 % of it")
            logging.getLogger("mine").debug("not this")
    """)
    program = run("run", path, "--until-idle")
    assert re.search(r"mine: 100 % of it  \(work #1, pid \d+\)", program.stderr)
    assert "not this" not in program.stderr
    assert "not this" in run("run", path, "--until-idle", "--log-level", "debug").stderr
    quiet = run("run", path, "--until-idle", "--log-level", "error")
    assert quiet.stderr == ""


@pytest.mark.case("B119")
def test_a_second_instance_is_refused(start: Fixture, run: Fixture, write: Fixture, tmp_path: Path) -> None:
    """While the first lives; afterwards the lock is free, though its file is still there."""
    path = write("@job(After('1h'))\ndef work(): ...")
    first = start("run", path, "--single-instance", tmp_path / "lock")
    first.wait_for("Ctrl-C ends it")
    refused = run("run", path, "--single-instance", tmp_path / "lock", status=2)
    assert "lock" in refused.stderr
    assert "Traceback" not in refused.stderr
    first.process.kill()
    first.end()
    run("run", path, "--single-instance", tmp_path / "lock", "--for", "10ms")


@pytest.mark.case("B12")
def test_a_lost_worker_is_a_detail(run: Fixture, write: Fixture) -> None:
    """The run that it executed is told with signal and seconds; the others go on; exit status 0."""
    path = write("""
        import os, signal

        @job(After(0))
        def suicide(): os.kill(os.getpid(), signal.SIGKILL)

        @job(FixedDelay("10ms").times(5))
        def other(): ...
    """)
    program = run("run", path, "--workers", 2, "--until-idle")
    assert re.search(r"suicide   #1     crashed", program.stderr)
    assert "SIGKILL" in program.stderr
    assert "out-of-memory" in program.stderr
    assert "other     #5     succeeded" in program.stderr


@pytest.mark.case("B12", "B13")
def test_workers_that_cannot_start_end_it_loudly(run: Fixture, write: Fixture) -> None:
    """A file that loads here and in no worker: the reason once, exit status 3, no endless restarts."""
    path = write("""
        import os
        from procsched import context
        if context.in_worker(): raise ImportError("only the parent has this")

        @job(FixedRate("100ms"))
        def work(): ...
    """)
    program = run("run", path, "--workers", 2, status=3)
    assert program.stderr.count("Traceback") == 1
    last = program.stderr.splitlines()[-1]
    assert last.endswith("ended by itself: no worker can be started: ImportError: only the parent has this")


def test_a_reader_that_goes_away_is_no_error(write: Fixture) -> None:
    """``procsched … | head``: quiet, and the work goes on."""
    path = write("@job(FixedDelay('1ms').times(3))\ndef quiet(): ...")
    for arguments in (["run", str(path), "--until-idle"], ["list", str(path), "--next", "1000"]):
        command = [sys.executable, "-m", "procsched", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            assert program.stderr is not None
            program.stdout.close()
            words = program.stderr.read()
        assert program.returncode == 0, words
        assert "BrokenPipe" not in words


@pytest.mark.parametrize("orderly", [True, False])
def test_a_run_that_prints_for_nobody_ends_it(write: Fixture, orderly: bool) -> None:
    """``procsched run … | head -1``: as other programs end by SIGPIPE, but runs that execute may finish."""
    path = write(f"""
        import time
        from pathlib import Path
        begun = Path(__file__).with_name("begun")

        @job(FixedDelay("10ms"))
        def loud(): begun.exists() and print("a line")

        @job(After(0), id="long")
        def long():
            begun.touch()
            while not ({orderly} and current_run().should_stop()): time.sleep(0.01)
    """)
    command = [sys.executable, "-m", "procsched", "run", str(path), "--workers", "2"]
    command += [] if orderly else ["--grace", "10ms"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None and program.stderr is not None
        assert program.stdout.readline() == "a line\n"
        program.stdout.close()
        words = program.stderr.read()
    assert program.returncode == (141 if orderly else 1), words
    assert "stopping (nobody reads stdout any more)" in words
    assert re.search(r"long +#1 +" + ("succeeded" if orderly else "aborted"), words)
    assert words.count("Traceback") <= 3  # those that printed in the meantime
