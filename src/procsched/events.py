"""What happened, for subscribers: one frozen value per event, in the order in which it happened. Anywhere.

``scheduler.subscribe(callback, RunEnded, WorkerLost)`` delivers these, outside the scheduling loop. A subscriber that
asks for `Event` gets all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from procsched.ledger import instant, record_of, whole

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Self

    from procsched.ledger import Line
    from procsched.records import RunRecord

__all__ = [
    "Event",
    "JobAdded",
    "JobCancelled",
    "JobFinished",
    "JobPaused",
    "JobReplaced",
    "JobResumed",
    "RunEnded",
    "RunProgress",
    "RunRetrying",
    "RunSlow",
    "RunStarted",
    "SchedulerStarted",
    "SchedulerStopped",
    "WorkerLost",
    "WorkerReplaced",
    "WorkerStarted",
]


class Event:
    """The base of all events."""

    __slots__ = ()


class _OfARun(Event):
    """An event that is made of a line of the ledger when somebody looks at it: most are only counted, or not at all."""

    __slots__ = ("_line",)

    @classmethod
    def of(cls, line: Line) -> Self:
        """The event that this line tells of."""
        event = _new(cls)
        _set_line(event, line)
        return event

    def _fill(self, line: Line) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:  # asked for what isn't there: nothing is, until now
        if name == "_line":
            raise AttributeError(name)
        self._fill(whole(self._line))
        return object.__getattribute__(self, name)


_new = object.__new__
_set_line = _OfARun._line.__set__  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------------------- jobs


@dataclass(frozen=True, slots=True)
class JobAdded(Event):
    """A job was scheduled under an id that was free."""

    job_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class JobReplaced(Event):
    """An id got a new generation, by ``replace_existing`` or ``reschedule``; ``generation`` is the new one."""

    job_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class JobCancelled(Event):
    """A job was cancelled: no run of this generation starts any more."""

    job_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class JobPaused(Event):
    """A job was paused, by a call or by itself."""

    job_id: str
    generation: int
    reason: str = ""
    """Empty when somebody called ``pause()``; else why it paused itself, such as ``"5 failures in a row"``."""


@dataclass(frozen=True, slots=True)
class JobResumed(Event):
    """A paused job goes on, with its next future slot."""

    job_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class JobFinished(Event):
    """A job has no slot left, and its last run has ended."""

    job_id: str
    generation: int


# ------------------------------------------------------------------------------------------------------------- runs


@dataclass(frozen=True, slots=True)
class RunStarted(_OfARun):
    """A worker took a run. For very short runs this is delivered together with their end."""

    job_id: str
    number: int
    attempt: int
    planned: datetime
    started: datetime
    worker: int
    pid: int

    def _fill(self, line: Line) -> None:
        planned, started = instant(line[4]), instant(line[5])
        # The fields as __init__ has them: what is frozen for others is made here.
        RunStarted.__init__(self, line[0], line[1], line[3], planned, started, line[11], line[12])


@dataclass(frozen=True, slots=True)
class RunSlow(Event):
    """A run executes longer than its job's ``warn_after``; it goes on."""

    job_id: str
    number: int
    attempt: int
    planned: datetime
    started: datetime
    worker: int
    pid: int
    elapsed: float
    """Seconds so far."""
    stack: str
    """The Python stack of the worker at that moment; empty when it couldn't be had."""


@dataclass(frozen=True, slots=True)
class RunProgress(Event):
    """A run told how far it is, by ``current_run().progress()``."""

    job_id: str
    number: int
    fraction: float
    """From 0 to 1."""
    message: str


@dataclass(frozen=True, slots=True)
class RunEnded(_OfARun):
    """A run has reached its one end, whichever that is: skipped and cancelled runs end too."""

    record: RunRecord

    def _fill(self, line: Line) -> None:
        RunEnded.__init__(self, record_of(line))


@dataclass(frozen=True, slots=True)
class RunRetrying(Event):
    """An attempt failed, and there will be another one of the same run."""

    record: RunRecord
    """Of the attempt that failed; it isn't in the job's history."""
    retry_in: float
    """Seconds until the next attempt is due."""


# ---------------------------------------------------------------------------------------------------------- workers


@dataclass(frozen=True, slots=True)
class WorkerStarted(Event):
    """A slot has a worker that is ready."""

    worker: int
    pid: int


@dataclass(frozen=True, slots=True)
class WorkerLost(Event):
    """A worker ended that nobody had asked to: with the run that it executed, or None."""

    worker: int
    pid: int
    exitcode: int | None
    signal: str | None
    """Name of the signal, such as ``"SIGKILL"``."""
    job_id: str | None = None
    number: int | None = None
    seconds: float | None = None
    """How long the run had been executing."""
    oom: bool = False
    """Whether the kernel's out-of-memory killer did it, as far as the cgroup tells."""
    boot_error: str = ""
    """For a worker that never became ready: the traceback that ended it."""


@dataclass(frozen=True, slots=True)
class WorkerReplaced(Event):
    """A slot has a new worker in place of a lost or recycled one."""

    worker: int
    pid: int
    old_pid: int


# -------------------------------------------------------------------------------------------------------- scheduler


@dataclass(frozen=True, slots=True)
class SchedulerStarted(Event):
    """The scheduler takes work."""

    name: str
    workers: int


@dataclass(frozen=True, slots=True)
class SchedulerStopped(Event):
    """The scheduler has ended; this is its last event."""

    name: str
