"""What a run can do to its worker, with a side channel that says so. Runs in the child.

Each run appends one line when it starts and one when it is about to end, saying how. One ``write`` to a file opened
with O_APPEND: lines of many processes don't mix, and what a SIGKILL leaves is whole lines.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from procsched import current_run

__all__ = ["INTENTS", "KINDS", "act", "chat", "hang", "leave", "ready"]

INTENTS = {
    "value": "SUCCEEDED",
    "work": "SUCCEEDED",
    "large": "SUCCEEDED",
    "larger": "SUCCEEDED",
    "program": "SUCCEEDED",
    "raise": "FAILED",
    "unpicklable": "UNSENDABLE",
    "exit": "FAILED",
    "abort": "SIGABRT",
    "segfault": "SIGSEGV",
    "leave": "3",
    "close": "70",
    "hang": "TIMED_OUT",
}
"""By kind: how a run of it ends when nobody interferes. A signal or a number is how it takes its worker along.

UNSENDABLE is FAILED, but for a run whose value nobody wants."""

KINDS = [*["value"] * 14, *["work", "raise", "unpicklable", "exit", "hang", "large"] * 2, "larger", "program"]
KINDS += ["abort", "segfault", "leave", "close"]


def ready() -> None:
    """An initializer: this file is imported before the first run, so that a run's line follows its claim at once."""


def say(path: str, *words: object) -> None:
    """One line."""
    line = " ".join(map(str, words)) + "\n"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode())
    os.close(fd)


def act(path: str, name: str, kind: str, _burden: bytes = b"") -> Any:
    """One run."""
    run = current_run()
    who = (name, run.number, run.attempt)
    say(path, "S", *who, time.monotonic_ns(), os.getpid())
    answer: Any = who
    if kind == "work":
        time.sleep(0.03)
    elif kind == "hang":
        time.sleep(60)
    elif kind == "large":
        answer = (*who, b"x" * 200_000)
    elif kind == "larger":
        answer = (*who, b"x" * 5_000_000)
    elif kind == "program":
        import subprocess

        subprocess.Popen(["sleep", "1000"])
    elif kind == "segfault":
        import ctypes
    say(path, "E", *who, time.monotonic_ns(), os.getpid(), INTENTS[kind])
    if kind == "raise":
        raise ValueError(name)
    if kind == "unpicklable":
        return (answer, sys._getframe())
    if kind == "exit":
        sys.exit(name)
    if kind == "abort":
        os.abort()
    if kind == "segfault":
        ctypes.string_at(0)
    if kind == "leave":
        os._exit(3)
    if kind == "close":
        os.closerange(0, 4096)
    return answer


def hang() -> None:
    """Until it is ended."""
    time.sleep(100)


def leave() -> None:
    """Takes its worker along."""
    os._exit(3)


def chat(burden: bytes) -> bytes:
    """Logs a line and gives back what it was given."""
    import logging

    logging.getLogger("procsched.chat").warning("something to hear")
    return burden
