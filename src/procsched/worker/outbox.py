"""A worker's way to report. Runs in the child, in its main thread only.

Law: one report is one write of a whole frame; a body in a file has gone through the passage before its report.
"""

from __future__ import annotations

import os

from procsched.spool import Spooled, pass_file, take_file
from procsched.wire import REPORT, REPORT_MAGIC, SPOOLED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from procsched.spool import Passage

__all__ = ["Outbox"]


class Outbox:
    """The report pipe, and the socket for descriptors in both directions."""

    def __init__(self, fd: int, passage: int) -> None:
        self._pid = os.getpid()
        self._fd = fd
        self._passage_fd = passage
        self._passage: Passage | None = None

    def report(
        self,
        kind: int,
        flags: int = 0,
        ticket: int = 0,
        started: int = 0,
        finished: int = 0,
        cpu_time: int = 0,
        peak: int = 0,
        size: int = 0,
        body: bytes | Spooled = b"",
    ) -> None:
        """Waits while the parent is behind; a parent that is gone is a `BrokenPipeError`, the end of this process."""
        if body and os.getpid() != self._pid:  # a forked copy has no say here; also pickling a value may fork
            os._exit(0)
        if not isinstance(body, bytes):
            size, flags = body.size, flags | SPOOLED
            self._pass(body)
            body = b""
        frame = REPORT.pack(len(body), REPORT_MAGIC, kind, flags, ticket, started, finished, cpu_time, peak, size)
        if body:
            frame += body
        written = os.write(self._fd, frame)
        while written < len(frame):  # a signal came in between
            written += os.write(self._fd, frame[written:])

    def _pass(self, body: Spooled) -> None:
        fd = body.lend()
        pass_file(self.passage(), fd)
        os.close(fd)
        body.close()

    def fetch(self, size: int) -> Spooled:
        """The next spooled body that the parent has sent."""
        return Spooled.adopt(take_file(self.passage()), size)

    def passage(self) -> Passage:
        """Made for the first large payload: most workers never see one."""
        if self._passage is None:
            import _socket

            self._passage = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, self._passage_fd)
        return self._passage
