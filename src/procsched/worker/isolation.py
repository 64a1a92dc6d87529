"""A worker's base state, put back between runs: directory, environment, signal handlers, streams. Runs in the child.

Checked after every run, so each check is a compare of what Python holds anyway or one cheap system call. Not put back:
umask, locale, decimal context, warning filters, recursion limit, and whatever lives in modules.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
from os import getcwd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from signal import ITIMER_REAL, getitimer, getsignal, setitimer, signal, valid_signals
    from typing import Any
else:  # the C module, as in `child`
    from _signal import ITIMER_REAL, getitimer, getsignal, setitimer, signal, valid_signals

__all__ = ["Baseline"]


class Baseline:
    """Law: after ``restore`` the next run finds what the first one found."""

    def __init__(self) -> None:
        self._directory = _directory()
        self._environ = os.environ
        self._variables = dict(os.environ)
        # os.environ encodes and decodes every item of a compare; its dictionary of bytes compares in a microsecond.
        data = getattr(os.environ, "_data", None)
        self._data = data if isinstance(data, dict) else None
        self._raw = dict(data if isinstance(data, dict) else os.environ)
        # SIGKILL and SIGSTOP have no handler; the real-time ones are nobody's but the stack dump's
        self._signals = [number for number in sorted(map(int, valid_signals())) if number < 32]
        self._handlers: list[Any] = [getsignal(number) for number in self._signals]
        self._usual: list[int] = [number for number in (1, 2, 3, 10, 12, 14, 15, 17) if number in self._signals]
        self._usual_handlers: list[Any] = [getsignal(number) for number in self._usual]
        self._streams = (sys.stdin, sys.stdout, sys.stderr)
        self._texts = [(getattr(s, "encoding", None), getattr(s, "errors", None)) for s in self._streams]
        self._copies = [_copy_of(fd) for fd in (0, 1, 2)]
        self._closed_descriptors = select.poll()
        for fd in (0, 1, 2):
            self._closed_descriptors.register(fd, 0)  # no event asked for: POLLNVAL, one system call for all three

    def restore(self, thorough: bool) -> None:
        """Flush what the run printed, put back what it changed.

        All of it always, but for the signals that hardly anybody uses: those when ``thorough``. It runs after every
        run, so it is written flat.
        """
        stdin, stdout, stderr = self._streams
        try:
            if sys.stdout is stdout and sys.stderr is stderr and sys.stdin is stdin and not stdin.closed:
                stdout.flush()  # a ValueError when it is closed
                stderr.flush()
            else:
                self._restore_streams()
        except Exception:
            self._restore_streams()
        try:
            if getcwd() != self._directory:
                self._restore_directory()
        except OSError:  # the current one was removed
            self._restore_directory()
        if os.environ is not self._environ or (self._data or dict(os.environ)) != self._raw:
            self._restore_environment()
        if list(map(getsignal, self._usual)) != self._usual_handlers:
            self._restore_handlers(self._usual, self._usual_handlers)
        if thorough and list(map(getsignal, self._signals)) != self._handlers:
            self._restore_handlers(self._signals, self._handlers)
        if getitimer(ITIMER_REAL)[0]:
            setitimer(ITIMER_REAL, 0)  # an alarm left behind would end a later run
        if self._closed_descriptors.poll(0):
            self._restore_descriptors()

    def _restore_directory(self) -> None:
        try:
            if self._directory is not None:
                os.chdir(self._directory)
        except OSError:  # removed meanwhile: there is nothing to go back to
            self._directory = None

    def _restore_descriptors(self) -> None:
        for fd, copy in enumerate(self._copies):
            try:
                fcntl.fcntl(fd, fcntl.F_GETFD)
            except OSError:
                if copy >= 0:
                    os.dup2(copy, fd)

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
        self._restore_descriptors()  # what a stream stands on comes first: the run may have closed both
        for printed in (sys.stdout, sys.stderr, *self._streams[1:]):
            try:
                printed.flush()
            except Exception:  # None, closed, something odd, a full disk: the run's business
                pass
        streams = list(self._streams)
        for fd, stream in enumerate(streams):
            if stream is not None and stream.closed:
                encoding, errors = self._texts[fd]
                fresh: Any = open(  # noqa: SIM115  (it stays open)
                    fd, "w" if fd else "r", buffering=1, closefd=False, encoding=encoding, errors=errors
                )
                fresh.buffer.raw.name = ("<stdin>", "<stdout>", "<stderr>")[fd]
                streams[fd] = fresh
        self._streams = (streams[0], streams[1], streams[2])
        sys.stdin, sys.stdout, sys.stderr = self._streams


def _directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _copy_of(fd: int) -> int:
    for lowest in (900, 200, 3):
        try:
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
        except OSError:
            continue
    return -1
