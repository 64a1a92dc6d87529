"""Take an order, claim it, call it, report it: the worker's loop. Runs in the child.

::

    inbox ──► local orders ──► sleep until due ──► claim a ticket ──► decode ──► call ──► report
              (dropped by VOID,                    (none left: the    (after the claim, so that what a payload
              or by a newer ticket)                parent has it)     breaks is charged to its run)

Laws: a run is executed only after its ticket was read here, and is reported by one write, whole, exactly once. An own
descriptor that fails means that the parent has gone or a run closed it: the process ends and the parent knows what
was claimed and not reported.
"""

from __future__ import annotations

import os
import select
import sys
from _signal import SIGTERM
from collections import deque
from resource import RUSAGE_SELF, getrusage
from time import monotonic_ns, process_time_ns

from procsched import context
from procsched.chatter import AfterImport, Chatter
from procsched.isolation import Baseline
from procsched.spool import Spooled, pass_file, take_file
from procsched.wire import (
    ARGS,
    BOARD,
    BOOT_FAILED,
    DUE,
    ENDED,
    FLAGS,
    HELLO,
    INLINE_LIMIT,
    MESSAGE_HEAD,
    ORDERS,
    OVER_MEMORY,
    REPORT,
    REPORT_MAGIC,
    REPORT_START,
    RETIRE,
    SPOOLED,
    STARTED,
    SUCCESS,
    TICKET,
    TICKET_SIZE,
    VOID,
    VOIDED,
    WANT_VALUE,
    decode,
    dumps,
    encode,
    loads,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from procsched.spool import Passage
    from procsched.wire import Order

__all__ = ["serve"]

LONG_RUN = 1_000_000
"""From here (ns) a run pays for the exact checks: peak memory, every signal handler."""
_KIBI = 1 if sys.platform == "darwin" else 1024  # the unit of ru_maxrss
_LONGEST_SLEEP = 3_000_000_000


def serve(boot: dict[str, Any], descriptors: dict[str, int]) -> NoReturn:
    """Get ready, say hello, work until told to go."""
    context.become_worker()
    chatter = Chatter(descriptors["chatter"])
    _prepare_late_imports(boot, chatter)
    _enable_faulthandler(descriptors["board"], boot["stack_signal"])
    _sharpen_sleep()
    worker = Worker(descriptors, chatter, boot["max_memory"])
    try:
        if boot["task_files"]:
            from procsched.taskfile import import_source

            for module, path in boot["task_files"]:
                import_source(module, path)
        if boot["initializer"] is not None:
            function, args = loads(boot["initializer"])
            function(*args)
            del function, args
    except BaseException as error:
        worker.give_up(error)
    worker.loop()


class LocalFunction:
    """A function in this worker: the bytes that came, and the callable once it may be kept."""

    __slots__ = ("body", "by_reference", "callable", "job_id", "name", "source")

    def __init__(
        self, by_reference: bool, name: str, job_id: str, source: tuple[str, str] | None, body: bytes | Spooled
    ) -> None:
        self.by_reference = by_reference
        self.name = name
        self.job_id = job_id
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


class Worker:
    """The state of the loop. One thread; law: ``local`` holds orders in the order in which they were offered."""

    def __init__(self, descriptors: dict[str, int], chatter: Chatter, max_memory: int | None) -> None:
        self.pid = os.getpid()
        self.inbox = descriptors["inbox"]
        self.outbox = descriptors["outbox"]
        self.tickets = descriptors["tickets"]
        self.board = descriptors["board"]
        self.passage_fd = descriptors["passage"]
        self.passage: Passage | None = None
        self.chatter = chatter
        self.max_memory = max_memory
        self.buffer = bytearray()
        self.functions: dict[int, LocalFunction] = {}
        self.local: deque[tuple[Order, LocalFunction]] = deque()
        self.peak = 0
        self.inherited_peak = _inherited_peak()
        self.poller = select.poll()
        self.poller.register(self.inbox, select.POLLIN)
        self.poller.register(self.tickets, select.POLLIN)

    # -- the loop ------------------------------------------------------------------------------------------------

    def loop(self) -> NoReturn:
        """The life of a worker."""
        import gc

        gc.collect()
        gc.freeze()  # what the boot made lives as long as the process; no collection need look at it
        self.baseline = Baseline()
        self.report(HELLO, 0, 0, 0, monotonic_ns(), 0, self._peak_now(), self.inherited_peak)
        local, read, tickets = self.local, os.read, self.tickets
        while True:
            if not local:
                self.read_inbox()
                continue
            due = local[0][0][DUE]
            if due and (wait := due - monotonic_ns()) > 0:
                # As exact as a sleep, and a message still wakes it. The due time is on the parent's monotonic clock,
                # which is this machine's.
                if select.select([self.inbox], [], [], min(wait, _LONGEST_SLEEP) / 1e9)[0]:
                    self.read_inbox()
                continue
            started = monotonic_ns()  # before the ticket: by the records, a run too late to cancel had begun before
            try:
                ticket = int.from_bytes(read(tickets, TICKET_SIZE), sys.byteorder)
            except BlockingIOError:
                self.await_ticket()
                continue
            self.skip_to(ticket)
            self.execute(*local.popleft(), started)

    def await_ticket(self) -> None:
        """Orders without tickets: the parent took them back, or is about to write some back. Drop nothing."""
        for fd, event in self.poller.poll():
            if event & select.POLLNVAL:
                raise OSError("a run closed the worker's own descriptors")
            if fd == self.inbox:
                self.read_inbox()

    def skip_to(self, ticket: int) -> None:
        """Older orders were withdrawn; the claimed one may still be on its way, since tickets go first."""
        local = self.local
        while True:
            while local and local[0][0][TICKET] != ticket:
                local.popleft()
            if local:
                return
            self.read_inbox()

    # -- the inbox -----------------------------------------------------------------------------------------------

    def read_inbox(self) -> None:
        """Wait for at least one read, take in every whole message."""
        if self.chatter.backlog:
            self._flush_chatter_while_waiting()
        data = os.read(self.inbox, 1 << 16)
        if not data:
            os._exit(0)  # the parent has closed it
        buffer = self.buffer
        buffer += data
        start = 0
        while len(buffer) - start >= MESSAGE_HEAD.size:
            end = start + MESSAGE_HEAD.size + MESSAGE_HEAD.unpack_from(buffer, start)[0]
            if len(buffer) < end:
                break
            message = loads(bytes(memoryview(buffer)[start + MESSAGE_HEAD.size : end]))
            start = end
            self.take_message(message)
        del buffer[:start]

    def take_message(self, message: tuple[Any, ...]) -> None:
        """One message of the parent."""
        kind = message[0]
        if kind == ORDERS:
            _, forgotten, functions, orders = message
            table = self.functions
            for key in forgotten:
                table.pop(key, None)
            for key, by_reference, name, job_id, source, body in functions:
                table[key] = LocalFunction(by_reference, name, job_id, source, self._fetch(body))
            for order in orders:
                if type(order[ARGS]) is not bytes:
                    order = (*order[:ARGS], self._fetch(order[ARGS]))
                self.local.append((order, table[order[1]]))
        elif kind == VOID:
            gone = set(message[1])
            kept = [entry for entry in self.local if entry[0][TICKET] not in gone]
            self.local.clear()
            self.local.extend(kept)
            self.report(VOIDED, 0, 0, 0, 0, 0, 0, 0)
        elif kind == RETIRE:
            self.retire()

    def _fetch(self, body: bytes | int) -> bytes | Spooled:
        if isinstance(body, bytes):
            return body
        return Spooled.adopt(take_file(self._passage()), body)

    def _passage(self) -> Passage:
        if self.passage is None:
            import _socket

            self.passage = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, self.passage_fd)
        return self.passage

    def _flush_chatter_while_waiting(self) -> None:
        poller = select.poll()
        poller.register(self.inbox, select.POLLIN)
        while self.chatter.backlog:
            self.chatter.flush()
            if not self.chatter.backlog:
                return
            poller.register(self.chatter.fileno(), select.POLLOUT)
            if any(fd == self.inbox for fd, _ in poller.poll()):
                return

    # -- a run ---------------------------------------------------------------------------------------------------

    def execute(self, order: Order, function: LocalFunction, started: int) -> None:
        """Call it and report it. What it raises, and what its value or exception does when pickled, is its failure."""
        ticket, _, _, flags, number, attempt, planned, timeout, args = order
        del order
        if flags & REPORT_START:
            self.report(STARTED, 0, ticket, started, 0, 0, 0, 0)
        job_id = function.job_id or f"{function.name}-{number}"
        context._run = context.CurrentRun(
            job_id, number, attempt, planned, timeout, started, self.should_stop, self.chatter.progress, ticket
        )
        value = error = None
        cpu_time = process_time_ns()
        try:
            call = function.callable or function.load()
            if args:
                positional, keywords = decode(args)  # type: ignore[arg-type]
                args = b""  # a spooled one is unmapped once nothing stands on it
                value = call(*positional, **keywords)
                positional = keywords = None
            else:
                value = call()
        except BaseException as raised:
            error = raised
        finished = monotonic_ns()
        cpu_time = process_time_ns() - cpu_time
        if os.getpid() != self.pid:
            _end_copy(error)
        call = positional = keywords = None
        args = b""
        body: bytes | Spooled = b""
        size = 0
        outcome = SUCCESS
        if error is None:
            if value is not None and flags & WANT_VALUE:
                outcome, body, size = self._packed(value)
            value = None
        else:
            outcome, body = 0, self._failure(error)
            error = None
        if finished - started >= LONG_RUN or not self.peak:
            self.peak = self._peak_now()
            if self.max_memory is not None and _unique_memory(self.max_memory) > self.max_memory:
                outcome |= OVER_MEMORY
        context._run = None
        self.baseline.flush()
        self.baseline.restore(finished - started >= LONG_RUN)
        if self.chatter.backlog:
            self.chatter.flush()
        self.report(ENDED, outcome, ticket, started, finished, cpu_time, self.peak, size, body)

    def _packed(self, value: object) -> tuple[int, bytes | Spooled, int]:
        """``(outcome flag, body, size)`` of a value: pickle, or cloudpickle for what has no importable home."""
        try:
            try:
                packed = encode(value, dumps)
            except (RecursionError, MemoryError):
                raise
            except Exception:
                import cloudpickle

                packed = encode(value, cloudpickle.dumps)
            if isinstance(packed, bytes):
                return SUCCESS, packed, len(packed)
            body = Spooled.store(packed, in_memory=False)
            return SUCCESS, body, body.size
        except BaseException as reason:
            from procsched import failing

            plain = failing.unsendable(f"{type(value).__module__}.{type(value).__qualname__}", reason)
            failing.clear(reason)
            return 0, self._stored(plain), 0

    def _failure(self, error: BaseException) -> bytes | Spooled:
        try:
            from procsched import failing

            plain = failing.describe(error)
            failing.clear(error)
        except BaseException as reason:  # memory is gone: names only
            plain = (type(error).__name__, "", f"(no traceback: {type(reason).__name__} while it was made)\n", None)
        return self._stored(plain)

    def _stored(self, plain: tuple[str, str, str, bytes | None]) -> bytes | Spooled:
        try:
            packed = encode(plain, dumps)
            return packed if isinstance(packed, bytes) else Spooled.store(packed, in_memory=False)
        except (OSError, MemoryError):  # no room for a long one: its beginning
            type_name, message, traceback, _ = plain
            return dumps((type_name, message[:1000], traceback[-4000:], None), 5)

    def should_stop(self, ticket: int) -> bool:
        """What the parent wrote on the board."""
        try:
            asked, everyone = BOARD.unpack(os.pread(self.board, BOARD.size, 0))
        except OSError:
            return False
        return bool(everyone) or asked == ticket

    # -- reports -------------------------------------------------------------------------------------------------

    def report(
        self,
        kind: int,
        flags: int,
        ticket: int,
        started: int,
        finished: int,
        cpu_time: int,
        peak: int,
        size: int,
        body: bytes | Spooled = b"",
    ) -> None:
        """One write. A body in a file goes ahead through the passage."""
        if os.getpid() != self.pid:  # pickling a value may fork, too
            os._exit(0)
        if not isinstance(body, bytes):
            fd = body.lend()
            pass_file(self._passage(), fd)
            os.close(fd)
            body.close()
            body, flags = b"", flags | SPOOLED
            size = size or 1
        frame = REPORT.pack(len(body), REPORT_MAGIC, kind, flags, ticket, started, finished, cpu_time, peak, size)
        if body:
            frame += body
        written = os.write(self.outbox, frame)
        while written < len(frame):
            written += os.write(self.outbox, frame[written:])

    def give_up(self, error: BaseException) -> NoReturn:
        """The boot failed: tell why, in text, and go."""
        from procsched import failing

        _, _, traceback, _ = failing.describe(error)
        text = traceback.encode("utf-8", "backslashreplace")
        if len(text) >= INLINE_LIMIT:
            text = text[: INLINE_LIMIT // 2] + b"\n...\n" + text[-INLINE_LIMIT // 3 :]
        self.chatter.flush()
        self.report(BOOT_FAILED, 0, 0, 0, 0, 0, 0, 0, text)
        os._exit(1)

    def retire(self) -> NoReturn:
        """A polite end: the exit hooks get their chance; the parent ends the group when they take too long."""
        import atexit

        try:
            atexit._run_exitfuncs()
        except BaseException:
            pass
        self.chatter.flush()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        os._exit(0)

    def _peak_now(self) -> int:
        peak = getrusage(RUSAGE_SELF).ru_maxrss * _KIBI
        if peak <= self.inherited_peak:
            peak = _high_water() or peak
        return peak


def _inherited_peak() -> int:
    """What ru_maxrss says before we did anything.

    Linux carries it over an exec from the memory of the forking process, here the parent, which may be far larger.
    """
    peak = getrusage(RUSAGE_SELF).ru_maxrss * _KIBI
    own = _high_water()
    return peak if own and peak > own + (4 << 20) else 0


def _high_water() -> int:
    """VmHWM of /proc/self/status in bytes, 0 where there is none."""
    try:
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 0


def _unique_memory(limit: int) -> int:
    """Bytes that would be free if this process ended (USS). The resident size, cheaper, where that is below the limit."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        if resident <= limit:
            return int(resident)
        total = 0
        with open("/proc/self/smaps_rollup", "rb") as rollup:
            for line in rollup:
                if line.startswith((b"Private_Clean:", b"Private_Dirty:")):
                    total += int(line.split()[1]) * 1024
        return total
    except (OSError, ValueError, IndexError):
        import psutil

        return int(psutil.Process().memory_full_info().uss)


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


def _prepare_late_imports(boot: dict[str, Any], chatter: Chatter) -> None:
    def logging_came(_: Any) -> None:
        from procsched.logship import install

        install(chatter, boot["log_levels"])

    def processes_came(module: Any) -> None:  # so that a Manager's proxies among the arguments can connect
        module.current_process()._config["authkey"] = module.AuthenticationString(boot["authkey"])

    def tracker_came(module: Any) -> None:  # or this worker's own would unlink the parent's shared memory at its end
        if boot["tracker"] >= 0:
            module._resource_tracker._fd = boot["tracker"]

    AfterImport(
        {
            "logging": logging_came,
            "multiprocessing.process": processes_came,
            "multiprocessing.resource_tracker": tracker_came,
        }
    ).install()


def _enable_faulthandler(board: int, stack_signal: int) -> None:
    import faulthandler

    try:
        faulthandler.enable(board, all_threads=True)
        if stack_signal and stack_signal != SIGTERM:
            faulthandler.register(stack_signal, board, all_threads=True, chain=False)
    except (AttributeError, OSError, RuntimeError, ValueError):  # a crash then leaves no stack, and is a crash still
        pass


def _sharpen_sleep() -> None:
    """Let this thread's sleeps end within 1 µs of their time instead of the default 50; what it starts inherits it."""
    try:
        with open("/proc/self/timerslack_ns", "w") as slack:
            slack.write("1000")
    except OSError:
        pass
