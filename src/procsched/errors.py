"""The errors that users of procsched meet. Runs anywhere.

Few, under one root; each says who did what and tells itself from its neighbours.
"""

from __future__ import annotations

import queue
from concurrent.futures.process import BrokenProcessPool

__all__ = [
    "AlreadyRunning",
    "ConflictingIdError",
    "InternalError",
    "JobLookupError",
    "NotShippable",
    "PoolUnusable",
    "ProcschedError",
    "RemoteError",
    "RunAborted",
    "RunTimedOut",
    "SchedulerClosed",
    "SchedulerFull",
    "TaskFileError",
    "WorkerCrashed",
]


class ProcschedError(Exception):
    """The root of all errors that procsched raises by itself."""


class NotShippable(ProcschedError, TypeError):
    """A function or an argument can't be sent to another process.

    Raised in the caller's thread, before anything is registered. What a *run* returns or raises and can't be sent
    back fails that run instead (`RemoteError`).
    """


class ConflictingIdError(ProcschedError):
    """A job with this id exists already. Pass ``replace_existing=True`` or choose another id."""


class JobLookupError(ProcschedError, KeyError):
    """No job has this id (any more: an id is free again as soon as its job has ended)."""

    def __str__(self) -> str:  # KeyError shows the repr of its argument
        return str(self.args[0]) if self.args else ""


class SchedulerClosed(ProcschedError, RuntimeError):
    """The scheduler takes no new work: it was shut down, is a forked copy, or lives inside a worker."""


class SchedulerFull(ProcschedError, queue.Full):
    """``max_pending`` runs are accepted and unfinished, and the scheduler was told to raise instead of to block."""


class AlreadyRunning(ProcschedError):
    """Another scheduler holds the ``single_instance`` lock. The operating system frees it when that one ends."""


class WorkerCrashed(ProcschedError, BrokenProcessPool):
    """The worker that executed this run died: killed, out of memory, a native crash, a hard exit.

    Only this run is lost; the scheduler goes on (unlike `PoolUnusable`). ``exitcode`` and ``signal`` say how.
    """

    exitcode: int | None = None
    signal: str | None = None


class PoolUnusable(ProcschedError, BrokenProcessPool):
    """No worker can be started, so nothing can ever run: the scheduler has ended itself.

    Unlike `WorkerCrashed`, which concerns one run of a scheduler that goes on.
    """


class RunTimedOut(ProcschedError):
    """A run was ended because it executed longer than its job's ``timeout``.

    Not a `TimeoutError`: that one is ``future.result(timeout=…)`` giving up the wait, while the run goes on.
    """


class RunAborted(ProcschedError):
    """A run was ended because ``shutdown(timeout=…)`` had run out (unlike `RunTimedOut`, which is the job's limit)."""


class RemoteError(ProcschedError):
    """Stands in for what couldn't travel from a worker: its type name, message and traceback as text.

    An exception that can travel arrives as itself, with the worker's traceback as its ``__cause__`` (also of this
    class).
    """

    def __init__(self, type_name: str, message: str, traceback: str = "") -> None:
        super().__init__(type_name, message, traceback)
        self.type_name = type_name
        self.message = message
        self.traceback = traceback

    def __str__(self) -> str:
        text = f"{self.type_name}: {self.message}" if self.message else self.type_name
        return f"{text}\n\n{self.traceback}" if self.traceback else text


class TaskFileError(ProcschedError):
    """A task file can't be used: missing, broken, without jobs, or with one id twice. The message says what to do."""

    user_traceback: str = ""
    """What the file itself raised, as text without frames of procsched; empty when it raised nothing."""


class InternalError(ProcschedError):
    """A bug of procsched, not of yours: please report it with the traceback that came with it."""
