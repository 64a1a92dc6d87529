"""Take an order, claim it, have it run: the worker's loop. Runs in the child.

::

    inbox ──► local orders ──► sleep until due ──► claim a ticket ──► decode ──► call ──► report
              (dropped by VOID,                    (none left: the    (after the claim, so that what a payload
              or by a newer ticket)                parent has it)     breaks is charged to its run)

Laws: a run is executed only after its ticket was read here, and is reported once. An own descriptor that fails means
that the parent has gone or a run closed it: the process ends, and the parent knows what was claimed and not reported.
"""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from time import monotonic_ns, process_time_ns

from procsched import context
from procsched.wire import (
    BOOT_FAILED,
    DUE,
    FUNCTION,
    HELLO,
    INLINE_LIMIT,
    MESSAGE_HEAD,
    ORDERS,
    RETIRE,
    TICKET,
    TICKET_SIZE,
    VOID,
    VOIDED,
    loads,
    unpack_orders,
)
from procsched.worker.chatter import AfterImport, Chatter
from procsched.worker.memory import PeakMemory
from procsched.worker.outbox import Outbox
from procsched.worker.runner import LocalFunction, Runner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from procsched.spool import Spooled
    from procsched.wire import Order

__all__ = ["serve"]

_LONGEST_SLEEP = 3_000_000_000
_READ = 1 << 16


def serve(boot: dict[str, Any], descriptors: dict[str, int]) -> NoReturn:
    """Get ready, say hello, work until told to go."""
    context.become_worker()
    memory = PeakMemory()
    chatter = Chatter(descriptors["chatter"])
    outbox = Outbox(descriptors["outbox"], descriptors["passage"])
    _prepare_late_imports(boot, chatter)
    _enable_faulthandler(descriptors["board"], boot["stack_signal"])
    _sharpen_sleep()
    if os.environ.get("PROCSCHED_PREFIX_OUTPUT", "0") not in ("", "0"):
        from procsched.worker import prefix

        prefix.install()
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
        _give_up(error, outbox, chatter)
    runner = Runner(outbox, chatter, descriptors["board"], boot["max_memory"], memory)  # what it finds is the baseline
    worker = Worker(descriptors["inbox"], descriptors["tickets"], outbox, chatter)
    import gc

    gc.collect()
    gc.freeze()  # what the boot made lives as long as the process; no collection need look at it
    outbox.report(HELLO, started=monotonic_ns(), peak=memory.now(), size=memory.inherited)
    worker.loop(runner)


class Worker:
    """Orders that came, until their tickets are claimed. Law: they stay in the order in which they were offered."""

    def __init__(self, inbox: int, tickets: int, outbox: Outbox, chatter: Chatter) -> None:
        self._inbox = inbox
        self._tickets = tickets
        self._outbox = outbox
        self._chatter = chatter
        self._buffer = bytearray()
        self._functions: dict[int, LocalFunction] = {}
        self._local: deque[tuple[Order, LocalFunction]] = deque()
        self._poller = select.poll()
        self._poller.register(inbox, select.POLLIN)
        self._poller.register(tickets, select.POLLIN)

    def loop(self, runner: Runner) -> NoReturn:
        """The life of a worker."""
        local, read, tickets, now, execute = self._local, os.read, self._tickets, monotonic_ns, runner.execute
        while True:
            if not local:
                self._read_inbox()
                runner.cpu = process_time_ns()
                continue
            due = local[0][0][DUE]
            if due and (wait := due - now()) > 0:
                # As exact as a sleep, and a message still wakes it. The due time is on the parent's monotonic clock,
                # which is this machine's.
                if select.select([self._inbox], [], [], min(wait, _LONGEST_SLEEP) / 1e9)[0]:
                    self._read_inbox()
                runner.cpu = process_time_ns()
                continue
            started = now()  # before the ticket: by the records, a run too late to cancel had begun before
            try:
                ticket = int.from_bytes(read(tickets, TICKET_SIZE), sys.byteorder, signed=True)
            except BlockingIOError:
                self._await_ticket()
                continue
            if local[0][0][TICKET] != ticket:
                self._skip_to(ticket)
            execute(*local.popleft(), started)

    def _await_ticket(self) -> None:
        """Orders without tickets: the parent took them back, or is about to write some back. Drop nothing."""
        for fd, event in self._poller.poll():
            if event & select.POLLNVAL:
                raise OSError("a run closed the worker's own descriptors")
            if fd == self._inbox:
                self._read_inbox()

    def _skip_to(self, ticket: int) -> None:
        """Older orders were withdrawn; the claimed one may still be on its way, since tickets go first."""
        local = self._local
        while True:
            while local and local[0][0][TICKET] != ticket:
                local.popleft()
            if local:
                return
            self._read_inbox()

    def _read_inbox(self) -> None:
        """Wait for at least one read, take in every whole message."""
        if self._chatter.backlog:
            self._say_the_rest()
        data = os.read(self._inbox, _READ)
        if not data:
            os._exit(0)  # the parent has closed it
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= MESSAGE_HEAD.size:
            end = start + MESSAGE_HEAD.size + MESSAGE_HEAD.unpack_from(buffer, start)[0]
            if len(buffer) < end:
                break
            message = loads(bytes(memoryview(buffer)[start + MESSAGE_HEAD.size : end]))
            start = end
            self._take(message)
        del buffer[:start]

    def _take(self, message: tuple[Any, ...]) -> None:
        kind = message[0]
        if kind == ORDERS:
            _, forgotten, functions, numbers, jobs, args = message
            table = self._functions
            for key in forgotten:
                table.pop(key, None)
            for key, by_reference, name, source, body in functions:
                table[key] = LocalFunction(by_reference, name, source, self._whole(body))
            if args is not None:
                args = [self._whole(body) for body in args]
            self._local.extend([(order, table[order[FUNCTION]]) for order in unpack_orders(numbers, jobs, args)])
        elif kind == VOID:
            gone = set(message[1])
            kept = [entry for entry in self._local if entry[0][TICKET] not in gone]
            self._local.clear()
            self._local.extend(kept)
            self._outbox.report(VOIDED)
        elif kind == RETIRE:
            self._retire()

    def _whole(self, body: bytes | int) -> bytes | Spooled:
        return body if isinstance(body, bytes) else self._outbox.fetch(body)

    def _say_the_rest(self) -> None:
        """Log records that found the pipe full, while there is nothing else to do."""
        poller = select.poll()
        poller.register(self._inbox, select.POLLIN)
        poller.register(self._chatter.fileno(), select.POLLOUT)
        while self._chatter.backlog:
            if any(fd == self._inbox for fd, _ in poller.poll()):
                return
            self._chatter.flush()

    def _retire(self) -> NoReturn:
        """A polite end: the exit hooks get their chance; the parent ends the group when they take too long."""
        import atexit

        try:
            atexit._run_exitfuncs()
        except BaseException:
            pass
        self._chatter.flush()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        os._exit(0)


def _give_up(error: BaseException, outbox: Outbox, chatter: Chatter) -> NoReturn:
    """The boot failed: tell why, in text, and go."""
    from procsched.worker import failing

    text = failing.describe(error)[2].encode("utf-8", "backslashreplace")
    if len(text) >= INLINE_LIMIT:
        text = text[: INLINE_LIMIT // 2] + b"\n...\n" + text[-INLINE_LIMIT // 3 :]
    chatter.flush()
    outbox.report(BOOT_FAILED, body=text)
    os._exit(1)


def _prepare_late_imports(boot: dict[str, Any], chatter: Chatter) -> None:
    def logging_came(_: Any) -> None:
        from procsched.worker.logship import install

        install(chatter, boot["log_levels"])

    def processes_came(module: Any) -> None:  # so that a Manager's proxies among the arguments can connect
        module.current_process().authkey = boot["authkey"]

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
