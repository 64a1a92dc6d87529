"""Prefix: what a run prints, each line behind the id of its job. Runs in the child.

Lines stay whole: one write each, with its prefix. What programs that a run starts write by themselves isn't touched,
nor what goes to a descriptor past `sys.stdout` and `sys.stderr`.
"""

from __future__ import annotations

import io
import sys

from procsched import context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

__all__ = ["VARIABLE", "install"]

VARIABLE = "PROCSCHED_PREFIX_OUTPUT"
"""Set to anything but 0 in the workers' environment, it asks for this."""
_LONGEST = 1 << 16
"""Characters of a line that are kept waiting for its end."""


def install() -> None:
    """For this process, before its first run."""
    if sys.stdout is not None:
        sys.stdout = _Prefixed(sys.stdout)
    if sys.stderr is not None:
        sys.stderr = _Prefixed(sys.stderr)


class _Prefixed(io.TextIOBase):
    """A text stream before another one. What comes between runs goes through as it is."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rest = ""
        self._rest_of = ""

    def write(self, text: str) -> int:
        name = _name()
        if self._rest and self._rest_of != name:
            self._end_line()
        lines = (self._rest + text).split("\n")
        self._rest, self._rest_of = lines.pop(), name
        for line in lines:
            self._stream.write(f"{name} | {line}\n" if name else f"{line}\n")
        if len(self._rest) > _LONGEST:
            self._end_line()
        return len(text)

    def flush(self) -> None:
        """Between runs, a line that was begun is ended: the next one is another run's."""
        if self._rest and _name() != self._rest_of:
            self._end_line()
        self._stream.flush()

    def _end_line(self) -> None:
        rest, self._rest = self._rest, ""
        self._stream.write(f"{self._rest_of} | {rest}\n" if self._rest_of else f"{rest}\n")

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def __getattr__(self, name: str) -> Any:  # encoding, errors, buffer, reconfigure …
        return getattr(self._stream, name)


def _name() -> str:
    """Of the job, or of the function of a call, that executes now."""
    run = context._run
    return str(run[0]) if isinstance(run, tuple) else getattr(run, "job_id", "")
