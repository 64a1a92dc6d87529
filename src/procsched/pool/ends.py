"""The descriptors of one worker, both ends of each. Runs in the parent; made by the starter's thread.

Law: each number is closed exactly once, by ``close_childs`` after the start or ``close`` at the burial.
"""

from __future__ import annotations

import fcntl
import os
import socket
import weakref
from typing import TYPE_CHECKING, Any

from procsched.spool import above_standard, anonymous_file, pass_file, take_file
from procsched.wire import BOARD, NO_TICKET, STACK_OFFSET

if TYPE_CHECKING:
    from loky.backend.context import LokyContext

__all__ = ["DESCRIPTORS_PER_WORKER", "Ends"]

DESCRIPTORS_PER_WORKER = 9
"""What the parent holds per worker: the eight below, and the pidfd."""

_CRASH_LIMIT = 1 << 18  # faulthandler itself stops at 100 frames of 100 threads

_living: weakref.WeakSet[Ends] = weakref.WeakSet()


class Ends:
    """The parent's ends as attributes, the child's by name in ``child`` until it has started."""

    __slots__ = (
        "__weakref__", "_passage", "board", "chatter", "child", "inbox", "lifeline", "outbox", "tickets",
        "tickets_write",
    )  # fmt: skip

    def __init__(self, context: LokyContext) -> None:
        self.inbox = self.outbox = self.tickets = self.tickets_write = self.lifeline = self.chatter = self.board = -1
        self._passage: socket.socket | None = None
        self.child: dict[str, int] = {}
        try:
            self.child["inbox"], self.inbox = _queue(context)
            self.outbox, self.child["outbox"] = _queue(context)
            self.tickets, self.tickets_write = _pipe()
            self.child["tickets"] = self.tickets  # the one end that both hold: reading from it decides
            self.child["lifeline"], self.lifeline = _pipe()
            self.chatter, self.child["chatter"] = _pipe()
            self._open_passage()
            self.board = anonymous_file("procsched-board")
            self.child["board"] = self.board
            os.pwrite(self.board, BOARD.pack(NO_TICKET, 0), 0)
            os.lseek(self.board, STACK_OFFSET, os.SEEK_SET)  # the child's faulthandler writes where the offset stands
            for fd in (self.inbox, self.outbox, self.tickets, self.tickets_write, self.chatter, self.child["chatter"]):
                os.set_blocking(fd, False)
            _living.add(self)
        except BaseException:
            self.close_childs()
            self.close()
            raise

    def _open_passage(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours, theirs:
            ours.setblocking(False)
            theirs.setblocking(True)
            self.child["passage"] = _duplicate(theirs)
            number = _duplicate(ours)
            try:
                self._passage = socket.socket(fileno=number)
            except BaseException:
                os.close(number)
                raise

    @property
    def passage(self) -> int:
        """The socket's number, to wait for room in it."""
        return self._passage.fileno() if self._passage is not None else -1

    def pass_file(self, fd: int) -> None:
        """To the worker; `BlockingIOError` when too many are on their way."""
        if self._passage is None:
            raise BrokenPipeError("closed")
        pass_file(self._passage, fd)

    def take_file(self) -> int:
        """From the worker; `BlockingIOError` or `EOFError` when it sent none."""
        if self._passage is None:
            raise EOFError("closed")
        return take_file(self._passage)

    def close_childs(self) -> None:
        """After the start: only then does the death of the worker close the pipes."""
        for name, fd in self.child.items():
            if name not in ("tickets", "board"):
                os.close(fd)
        self.child = {}

    def close(self) -> None:
        """All of the parent's; idempotent."""
        _living.discard(self)
        for name in ("inbox", "outbox", "tickets", "tickets_write", "lifeline", "chatter", "board"):
            fd = getattr(self, name)
            if fd >= 0:
                setattr(self, name, -1)
                os.close(fd)
        if self._passage is not None:
            self._passage.close()
            self._passage = None

    def crash_text(self) -> str:
        """What faulthandler wrote at a native crash; "" when the board only holds dumps that somebody asked for."""
        if self.board < 0:
            return ""
        try:
            size = os.fstat(self.board).st_size - STACK_OFFSET
            text = os.pread(self.board, min(size, _CRASH_LIMIT), os.fstat(self.board).st_size - min(size, _CRASH_LIMIT))
        except (OSError, ValueError):
            return ""
        start = text.rfind(b"Fatal Python error")
        return text[start:].decode("utf-8", "replace") if start >= 0 else ""

    def _release_lifeline(self) -> None:
        """In a forked copy of the parent, which would keep the workers alive after the parent's death."""
        fd, self.lifeline = self.lifeline, -1
        if fd >= 0:
            os.close(fd)


def _queue(context: LokyContext) -> tuple[int, int]:
    """``(read, write)`` of a one-way pipe of the loky context: one writer, one reader, so it needs no lock.

    Its Connection objects are let go: they can't write a part, or read many messages at once.
    """
    reader, writer = context.Pipe(duplex=False)
    with reader, writer:
        return _duplicate(reader), _duplicate(writer)


def _duplicate(connection: Any) -> int:
    return fcntl.fcntl(connection.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)


def _pipe() -> tuple[int, int]:
    reader, writer = os.pipe()
    if min(reader, writer) > 2:  # as nearly always: nothing that could fail once they are open
        return reader, writer
    return above_standard(reader), above_standard(writer)


def _after_fork() -> None:
    for ends in list(_living):
        ends._release_lifeline()


os.register_at_fork(after_in_child=_after_fork)
