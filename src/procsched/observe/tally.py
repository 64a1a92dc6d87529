"""Tally: counts how runs went, by job, in plain numbers. In the parent: the events' thread adds, any thread reads.

What a run costs here, it costs the scheduler: both want the same interpreter lock. So a run is a few additions to ints
and lists, straight from the ledger's line; no `RunRecord` is made, no lock is taken, and what readers want to have is
worked out when they ask.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from procsched.core.model import Outcome
from procsched.events import RunEnded
from procsched.ledger import SECOND, SHORT

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from procsched.events import RunRetrying, WorkerLost, WorkerReplaced, WorkerStarted

__all__ = ["DURATIONS", "LATENESSES", "OTHER", "REASONS", "WAITS", "Histogram", "JobTally", "Tally"]

OTHER = "(other)"
"""Where runs are counted for whose job there was no room."""
KEEP = 900 * SECOND
"""How long the numbers of an ended job are kept after it was first seen to have ended: some scrapes, of any habit."""
_LONGEST = 200
"""Characters of an id or a function's name that are shown."""

DURATIONS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
LATENESSES = (0.001, 0.01, 0.1, 1, 10, 60, 300, 3600)
WAITS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1, 5, 30, 300)
"""Upper bounds of buckets, in seconds."""
REASONS = ("boot", "exit", "oom", "recycled", "signal", "timeout")
"""Why a worker had to be replaced."""


def _whole(bounds: Iterable[float]) -> tuple[int, ...]:
    return tuple(round(bound * SECOND) for bound in bounds)


_DURATIONS, _LATENESSES, _WAITS = _whole(DURATIONS), _whole(LATENESSES), _whole(WAITS)


class Histogram:
    """How often a length of time fell between which bounds; ns."""

    __slots__ = ("counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0


class JobTally:
    """The runs of one job, or of all calls of one function. Times in ns; instants on the wall clock, 0: none yet."""

    __slots__ = (
        "cpu",
        "durations",
        "ended_at",
        "failures",
        "is_call",
        "is_shared",
        "label",
        "last_end",
        "last_success",
        "latenesses",
        "others",
        "retries",
        "succeeded",
    )

    def __init__(self, label: str) -> None:
        self.label = label
        self.succeeded = 0
        self.others: dict[str, int] = {}
        """By outcome, those that didn't succeed."""
        self.durations = Histogram(DURATIONS)
        self.latenesses = Histogram(LATENESSES)
        self.cpu = 0
        self.retries = 0
        self.failures = 0
        """In a row."""
        self.last_end = 0
        self.last_success = 0
        self.is_call = False
        """Whether calls of a function are counted here: that has no end."""
        self.is_shared = False
        """Whether all are counted here for whom there was no room."""
        self.ended_at: int | None = None
        """Monotonic instant at which its job was first seen to have ended."""

    def counts(self) -> dict[str, int]:
        """Runs by outcome, those that never happened too."""
        return {outcome.value: self.others.get(outcome.value, 0) for outcome in Outcome} | {
            Outcome.SUCCEEDED.value: self.succeeded
        }


class Tally:
    """All runs, at most so many jobs by themselves, and the workers that were replaced."""

    def __init__(self, most_jobs: int) -> None:
        self.waits = {"loop": Histogram(WAITS), "worker": Histogram(WAITS)}
        self.restarts = dict.fromkeys(REASONS, 0)
        self._loop, self._worker = self.waits["loop"], self.waits["worker"]
        self._most = most_jobs
        self._jobs: dict[str, JobTally] = {}
        """By id, or name of the function."""
        self._other: JobTally | None = None
        self._ended: set[str] = set()
        """Names of jobs that have ended: looked at for each run that finds no room."""
        self._lock = threading.Lock()
        """For changes of what is in `_jobs`; not for counting."""
        self._lost: set[int] = set()
        """Slots whose last worker is counted already."""
        self._timed_out: dict[int, None] = {}
        """Pids of workers that a run's timeout ended."""

    # -- what happened: in the events' thread ---------------------------------------------------------------------

    def take(self, news: list[tuple[Any, ...]]) -> None:
        """Counts the runs that ended, of the news of one turn."""
        jobs, loop, worker = self._jobs, self._loop, self._worker
        for item in news:
            if item[0] is not RunEnded:
                continue
            line = item[1]
            if len(line) != SHORT:
                self._add_whole(line)
                continue
            # As `_add` below, written out: this is what nearly all runs are where there are many.
            name, _, generation, _, start, finished, expected, noticed, offset, cpu, _, _, _, _, _ = line
            job = jobs.get(name)
            if job is None or (not generation and not job.is_call):
                job = self._find(name, is_call=not generation)
            job.succeeded += 1
            job.failures = 0
            job.cpu += cpu
            job.last_end = job.last_success = finished + offset
            took, late = finished - start, start - expected
            histogram = job.durations
            histogram.sum += took
            histogram.counts[bisect_left(_DURATIONS, took)] += 1
            histogram = job.latenesses
            if late <= 0:
                histogram.counts[0] += 1
                loop.counts[0] += 1
                worker.counts[0] += 1
                continue
            histogram.sum += late
            histogram.counts[bisect_left(_LATENESSES, late)] += 1
            in_loop = noticed - expected
            if in_loop < 0:
                in_loop = 0
            elif in_loop > late:
                in_loop = late
            loop.sum += in_loop
            loop.counts[bisect_left(_WAITS, in_loop)] += 1
            late -= in_loop
            worker.sum += late
            worker.counts[bisect_left(_WAITS, late)] += 1

    def _add_whole(self, line: tuple[Any, ...]) -> None:
        name, number, generation, _attempt, _planned, start, finished, late, took, cpu = line[:10]
        if not generation:
            name = name.removesuffix(f"-{number}")
        if line[13] == "timed_out":
            self._timed_out[line[12]] = None
        self._add(name, not generation, line[13], start != 0, finished, took, late, line[16], line[17], cpu)

    def _add(
        self,
        name: str,
        is_call: bool,
        outcome: str,
        started: bool,
        finished: int,
        took: int,
        late: int,
        in_loop: int,
        for_worker: int,
        cpu: int,
    ) -> None:
        job = self._jobs.get(name)
        if job is None:
            job = self._find(name, is_call=is_call)
        job.cpu += cpu
        job.last_end = finished
        if outcome == "succeeded":
            job.succeeded += 1
            job.failures = 0
            job.last_success = finished
        else:
            job.others[outcome] = job.others.get(outcome, 0) + 1
            if outcome in _FAILURES:
                job.failures += 1
        if not started:
            return
        for histogram, bounds, length in (
            (job.durations, _DURATIONS, took),
            (job.latenesses, _LATENESSES, late),
            (self._loop, _WAITS, in_loop),
            (self._worker, _WAITS, for_worker),
        ):
            histogram.sum += length
            histogram.counts[bisect_left(bounds, length)] += 1

    def run_retrying(self, event: RunRetrying) -> None:
        """Counts an attempt that is to be repeated: its run is counted at its end, with the last attempt's figures."""
        record, name = event.record, event.record.job_id
        if not record.generation:
            name = name.removesuffix(f"-{record.number}")
        if record.outcome is Outcome.TIMED_OUT:
            self._timed_out[record.pid or 0] = None
        job = self._find(name, is_call=not record.generation)
        job.retries += 1
        job.cpu += round(record.cpu_time * SECOND)

    def worker_lost(self, event: WorkerLost) -> None:
        """Counts a worker that ended without having been told to."""
        if event.boot_error:
            reason = "boot"
        elif event.oom:
            reason = "oom"
        else:
            reason = "signal" if event.signal is not None else "exit"
        self.restarts[reason] += 1
        self._lost.add(event.worker)

    def worker_came(self, event: WorkerStarted | WorkerReplaced) -> None:
        """Counts the worker that it replaces, if nothing was heard of its end: it was ended by a limit."""
        old_pid = getattr(event, "old_pid", 0)
        timed_out = old_pid in self._timed_out
        self._timed_out.pop(old_pid, None)
        if event.worker in self._lost:
            self._lost.discard(event.worker)
        elif old_pid:
            self.restarts["timeout" if timed_out else "recycled"] += 1

    # -- whose numbers are kept: in any thread --------------------------------------------------------------------

    def look_over(self, scheduled: Container[str], some: Iterable[str], now: int) -> None:
        """Before numbers are shown: drops those of jobs that ended long ago, and makes room for ``some`` that are
        scheduled, so that they are there, as zeros, before anything happens to them."""
        with self._lock:
            for name, job in list(self._jobs.items()):
                if job.is_call or name in scheduled:
                    job.ended_at = None
                    self._ended.discard(name)
                elif job.ended_at is None:
                    job.ended_at = now
                    self._ended.add(name)
                elif now - job.ended_at > KEEP:
                    self._drop(name)
        for name in some:
            if name not in self._jobs and not self._make_room():
                break
            self._find(name, is_call=False)

    def jobs(self) -> list[tuple[str, JobTally]]:
        """Those that are counted by themselves, by name, and what all others have together."""
        with self._lock:
            jobs = list(self._jobs.items())
            return jobs if self._other is None else [*jobs, (OTHER, self._other)]

    def _find(self, name: str, *, is_call: bool) -> JobTally:
        with self._lock:
            job = self._jobs.get(name)
            if job is None:
                if len(self._jobs) >= self._most and not self._drop_one():
                    if self._other is None:
                        self._other = JobTally(OTHER)
                        self._other.is_shared = True
                    return self._other
                job = self._jobs[name] = JobTally(self._label_for(name))
            if is_call:
                job.is_call = True
                self._ended.discard(name)
            return job

    def _make_room(self) -> bool:
        with self._lock:
            return len(self._jobs) < self._most or self._drop_one()

    def _drop_one(self) -> bool:
        """Those that have ended make room for those that haven't."""
        if not self._ended:
            return False
        self._drop(next(iter(self._ended)))
        return True

    def _drop(self, name: str) -> None:
        del self._jobs[name]
        self._ended.discard(name)

    def _label_for(self, name: str) -> str:
        """Something that can be written as UTF-8, isn't long, and that no other job has."""
        text = name.encode("utf-8", "backslashreplace").decode()[:_LONGEST]
        taken = {job.label for job in self._jobs.values()} | {OTHER}
        label, number = text, 2
        while label in taken:
            label, number = f"{text} ({number})", number + 1
        return label


_FAILURES = frozenset((Outcome.FAILED.value, Outcome.CRASHED.value, Outcome.TIMED_OUT.value))
