"""Service: tells systemd how the program is, by its protocol of datagrams (sd_notify). In the parent.

READY when the first worker is up and the task file is loaded, STOPPING when the end begins, and WATCHDOG from within
the turns of the scheduler's loop: a loop that stands still starves it, whatever other threads do.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from procsched.scheduler import ProcessScheduler

__all__ = ["Service"]

_SECOND = 1_000_000_000


class Service:
    """The other end, if there is one; else everything here does nothing."""

    def __init__(self) -> None:
        # Taken out of the environment: tasks, and what they start, must not speak for this program.
        address = os.environ.pop("NOTIFY_SOCKET", "")
        usec, pid = os.environ.pop("WATCHDOG_USEC", ""), os.environ.pop("WATCHDOG_PID", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        self._every = 0
        if self._socket is not None and usec.isdigit() and int(usec) and pid in ("", str(os.getpid())):
            self._every = int(usec) * 1000 // 2
            """Nanoseconds: twice as often as it has to be."""

    def close(self) -> None:
        """Idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def tell(self, *lines: str) -> None:
        """Any thread. A manager that doesn't listen is no error."""
        if self._socket is None:
            return
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError:
            pass

    def ready(self, status: str) -> None:
        self.tell("READY=1", f"STATUS={status}")

    def stopping(self) -> None:
        self.tell("STOPPING=1", "STATUS=stopping")

    def watch(self, scheduler: ProcessScheduler) -> None:
        """From now on the loop itself feeds the watchdog."""
        if not self._every:
            return
        engine = scheduler._engine

        def feed() -> None:
            self.tell("WATCHDOG=1")
            engine.alarms.set(engine.clock.monotonic_ns() + self._every, feed)

        engine.mailbox.tell(feed)
