"""SIGINT and SIGTERM: an orderly end first, a sudden one second, nothing left after either."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

Fixture = Callable[..., Any]

both = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@both
@pytest.mark.case("B39")
def test_idle_it_ends_within_a_second(start: Fixture, write: Fixture, number: int) -> None:
    """One line says so, no traceback, exit status 0."""
    program = start("run", write("@job(After('1h'))\ndef work(): ..."), "--workers", 4)
    program.wait_for("Ctrl-C ends it")
    program.signal(number)
    begin = time.monotonic()
    assert program.end() == 0
    assert time.monotonic() - begin < 1
    assert program.stderr.count("stopping") == 1
    assert "Traceback" not in program.stderr


@both
def test_an_executing_run_may_finish(start: Fixture, write: Fixture, latch: Any, number: int) -> None:
    """And it counts as succeeded; nothing new starts."""
    path = write(f"""
        @job(FixedDelay("1ms"))
        def work(): {latch.code}
    """)
    program = start("run", path, "--workers", 1)
    latch.wait()
    program.signal(number)
    program.wait_for("stopping")
    assert "work #1" in program.stderr
    latch.open()
    assert program.end() == 0
    assert re.search(r"work      #1     succeeded", program.stderr)
    assert "#2" not in program.stderr
    assert "work" in program.stdout


@both
def test_after_the_grace_time_it_is_ended(start: Fixture, write: Fixture, latch: Any, number: int) -> None:
    """The run is named, the exit status is 1."""
    program = start("run", write(f"@job(After(0))\ndef work(): {latch.code}"), "--grace", "200ms")
    latch.wait()
    program.signal(number)
    assert program.end() == 1
    assert re.search(r"work      #1     aborted", program.stderr)


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (signal.SIGINT, signal.SIGINT, 130),
        (signal.SIGTERM, signal.SIGTERM, 143),
        (signal.SIGINT, signal.SIGTERM, 143),
        (signal.SIGTERM, signal.SIGINT, 130),
    ],
)
@pytest.mark.case("B41")
def test_the_second_one_ends_it_at_once(start: Fixture, write: Fixture, first: int, second: int, status: int) -> None:
    """Also a run that never gives up, with the programs that it started."""
    path = write("""
        import subprocess

        @job(After(0))
        def stubborn():
            subprocess.Popen(["sleep", "600"])
            print("begun", flush=True)
            while True:
                try:
                    while True: pass
                except BaseException: ...
    """)
    program = start("run", path)
    program.wait_for("begun")
    program.signal(first)
    program.wait_for("stopping")
    begin = time.monotonic()
    program.signal(second)
    assert program.end() == status
    assert time.monotonic() - begin < 2
    assert "Traceback" not in program.stderr


@both
@pytest.mark.case("B42")
def test_workers_leave_the_decision_to_the_parent(start: Fixture, write: Fixture, latch: Any, number: int) -> None:
    """A service manager that signals every process of the tree gets the same orderly end."""
    program = start("run", write(f"@job(After(0))\ndef work(): {latch.code}"), "--workers", 2)
    latch.wait()
    for process in program.tree():
        process.send_signal(number)
    program.wait_for("stopping")
    latch.open()
    assert program.end() == 0
    assert "work      #1     succeeded" in program.stderr
    assert "Traceback" not in program.stderr


@pytest.mark.case("B39")
def test_ctrl_c_of_a_terminal(start: Fixture, write: Fixture, latch: Any) -> None:
    """A terminal signals the whole foreground group."""
    program = start("run", write(f"@job(After(0))\ndef work(): {latch.code}"), "--workers", 2)
    latch.wait()
    os.killpg(program.process.pid, signal.SIGINT)
    program.wait_for("stopping")
    latch.open()
    assert program.end() == 0
    assert "Traceback" not in program.stderr


@both
def test_while_the_file_is_loading(start: Fixture, write: Fixture, number: int) -> None:
    """There is nothing to finish yet: it ends, with the status of the signal and without a traceback."""
    path = write("""
        import time
        print("loading", flush=True)
        while True: time.sleep(0.01)
    """)
    program = start("run", path)
    program.wait_for("loading")
    program.signal(number)
    assert program.end() == 128 + number
    assert "Traceback" not in program.stderr


def test_nobody_reads_the_log(write: Fixture, tmp_path: Any) -> None:
    """A stopped pager: the delivery thread is stuck in a write, and both signals work all the same."""
    path = write("@job(FixedDelay('1ms'))\ndef chatter(): __import__('logging').warning('x' * 1000)")
    reading, writing = os.pipe()
    program = subprocess.Popen(
        [sys.executable, "-m", "procsched", "run", str(path)], stdout=writing, stderr=writing, cwd=tmp_path
    )
    os.close(writing)
    try:
        _until_full(reading)
        program.send_signal(signal.SIGTERM)
        time.sleep(0.1)  # two of them at the same moment would be one
        program.send_signal(signal.SIGTERM)
        assert program.wait(10) == 143
    finally:
        program.kill()
        program.wait()
        os.close(reading)


def _until_full(descriptor: int) -> None:
    import array
    import fcntl
    import termios

    waiting, before, unchanged = array.array("i", [0]), 0, 0
    deadline = time.monotonic() + 60
    while unchanged < 30 or before < 20_000:  # lines don't cross pages: a full pipe may hold less than it could
        assert time.monotonic() < deadline
        time.sleep(0.01)
        fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
        unchanged = unchanged + 1 if waiting[0] == before else 0
        before = waiting[0]


@both
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare of util-linux")
@pytest.mark.case("B43")
def test_as_process_1_of_a_container(start: Fixture, write: Fixture, latch: Any, number: int) -> None:
    """Which has no default actions for signals, and whose end ends everything."""
    before = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*before, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no new process namespaces here")
    program = start("run", write(f"@job(After(0))\ndef work(): {latch.code}"), before=before)
    latch.wait()
    _, inner = program.tree()[:2]
    inner.send_signal(number)
    program.wait_for("stopping")
    latch.open()
    assert program.end() == 0
    assert "work      #1     succeeded" in program.stderr
