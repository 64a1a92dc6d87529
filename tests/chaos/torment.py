"""Everything at once: workers killed and stopped, runs that end badly, callers that change their minds. In the parent.

Each deed is a thread that does it again and again, at random, until `over` is set. All that it did is written down for
the oracle.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from misdeeds import KINDS, act, ready
from oracle import Case, Told

from procsched import (
    FixedDelay,
    FixedRate,
    JobLookupError,
    ProcessScheduler,
    Retry,
    RunEnded,
    RunRetrying,
    SchedulerClosed,
)

__all__ = ["Ordeal", "offset"]

CALL_KINDS = [kind for kind in KINDS if kind != "hang"]
JOB_KINDS = [*KINDS, *["hang"] * 6]
LIMIT = 300_000_000


def offset() -> int:
    """Wall clock minus monotonic clock, ns, as exact as one can ask in Python."""
    best, found = 1 << 62, 0
    for _ in range(5):
        before = time.monotonic_ns()
        wall = time.time_ns()
        took = time.monotonic_ns() - before
        if took < best:
            best, found = took, wall - before
    return found


class Ordeal:
    """A scheduler and those who torment it. Its ``case`` is what they saw and did."""

    def __init__(self, path: str, workers: int, seed: int) -> None:
        self.path = path
        self.seed = seed
        self.case = Case()
        self.waiting: dict[Future[Any], str] = {}
        """Futures that aren't done; those of jobs without a name: nobody knows beforehand which run they are of."""
        self.errors: list[BaseException] = []
        self.signals: Counter[str] = Counter()
        self.deeds: Counter[str] = Counter()
        self.over = threading.Event()
        self._records: list[tuple[Any, int, bool]] = []
        self._names = itertools.count()
        self._generations: dict[int, str] = {}
        self._owners: dict[str, tuple[str, Any]] = {}
        self._naming = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._stopped: set[int] = set()
        self.scheduler = ProcessScheduler(workers, initializer=ready)
        self.scheduler.subscribe(self._note, RunEnded, RunRetrying)

    def _note(self, event: Any) -> None:
        self._records.append((event.record, offset(), isinstance(event, RunEnded)))

    def _follow(self, future: Future[Any], name: str = "") -> None:
        self.waiting[future] = name
        if name:
            self.case.answers[name] = ("error", "nothing, ever")
        future.add_done_callback(self._answered)

    def _answered(self, future: Future[Any]) -> None:
        """Of a large value only what it is of is kept."""
        name = self.waiting.pop(future, "")  # calls of run_now() may share one
        if future.cancelled():
            answer: tuple[str, object] = ("cancelled", None)
        elif (error := future.exception()) is not None:
            answer = ("error", type(error).__name__)
        else:
            answer = ("value", future.result()[:3])
        if name:
            self.case.answers[name] = answer

    # -- threads --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Let them loose."""
        deeds: list[tuple[Callable[[random.Random], object], float]] = [
            (self._kill, 0.2),
            (self._stop, 0.1),
            (self._schedule, 0.15),
            (self._schedule, 0.15),
            (self._change, 0.02),
            (self._change, 0.02),
            (self._call, 0.02),
            (self._call, 0.02),
            (self._burst, 0.3),
            (self._ask, 0.05),
        ]
        for number, (deed, pause) in enumerate(deeds):
            rng = random.Random(self.seed * 100 + number)
            thread = threading.Thread(target=self._repeat, args=(deed, pause, rng), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _repeat(self, deed: Callable[[random.Random], object], pause: float, rng: random.Random) -> None:
        steady = deed == self._kill
        while not self.over.wait(pause if steady else rng.uniform(0, 2 * pause)):
            try:
                deed(rng)
                self.deeds[deed.__name__] += 1
            except (JobLookupError, SchedulerClosed):
                pass
            except BaseException as error:
                self.errors.append(error)

    def end(self, timeout: float) -> None:
        """Call them back, shut down, and complete the case."""
        self.over.set()
        deadline = time.monotonic() + 30
        for thread in self._threads:
            thread.join(max(0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            self.errors.append(AssertionError("somebody was never answered"))
        self.case.abort_from = time.monotonic_ns() + int(timeout * 1e9)
        self.scheduler.shutdown(timeout=timeout)
        stats = self.scheduler.stats()
        names = ("succeeded", "failed", "crashed", "timed_out", "aborted", "skipped", "cancelled")
        self.case.counts = {name.upper(): getattr(stats, name) for name in names}
        assert stats.executing == 0
        assert stats.started == stats.ended
        for record, clocks, final in self._records:
            self.case.told.append(self._told(record, clocks, final))
        deadline = time.monotonic() + 10
        while self.waiting and time.monotonic() < deadline:
            time.sleep(0.01)

    def _told(self, record: Any, clocks: int, final: bool) -> Told:
        def monotonic(moment: Any) -> int:
            seconds, micro = divmod(moment.timestamp() * 1_000_000, 1_000_000)
            return int(seconds) * 1_000_000_000 + round(micro) * 1000 - clocks

        error = record.error
        return Told(
            self._generations[record.generation] if record.generation else None,
            record.number,
            record.generation,
            record.attempt,
            record.outcome.name,
            monotonic(record.started) if record.started is not None else 0,
            monotonic(record.finished),
            record.pid or 0,
            error.signal if error is not None else None,
            error.exitcode if error is not None else None,
            final,
        )

    # -- signals --------------------------------------------------------------------------------------------------

    def _signal(self, rng: random.Random, number: int) -> int:
        pids = list(self.scheduler._engine.pool.pids().values())  # booting ones too
        pid = rng.choice(pids) if pids else 0
        if pid:
            if number == signal.SIGKILL:
                self.case.killed.add(pid)
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                return 0
            self.signals[signal.Signals(number).name] += 1
        return pid

    def _kill(self, rng: random.Random) -> None:
        self._signal(rng, signal.SIGKILL)

    def _stop(self, rng: random.Random) -> None:
        pid = self._signal(rng, signal.SIGSTOP)
        time.sleep(rng.uniform(0, 0.2))
        if pid:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass

    # -- callers --------------------------------------------------------------------------------------------------

    def _name(self) -> str:
        return f"n{next(self._names)}"

    def _schedule(self, rng: random.Random) -> None:
        kind, name, key = rng.choice(JOB_KINDS), self._name(), f"job{rng.randrange(12)}"
        instances = 1 if int(key[3:]) % 3 else 2
        when = rng.choice((FixedRate(0.05), FixedRate(0.01), FixedDelay(0.05) if instances == 1 else FixedRate(0.1)))
        limit = LIMIT if kind == "hang" or rng.random() < 0.3 else None
        grace = rng.choice((None, None, 0.05))
        with self._naming:
            if limit is not None:
                self.case.timeouts[name] = limit
            self.case.ids[name] = (key, instances)
            replaced = self._owners.get(key)
            job = self.scheduler.schedule(
                act,
                when,
                args=(self.path, name, kind),
                id=key,
                replace_existing=True,
                timeout=None if limit is None else limit / 1e9,
                retry=rng.choice((None, Retry(3, backoff="20ms"))),
                max_instances=instances,
                misfire_grace_time=grace,
            )
            self._owners[key] = (name, job)
            self._generations[job.generation] = name
            if replaced is not None:
                self.case.cancels.append((replaced[0], time.monotonic_ns()))
        self._follow(job.next_future())

    def _change(self, rng: random.Random) -> None:
        with self._naming:
            if not self._owners:
                return
            key = rng.choice(sorted(self._owners))
            name, job = self._owners[key]
            deed = rng.randrange(7)
            if deed == 4:
                job.reschedule(FixedRate(0.03))
                self._generations[job.generation] = name
                return
        if deed == 0:
            job.cancel()
            self.case.cancels.append((name, time.monotonic_ns()))
        elif deed == 1:
            job.pause()
        elif deed in (2, 6):
            job.resume()
        elif deed == 3:
            self._follow(job.next_future())
        elif deed == 5:
            future = job.run_now()
            self._follow(future)
            if rng.random() < 0.3:
                future.cancel()

    def _call(self, rng: random.Random, kinds: list[str] = CALL_KINDS) -> None:
        name, kind = self._name(), rng.choice(kinds)
        burden = b"b" * rng.choice((0, 0, 0, 100, 100_000, 2_000_000))
        if rng.random() < 0.5:
            future = self.scheduler.submit(act, self.path, name, kind, burden)
        else:
            future = self.scheduler.submit_after(rng.uniform(0, 0.2), act, self.path, name, kind, burden)
        self._follow(future, name)
        if rng.random() < 0.3:
            time.sleep(rng.uniform(0, 0.01))
            self._cancel(name, future)

    def _cancel(self, name: str, future: Future[Any]) -> None:
        if future.cancel():
            self.case.prevented.add(name)

    def _burst(self, rng: random.Random) -> None:
        """Many short ones at once, so that they go in batches, and some of them are taken back."""
        made = []
        for _ in range(100):
            name = self._name()
            future = self.scheduler.submit(act, self.path, name, "value")
            self._follow(future, name)
            made.append((name, future))
        for name, future in rng.sample(made, 30):
            self._cancel(name, future)
        for _ in range(30):  # and single ones, cancelled at about the moment of their claim
            name = self._name()
            future = self.scheduler.submit(act, self.path, name, "value")
            self._follow(future, name)
            time.sleep(rng.uniform(0, 0.0005))
            self._cancel(name, future)

    def _ask(self, rng: random.Random) -> None:
        stats = self.scheduler.stats()
        assert stats.started == stats.ended + stats.executing, stats
        self.scheduler._engine.check_valid()
        health = self.scheduler.health()
        assert health.ok, health
        self.scheduler.workers()
