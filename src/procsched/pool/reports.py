"""What one worker reports, from bytes to events. Runs in the loop's thread; unpickles nothing.

Many reports per read: at 100,000 runs a second a system call per report would be most of the loop's work.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from procsched.pool.api import Ended, Started, Voided
from procsched.spool import Spooled
from procsched.wire import (
    BODY_LIMIT,
    BOOT_FAILED,
    ENDED,
    HELLO,
    NO_TICKET,
    OVER_MEMORY,
    REPORT,
    REPORT_MAGIC,
    SPOOLED,
    STARTED,
    SUCCESS,
    VOIDED,
)

if TYPE_CHECKING:
    from procsched.pool.ends import Ends

__all__ = ["BrokenReports", "Reports"]

_READ = 1 << 16


class BrokenReports(Exception):
    """The bytes of a worker make no sense; it can't be understood any more and has to be ended."""


class Reports:
    """Law: a report is taken in whole or not at all; half of one, from a dead worker, is never looked at."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self._rest = b""
        self.hello = False
        self.boot_error = ""
        self.ended = False  # nothing will come any more
        self.last_ticket = NO_TICKET
        self.max_rss = 0
        self.inherited_rss = 0

    def drain(self, slot: int, events: list[Any]) -> None:
        """Everything that is there now. To EAGAIN and not to end-of-file, which a grandchild may withhold."""
        for _ in range(64):  # a living forked copy could write for ever
            if not self.read(slot, events):
                return

    def read(self, slot: int, events: list[Any]) -> bool:
        """One large read; whether there may be more. `BrokenReports` leaves the events before the garbage."""
        try:
            data = os.read(self._ends.outbox, _READ)
        except BlockingIOError:
            return False
        if not data:
            self.ended = True
            return False
        more = len(data) == _READ
        if self._rest:
            data = self._rest + data
        unpack, size, append, new = REPORT.unpack_from, REPORT.size, events.append, tuple.__new__
        position, end = 0, len(data)
        while end - position >= size:
            length, magic, kind, flags, ticket, started, finished, cpu_time, peak, value_size = unpack(data, position)
            if magic != REPORT_MAGIC or length > BODY_LIMIT:
                raise BrokenReports(f"a report that isn't one, {kind=} {length=}")
            following = position + size + length
            if following > end:
                break
            body: bytes | Spooled | None = data[position + size : following] if length else None
            position = following
            if kind == ENDED:
                if flags & SPOOLED:
                    body = self._spooled(value_size)
                self.last_ticket = ticket
                if peak > self.max_rss:
                    self.max_rss = peak
                # The fields of Ended, without the detour through its __new__: this line runs for every run.
                fields = (
                    slot, ticket, flags & SUCCESS == SUCCESS, started, finished, cpu_time, peak, value_size, body,
                    flags & OVER_MEMORY == OVER_MEMORY,
                )  # fmt: skip
                append(new(Ended, fields))
            elif kind == STARTED:
                append(Started(slot, ticket, started))
            elif kind == VOIDED:
                append(Voided(slot))
            elif kind == HELLO:
                self.hello = True
                self.max_rss = peak
                self.inherited_rss = value_size
            elif kind == BOOT_FAILED:
                self.boot_error = body.decode("utf-8", "replace") if isinstance(body, bytes) else ""
            else:
                raise BrokenReports(f"a report of unknown kind {kind}")
        self._rest = data[position:] if position < end else b""
        return more

    def _spooled(self, size: int) -> Spooled:
        # The descriptor went into the passage before the report into the outbox, so it is there.
        try:
            return Spooled.adopt(self._ends.take_file(), size)
        except (OSError, EOFError, ValueError, MemoryError) as error:
            raise BrokenReports(f"a spooled value didn't come: {error}") from error
