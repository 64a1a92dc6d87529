"""Ledger: the account of runs. Started = ended + executing, at every moment. Runs in the parent, under its lock.

What a run leaves is kept as a tuple of atoms, which the garbage collector doesn't look at; `RunRecord` is made of it
when somebody asks.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from procsched.core.model import Outcome
from procsched.records import RunError, RunRecord, Waited
from procsched.series import Expected, Series
from procsched.wire import Failure, failure

if TYPE_CHECKING:
    from concurrent.futures import Future

    from procsched.core.model import Now, Run

__all__ = [
    "SHORT",
    "JobNotes",
    "Ledger",
    "Line",
    "error_of",
    "instant",
    "is_failure",
    "job_id_of",
    "record_of",
    "whole",
]

HISTORY = 100
MOST_TEXT = 30_000
"""Of a large error, characters kept of either end."""

SECOND = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Line = tuple[Any, ...]
"""A RunRecord as atoms: (job id, number, generation, attempt, planned, started or 0, finished [wall ns], lateness,
duration, cpu time [ns], max rss, slot, pid, outcome's value, error (None, RunError, the body of a report,
or LargeError), result size, waited for the loop, waited for a worker [ns], held by)"""


def instant(wall_ns: int) -> datetime:
    """An aware UTC datetime, to the microsecond."""
    return _EPOCH + timedelta(microseconds=wall_ns // 1000)


def job_id_of(run: Run) -> str:
    """The id that a run is known by: its job's, or the function's name with the number of the call."""
    return run.row.id if run.row is not None else f"{run.payload.function.name}-{run.number}"


class LargeError:
    """What a run raised, where the report is too large for a pipe: read once, as text, so that its file can go."""

    __slots__ = ("_body", "_failure", "_lock")

    def __init__(self, body: object) -> None:
        self._body = body
        self._failure: Failure | None = None
        self._lock = threading.Lock()

    def read(self) -> Failure:
        """The text. In the delivery thread, or that of whoever asks first."""
        with self._lock:
            if self._failure is None:
                self._failure = _shortened(error_text(self._body))
                self._body = None
            return self._failure


def error_text(body: object) -> Failure:
    """The text of a failed run's report; or of what a pool without processes gives in its place."""
    if isinstance(body, LargeError):
        return body.read()
    told = getattr(body, "failure", None)
    return told if isinstance(told, Failure) else failure(body)


def _shortened(told: Failure) -> Failure:
    """Without the exception itself, and of a text that nobody reads to its end the beginning and the end."""
    return Failure(told.type_name, _cut(told.message), _cut(told.traceback), None)


def _cut(text: str) -> str:
    return text if len(text) <= 2 * MOST_TEXT else f"{text[:MOST_TEXT]}\n...\n{text[-MOST_TEXT:]}"


class JobNotes:
    """What the outer rings keep about a job: its history, sums, and who waits for its runs."""

    __slots__ = (
        "counts", "duration", "history", "lateness", "max_duration", "max_lateness", "series", "started", "succeeded",
        "waiters",
    )  # fmt: skip

    def __init__(self) -> None:
        self.history: deque[Line] = deque(maxlen=HISTORY)
        self.counts: dict[str, int] = {}
        """By outcome, but for plain successes."""
        self.succeeded = 0
        """Plain successes: nearly all."""
        self.duration = self.lateness = 0
        """Sums, ns."""
        self.max_duration = 0
        self.max_lateness = 0
        self.started = 0
        self.waiters: list[Future[Any]] = []
        """For the first run handed over from now on."""
        self.series: list[weakref.ref[Series]] = []
        """For every run from now on. Weak: a reader that went away must not cost anything."""

    @property
    def followed(self) -> bool:
        """Whether somebody may wait for a run, or for all of them."""
        return bool(self.waiters or self.series)

    def readers(self) -> list[Series]:
        """The series that somebody still reads."""
        found = [(ref, ref()) for ref in self.series]
        if any(series is None for _ref, series in found):
            self.series = [ref for ref, series in found if series is not None]
        return [series for _ref, series in found if series is not None]

    def followers_of(self, run: Run) -> list[Future[Any]]:
        """At hand-over, under the lock: who looks on at this run, those of earlier hand-overs included."""
        followers = list(run.followers)
        if not run.started:
            followers += [waiter for waiter in self.waiters if not waiter.cancelled()]
        if self.series:
            served = {id(follower.series) for follower in followers if isinstance(follower, Expected)}
            followers += [series.expect() for series in self.readers() if id(series) not in served]
        if not run.started:
            self.waiters = []
        return followers

    def add(self, line: Line) -> None:
        self.history.append(line)
        outcome = line[13]
        self.counts[outcome] = self.counts.get(outcome, 0) + 1
        if line[5]:
            lateness, duration = line[7], line[8]
            self.started += 1
            self.duration += duration
            self.lateness += lateness
            self.max_duration = max(self.max_duration, duration)
            self.max_lateness = max(self.max_lateness, lateness)

    @property
    def runs(self) -> int:
        """Those that had started, and are over."""
        return self.started + self.succeeded

    def all_counts(self) -> dict[str, int]:
        """Of runs, by outcome."""
        return {**self.counts, "succeeded": self.counts.get("succeeded", 0) + self.succeeded}

    def add_success(self, line: Line) -> None:
        """As `add`, of a short line."""
        self.history.append(line)
        self.succeeded += 1
        start = line[4]
        duration, lateness = line[5] - start, start - line[6]
        self.duration += duration
        if duration > self.max_duration:
            self.max_duration = duration
        if lateness > 0:
            self.lateness += lateness
            if lateness > self.max_lateness:
                self.max_lateness = lateness


class Ledger:
    """Counts over all jobs and calls."""

    def __init__(self) -> None:
        self.started = 0
        self.counts: dict[Outcome, int] = dict.fromkeys(Outcome, 0)

    @property
    def ended(self) -> int:
        """Runs that had started and are over."""
        return sum(count for outcome, count in self.counts.items() if outcome.started)

    @property
    def executing(self) -> int:
        return self.started - self.ended

    def line(
        self,
        run: Run,
        outcome: Outcome,
        now: Now,
        attempt: int,
        finished: int,
        cpu_time: int = 0,
        max_rss: int = 0,
        pid: int = 0,
        error: object = None,
        result_size: int | None = None,
    ) -> Line:
        """Writes down how an attempt went. ``finished`` is monotonic."""
        row, held_by = run.row, run.notes or ""
        if run.was_held:
            held_by = f"max_instances; {held_by}" if held_by else "max_instances"
        return _line(
            row.id if row is not None else job_id_of(run), run.number, run.generation, attempt, run.planned_wall,
            run.start, finished, run.expected, run.noticed, now.wall - now.mono, cpu_time, max_rss,
            run.slot if run.start else -1, pid, outcome.value, error, result_size, held_by,
        )  # fmt: skip

    def end(self, run: Run, outcome: Outcome, line: Line) -> None:
        """The run is over: counts it, once."""
        self.counts[outcome] += 1
        if run.row is not None:
            if run.row.notes is None:
                run.row.notes = JobNotes()
            run.row.notes.add(line)

    def close(self) -> None:
        """The loop has died, perhaps between two lines of an account. Nothing executes any more; a run that was counted
        with its own end and again with the scheduler's counts once."""
        surplus = self.ended - self.started
        if surplus > 0:
            self.counts[Outcome.ABORTED] -= min(surplus, self.counts[Outcome.ABORTED])
        self.started = self.ended

    def check_valid(self) -> None:
        assert self.started >= self.ended, "a run ended that had never started"


def _line(
    job_id: str,
    number: int,
    generation: int,
    attempt: int,
    planned: int,
    start: int,
    finished: int,
    expected: int,
    noticed: int,
    offset: int,
    cpu_time: int,
    max_rss: int,
    slot: int,
    pid: int,
    outcome: str,
    error: object,
    result_size: int | None,
    held_by: str,
) -> Line:
    """Instants are monotonic here, but for ``planned``; ``offset`` is the wall clock's lead."""
    began = start or finished
    late = max(0, began - expected)
    seen = min(max(noticed, expected), began)
    in_loop, for_worker = (seen - expected, began - seen) if late else (0, 0)
    times = (planned, start + offset if start else 0, finished + offset, late, finished - start if start else 0)
    used = (cpu_time, max_rss, slot, pid)
    return (
        job_id, number, generation, attempt, *times, *used, outcome, error, result_size, in_loop, for_worker, held_by
    )  # fmt: skip


SHORT = 15
"""Fields of the line of a plain success; see `whole`."""


def whole(line: Line) -> Line:
    """A line; also of the shorter tuple that stands for a plain success, until somebody wants to know.

    That is: id of the job or name of the function, number, generation or 0 for a call, planned, start, finished,
    expected, noticed, offset, cpu time, max rss, slot, pid, result size, held by.
    """
    if len(line) != SHORT:
        return line
    name, number, generation, *instants = line
    planned, start, finished, expected, noticed, offset, cpu_time, max_rss, slot, pid, size, held_by = instants
    return _line(
        name if generation else f"{name}-{number}", number, generation, 1, planned, start, finished, expected, noticed,
        offset, cpu_time, max_rss, slot, pid, Outcome.SUCCEEDED.value, None, size, held_by,
    )  # fmt: skip


def is_failure(line: Line) -> bool:
    """Whether it is of a run that didn't succeed."""
    return len(line) != SHORT and line[13] != Outcome.SUCCEEDED.value


def record_of(line: Line) -> RunRecord:
    """The public view of a line."""
    line = whole(line)
    started = line[5]
    return RunRecord(
        job_id=line[0],
        number=line[1],
        generation=line[2],
        attempt=line[3],
        planned=instant(line[4]),
        started=instant(started) if started else None,
        finished=instant(line[6]),
        lateness=line[7] / SECOND,
        duration=line[8] / SECOND,
        cpu_time=line[9] / SECOND,
        max_rss=line[10],
        worker=line[11] if line[11] >= 0 else None,
        pid=line[12] or None,
        outcome=Outcome(line[13]),
        error=error_of(line[14]),
        result_size=line[15],
        waited=Waited(line[16] / SECOND, line[17] / SECOND) if line[7] else None,
        held_by=line[18],
    )


def error_of(source: object) -> RunError | None:
    """What a line says of an error, as text."""
    if source is None or isinstance(source, RunError):
        return source
    told = error_text(source)
    return RunError(told.type_name, told.message, told.traceback)
