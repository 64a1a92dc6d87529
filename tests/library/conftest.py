"""Real schedulers, and ways to hold their runs: a test waits for a state, never for a length of time."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import procsched
from procsched import ProcessScheduler

BOUND = 30.0  # seconds; what takes longer hangs


def hold(entered: str, gate: str, value: Any = None) -> Any:
    """In a worker: say that the run has begun, wait until it is let go."""
    import os

    fd = os.open(entered, os.O_WRONLY)
    os.write(fd, b"x")
    os.close(fd)
    with open(gate, "rb", buffering=0) as waiting:
        waiting.read(1)
    return value


class Stage:
    """Named pipes that hold runs: ``scheduler.submit(stage.hold, *stage.at)``."""

    hold = staticmethod(hold)

    def __init__(self, folder: Path) -> None:
        self.at = (str(folder / "entered"), str(folder / "gate"))
        for path in self.at:
            os.mkfifo(path)
        self._entered, self._gate = (os.open(path, os.O_RDWR | os.O_NONBLOCK) for path in self.at)

    def entered(self, runs: int = 1) -> None:
        """Wait until so many runs have begun."""
        deadline = time.monotonic() + BOUND
        while runs:
            assert select.select([self._entered], [], [], max(0.0, deadline - time.monotonic()))[0], "no run began"
            runs -= len(os.read(self._entered, runs))

    def nobody(self) -> bool:
        """Whether nobody has entered, so far."""
        return not select.select([self._entered], [], [], 0)[0]

    def open(self, runs: int = 1) -> None:
        """Let so many go."""
        os.write(self._gate, b"x" * runs)

    def close(self) -> None:
        for fd in (self._entered, self._gate):
            os.close(fd)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.open(100)  # whoever is still held
    made.close()


@pytest.fixture
def two() -> Iterator[ProcessScheduler]:
    """Two workers."""
    scheduler = ProcessScheduler(workers=2)
    yield scheduler
    scheduler.shutdown(cancel_futures=True, timeout=5)


@pytest.fixture
def one() -> Iterator[ProcessScheduler]:
    """One worker: what waits, waits."""
    scheduler = ProcessScheduler(workers=1)
    yield scheduler
    scheduler.shutdown(cancel_futures=True, timeout=5)


@pytest.fixture
def make() -> Iterator[Callable[..., ProcessScheduler]]:
    """Schedulers with arguments, ended afterwards."""
    made: list[ProcessScheduler] = []

    def construct(*args: Any, **kwargs: Any) -> ProcessScheduler:
        made.append(ProcessScheduler(*args, **kwargs))
        return made[-1]

    yield construct
    for scheduler in made:
        scheduler.shutdown(cancel_futures=True, timeout=5)


@pytest.fixture
def eventually() -> Callable[[Callable[[], Any]], Any]:
    """Look until it is true."""

    def look(predicate: Callable[[], Any], bound: float = BOUND) -> Any:
        deadline = time.monotonic() + bound
        while not (seen := predicate()):
            assert time.monotonic() < deadline, "it never happened"
            time.sleep(0.005)
        return seen

    return look


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program of its own: its status, output, and that it ended in time, with all its workers."""

    def run(source: str, *, bound: float = BOUND, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "program.py"
        path.write_text("from procsched import *\nimport os, sys, time, signal, threading\n" + textwrap.dedent(source))
        process = subprocess.Popen(
            [sys.executable, "-W", "error", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(procsched.__file__).parents[1])},
        )
        try:
            out, err = process.communicate(timeout=bound)  # to end of file: nobody may hold the pipes
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            pytest.fail(f"it didn't end:\n{out}\n{err}")
        return subprocess.CompletedProcess(path, process.returncode, out, err)

    return run
