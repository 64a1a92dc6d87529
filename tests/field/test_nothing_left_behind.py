"""When the parent is gone, for whatever reason, everything that it ever started is gone too."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import procsched
from procsched import After, Outcome, ProcessScheduler

KILL_ONE = """
pid = next(worker.pid for worker in s.workers() if worker.pid)
os.kill(pid, 9)
while pid in [worker.pid for worker in s.workers()] or s.health().workers_up < 2: time.sleep(0.01)
s.shutdown()
"""
HOW_TO = Path(__file__).parents[2] / "docs" / "howto.md"


def parent(source: str, variables: dict[str, str]) -> subprocess.Popen[str]:
    """A program that uses a scheduler, until the test ends it."""
    head = "import os, sys, time, signal\nfrom procsched import *\n"
    variables = {**os.environ, **variables, "PYTHONPATH": str(Path(procsched.__file__).parents[1])}
    command = [sys.executable, "-c", head + textwrap.dedent(source)]
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.case("B49", "B50")
@pytest.mark.parametrize("doing", ["None", "time.sleep(100)", "sum(range(10**12))", "bytes(50 << 20)"])
def test_the_parent_is_killed_under_load(doing: str, marked: Any, eventually: Any) -> None:
    """Idle workers, busy ones, one that holds the GIL, one in the midst of a large result: all gone, nothing left."""
    variables, alive = marked
    program = parent(
        f"""
        s = ProcessScheduler(workers=3, spare_workers=1)
        def work():
            os.write(1, b"x")
            return {doing}
        job = s.schedule(work, FixedDelay("1ms"))
        following = job.results()
        time.sleep(1000)
        """,
        variables,
    )
    shared = set(os.listdir("/dev/shm"))
    with program:
        assert program.stdout is not None and program.stderr is not None
        assert program.stdout.read(1) == "x"
        program.kill()
        program.wait()
        eventually(lambda: not alive(), 5)
        assert program.stderr.read() == ""  # and nobody holds it open
        program.stdout.read()
    assert set(os.listdir("/dev/shm")) <= shared


@pytest.mark.case("B52")
def test_after_shutdown_the_program_has_no_children(program: Any) -> None:
    """Not one, a helper neither, while it goes on living."""
    done = program(
        """
        import psutil
        s = ProcessScheduler(workers=2, spare_workers=1)
        s.submit(int).result()
        s.shutdown()
        print(psutil.Process().children(recursive=True), threading.active_count())
        """
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[] 1", "")


@pytest.mark.case("B53")
@pytest.mark.parametrize(
    "end",
    [
        "",
        "s.shutdown()",
        KILL_ONE,
        "os.kill(os.getpid(), signal.SIGINT); time.sleep(10)",
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)",
    ],
    ids=["no shutdown", "shutdown", "a worker killed", "interrupted", "terminated"],
)
def test_no_end_warns_of_leaks(end: str, marked: Any, eventually: Any) -> None:
    """Normal, crashed, interrupted or terminated: nobody tells of semaphores or folders."""
    variables, alive = marked
    source = f"s = ProcessScheduler(workers=2)\ns.submit(int).result()\n{end}"
    with parent(source, variables) as program:
        out, err = program.communicate(timeout=30)
    assert out == "" and "resource_tracker" not in err and "leaked" not in err
    told = next((word for signal, word in (("SIGINT", "KeyboardInterrupt"), (", 9)", "SIGKILL")) if signal in end), "")
    assert told in err if told else err == ""
    eventually(lambda: not alive(), 5)


@pytest.mark.case("B54")
def test_a_timeout_takes_the_programs_of_its_run_along(program: Any) -> None:
    """A shell and its child, again and again: the output reaches its end for a reader on the other side."""
    done = program(
        """
        def work():
            import subprocess
            subprocess.run(["sh", "-c", "sleep 600; true"])
        with ProcessScheduler(workers=2) as s:
            jobs = [s.schedule(work, After(0), timeout="200ms") for _ in range(6)]
            s.wait()
            print({job.last.outcome.value for job in jobs})
        """
    )
    assert (done.returncode, done.stdout.strip()) == (0, "{'timed_out'}"), done.stderr


@pytest.mark.case("B54")
def test_what_a_run_started_in_a_session_of_its_own(one: ProcessScheduler, tmp_path: Path, eventually: Any) -> None:
    """It left the worker's process group: at a timeout it is ended all the same."""

    def work(path: str) -> None:
        import subprocess
        import time

        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        with open(path + ".part", "w") as file:
            file.write(str(child.pid))
        os.rename(path + ".part", path)
        time.sleep(600)

    path = tmp_path / "pid"
    job = one.schedule(work, After(0), args=(str(path),), timeout="500ms")
    assert job.wait(30) and job.last is not None and job.last.outcome is Outcome.TIMED_OUT
    pid = int(path.read_text())
    eventually(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.case("B56")
def test_the_documentation_asks_for_an_init() -> None:
    """As process 1, procsched collects its own workers and no stranger's orphans, and says so."""
    text = " ".join(HOW_TO.read_text().split())
    assert "under an init (`docker run --init`)" in text
