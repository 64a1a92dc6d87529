"""Call the user's function and report how it went. Runs in the child.

Decoding, calling, pickling the value or the exception: what goes wrong in any of them is the run's failure, never the
worker's. Callable, arguments, value and the frames of a failure are let go before the report is out.
"""

from __future__ import annotations

import os
import sys
from time import monotonic_ns, process_time_ns

from procsched import context
from procsched.spool import Spooled
from procsched.wire import (
    BOARD,
    ENDED,
    OVER_MEMORY,
    REPORT_START,
    STARTED,
    SUCCESS,
    WANT_VALUE,
    decode,
    dumps,
    encode,
)
from procsched.worker.isolation import Baseline
from procsched.worker.memory import PeakMemory, unique_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

    from procsched.wire import Order
    from procsched.worker.chatter import Chatter
    from procsched.worker.outbox import Outbox

__all__ = ["LocalFunction", "Runner"]

LONG = 1_000_000
"""From here (ns) a run pays for exact checks: its memory, every signal handler."""
LOOK_AGAIN = 10_000_000
"""Shorter ones share them: within a burst of tiny runs they are made this often."""


class LocalFunction:
    """A function in this worker: the bytes that came, and the callable once it may be kept."""

    __slots__ = ("body", "by_reference", "callable", "name", "source")

    def __init__(self, by_reference: bool, name: str, source: tuple[str, str] | None, body: bytes | Spooled) -> None:
        self.by_reference = by_reference
        self.name = name
        self.source = source
        self.body = body
        self.callable: Any = None

    def load(self) -> Any:
        """The callable; runs the user's module code, so only after a claim."""
        if self.source is not None:
            from procsched.taskfile import import_source

            import_source(*self.source)
            self.source = None
        function = decode(self.body)
        if self.by_reference:
            self.callable = function
        return function


class Runner:
    """Executes one run at a time. Law: each ends in exactly one ENDED report, or in the death of this process."""

    def __init__(
        self, outbox: Outbox, chatter: Chatter, board: int, max_memory: int | None, memory: PeakMemory
    ) -> None:
        self._pid = os.getpid()
        self._outbox = outbox
        self._chatter = chatter
        self._board = board
        self._max_memory = max_memory
        self._memory = memory
        self._peak = memory.now()
        self._looked = 0
        self.cpu = process_time_ns()
        """What this process had used when the last run ended, or had to be waited for: one look for each run."""
        self._baseline = Baseline()

    def execute(self, order: Order, function: LocalFunction, started: int) -> None:
        """One claimed run, from its arguments to its report."""
        ticket, _, _, flags, number, attempt, planned, timeout, job_id, args = order
        del order
        if flags & REPORT_START:
            self._outbox.report(STARTED, 0, ticket, started)
        context._run = (
            job_id or function.name, not job_id, number, attempt, planned, timeout, started,
            self._should_stop, self._chatter.progress, ticket,
        )  # fmt: skip
        value = error = positional = keywords = None
        try:
            call = function.callable or function.load()
            if args:
                positional, keywords = decode(args)
                args = b""  # a spooled one is unmapped once nothing stands on it
                value = call(*positional, **keywords)
            else:
                value = call()
            if type(value) in _UNFINISHED:
                from procsched.worker import failing

                raise failing.unfinished(value)
        except BaseException as raised:
            error = raised
        finished = monotonic_ns()
        cpu = process_time_ns()
        cpu_time, self.cpu = cpu - self.cpu, cpu
        if finished - started < LONG and cpu_time > finished - started:
            cpu_time = finished - started  # the rest of it was spent between the runs
        if os.getpid() != self._pid:
            _end_copy(error)
        call = positional = keywords = None
        args = b""
        outcome, size = SUCCESS, 0
        body: bytes | Spooled = b""
        if error is not None:
            outcome, body = 0, self._failure(error)
            error = None
        elif value is not None and flags & WANT_VALUE:
            outcome, size, body = self._packed(value)
        value = None
        thorough = finished - started >= LONG or finished - self._looked >= LOOK_AGAIN
        if thorough:
            self._looked = finished
            self._peak = self._memory.now()
            if self._max_memory is not None and unique_memory(self._max_memory) > self._max_memory:
                outcome |= OVER_MEMORY
        context._run = None
        self._baseline.restore(thorough)
        if self._chatter.backlog:
            self._chatter.flush()
        self._outbox.report(ENDED, outcome, ticket, started, finished, cpu_time, self._peak, size, body)

    def _packed(self, value: object) -> tuple[int, int, bytes | Spooled]:
        """``(outcome flag, size, body)`` of a value: by pickle, by cloudpickle what has no importable home."""
        try:
            try:
                packed = encode(value, dumps)
            except (RecursionError, MemoryError):
                raise
            except Exception:
                from procsched.worker.byvalue import dumps_by_value

                packed = encode(value, dumps_by_value)
            if isinstance(packed, bytes):
                return SUCCESS, len(packed), packed
            body = Spooled.store(packed, in_memory=False)
            return SUCCESS, body.size, body
        except BaseException as reason:
            from procsched.worker import failing

            plain = failing.unsendable(f"{type(value).__module__}.{type(value).__qualname__}", reason)
            failing.clear(reason)
            return 0, *self._stored(plain)

    def _failure(self, error: BaseException) -> bytes | Spooled:
        try:
            from procsched.worker import failing

            plain = failing.describe(error)
            failing.clear(error)
        except BaseException as reason:  # memory is gone: names only
            plain = (type(error).__name__, "", f"(no traceback: {type(reason).__name__} while it was made)\n", None)
        return self._stored(plain)[1]

    def _stored(self, plain: tuple[str, str, str, bytes | None]) -> tuple[int, bytes | Spooled]:
        try:
            packed = encode(plain, dumps)
            return 0, packed if isinstance(packed, bytes) else Spooled.store(packed, in_memory=False)
        except (OSError, MemoryError):  # no room for a long one: its beginning
            type_name, message, traceback, _ = plain
            return 0, dumps((type_name, message[:1000], traceback[-4000:], None), 5)

    def _should_stop(self, ticket: int) -> bool:
        """What the parent wrote on the board; a read of 16 bytes costs less than importing mmap would."""
        try:
            asked, everyone = BOARD.unpack(os.pread(self._board, BOARD.size, 0))
        except OSError:
            return False
        return bool(everyone) or asked == ticket


async def _coroutine() -> None: ...


def _generator() -> Iterator[None]:
    yield


_made = _coroutine()
_UNFINISHED = (type(_made), type(_generator()))
"""Values that stand for work nobody has done. By example: `types` is one import more."""
_made.close()
del _made


def _end_copy(error: BaseException | None) -> NoReturn:
    """The run forked and this is the copy, come back into a loop that isn't its own: two would report one run."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    elif error is not None:
        code = 1
        sys.excepthook(type(error), error, error.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(code & 0xFF)
