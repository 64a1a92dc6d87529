"""Real workers without a scheduler: a pool, and a few verbs to drive it as the dispatcher would."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import cloudpickle
import pytest

from procsched.core.model import Outcome
from procsched.pool.api import Died, Ended, PoolSettings, Up
from procsched.pool.process_pool import ProcessPool
from procsched.wire import REPORT_START, WANT_VALUE, Function

BOUND = 20.0  # seconds; what takes longer hangs
E = TypeVar("E")


class Driver:
    """One pool, its events so far, and its tickets."""

    def __init__(self) -> None:
        self.pool = ProcessPool()
        self.events: list[Any] = []
        self.heard: list[Any] = []
        self._jobs: dict[int, str] = {}
        self.ticket = 0
        self.pids: dict[int, int] = {}

    def open(self, workers: int = 1, *, up: bool = True, **settings: Any) -> Driver:
        """Open it and wait until all workers are up."""
        self.pool.open(PoolSettings(workers=workers, **settings), self.heard.append)
        for slot in range(workers):
            self.pool.spawn(slot)
        for slot in range(workers if up else 0):
            self.pids[slot] = self.until(Up, slot=slot).pid
        return self

    def until(self, kind: type[E], **fields: Any) -> E:
        """The next event of this kind and with these fields, which is then forgotten; the others are kept."""
        deadline = time.monotonic() + BOUND
        while True:
            for event in self.events:
                if type(event) is kind and all(getattr(event, name) == value for name, value in fields.items()):
                    self.events.remove(event)
                    return event
            rest = deadline - time.monotonic()
            assert rest > 0, f"no {kind.__name__} {fields}; there were {self.events}"
            self.events += self.pool.poll(min(rest, 1.0))
            self.pool.check_valid()

    def nothing(self, kind: type[Any], seconds: float = 0.05) -> None:
        """No such event comes now."""
        self.events += self.pool.poll(seconds)
        assert not [event for event in self.events if type(event) is kind], self.events

    def orders(
        self, function: Function, count: int = 1, *args: Any, due: int = 0, flags: int = WANT_VALUE
    ) -> list[Any]:
        """Orders with fresh tickets."""
        packed = cloudpickle.dumps((args, {})) if args else b""
        first, self.ticket = self.ticket + 1, self.ticket + count
        job = self._jobs.get(function.key, "")
        numbers = range(first, first + count)
        return [(number, function.key, due, flags, number, 1, 0, 0, job, packed) for number in numbers]

    def start(self, fn: Callable[..., Any] | Function, *args: Any, slot: int = 0, due: int = 0, flags: int = 0) -> int:
        """Offer one run that reports its start; its ticket."""
        function = fn if isinstance(fn, Function) else by_value(fn)
        [order] = self.orders(function, 1, *args, due=due, flags=flags or WANT_VALUE | REPORT_START)
        self.pool.offer(slot, [order], [function])
        return int(order[0])

    def run(self, fn: Callable[..., Any] | Function, *args: Any, slot: int = 0) -> Ended:
        """One run and its end."""
        return self.until(Ended, ticket=self.start(fn, *args, slot=slot))

    def value(self, fn: Callable[..., Any] | Function, *args: Any, slot: int = 0) -> Any:
        """One run and its value."""
        ended = self.run(fn, *args, slot=slot)
        assert ended.success, self.pool.decode(Outcome.FAILED, ended.body)
        return self.pool.decode(Outcome.SUCCEEDED, ended.body)

    def error(self, fn: Callable[..., Any] | Function, *args: Any, slot: int = 0) -> Any:
        """One run and its exception."""
        ended = self.run(fn, *args, slot=slot)
        assert not ended.success
        return self.pool.decode(Outcome.FAILED, ended.body)

    def crash(self, fn: Callable[..., Any], *args: Any) -> Died:
        """One run and the death it brings."""
        self.start(fn, *args)
        return self.until(Died)

    def kept(self, fn: Callable[..., Any]) -> Function:
        """By value in fact, declared as by reference: decoded once and kept."""
        return by_value(fn, by_reference=True)

    def named(self, fn: Callable[..., Any], job_id: str) -> Function:
        """By value, of a job."""
        function = by_value(fn)
        self._jobs[function.key] = job_id
        return function

    def expression(self, text: str) -> Function:
        """A function from source text: no code is shipped, so that not even cloudpickle is imported there."""
        return Function(pickle.dumps(_Evaluated(text)), True, "expression")

    def eventually(self, look: Callable[[], Any]) -> Any:
        """Look until it is true."""
        return eventually(look)

    def gone(self, *pids: int) -> None:
        """Wait until none of them lives."""
        eventually(lambda: not [pid for pid in pids if alive(pid)])

    def alive(self, pid: int) -> bool:
        """Whether it lives, corpses aside."""
        return alive(pid)

    def heard_until(self, predicate: Callable[[Any], bool]) -> Any:
        """The first message of the chatter that satisfies it."""
        return eventually(lambda: next((message for message in self.heard if predicate(message)), None))


class _Evaluated:
    def __init__(self, text: str) -> None:
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, (self.text,)


def by_value(fn: Callable[..., Any], *, by_reference: bool = False) -> Function:
    """Ship it with its code: workers don't import test modules."""
    module = sys.modules.get(fn.__module__)
    name = getattr(fn, "__name__", type(fn).__name__)
    if module is None or not module.__name__.startswith(("test", "tests", "conftest")):
        return Function(pickle.dumps(fn), True, name)
    cloudpickle.register_pickle_by_value(module)
    try:
        return Function(cloudpickle.dumps(fn), by_reference, name)
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def eventually(look: Callable[[], Any], bound: float = BOUND) -> Any:
    """Look until it is true."""
    deadline = time.monotonic() + bound
    while not (seen := look()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.002)
    return seen


def alive(pid: int) -> bool:
    """Whether there is such a process, not counting corpses."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rsplit(b")", 1)[1].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


class Latch:
    """Holds a run in a worker until the test opens it: a named pipe, so that it can be an argument."""

    def __init__(self, path: str) -> None:
        self.path = path
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR)

    def open(self) -> None:
        """Let one run go."""
        os.write(self._fd, b"x")

    def close(self) -> None:
        """Let all go."""
        os.close(self._fd)


@pytest.fixture
def driver() -> Iterator[Driver]:
    """Not opened yet; closed afterwards."""
    made = Driver()
    yield made
    made.pool.close(10)
    made.pool.close(1)  # idempotent
    made.pool.wake()  # and harmless afterwards


@pytest.fixture
def latch(tmp_path: Any) -> Iterator[Latch]:
    """Closed; the run waits with ``hold(latch.path)``."""
    made = Latch(str(tmp_path / "latch"))
    yield made
    with contextlib.suppress(OSError):
        made.close()
