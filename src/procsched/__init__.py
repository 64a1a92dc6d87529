"""procsched: CPU-heavy periodic work on a fixed pool of worker processes. Public names, nothing else.

Each name is imported when it is first used (PEP 562), so that ``import procsched`` costs next to nothing and a worker
loads only what its runs need.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, without the milliseconds of its import
if TYPE_CHECKING:
    from procsched.context import current_run
    from procsched.core.calendars import Cron, Daily
    from procsched.core.model import JobState, Missed, Outcome, Priority, ReadyOrder, Timebase
    from procsched.core.retry import Retry
    from procsched.core.schedules import After, At, FixedDelay, FixedRate, Schedule
    from procsched.definitions import job
    from procsched.errors import (
        AlreadyRunning,
        ConflictingIdError,
        InternalError,
        JobLookupError,
        NotShippable,
        PoolUnusable,
        ProcschedError,
        RemoteError,
        RunAborted,
        RunTimedOut,
        SchedulerClosed,
        SchedulerFull,
        TaskFileError,
        WorkerCrashed,
    )
    from procsched.events import (
        Event,
        JobAdded,
        JobCancelled,
        JobFinished,
        JobPaused,
        JobReplaced,
        JobResumed,
        RunEnded,
        RunProgress,
        RunRetrying,
        RunSlow,
        RunStarted,
        SchedulerStarted,
        SchedulerStopped,
        WorkerLost,
        WorkerReplaced,
        WorkerStarted,
    )
    from procsched.jobs import Job
    from procsched.records import RunError, RunRecord, Waited
    from procsched.scheduler import ProcessScheduler

__all__ = [
    "After",
    "AlreadyRunning",
    "At",
    "ConflictingIdError",
    "Cron",
    "Daily",
    "Event",
    "FixedDelay",
    "FixedRate",
    "InternalError",
    "Job",
    "JobAdded",
    "JobCancelled",
    "JobFinished",
    "JobLookupError",
    "JobPaused",
    "JobReplaced",
    "JobResumed",
    "JobState",
    "Missed",
    "NotShippable",
    "Outcome",
    "PoolUnusable",
    "Priority",
    "ProcessScheduler",
    "ProcschedError",
    "ReadyOrder",
    "RemoteError",
    "Retry",
    "RunAborted",
    "RunEnded",
    "RunError",
    "RunProgress",
    "RunRecord",
    "RunRetrying",
    "RunSlow",
    "RunStarted",
    "RunTimedOut",
    "Schedule",
    "SchedulerClosed",
    "SchedulerFull",
    "SchedulerStarted",
    "SchedulerStopped",
    "TaskFileError",
    "Timebase",
    "Waited",
    "WorkerCrashed",
    "WorkerLost",
    "WorkerReplaced",
    "WorkerStarted",
    "current_run",
    "job",
]

__version__ = "0.1.0"

# No module of the package may be called like a public name: importing a submodule sets it as an attribute here. So
# class Job lives in jobs.py, or the first import of it would put a module in the place of the decorator `job`.
_NAMES_OF = {
    "procsched.context": "current_run",
    "procsched.core.calendars": "Cron Daily",
    "procsched.core.model": "JobState Missed Outcome Priority ReadyOrder Timebase",
    "procsched.core.retry": "Retry",
    "procsched.core.schedules": "After At FixedDelay FixedRate Schedule",
    "procsched.definitions": "job",
    "procsched.errors": (
        "AlreadyRunning ConflictingIdError InternalError JobLookupError NotShippable PoolUnusable ProcschedError"
        " RemoteError RunAborted RunTimedOut SchedulerClosed SchedulerFull TaskFileError WorkerCrashed"
    ),
    "procsched.events": (
        "Event JobAdded JobCancelled JobFinished JobPaused JobReplaced JobResumed RunEnded RunProgress RunRetrying"
        " RunSlow RunStarted SchedulerStarted SchedulerStopped WorkerLost WorkerReplaced WorkerStarted"
    ),
    "procsched.jobs": "Job",
    "procsched.records": "RunError RunRecord Waited",
    "procsched.scheduler": "ProcessScheduler",
}
_HOMES = {name: module for module, names in _NAMES_OF.items() for name in names.split()}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
