"""The limits that no scheduler can pass: pipes that carry nothing, and a loop that only sleeps. Runs in a child."""

from __future__ import annotations

import os
import select
import time

__all__ = ["pipes", "sleeps"]

TICKET, REPORT = 8, 64
"""Bytes."""
AHEAD = 128
"""Tickets that a child may have in its pipe."""


def pipes(count: int) -> dict[str, float]:
    """Reports a second of two children that read tickets one by one and answer each with one small write."""
    children = [_Child(), _Child()]
    cpu, begin = time.process_time(), time.perf_counter()
    readers = {child.reports: child for child in children}
    poll = select.epoll()
    for child in children:
        poll.register(child.reports, select.EPOLLIN)
        child.write(AHEAD)
    got, written = 0, 2 * AHEAD
    while got < count:
        for fd, _ in poll.poll():
            child = readers[fd]
            reports = len(os.read(fd, 1 << 16)) // REPORT
            got += reports
            child.ahead -= reports
            if child.ahead <= AHEAD // 2 and written < count + 2 * AHEAD:
                child.write(AHEAD // 2)
                written += AHEAD // 2
    seconds, used = time.perf_counter() - begin, time.process_time() - cpu
    for child in children:
        child.end()
    poll.close()
    return {"rate": got / seconds, "cpu": used / got * 1e6}


class _Child:
    """A process that reads a ticket, and writes a report, and so on."""

    def __init__(self) -> None:
        read_tickets, self.tickets = os.pipe()
        self.reports, write_reports = os.pipe()
        self.ahead = 0
        self.pid = os.fork()
        if not self.pid:
            os.close(self.tickets)
            report = bytes(REPORT)
            try:
                while os.read(read_tickets, TICKET):
                    os.write(write_reports, report)
            except OSError:
                pass
            os._exit(0)
        os.close(read_tickets)
        os.close(write_reports)

    def write(self, tickets: int) -> None:
        os.write(self.tickets, bytes(TICKET * tickets))
        self.ahead += tickets

    def end(self) -> None:
        # The sibling that was forked later holds our end open too: closing it is not enough for this one to end.
        os.kill(self.pid, 9)
        os.close(self.tickets)
        os.close(self.reports)
        os.waitpid(self.pid, 0)


def sleeps(frequency: int, count: int) -> list[float]:
    """Seconds late: ``time.sleep`` until each slot of a grid."""
    late = []
    first = time.monotonic() + 0.1
    for number in range(count):
        due = first + number / frequency
        time.sleep(max(0.0, due - time.monotonic()))
        late.append(time.monotonic() - due)
    return late
