"""A worker's base state, put back between runs: directory, environment, signal handlers, streams. Runs in the child.

Checked after every run, so each check is a compare of what Python holds anyway or one cheap system call. Not put back:
umask, locale, decimal context, warning filters, recursion limit, and whatever lives in modules.
"""

from __future__ import annotations

import fcntl
import os
import sys
from _signal import ITIMER_REAL, getitimer, getsignal, setitimer, signal, valid_signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Baseline"]


class Baseline:
    """Law: after ``restore`` the next run finds what the first one found."""

    def __init__(self) -> None:
        self._directory = _directory()
        self._environ = os.environ
        self._variables = dict(os.environ)
        self._raw = dict(self._raw_variables())
        # SIGKILL and SIGSTOP have no handler; the real-time ones are nobody's but the stack dump's
        self._signals = [number for number in sorted(map(int, valid_signals())) if number < 32]
        self._handlers: list[Any] = [getsignal(number) for number in self._signals]
        self._usual = [number for number in (1, 2, 3, 10, 12, 14, 15, 17) if number in self._signals]
        self._usual_handlers: list[Any] = [getsignal(number) for number in self._usual]
        self._streams = (sys.stdin, sys.stdout, sys.stderr)
        self._copies = [_copy_of(fd) for fd in (0, 1, 2)]

    def restore(self, thorough: bool) -> None:
        """``thorough``: look at all signals (a run that took no time at all is only checked for the usual ones)."""
        directory = self._directory
        if directory is not None and _directory() != directory:
            try:
                os.chdir(directory)
            except OSError:  # removed meanwhile: there is nothing to go back to
                self._directory = None
        if os.environ is not self._environ or self._raw_variables() != self._raw:
            self._restore_environment()
        if thorough:
            if [getsignal(number) for number in self._signals] != self._handlers:
                self._restore_handlers(self._signals, self._handlers)
        elif [getsignal(number) for number in self._usual] != self._usual_handlers:
            self._restore_handlers(self._usual, self._usual_handlers)
        if getitimer(ITIMER_REAL)[0]:
            setitimer(ITIMER_REAL, 0)  # an alarm left behind would end a later run
        stdin, stdout, stderr = self._streams
        if sys.stdout is not stdout or sys.stderr is not stderr or sys.stdin is not stdin or _closed(self._streams):
            self._restore_streams()
        for fd in (0, 1, 2):
            try:
                fcntl.fcntl(fd, fcntl.F_GETFD)
            except OSError:
                if self._copies[fd] >= 0:
                    os.dup2(self._copies[fd], fd)

    def flush(self) -> None:
        """What the run printed is out before the run is reported."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:  # closed, replaced by something odd, a full disk: the run's business, not ours
                pass

    def _raw_variables(self) -> dict[Any, Any]:
        # os.environ encodes and decodes every item of a compare; its dictionary of bytes compares in a microsecond.
        raw = getattr(os.environ, "_data", None)
        return raw if isinstance(raw, dict) else dict(os.environ)

    def _restore_environment(self) -> None:
        os.environ = self._environ  # noqa: B003  (the very object, not a change of the environment)
        for name in list(os.environ):
            if name not in self._variables:
                del os.environ[name]
        for name, value in self._variables.items():
            if os.environ.get(name) != value:
                os.environ[name] = value

    def _restore_handlers(self, numbers: list[int], handlers: list[Any]) -> None:
        for number, handler in zip(numbers, handlers, strict=True):
            if handler is not None and getsignal(number) != handler:
                try:
                    signal(number, handler)
                except (OSError, ValueError):
                    pass

    def _restore_streams(self) -> None:
        streams = list(self._streams)
        for fd, stream in enumerate(streams):
            if stream is not None and stream.closed:
                mode = "w" if fd else "r"
                streams[fd] = open(fd, mode, buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
        self._streams = (streams[0], streams[1], streams[2])
        sys.stdin, sys.stdout, sys.stderr = self._streams


def _directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _closed(streams: tuple[Any, ...]) -> bool:
    return any([stream is not None and stream.closed for stream in streams])


def _copy_of(fd: int) -> int:
    for lowest in (900, 200, 3):
        try:
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
        except OSError:
            continue
    return -1
