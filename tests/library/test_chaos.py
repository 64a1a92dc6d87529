"""Everything at once: workers killed and stopped, runs that end badly, callers that change their minds.

Each run writes its id down when it starts: that file, and not the scheduler's own books, says what has started.
``PROCSCHED_CHAOS=60`` makes it last so many seconds; ``PROCSCHED_CHAOS_SEED`` repeats the callers' choices.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest

import procsched
from procsched import (
    FixedDelay,
    FixedRate,
    JobLookupError,
    Outcome,
    ProcessScheduler,
    Retry,
    RunEnded,
    SchedulerClosed,
)

SECONDS = float(os.environ.get("PROCSCHED_CHAOS", "5"))
SEED = int(os.environ.get("PROCSCHED_CHAOS_SEED", str(random.randrange(1 << 30))))
KINDS = [*["value"] * 12, *["raise", "unpicklable", "hang", "large", "work"] * 2, "exit", "larger"]


def act(path: str, name: str, kind: str) -> Any:
    """In a worker."""
    import os
    import time

    run = procsched.current_run()
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{name} {run.number} {run.attempt} {time.monotonic_ns()}\n".encode())
    os.close(fd)
    match kind:
        case "raise":
            raise ValueError(name)
        case "exit":
            os._exit(3)
        case "unpicklable":
            return lambda: name
        case "hang":
            time.sleep(60)
        case "large":
            return b"x" * 200_000
        case "larger":
            return b"x" * 5_000_000
        case "work":
            time.sleep(0.03)
    return name


def warm_up() -> None:
    """In a worker, at its boot: it has imported this file, so that a run's line follows its claim at once."""


class Chaos:
    """A scheduler, those who torment it, and what is known about it from outside."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.names = itertools.count()
        self.naming = threading.Lock()
        self.owners: dict[str, tuple[str, Any]] = {}
        """By job id: the name of what it runs now, and the job."""
        self.scheduler = ProcessScheduler(4, initializer=warm_up)
        self.futures: list[Future[Any]] = []
        self.cancelled: list[tuple[str, int]] = []
        """(name, monotonic ns at which its cancel() had returned)"""
        self.not_started: list[str] = []
        """Calls whose Future was cancelled."""
        self.ended: list[tuple[str, int, int, Outcome]] = []
        self.errors: list[BaseException] = []
        self.signals: Counter[str] = Counter()
        self.over = threading.Event()
        self.scheduler.subscribe(self.note, RunEnded)

    def note(self, event: Any) -> None:
        record = event.record
        self.ended.append((record.job_id, record.number, record.generation, record.outcome))

    def repeat(self, deed: Callable[[random.Random], object], pause: float, seed: int) -> threading.Thread:
        """A thread that does it again and again."""
        rng = random.Random(SEED + seed)

        def loop() -> None:
            while not self.over.wait(rng.uniform(0, 2 * pause)):
                try:
                    deed(rng)
                except (JobLookupError, SchedulerClosed):
                    pass
                except BaseException as error:
                    self.errors.append(error)

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        return thread

    # -- the tormentors -------------------------------------------------------------------------------------------

    def _signal(self, pid: int | None, number: int) -> None:
        if pid:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                return
            self.signals[signal.Signals(number).name] += 1

    def _some_pid(self, rng: random.Random) -> int | None:
        return rng.choice(self.scheduler.workers()).pid

    def kill(self, rng: random.Random) -> None:
        self._signal(self._some_pid(rng), signal.SIGKILL)

    def stop(self, rng: random.Random) -> None:
        pid = self._some_pid(rng)
        self._signal(pid, signal.SIGSTOP)
        time.sleep(rng.uniform(0, 0.2))
        self._signal(pid, signal.SIGCONT)

    # -- the callers ----------------------------------------------------------------------------------------------

    def name(self) -> str:
        """One that was never used."""
        return f"n{next(self.names)}"

    def schedule(self, rng: random.Random) -> None:
        kind = rng.choice(KINDS)
        name = self.name()
        key = f"job{rng.randrange(12)}"
        when, instances = rng.choice(
            ((FixedRate(0.05), 1), (FixedRate(0.05), 2), (FixedRate(0.01), 1), (FixedDelay(0.05), 1))
        )
        with self.naming:
            replaced = self.owners.get(key)
            job = self.scheduler.schedule(
                act,
                when,
                args=(self.path, name, kind),
                id=key,
                replace_existing=True,
                timeout=0.3 if kind == "hang" else rng.choice((None, 0.3)),
                retry=rng.choice((None, Retry(3, backoff="20ms"))),
                max_instances=instances,
            )
            self.owners[key] = (name, job)
            if replaced is not None:
                self.cancelled.append((replaced[0], time.monotonic_ns()))
        self.futures.append(job.next_future())

    def change(self, rng: random.Random) -> None:
        with self.naming:
            if not self.owners:
                return
            key = rng.choice(sorted(self.owners))
            name, job = self.owners[key]
        match rng.randrange(6):
            case 0:
                job.cancel()
                self.cancelled.append((name, time.monotonic_ns()))
            case 1:
                job.pause()
            case 2:
                job.resume()
            case 3:
                self.futures.append(job.next_future())
            case 4:
                job.reschedule(FixedRate(0.03))
            case 5:
                future = job.run_now()
                self.futures.append(future)
                if rng.random() < 0.3:
                    future.cancel()

    def call(self, rng: random.Random) -> None:
        kind = rng.choice([kind for kind in KINDS if kind != "hang"])
        name = self.name()
        if rng.random() < 0.5:
            future = self.scheduler.submit(act, self.path, name, kind)
        else:
            future = self.scheduler.submit_after(rng.uniform(0, 0.2), act, self.path, name, kind)
        self.futures.append(future)
        if rng.random() < 0.3:
            time.sleep(rng.uniform(0, 0.01))
            if future.cancel():
                self.not_started.append(name)

    def ask(self, rng: random.Random) -> None:
        scheduler = self.scheduler
        stats = scheduler.stats()
        assert stats.started == stats.ended + stats.executing, stats
        assert stats.ended == stats.succeeded + stats.failed + stats.crashed + stats.timed_out + stats.aborted
        scheduler._engine.check_valid()
        health = scheduler.health()
        assert health.ok, health


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def _fds() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.case("B62")
def test_chaos(tmp_path: Path, eventually: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """Every run starts at most once per attempt, none after its cancel(), and ends once; nothing stays."""
    caplog.set_level(logging.CRITICAL, "procsched")
    print(f"seed {SEED}")
    with ProcessScheduler(1) as warm:  # what loky and logging open once for all
        warm.submit(int).result(30)
    threads, fds = _threads(), _fds()
    path = str(tmp_path / "started")
    chaos = Chaos(path)
    scheduler = chaos.scheduler
    scheduler.submit(int).result(30)
    deeds = [
        (chaos.kill, 0.2),
        (chaos.stop, 0.1),
        (chaos.schedule, 0.1),
        (chaos.change, 0.02),
        (chaos.change, 0.02),
        (chaos.call, 0.03),
        (chaos.call, 0.03),
        (chaos.ask, 0.05),
    ]
    tormentors = [chaos.repeat(deed, pause, number) for number, (deed, pause) in enumerate(deeds)]
    time.sleep(SECONDS)
    chaos.over.set()
    for thread in tormentors:
        thread.join(30)
        assert not thread.is_alive()
    if chaos.errors:
        scheduler.shutdown(timeout=1)
        raise chaos.errors[0]
    begun = time.monotonic()
    scheduler.shutdown(timeout=3)
    assert time.monotonic() - begun < 3 + 10
    stats = scheduler.stats()

    _done, pending = wait(chaos.futures, timeout=10)
    assert not pending
    times = Counter(end[:3] for end in chaos.ended)
    assert [end for end, count in times.items() if count != 1] == []
    assert stats.executing == 0 and stats.started == stats.ended
    outcomes = Counter(outcome.value for *_, outcome in chaos.ended)
    assert outcomes.total() == stats.ended + stats.skipped + stats.cancelled
    scheduler._engine.check_valid()

    starts = [line.split() for line in Path(path).read_text().splitlines()]
    twice = Counter((name, number, attempt) for name, number, attempt, _at in starts)
    assert max(twice.values()) == 1, [run for run, count in twice.items() if count > 1]
    last: dict[str, int] = {}
    for name, _number, _attempt, at in starts:
        last[name] = max(last.get(name, 0), int(at))
    # It is the claim that counts: a SIGSTOP between the claim and its line makes the line as much later.
    late = {name: (last[name] - at) / 1e9 for name, at in chaos.cancelled if last.get(name, 0) > at}
    assert all(by < 1 for by in late.values()), late
    assert not set(chaos.not_started) & set(last), "a cancelled call has started"
    figures = f"{len(chaos.futures)} Futures, {len(chaos.cancelled)} cancels, {len(starts)} starts"
    sys.stdout.write(f"{figures}, {dict(outcomes)}, {dict(chaos.signals)}, late oracles {late}\n")

    del scheduler
    eventually(lambda: _threads() <= threads)
    eventually(lambda: not _children())
    chaos.futures.clear()
    eventually(lambda: _fds() <= fds)


def _children() -> list[str]:
    """Processes of ours that live, the resource tracker aside."""
    found = []
    for task in os.listdir("/proc/self/task"):
        try:
            pids = Path(f"/proc/self/task/{task}/children").read_text().split()
        except OSError:
            continue
        for pid in pids:
            try:
                if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
            except OSError:
                pass
    return found
