"""``run --live`` and the bars of ``--until-idle``: the terminal is as it was when they have ended, however they do."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import procsched

pytest.importorskip("textual")

BOUND = 60.0
FULL_SCREEN, USUAL_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"


class Terminal:
    """A pseudo-terminal with a program in it."""

    def __init__(self, *command: str) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.before = termios.tcgetattr(theirs)
        env = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(Path(procsched.__file__).parents[1])}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            env.pop(name, None)
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        self.program = subprocess.Popen(command, **streams, env=env, start_new_session=True)
        self._theirs = theirs
        self.shown = b""

    def read(self, seconds: float = 0.1) -> None:
        """What has come meanwhile."""
        if select.select([self.ours], [], [], seconds)[0]:
            self.shown += os.read(self.ours, 1 << 16)

    def until(self, look: Callable[[], Any]) -> None:
        """Reads until that is true."""
        end = time.monotonic() + BOUND
        while not look():
            assert time.monotonic() < end, self.shown[-3000:].decode(errors="replace")
            self.read()

    def press(self, key: bytes) -> None:
        os.write(self.ours, key)

    def end(self) -> int:
        """Its status; the terminal is as it was."""
        self.until(lambda: self.program.poll() is not None)
        for _ in range(20):
            self.read(0.01)
        assert termios.tcgetattr(self._theirs) == self.before
        assert self.shown.count(FULL_SCREEN) == self.shown.count(USUAL_SCREEN) or FULL_SCREEN not in self.shown
        return self.program.wait()

    def after(self) -> str:
        """What is on the usual screen after the view."""
        return self.shown.rpartition(USUAL_SCREEN)[2].decode(errors="replace")

    def close(self) -> None:
        if self.program.poll() is None:
            os.killpg(self.program.pid, signal.SIGKILL)
        self.program.wait()
        os.close(self.ours)
        os.close(self._theirs)


@pytest.fixture
def terminal(write: Any) -> Iterator[Callable[..., Terminal]]:
    """``terminal(tasks, *options)`` runs `procsched run` there."""
    made: list[Terminal] = []

    def make(tasks: str, *options: str, python: str = "") -> Terminal:
        how = ["-c", python] if python else ["-m", "procsched"]
        path = write(tasks, head="from procsched import *\nimport os, time\n")
        made.append(Terminal(sys.executable, *how, "run", str(path), *options))
        return made[-1]

    yield make
    for each in made:
        each.close()


STEADY = """
@job(FixedRate("50ms"))
def steady():
    print("printed by the run")
"""


def test_the_view_and_its_end(terminal: Any) -> None:
    """q ends it as Ctrl-C would; then the table stands on the usual screen."""
    screen = terminal(STEADY, "--live", "--workers", "1")
    screen.until(lambda: FULL_SCREEN in screen.shown and b"printed by the run" in screen.shown)
    assert b"\x1b[?1049l" not in screen.shown
    screen.press(b"q")
    assert screen.end() == 0
    assert "mean late" in screen.after() and "steady" in screen.after()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(terminal: Any, number: int) -> None:
    screen = terminal(STEADY, "--live", "--workers", "1")
    screen.until(lambda: b"printed by the run" in screen.shown)
    screen.program.send_signal(number)
    assert screen.end() == 0


def test_the_second_q_ends_what_does_not_end(terminal: Any) -> None:
    """As a second signal: at once, with its status."""
    screen = terminal("@job(After(0))\ndef long():\n    print('begun', flush=True)\n    time.sleep(1000)", "--live")
    screen.until(lambda: b"begun" in screen.shown)
    screen.press(b"q")
    screen.until(lambda: b"stopping" in screen.shown)
    screen.press(b"q")
    assert screen.end() == 130


def test_a_worker_that_dies_is_told_of(terminal: Any) -> None:
    screen = terminal("@job(After(0))\ndef dies(): os.kill(os.getpid(), 9)", "--live", "--until-idle")
    assert screen.end() == 0
    assert "dies" in screen.after()


def test_a_view_that_fails_ends_alone(terminal: Any) -> None:
    """The runs go on, the terminal is given back, and it is told."""
    source = """
import sys
from procsched.cli.app import call
from procsched.observe import live

def broken(self):
    raise ZeroDivisionError("in the view")

live.LiveApp._draw_jobs = lambda self, view: broken(self)
sys.exit(call(sys.argv[1:]))
"""
    screen = terminal(STEADY, "--live", "--for", "2s", python=source)
    assert screen.end() == 0
    assert "steady" in screen.after()


def test_bars(terminal: Any) -> None:
    """One for the run that tells of its progress; lines of the log above it stay whole; all is gone at the end."""
    tasks = """
@job(After(0))
def counted():
    print("printed by the run")
    for step in range(20):
        current_run().progress(step / 20, f"step {step}")
        time.sleep(0.05)
"""
    screen = terminal(tasks, "--until-idle", "--workers", "1")
    screen.until(lambda: b"counted #1" in screen.shown and b"step 1" in screen.shown and b"%" in screen.shown)
    assert screen.end() == 0
    text = screen.shown.decode(errors="replace")
    assert "printed by the run" in text and "mean late" in text and FULL_SCREEN not in screen.shown


def test_without_a_terminal_there_are_plain_lines(start: Any, write: Any) -> None:
    """And one that says why."""
    program = start("run", write("@job(After(0))\ndef work(): pass"), "--live", "--until-idle", "--workers", 1)
    assert program.end() == 0
    assert "--live needs a terminal; here are plain lines instead" in program.stderr
    assert "\x1b" not in program.stdout + program.stderr and "succeeded" in program.stderr


def test_without_textual_it_says_what_to_install(tmp_path: Path, terminal: Any) -> None:
    hide = "import sys\nfrom procsched.cli.app import call\nsys.modules['textual'] = None\n"
    source = hide + "sys.exit(call(sys.argv[1:]))"
    screen = terminal(STEADY, "--live", python=source)
    assert screen.end() == 2
    assert b"pip install 'procsched[tui]'" in screen.shown and FULL_SCREEN not in screen.shown
