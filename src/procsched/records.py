"""What a run leaves behind: plain frozen values, without a reference to the job, its function or its result. Anywhere.

Durations are float seconds, sizes are bytes, instants are aware datetimes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

    from procsched.core.model import Outcome

__all__ = ["RunError", "RunRecord", "Waited"]


@dataclass(frozen=True, slots=True)
class RunError:
    """Why a run didn't succeed, as text: nothing here can fail to be read."""

    type: str
    """Name of the exception's type, as the traceback shows it."""
    message: str
    traceback: str = ""
    """The worker's traceback with its causes; for a crash the Python stack at the fault, where one was left."""
    exitcode: int | None = None
    """What the worker exited with; None when a signal ended it, and for a run whose worker lives on."""
    signal: str | None = None
    """Name of the signal that ended the worker, such as ``"SIGKILL"``."""
    logs: tuple[str, ...] = ()
    """For a crash: the run's last log records, at most 50, oldest first."""
    oom: bool = False
    """Whether the kernel's out-of-memory killer ended the worker, as far as its cgroup tells."""

    def as_dict(self) -> dict[str, Any]:
        """A dict that `json` can write."""
        return {
            "type": self.type,
            "message": self.message,
            "traceback": self.traceback,
            "exitcode": self.exitcode,
            "signal": self.signal,
            "logs": list(self.logs),
            "oom": self.oom,
        }


@dataclass(frozen=True, slots=True)
class Waited:
    """Where the lateness of a run went, in seconds."""

    loop: float
    """Until the scheduler noticed that the run was due, and handed it over."""
    worker: float
    """Until a worker was free, or its job had an instance to spare."""

    def as_dict(self) -> dict[str, Any]:
        """A dict that `json` can write."""
        return {"loop": self.loop, "worker": self.worker}


@dataclass(frozen=True, slots=True)
class RunRecord:
    """How one run went. There is exactly one for every run; with retries it tells of the last attempt."""

    job_id: str
    number: int
    """Counts the runs of this id, from 1."""
    generation: int
    """Of the job: a counter of the whole scheduler that grows with each schedule, replacement and reschedule."""
    attempt: int
    """1, or more after a retry."""
    planned: datetime
    """The slot of the schedule, before jitter."""
    started: datetime | None
    """When the worker took it; None for a run that never started (SKIPPED, CANCELLED)."""
    finished: datetime
    lateness: float
    """Seconds from the planned time to the start, or to the moment at which it was given up."""
    duration: float
    """Seconds of execution; 0 when it never started."""
    cpu_time: float
    """Seconds of CPU that the worker's process spent on it, all its threads together."""
    max_rss: int
    """Peak memory of the worker's process so far, in bytes."""
    worker: int | None
    """The slot that executed it."""
    pid: int | None
    outcome: Outcome
    error: RunError | None = None
    result_size: int | None = None
    """Bytes of the pickled value; None when nobody waited for it and the worker dropped it."""
    waited: Waited | None = None
    """Why it was late; None when it wasn't."""
    held_by: str = ""
    """Who held the workers meanwhile, in words: ``"8 workers busy, 5 with train"``."""

    def as_dict(self) -> dict[str, Any]:
        """A dict that `json` can write: instants in ISO 8601, the outcome by its value."""
        return {
            "job_id": self.job_id,
            "number": self.number,
            "generation": self.generation,
            "attempt": self.attempt,
            "planned": self.planned.isoformat(),
            "started": self.started.isoformat() if self.started is not None else None,
            "finished": self.finished.isoformat(),
            "lateness": self.lateness,
            "duration": self.duration,
            "cpu_time": self.cpu_time,
            "max_rss": self.max_rss,
            "worker": self.worker,
            "pid": self.pid,
            "outcome": self.outcome.value,
            "error": self.error.as_dict() if self.error is not None else None,
            "result_size": self.result_size,
            "waited": self.waited.as_dict() if self.waited is not None else None,
            "held_by": self.held_by,
        }
