"""What crosses between the parent and its workers, and nothing else does. Runs in both; imports next to nothing.

::

    PARENT                              per worker                            WORKER
    offer ──── tickets:  one int64 per run; whoever reads it decides ──────►  claim
          ──── inbox:    [u32 length][pickled tuple of atoms] … ───────────►  ORDERS, VOID, RETIRE
          ──── passage:  a descriptor per spooled body, in their order ────►  spooled arguments, functions
    poll  ◄─── outbox:   REPORT header [+ body] … ──────────────────────────  hello, started, ended, voided
          ◄─── passage:  a descriptor before each spooled report ───────────  large values
    sink  ◄─── chatter:  CHUNK header + piece of a pickled tuple … ─────────  log records, progress
    ask_stop ─ board:    two int64 of a shared file ───────────────────────►  should_stop()
    burial ◄── board:    from STACK_OFFSET on, faulthandler's text ─────────  native crash
          ───  lifeline: nothing is ever sent; its closing is the message ─►  the kernel kills the group

Headers are structs and bodies are bytes: the parent's loop never unpickles what a worker made. A child that has to
be up in milliseconds imports this file, hence `_pickle` and not `pickle` (which pulls in `re`), and no dataclasses.
"""

from __future__ import annotations

from _struct import Struct
from itertools import chain, count, repeat

try:
    from _pickle import Unpickler, UnpicklingError, dumps, loads
except ImportError:  # an interpreter without the C accelerator
    from pickle import Unpickler, UnpicklingError, dumps, loads

from procsched.spool import Spooled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pickle import PickleBuffer
    from typing import Any

    Order = tuple[int, int, int, int, int, int, int, int, Any, Any]
    """``(ticket, function key, due, flags, number, attempt, planned wall ns, timeout ns, job id, args)``, see below.

    The job id is empty for a call.
    A plain tuple of atoms. In the message ``args`` stands as its size when it is spooled (else bytes); the descriptor
    goes ahead of it through the passage.
    """

__all__ = [
    "INLINE_LIMIT",
    "REPORT_START",
    "WANT_VALUE",
    "Failure",
    "Function",
    "RemoteDropped",
    "RemoteLog",
    "RemoteProgress",
    "decode",
    "dumps",
    "encode",
    "failure",
    "loads",
    "plain_loads",
]

INLINE_LIMIT = 16 * 1024
"""Bodies below this travel in the queues. A quarter of a pipe, so that a message never fills one by itself."""

# the fields of an Order
TICKET, FUNCTION, DUE, FLAGS, NUMBER, ATTEMPT, PLANNED, TIMEOUT, JOB, ARGS = range(10)
NUMBERS = 8
WANT_VALUE = 1
"""Order flag: somebody waits for the value; else the worker drops it."""
REPORT_START = 2
"""Order flag: tell when it begins (for a run that was offered alone)."""

TICKET_SIZE = 8
MESSAGE_HEAD = Struct("<I")
# what an inbox message is, its first item
ORDERS = 0  # (ORDERS, keys to forget, [(key, by_reference, name, source, body or size), …], the numbers of the orders,
#              packed; their job ids, and their args (bytes or size), each None when all are empty)
VOID = 1  # (VOID, tickets)
RETIRE = 2  # (RETIRE,)


def pack_orders(columns: Sequence[tuple[int, ...]]) -> bytes:
    """The numbers of an offer, all tickets first, then all keys …: much cheaper than pickling the orders."""
    return Struct(f"<{len(columns) * len(columns[0])}q").pack(*chain.from_iterable(columns))


def unpack_orders(data: bytes, jobs: list[str] | None, args: list[Any] | None) -> Iterator[Order]:
    """The orders again."""
    size = len(data) // (8 * NUMBERS)
    numbers = Struct(f"<{NUMBERS * size}q").unpack(data)
    columns = [numbers[i * size : (i + 1) * size] for i in range(NUMBERS)]
    return zip(*columns, jobs or repeat("", size), args or repeat(b"", size), strict=True)


REPORT = Struct("<IHBBqqqqqq")
"""body length, magic, kind, flags, ticket, started, finished, cpu time, peak memory (bytes), value size (bytes)"""
REPORT_MAGIC = 0x5350
HELLO, STARTED, ENDED, VOIDED, BOOT_FAILED = range(1, 6)
SUCCESS = 1
SPOOLED = 2
OVER_MEMORY = 4
BODY_LIMIT = 4 * INLINE_LIMIT
"""No honest report has a longer body; a longer one is garbage."""

CHUNK = Struct("<HBBI")
"""payload length, magic, flags, process id of the writer"""
CHUNK_MAGIC = 0xC5
CHUNK_FIRST, CHUNK_LAST = 1, 2
CHUNK_SIZE = 4096
"""PIPE_BUF: a non-blocking write up to here is all or nothing, also when a forked copy writes to the same pipe."""
SAY_LOG, SAY_PROGRESS, SAY_DROPPED = range(3)

BOARD = Struct("<qq")
"""the ticket of the run that should stop, and whether every run should"""
NO_TICKET = -(1 << 62)
STACK_OFFSET = 4096

_CONTAINER = Struct("<IIQ")  # magic, number of buffers, pickle length; then u64 per buffer; all parts aligned
_CONTAINER_MAGIC = 0x70736368
_LENGTH = Struct("<Q")
_ALIGNMENT = 64  # a cache line; numpy and SIMD code like it
_PADDING = bytes(_ALIGNMENT)

_function_keys = count(1)
UNKNOWN_COST = 1 << 60
"""Of a function that never ran: its calls share no offer with others."""


class Function:
    """A function as workers know it: bytes under a key, never a live object.

    ``by_reference``: a worker may decode it once and keep it; a function by value is decoded for every run, or a
    ``partial(f, [])`` would carry one run's changes into the next.
    """

    __slots__ = ("body", "by_reference", "cost", "key", "name", "plain", "source")

    def __init__(
        self,
        body: bytes | Spooled,
        by_reference: bool,
        name: str,
        source: tuple[str, str] | None = None,
        key: int = 0,
    ) -> None:
        self.key = key or next(_function_keys)
        self.body = body
        self.by_reference = by_reference
        self.name = name
        self.source = source
        self.cost = UNKNOWN_COST
        self.plain: Any = None
        """The payload of a call without arguments: one for all of them."""

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return self.body.size if isinstance(self.body, Spooled) else len(self.body)

    def __repr__(self) -> str:
        return f"<Function {self.key} {self.name} {self.size} bytes>"


class _Atoms:
    """Named fields that compare and show themselves: a named tuple without the price of `typing` in the child."""

    __slots__: tuple[str, ...] = ()

    def __init__(self, *values: Any) -> None:
        for name, value in zip(self.__slots__, values, strict=True):
            setattr(self, name, value)

    def __iter__(self) -> Iterator[Any]:
        return iter([getattr(self, name) for name in self.__slots__])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Atoms) and type(other) is type(self) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in self.__slots__)})"


class Failure(_Atoms):
    """Why a run failed, as plain text; ``exception`` is its pickle, or None when it can't travel."""

    __slots__ = ("type_name", "message", "traceback", "exception")  # noqa: RUF023  (the order of the fields)
    type_name: str
    message: str
    traceback: str
    exception: bytes | None


class RemoteLog(_Atoms):
    """A log record of a worker, formatted there."""

    __slots__ = (  # noqa: RUF023
        "slot", "pid", "job_id", "number", "logger", "level", "text", "created", "pathname", "lineno", "func",
    )  # fmt: skip
    slot: int
    pid: int
    job_id: str
    number: int
    logger: str
    level: int
    text: str
    created: float
    pathname: str
    lineno: int
    func: str


class RemoteProgress(_Atoms):
    """What a run said through ``current_run().progress()``."""

    __slots__ = ("slot", "ticket", "job_id", "number", "fraction", "message")  # noqa: RUF023
    slot: int
    ticket: int
    job_id: str
    number: int
    fraction: float
    message: str


class RemoteDropped(_Atoms):
    """So many log records or progress notes of a worker were dropped, because nobody read them fast enough."""

    __slots__ = ("slot", "count")  # noqa: RUF023
    slot: int
    count: int


def encode(value: object, dumps: Callable[..., bytes]) -> bytes | list[bytes | memoryview]:
    """Pickle for the other side: bytes when small, else the parts of a container for ``Spooled.store``.

    ``dumps`` is that of pickle or cloudpickle. Buffers of `INLINE_LIMIT` and more stay out of the pickle and are
    copied once, into the spool.  The parts still look at the value's memory: store them before it can change.
    """
    buffers: list[memoryview] = []

    def in_band(buffer: PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous: pickle knows how
            return True
        if raw.nbytes < INLINE_LIMIT:
            return True
        buffers.append(raw)
        return False

    data = dumps(value, protocol=5, buffer_callback=in_band)
    if not buffers and len(data) < INLINE_LIMIT:
        return data
    head = _CONTAINER.pack(_CONTAINER_MAGIC, len(buffers), len(data))
    head += b"".join([_LENGTH.pack(buffer.nbytes) for buffer in buffers])
    parts: list[bytes | memoryview] = []
    whole: list[bytes | memoryview] = [head, data, *buffers]
    for part in whole:
        parts.append(part)
        surplus = (part.nbytes if isinstance(part, memoryview) else len(part)) % _ALIGNMENT
        if surplus:
            parts.append(_PADDING[surplus:])
    return parts


def decode(body: bytes | Spooled, loads: Callable[..., Any] = loads) -> Any:
    """The value that `encode` was given. Raises whatever unpickling raises, `ValueError` for a broken container."""
    if isinstance(body, bytes):
        return loads(body)
    view = body.view()
    if len(view) < _CONTAINER.size:
        raise ValueError("not a spooled payload")
    magic, number, length = _CONTAINER.unpack_from(view)
    if magic != _CONTAINER_MAGIC or _CONTAINER.size + number * _LENGTH.size > len(view):
        raise ValueError("not a spooled payload")
    sizes = [length, *(_LENGTH.unpack_from(view, _CONTAINER.size + i * _LENGTH.size)[0] for i in range(number))]
    parts: list[memoryview] = []
    start = _aligned(_CONTAINER.size + number * _LENGTH.size)
    for size in sizes:
        if start + size > len(view):
            raise ValueError("a spooled payload is shorter than it says")
        parts.append(view[start : start + size])
        start = _aligned(start + size)
    return loads(parts[0], buffers=parts[1:])


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT


class _PlainUnpickler(Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise UnpicklingError(f"a plain message doesn't contain {module}.{name}")


def plain_loads(data: bytes | bytearray | memoryview, *, buffers: Any = None) -> Any:
    """Unpickle atoms, tuples, lists and dicts; anything that would import or call something is an error.

    So what a broken worker sends can't run code in the parent, and no user type is touched.
    """
    import io

    return _PlainUnpickler(io.BytesIO(data), buffers=buffers).load()


def missing(text: str) -> Any:
    """Stands in for a body that the parent could not hand over: the run fails where it would be decoded."""
    raise OSError(text)


def failure(body: object) -> Failure:
    """Read the body of a failed run; never raises: what can't be read is told as such."""
    if isinstance(body, (bytes, Spooled)):
        try:
            type_name, message, traceback, exception = decode(body, plain_loads)
            if isinstance(exception, bytes) or exception is None:
                return Failure(str(type_name), str(message), str(traceback), exception)
        except Exception as error:
            return Failure("Unreadable", f"the worker's report of a failure can't be read: {error!r}", "", None)
    return Failure("Unreadable", "the worker's report of a failure can't be read", "", None)
