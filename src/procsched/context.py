"""What a run can know about itself: `current_run`. Lives in the worker; importable anywhere, imports next to nothing.

A module global and no context variable: also the threads that a run starts belong to it.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable
    from typing import Any

__all__ = ["CurrentRun", "current_run", "in_worker"]

_run: CurrentRun | tuple[Any, ...] | None = None
"""The current run; or, until somebody asks (most tiny runs never do), what it will be made of: the name of its job or
function, whether it is a call, and what `CurrentRun` takes after the job id."""
_in_worker = False


class CurrentRun:
    """The run that is being executed."""

    __slots__ = ("_planned", "_progress", "_started", "_stop", "_timeout", "attempt", "job_id", "number", "ticket")

    def __init__(
        self,
        job_id: str,
        number: int,
        attempt: int,
        planned: int,
        timeout: int = 0,
        started: int = 0,
        stop: Callable[[int], bool] | None = None,
        progress: Callable[[CurrentRun, float, str], None] | None = None,
        ticket: int = 0,
    ) -> None:
        """Times in ns: ``planned`` on the wall clock, ``started`` on the monotonic one, ``timeout`` 0 for none."""
        self.job_id = job_id
        self.number = number
        self.attempt = attempt
        self.ticket = ticket
        self._planned = planned
        self._timeout = timeout
        self._started = started
        self._stop = stop
        self._progress = progress

    @property
    def planned(self) -> datetime.datetime:
        """When it was meant to start (aware, UTC)."""
        return _datetime(self._planned)

    @property
    def deadline(self) -> datetime.datetime | None:
        """When the job's ``timeout`` ends it (aware, UTC); None without one."""
        if not self._timeout:
            return None
        running = time.monotonic_ns() - self._started if self._started else 0
        return _datetime(time.time_ns() - running + self._timeout)

    def should_stop(self) -> bool:
        """True once the job is cancelled or the scheduler stops: a request, never force."""
        return self._stop is not None and self._stop(self.ticket)

    def progress(self, fraction: float, message: str = "") -> None:
        """Tell how far the run is, 0 to 1; shown in the live views. Never blocks; a flood is dropped and counted."""
        if self._progress is not None:
            self._progress(self, float(fraction), str(message))

    def __repr__(self) -> str:
        return f"<CurrentRun {self.job_id} number {self.number} attempt {self.attempt}>"


def current_run() -> CurrentRun:
    """The run that this code belongs to. `LookupError` outside of one."""
    run = peek()
    if run is None:
        raise LookupError("no run is being executed here: current_run() is for functions that a worker runs")
    return run


def peek() -> CurrentRun | None:
    """The current run, or None."""
    global _run
    run = _run
    if isinstance(run, tuple):
        name, is_call, number, *others = run
        made = CurrentRun(f"{name}-{number}" if is_call else name, number, *others)
        if _run is run:
            _run = made
        return made
    return run


def in_worker() -> bool:
    """Whether this process is a worker (or was forked by a run)."""
    return _in_worker


def enter(run: CurrentRun | None) -> None:
    """From now on ``run`` is the current one; None: there is none."""
    global _run
    _run = run


def become_worker() -> None:
    """Called once, when a worker starts."""
    global _in_worker
    _in_worker = True


def _datetime(wall: int) -> datetime.datetime:
    import datetime

    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + datetime.timedelta(microseconds=wall // 1000)
