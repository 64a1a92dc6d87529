"""Job: the handle of a scheduled job. Runs in the parent, in every thread.

The module isn't called ``job``: that is the name of the decorator in the package.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from procsched.core.model import JobState, Outcome
from procsched.doorway import check_instances, schedule_of, seconds
from procsched.futures import Follower
from procsched.ledger import SECOND, instant, record_of
from procsched.series import Series

if TYPE_CHECKING:
    from datetime import datetime

    from procsched.core.model import JobRow
    from procsched.core.schedules import Schedule
    from procsched.engine import Engine
    from procsched.records import RunRecord

__all__ = ["Job", "JobStats"]


class JobStats(NamedTuple):
    """Sums over a job's runs. Durations in seconds; None while there is nothing to take a mean of."""

    runs: int
    """That started and ended."""
    succeeded: int
    failed: int
    crashed: int
    timed_out: int
    aborted: int
    skipped: int
    cancelled: int
    missed: int
    """Slots dropped by the missed-run policy; they leave no record."""
    mean_duration: float | None
    max_duration: float | None
    mean_lateness: float | None
    max_lateness: float | None


class Job:
    """A scheduled job. Handles of the same job are equal; a job that ended keeps its data for its handles."""

    __slots__ = ("_engine", "_row")

    def __init__(self, engine: Engine, row: JobRow) -> None:
        self._engine = engine
        self._row = row

    # -- what it is -----------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self._row.id

    @property
    def state(self) -> JobState:
        return self._row.state

    @property
    def executing(self) -> int:
        """Runs of it that execute now, back-off between attempts included."""
        return self._row.executing

    @property
    def generation(self) -> int:
        """Which scheduling of the whole scheduler this is; `reschedule` makes a new one."""
        return self._row.generation

    @property
    def tags(self) -> frozenset[str]:
        return self._row.options.tags

    @property
    def schedule(self) -> Schedule:
        return self._row.schedule

    @property
    def next_run_time(self) -> datetime | None:
        """Planned time of the next slot (UTC); None when there is none, or none that can be known yet."""
        engine = self._engine
        with engine.lock:
            slot = engine.timetable.next_run(self._row, engine.now())
        try:
            return None if slot is None else instant(slot)
        except OverflowError:  # further away than a datetime can say
            return None

    @property
    def last(self) -> RunRecord | None:
        """The record of its latest run that ended."""
        notes = self._row.notes
        return record_of(notes.history[-1]) if notes is not None and notes.history else None

    @property
    def history(self) -> list[RunRecord]:
        """The records of its last 100 runs, oldest first."""
        notes = self._row.notes
        if notes is None:
            return []
        with self._engine.lock:
            lines = list(notes.history)
        return [record_of(line) for line in lines]

    @property
    def stats(self) -> JobStats:
        notes = self._row.notes
        with self._engine.lock:
            counts = notes.all_counts() if notes is not None else {}
            runs = notes.runs if notes is not None else 0
            sums = (notes.duration, notes.lateness) if notes is not None else (0, 0)
            most = (notes.max_duration, notes.max_lateness) if notes is not None else (0, 0)
        return JobStats(
            runs=runs,
            missed=self._row.missed,
            mean_duration=sums[0] / runs / SECOND if runs else None,
            max_duration=most[0] / SECOND if runs else None,
            mean_lateness=sums[1] / runs / SECOND if runs else None,
            max_lateness=most[1] / SECOND if runs else None,
            **{outcome.value: counts.get(outcome.value, 0) for outcome in Outcome},
        )

    # -- what can be done with it ---------------------------------------------------------------------------------

    def cancel(self) -> bool:
        """End the job: after this has returned none of its runs starts. One that executes finishes.

        Returns:
            True when it kept a run from starting, False when there was nothing left to prevent.
        """
        return self._engine.cancel(self._row)

    def pause(self) -> None:
        """Start no slot until `resume`; slots that pass meanwhile are dropped.

        Raises:
            JobLookupError: The job has ended.
        """
        self._engine.pause(self._row)

    def resume(self) -> None:
        """Go on with the next future slot (`FixedDelay`: its delay from now).

        Raises:
            JobLookupError: The job has ended.
        """
        self._engine.resume(self._row)

    def reschedule(self, when: Schedule | datetime) -> None:
        """Give it another schedule: a new generation, with the same function and arguments.

        Raises:
            JobLookupError: The job has ended.
        """
        schedule = schedule_of(when)
        check_instances(schedule, self._row.options.max_instances)
        self._engine.reschedule(self._row, schedule)

    def run_now(self) -> Future[Any]:
        """An extra run as soon as may be, beside the schedule, also while paused.

        It waits for its turn under ``max_instances``. At most one is queued: until it starts, later calls get its
        Future.

        Raises:
            JobLookupError: The job has ended.
        """
        return self._engine.run_now(self._row)

    def next_future(self) -> Future[Any]:
        """The Future of the first run handed over from now on; cancelled when the job ends before that."""
        future = Follower()
        self._engine.follow(self._row, waiter=future)
        return future

    def results(self) -> Series:
        """Its runs from now on, to iterate over: a done Future each, in order, until the job ends.

        The newest 100 are kept for a slow reader.
        """
        series = Series()
        self._engine.follow(self._row, series=series)
        return series

    def wait(self, timeout: float | None = None) -> bool:
        """Until the job has ended, or is paused with nothing executing; False when ``timeout`` seconds passed first."""
        self._engine.check_usable()
        return self._engine.waiting.until(self._is_over, seconds(timeout, "wait() timeout"))

    def _is_over(self) -> bool:
        row = self._row
        return (row.state is not JobState.SCHEDULED) and not row.live

    # -- the rest -------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other._row is self._row

    def __hash__(self) -> int:
        return hash(self._row)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Job can't be sent to a worker, which could only pretend to change it; send its id instead")

    def __repr__(self) -> str:
        return f"<Job {self.id!r} {self.state.value}, generation {self.generation}>"
