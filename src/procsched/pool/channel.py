"""What the parent sends to one worker: orders, tickets, and taking tickets back. Runs in the loop's thread.

Only the loop's thread touches a channel, so it has no lock. (In a caller's thread a Ctrl-C between reading the tickets
and writing the others back lost them.)  No write blocks, not even to a stopped worker: what a pipe doesn't take waits
in order until there is room.
"""

from __future__ import annotations

import os
import struct
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

from procsched.spool import Spooled
from procsched.wire import (
    ARGS,
    BOARD,
    FUNCTION,
    JOB,
    MESSAGE_HEAD,
    NUMBERS,
    ORDERS,
    RETIRE,
    TICKET,
    TICKET_SIZE,
    VOID,
    dumps,
    missing,
    pack_orders,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from procsched.pool.ends import Ends
    from procsched.wire import Function, Order

__all__ = ["Channel"]

FUNCTIONS_KEPT = 512
BYTES_KEPT = 16 << 20
"""How many functions, and bytes of them, a worker is told to keep."""


class Channel:
    """Law: tickets are written before the message with their orders, and a ticket read here is never executed there."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self._queue: deque[memoryview | int] = deque()  # pieces of messages, and descriptors to pass on and close
        self._known: OrderedDict[int, int] = OrderedDict()  # function key -> bytes, least recently used first
        self._known_bytes = 0
        self._deaf = False
        self.broken = False

    # -- handing over, taking back -------------------------------------------------------------------------------

    def offer(self, orders: list[Order], functions: list[Function]) -> None:
        """Tickets, then orders; functions that this worker doesn't know go along."""
        columns = list(zip(*orders, strict=True))
        tickets, keys, bodies = columns[TICKET], columns[FUNCTION], columns[ARGS]
        self._write_tickets(tickets)
        needed = set(keys)
        news: list[tuple[Any, ...]] = []
        files: list[int] = []
        for key in needed:
            if key in self._known:
                self._known.move_to_end(key)
                continue
            function = next(function for function in functions if function.key == key)
            self._known[key] = function.size
            self._known_bytes += function.size
            body = self._inline(function.body, files)
            news.append((key, function.by_reference, function.name, function.source, body))
        args: list[bytes | int] | None = None
        if any(bodies):
            args = [body if type(body) is bytes else self._inline(body, files) for body in bodies]
        # Both sides forget the same, because this one says what: the worker never lacks what isn't sent again. Orders
        # that wait there keep the function they came with.
        self._queue.extend(files)
        jobs = columns[JOB] if any(columns[JOB]) else None
        self._send((ORDERS, self._forget(needed), news, pack_orders(columns[:NUMBERS]), jobs, args))

    def withdraw(self) -> list[int]:
        """Take back every unclaimed ticket."""
        tickets = self.take_back()
        if tickets:
            self._send((VOID, tickets))
        return tickets

    def retract(self, ticket: int) -> bool:
        """Take back this one; the others are written back in their order."""
        tickets = self.take_back()
        found = ticket in tickets
        if found:
            tickets.remove(ticket)
        if tickets:
            self._write_tickets(tickets)
        if found:
            self._send((VOID, [ticket]))
        return found

    def take_back(self) -> list[int]:
        """Read the tickets that nobody has claimed."""
        data = b""
        try:
            while chunk := os.read(self._ends.tickets, 1 << 16):
                data += chunk
        except BlockingIOError:
            pass
        return [int(ticket) for (ticket,) in struct.iter_unpack("=q", data)]

    def retire(self) -> None:
        """Ask it to end by itself."""
        self._send((RETIRE,))

    def ask_stop(self, ticket: int) -> None:
        """Write on the board what ``should_stop()`` reads."""
        if ticket == -1:
            os.pwrite(self._ends.board, BOARD.pack(0, 1)[BOARD.size // 2 :], BOARD.size // 2)
        else:
            os.pwrite(self._ends.board, BOARD.pack(ticket, 0)[: BOARD.size // 2], 0)

    # -- writing -------------------------------------------------------------------------------------------------

    @property
    def blocked_on(self) -> int:
        """The descriptor whose room the next piece waits for; -1 when nothing waits."""
        if not self._queue:
            return -1
        return self._ends.passage if isinstance(self._queue[0], int) else self._ends.inbox

    def flush(self) -> None:
        """Write what there is room for. A dead worker is no event here: its pidfd is."""
        queue = self._queue
        try:
            while queue:
                piece = queue[0]
                if isinstance(piece, int):
                    self._ends.pass_file(piece)
                    os.close(piece)
                    queue.popleft()
                    continue
                written = os.write(self._ends.inbox, piece)
                if written < len(piece):
                    queue[0] = piece[written:]
                else:
                    queue.popleft()
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionError):
            self.close()
        except OSError:  # the kernel refuses to carry more descriptors for this user
            self.broken = True
            self.close()

    def close(self) -> None:
        """Nothing is sent any more; no spooled arguments are held."""
        self._deaf = True
        for piece in self._queue:
            if isinstance(piece, int):
                os.close(piece)
        self._queue.clear()

    def check_valid(self) -> None:
        """The law of the function table."""
        assert self._known_bytes == sum(self._known.values())
        assert len(self._known) <= FUNCTIONS_KEPT + 64

    def _send(self, message: tuple[Any, ...]) -> None:
        if self._deaf:
            self.close()
            return
        data = dumps(message, 5)
        self._queue.append(memoryview(MESSAGE_HEAD.pack(len(data)) + data))
        self.flush()

    def _inline(self, body: bytes | Spooled | int, files: list[int]) -> bytes | int:
        if not isinstance(body, Spooled):
            return body
        try:
            files.append(body.lend())
        except (OSError, ValueError) as error:  # no descriptor, no room: that run fails, in the worker, saying so
            return dumps(_Missing(f"the payload of {body.size} bytes could not be handed over: {error}"), 5)
        return body.size

    def _forget(self, needed: set[int]) -> list[int]:
        forgotten = []
        while len(self._known) > FUNCTIONS_KEPT or self._known_bytes > BYTES_KEPT:
            key = next(iter(self._known))
            if key in needed:  # only what this very message uses is left
                break
            self._known_bytes -= self._known.pop(key)
            forgotten.append(key)
        return forgotten

    def _write_tickets(self, tickets: Sequence[int]) -> None:
        data = struct.pack(f"={len(tickets)}q", *tickets)
        written = os.write(self._ends.tickets_write, data)
        assert written == len(data), "more tickets are outstanding than a pipe holds"
        assert len(data) % TICKET_SIZE == 0


class _Missing:
    """Raises where it is unpickled."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __reduce__(self) -> tuple[Any, ...]:
        return missing, (self._text,)
