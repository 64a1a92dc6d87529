"""Text for people: to stdout what they asked for, to stderr what went wrong. In the parent.

A reader that goes away (``| head``) is no error: what is left to say is dropped, quietly.
"""

from __future__ import annotations

import os
import select
import sys
from typing import TextIO

__all__ = ["Paint", "complain", "is_unread", "say"]


def say(text: str, end: str = "\n") -> None:
    """Write a line to stdout; a part of one with ``end=""``."""
    _write(sys.stdout, text + end)


def complain(text: str) -> None:
    """Write a line to stderr."""
    _write(sys.stderr, text + "\n")


def is_unread() -> bool:
    """Whether stdout is a pipe whose reader has gone away."""
    try:
        look = select.poll()
        look.register(sys.stdout.fileno(), 0)  # no event asked for: only POLLERR and the like
        return any(event & select.POLLERR for _, event in look.poll(0))
    except (OSError, ValueError):  # closed, or no file at all
        return False


class Paint:
    """Colours, where they are wanted: on a terminal, unless ``NO_COLOR`` is set."""

    def __init__(self, stream: TextIO) -> None:
        wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.on = wanted and stream.isatty()

    def green(self, text: str) -> str:
        return self._in(32, text)

    def red(self, text: str) -> str:
        return self._in(31, text)

    def yellow(self, text: str) -> str:
        return self._in(33, text)

    def dim(self, text: str) -> str:
        return self._in(2, text)

    def _in(self, code: int, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on else text


def _write(stream: TextIO, text: str) -> None:
    try:
        print(text, end="", file=stream, flush=True)
    except UnicodeEncodeError:  # LANG=C, and a job whose name isn't ASCII
        print(text.encode("ascii", "backslashreplace").decode(), end="", file=stream, flush=True)
    except BrokenPipeError:
        # Python flushes once more at its end, and would complain then: give it something that takes everything
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
