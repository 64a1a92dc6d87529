"""The stages and programs of the neighbouring folders under one roof, and a probe that feels what holds others up.

Their conftests are loaded by path: pytest offers a folder's fixtures to that folder only.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from procsched import FixedDelay, Job, Outcome, ProcessScheduler


def _neighbour(folder: str) -> ModuleType:
    path = Path(__file__).parents[1] / folder / "conftest.py"
    spec = importlib.util.spec_from_file_location(f"fixtures_of_{folder}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_library, _cli = _neighbour("library"), _neighbour("cli")

# Schedulers, held by latches
stage, one, two, make, eventually = (getattr(_library, n) for n in ("stage", "one", "two", "make", "eventually"))
program = _library.program
# The command line
start, run, write, latch = (getattr(_cli, n) for n in ("start", "run", "write", "latch"))

_NUMBERS = itertools.count()


class Probe:
    """A job that does nothing, again and again: it must go on whatever happens beside it."""

    LONGEST_GAP = 1.0  # seconds between two starts, beyond its delay and what the machine did to a thread that sleeps

    def __init__(self, scheduler: ProcessScheduler) -> None:
        self.job: Job = scheduler.schedule(abs, FixedDelay("50ms"), args=(1,), id="probe")
        self._over = threading.Event()
        self._machine = 0.0
        self._thread = threading.Thread(target=self._feel_the_machine)
        self._thread.start()

    def _feel_the_machine(self) -> None:
        before = time.monotonic()
        while not self._over.wait(0.01):
            now = time.monotonic()
            self._machine, before = max(self._machine, now - before), now

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        """It ran, always well, and was never held up."""
        self.stop()
        records = [record for record in self.job.history if record.outcome is not Outcome.CANCELLED]
        assert records and {record.outcome for record in records} == {Outcome.SUCCEEDED}
        starts = [record.started.timestamp() for record in records if record.started is not None]
        gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
        crowd = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # others share the cores
        assert max(gaps, default=0) < self.LONGEST_GAP * crowd + 0.05 + self._machine, gaps


@pytest.fixture
def probe() -> Iterator[Callable[[ProcessScheduler], Probe]]:
    """Begin to feel: ``felt = probe(scheduler)`` … ``felt.check()``."""
    made: list[Probe] = []

    def begin(scheduler: ProcessScheduler) -> Probe:
        made.append(Probe(scheduler))
        return made[-1]

    yield begin
    for begun in made:
        begun.stop()


@pytest.fixture
def asleep(eventually: Any) -> Callable[[ProcessScheduler], None]:
    """Wait until the loop makes no turn for a fifth of a second."""

    def check(scheduler: ProcessScheduler) -> None:
        def stands_still() -> bool:
            turn = scheduler._engine.dispatcher.last_turn
            time.sleep(0.2)
            return scheduler._engine.dispatcher.last_turn == turn

        eventually(stands_still, 5)

    return check


@pytest.fixture
def account() -> Callable[[ProcessScheduler], None]:
    """Every run that started has ended, once, or executes."""

    def check(scheduler: ProcessScheduler) -> None:
        stats = scheduler.stats()
        ends = stats.succeeded + stats.failed + stats.crashed + stats.timed_out + stats.aborted
        assert stats.ended == ends and stats.started == stats.ended + stats.executing, stats

    return check


@pytest.fixture
def up(eventually: Any) -> Callable[[ProcessScheduler], list[int]]:
    """Wait until every slot has a worker that is ready; their pids."""

    def wait(scheduler: ProcessScheduler) -> list[int]:
        scheduler.submit(abs, 1).result(30)  # they start with the first piece of work
        slots = len(scheduler.workers())
        eventually(lambda: scheduler.health().workers_up == slots)
        pids = [worker.pid for worker in scheduler.workers()]
        assert all(pid is not None for pid in pids)
        return [pid for pid in pids if pid is not None]

    return wait


@pytest.fixture
def marked() -> Iterator[tuple[dict[str, str], Callable[[], set[int]]]]:
    """A variable for a program's environment, and the living processes that carry it: it and all that it started."""
    mark = f"PROCSCHED_FIELD_{os.getpid()}_{next(_NUMBERS)}=1"

    def alive() -> set[int]:
        found = set()
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if mark.encode() in Path(f"/proc/{name}/environ").read_bytes():
                    found.add(int(name))
            except OSError:  # gone meanwhile, or somebody else's
                continue
        return found

    yield {mark.partition("=")[0]: "1"}, alive
    for pid in alive():
        os.kill(pid, 9)
