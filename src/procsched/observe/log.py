"""Writes events to the standard `logging`, and hands on what runs logged in their workers. In the parent.

Loggers: ``procsched.run``, ``procsched.job``, ``procsched.worker``, ``procsched.scheduler``. Every record of ours, and
every one that came from a worker, has the attributes ``job``, ``run``, ``worker`` and ``pid`` (None where there is
none), so that a format may name them; ours have ``event`` too.

The delivery side calls `log_event` for each event: a successful run is by far the most frequent one, so its path asks
for the level first and builds nothing before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from procsched import events
from procsched.core.model import Outcome
from procsched.observe import human

if TYPE_CHECKING:
    from procsched.records import RunError, RunRecord
    from procsched.wire import RemoteDropped, RemoteLog

__all__ = ["error_text", "levels", "log_dropped", "log_event", "log_remote", "run_line"]

_runs = logging.getLogger("procsched.run")
_jobs = logging.getLogger("procsched.job")
_workers = logging.getLogger("procsched.worker")
_scheduler = logging.getLogger("procsched.scheduler")

_OOM_HINT = "perhaps the kernel's out-of-memory killer: see dmesg, or memory.events of the cgroup"


def log_event(event: events.Event) -> None:
    """Log one event, where it is worth a line. Must not be called with a lock held: handlers may block."""
    write = _WRITERS.get(type(event))
    if write is not None:
        write(event)


def log_remote(remote: RemoteLog) -> None:
    """Hand a log record that a run made to the logger of the same name here, as if it had been made here."""
    logger = logging.getLogger(remote.logger)  # "root" is the root logger's name, and gets it
    if not logger.isEnabledFor(remote.level):
        return
    record = logger.makeRecord(
        remote.logger,
        remote.level,
        remote.pathname,
        remote.lineno,
        remote.text,  # formatted in the worker: with no arguments, a % in it is safe
        (),
        None,
        remote.func,
        _who(remote.job_id or None, remote.number if remote.job_id else None, remote.slot, remote.pid),
    )
    record.relativeCreated += (remote.created - record.created) * 1000
    record.created = remote.created
    record.msecs = int(remote.created % 1 * 1000)
    record.process, record.processName = remote.pid, f"worker {remote.slot}"
    logger.handle(record)


def levels() -> dict[str, int]:
    """The levels that loggers have been given here, by name, "" for the root: workers send no more than that."""
    given = {"": logging.getLogger().level}
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level != logging.NOTSET:
            given[name] = logger.level
    return given


def log_dropped(dropped: RemoteDropped) -> None:
    """Tell how many log records of a worker were dropped because they came faster than they could be read."""
    _workers.warning(
        "worker %d logged faster than could be read: %s dropped",
        dropped.slot,
        human.count(dropped.count, "record"),
        extra=_who(worker=dropped.slot),
    )


def run_line(record: RunRecord) -> str:
    """One run in one line, without its time and traceback."""
    words = [f"{record.job_id} #{record.number} {record.outcome.value.replace('_', ' ')}"]
    if record.outcome.started:
        preposition = "in" if record.outcome is Outcome.SUCCEEDED else "after"
        words[0] += f" {preposition} {human.seconds(record.duration)}"
    words.append(f"{human.seconds(record.lateness)} late" + (f" ({record.held_by})" if record.held_by else ""))
    if record.attempt > 1:
        words.append(f"attempt {record.attempt}")
    if record.worker is not None:
        words.append(f"worker {record.worker}")
    if record.outcome is not Outcome.SUCCEEDED and record.pid is not None:
        words.append(f"pid {record.pid}")
    return ", ".join(words)


def error_text(record: RunRecord, error: RunError) -> str:
    """Why it went wrong, in a first line; then the tracebacks; then what it logged last."""
    parts = [f"{error.type}: {error.message}" if error.message else error.type]
    if record.outcome is Outcome.CRASHED and error.signal == "SIGKILL" and not error.oom:
        parts[0] += f" ({_OOM_HINT})"
    if error.traceback:
        parts.append(error.traceback.rstrip("\n"))
    if error.logs:
        parts.append("Its last log records:")
        parts.extend(f"  {line}" for line in error.logs)
    return "\n".join(parts)


# ------------------------------------------------------------------------------------------------------------- runs


def _run_ended(event: events.RunEnded) -> None:
    record = event.record
    level = _LEVELS[record.outcome]
    if not _runs.isEnabledFor(level):
        return
    text = run_line(record)
    if record.error is not None:
        text += f": {error_text(record, record.error)}"
    _runs.log(level, "%s", text, extra=_who_ran(record, event))


def _run_started(event: events.RunStarted) -> None:
    if _runs.isEnabledFor(logging.DEBUG):
        who = _who(event.job_id, event.number, event.worker, event.pid, event)
        _runs.debug("%s #%d started on worker %d", event.job_id, event.number, event.worker, extra=who)


def _run_slow(event: events.RunSlow) -> None:
    text = f"{event.job_id} #{event.number} is slow: {human.seconds(event.elapsed)} so far, worker {event.worker}"
    text += f", pid {event.pid}; it goes on"
    if event.stack:
        text += f". It is here:\n{event.stack.rstrip()}"
    _runs.warning("%s", text, extra=_who(event.job_id, event.number, event.worker, event.pid, event))


def _run_retrying(event: events.RunRetrying) -> None:
    text = f"{run_line(event.record)}; next attempt in {human.seconds(event.retry_in)}"
    if event.record.error is not None:
        text += f": {error_text(event.record, event.record.error)}"
    _runs.warning("%s", text, extra=_who_ran(event.record, event))


# ------------------------------------------------------------------------------------------------------------- jobs


def _job_debug(words: str) -> Callable[[Any], None]:
    def write(event: events.JobAdded) -> None:
        if _jobs.isEnabledFor(logging.DEBUG):
            _jobs.debug("%s %s", event.job_id, words, extra=_who(event.job_id, event=event))

    return write


def _job_paused(event: events.JobPaused) -> None:
    who = _who(event.job_id, event=event)
    if event.reason:
        _jobs.warning("%s is paused: %s. resume() lets it go on", event.job_id, event.reason, extra=who)
    else:
        _jobs.info("%s is paused", event.job_id, extra=who)


def _job_resumed(event: events.JobResumed) -> None:
    _jobs.info("%s goes on", event.job_id, extra=_who(event.job_id, event=event))


# ---------------------------------------------------------------------------------------------------------- workers

_last_boot_error = ""  # the same one, from every slot again and again, is shown once


def _worker_started(event: events.WorkerStarted) -> None:
    who = _who(None, None, event.worker, event.pid, event)
    _workers.debug("worker %d is up, pid %d", event.worker, event.pid, extra=who)


def _worker_lost(event: events.WorkerLost) -> None:
    global _last_boot_error
    text = f"worker {event.worker} (pid {event.pid}) {_way_of_dying(event)}"
    who = _who(event.job_id, event.number, event.worker, event.pid, event)
    if event.boot_error:
        if event.boot_error == _last_boot_error:
            _workers.error("%s before it was ready, for the same reason", text, extra=who)
        else:
            _last_boot_error = event.boot_error
            _workers.error("%s before it was ready:\n%s", text, event.boot_error.rstrip(), extra=who)
        return
    if event.job_id is not None:
        text += f", {human.seconds(event.seconds or 0)} into {event.job_id} #{event.number}"
    if event.oom:
        text += ": by the kernel's out-of-memory killer"
    elif event.signal == "SIGKILL":
        text += f": {_OOM_HINT}"
    _workers.warning("%s", text, extra=who)


def _way_of_dying(event: events.WorkerLost) -> str:
    if event.signal is not None:
        return f"was ended by {event.signal}"
    if event.exitcode is not None:
        return f"exited with status {event.exitcode}"
    return "is gone"


def _worker_replaced(event: events.WorkerReplaced) -> None:
    who = _who(None, None, event.worker, event.pid, event)
    _workers.info("worker %d is back, pid %d in place of %d", event.worker, event.pid, event.old_pid, extra=who)


# -------------------------------------------------------------------------------------------------------- scheduler


def _scheduler_started(event: events.SchedulerStarted) -> None:
    global _last_boot_error
    _last_boot_error = ""
    _scheduler.info("%s started with %s", event.name, human.count(event.workers, "worker"), extra=_who(event=event))


def _scheduler_stopped(event: events.SchedulerStopped) -> None:
    _scheduler.info("%s stopped", event.name, extra=_who(event=event))


# ------------------------------------------------------------------------------------------------------------------


def _who(
    job: str | None = None,
    run: int | None = None,
    worker: int | None = None,
    pid: int | None = None,
    event: events.Event | None = None,
) -> dict[str, Any]:
    return {"job": job, "run": run, "worker": worker, "pid": pid, "event": event}


def _who_ran(record: RunRecord, event: events.Event) -> dict[str, Any]:
    return _who(record.job_id, record.number, record.worker, record.pid, event)


_LEVELS = {
    Outcome.SUCCEEDED: logging.INFO,
    Outcome.FAILED: logging.ERROR,
    Outcome.CRASHED: logging.ERROR,
    Outcome.TIMED_OUT: logging.ERROR,
    Outcome.ABORTED: logging.ERROR,
    Outcome.SKIPPED: logging.WARNING,
    Outcome.CANCELLED: logging.DEBUG,
}

_WRITERS: dict[type, Callable[[Any], None]] = {
    events.JobAdded: _job_debug("is scheduled"),
    events.JobReplaced: _job_debug("is scheduled anew"),
    events.JobCancelled: _job_debug("is cancelled"),
    events.JobFinished: _job_debug("is finished"),
    events.JobPaused: _job_paused,
    events.JobResumed: _job_resumed,
    events.RunStarted: _run_started,
    events.RunSlow: _run_slow,
    events.RunEnded: _run_ended,
    events.RunRetrying: _run_retrying,
    events.WorkerStarted: _worker_started,
    events.WorkerLost: _worker_lost,
    events.WorkerReplaced: _worker_replaced,
    events.SchedulerStarted: _scheduler_started,
    events.SchedulerStopped: _scheduler_stopped,
}
