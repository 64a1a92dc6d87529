"""Programs of their own, in a session of their own: started, waited for with a bound, and gone at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import procsched

__all__ = ["BOUND", "HEAD", "NOBODY", "Program", "alive", "eventually"]

BOUND = 30.0
"""Seconds; what takes longer hangs."""
NOBODY = 65534
HEAD = "from procsched import *\nimport os, sys, time, signal, threading, logging\n"


class Program:
    """A Python program; its streams are pipes unless told otherwise."""

    def __init__(self, source: str, *arguments: object, before: tuple[str, ...] = (), **options: Any) -> None:
        variables = {"PYTHONPATH": str(Path(procsched.__file__).parents[1]), **options.pop("variables", {})}
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        command = [*before, sys.executable, "-W", "error", "-c", HEAD + textwrap.dedent(source), *map(str, arguments)]
        self.process = subprocess.Popen(
            command, text=True, start_new_session=True, env={**os.environ, **variables}, **options
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        """The next line of its stdout, without the end; "" at the end of it."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def end(self, status: int | None = 0, bound: float = BOUND) -> tuple[str, str]:
        """Wait for the end, with that status; (stdout, stderr), read to their ends: nobody may hold them open."""
        try:
            out, err = self.process.communicate(timeout=bound)
        except subprocess.TimeoutExpired:
            self.kill()
            out, err = self.process.communicate()
            raise AssertionError(f"it didn't end:\n{out}\n{err}") from None
        assert status is None or self.process.returncode == status, f"{self.process.returncode}\n{out}\n{err}"
        return out or "", err or ""

    def kill(self) -> None:
        """At once, with its group."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def alive(pid: int) -> bool:
    """Whether there is such a process; a corpse doesn't count."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rsplit(b")", 1)[1].split()[0] not in (b"Z", b"X")


def eventually(look: Callable[[], Any], bound: float = BOUND) -> Any:
    """Look until it is true."""
    deadline = time.monotonic() + bound
    while not (seen := look()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)
    return seen
