"""Real programs: started, watched through their output, and gone with all their processes when a test ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest

BOUND = 30.0  # seconds until something that should have happened counts as never happening


class Program:
    """``python -m procsched …``, its output as it comes, and its whole tree of processes."""

    def __init__(self, arguments: tuple[str, ...], **options: Any) -> None:
        command = [*options.pop("before", ()), sys.executable, "-m", "procsched", *arguments]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,
        )
        self._texts = {"stdout": "", "stderr": ""}
        self._news = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=(name, pipe), daemon=True)
            for name in self._texts
            if (pipe := getattr(self.process, name)) is not None
        ]
        for reader in self._readers:
            reader.start()

    @property
    def stdout(self) -> str:
        return self._texts["stdout"]

    @property
    def stderr(self) -> str:
        return self._texts["stderr"]

    def _read(self, name: str, pipe: Any) -> None:
        for line in pipe:
            with self._news:
                self._texts[name] += line
                self._news.notify_all()
        pipe.close()

    def wait_for(self, words: str, times: int = 1) -> None:
        """Until stdout or stderr contains the words so many times."""
        with self._news:
            seen = self._news.wait_for(lambda: (self.stdout + self.stderr).count(words) >= times, BOUND)
        assert seen, f"no {words!r} came:\n{self.stdout}\n{self.stderr}"

    def tree(self) -> list[psutil.Process]:
        """The program and its descendants."""
        me = psutil.Process(self.process.pid)
        return [me, *me.children(recursive=True)]

    def signal(self, number: int) -> None:
        """As from ``kill``, to the program alone."""
        self.process.send_signal(number)

    def end(self, bound: float = BOUND) -> int:
        """Wait for the end; returns the exit status. Its descendants have to be gone within a moment."""
        try:
            descendants = self.tree()[1:]
        except psutil.NoSuchProcess:
            descendants = []
        try:
            status = self.process.wait(bound)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still there after {bound} s:\n{self.stdout}\n{self.stderr}")
        deadline = time.monotonic() + 5
        while alive := [process for process in descendants if _is_alive(process)]:
            assert time.monotonic() < deadline, f"left behind: {alive}"
            time.sleep(0.01)
        for reader in self._readers:
            reader.join(BOUND)  # also proves that nobody holds its output open
            assert not reader.is_alive()
        assert "resource_tracker" not in self.stderr
        return status

    def kill(self) -> None:
        """Whatever is left of it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in reversed(self.tree()):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join()


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Start a program in ``tmp_path``."""
    programs: list[Program] = []

    def start(*arguments: object, **options: Any) -> Program:
        options.setdefault("cwd", tmp_path)
        variables = {"NO_COLOR": "1", "PYTHONUNBUFFERED": "", **options.pop("variables", {})}
        program = Program(tuple(map(str, arguments)), env=os.environ | variables, **options)
        programs.append(program)
        return program

    yield start
    for program in programs:
        program.kill()


@pytest.fixture
def run(start: Callable[..., Program]) -> Callable[..., Program]:
    """Start a program and wait for its end; ``status`` says how it has to end."""

    def run(*arguments: object, status: int = 0, **options: Any) -> Program:
        program = start(*arguments, **options)
        assert program.end() == status, f"{program.stdout}\n{program.stderr}"
        return program

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a Python file under ``tmp_path``; ``@job`` and the schedules are imported already."""

    def write(text: str, name: str = "tasks.py", head: str = "from procsched import *\n") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(head + dedent(text))
        return path

    return write


class Latch:
    """A run waits here until the test opens it, and tells that it has arrived. Usable in a task file as text."""

    def __init__(self, folder: Path, name: str) -> None:
        self.arrived, self.opened = folder / f"{name}.arrived", folder / f"{name}.opened"
        self.code = (
            f"__import__('pathlib').Path({str(self.arrived)!r}).touch() or"
            f" [None for _ in iter(lambda: __import__('os').path.exists({str(self.opened)!r})"
            " or __import__('time').sleep(0.01), True)]"
        )

    def wait(self) -> None:
        """Until a run has arrived."""
        deadline = time.monotonic() + BOUND
        while not self.arrived.exists():
            assert time.monotonic() < deadline, "no run arrived"
            time.sleep(0.01)

    def open(self) -> None:
        self.opened.touch()


@pytest.fixture
def latch(tmp_path: Path) -> Latch:
    return Latch(tmp_path, "latch")


both_signals = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
