"""Schedules: when a job runs. Pure: they are told the time, keep no state, and never change. Anywhere.

A schedule answers two questions, in nanoseconds of the timebase it lives in: when is the first slot, and which is the
one after this. Everything that needs memory is the engine's: which slots were missed and what becomes of them
(`Missed`), how many runs were made (`Schedule.times`), and the random part of ``jitter``. So one schedule can serve
any number of jobs.

Here are the base class and the schedules on a steady clock, and `At`. Those that read a calendar are in `calendars`.
"""

from __future__ import annotations

import copy
import operator
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self, SupportsIndex

from procsched.core.durations import Duration, duration_ns, duration_text
from procsched.core.model import Missed, Timebase
from procsched.core.walltime import instant_at, wall_ns

__all__ = ["After", "At", "FixedDelay", "FixedRate", "Schedule", "Value", "checked_missed"]

# One microsecond. To hand over a run takes about fifty, so a shorter period can't be meant: it is a slip in the unit,
# and would keep the parent busy for nothing. (The JDK's executor takes 1 ns, and burns a core with it.)
_SHORTEST_PERIOD = 1_000


class Schedule(ABC):
    """When a job runs; the base class of all schedules. Your own needs three things::

        class Doubling(Schedule):
            '''After 1 s, 2 s, 4 s, …'''

            timebase = Timebase.MONOTONIC

            def first(self, now: int) -> int | None:
                return now + 1_000_000_000

            def next(self, planned: int, finished: int) -> int | None:
                ...

    Times are int nanoseconds in the schedule's ``timebase``: of the monotonic clock, or since the Unix epoch. Both
    methods are called in the scheduler's loop, so they must be quick and pure: no waiting, no clock, no state. One that
    raises pauses its job.
    """

    timebase: Timebase
    """In which time this schedule lives: that of ``now``, ``planned`` and ``finished``, and of what is returned."""

    missed: Missed = Missed.CATCH_UP
    """What becomes of slots that passed unserved. By default a schedule is taken at its word: what `next` says runs."""
    jitter: int = 0
    """Up to so many nanoseconds, drawn anew each time, are added to a start. Never to the planned time."""

    limit: int | None = None
    """At most so many runs (`times`)."""
    last_at: int | None = None
    """No slot after this one, in nanoseconds since the Unix epoch, inclusive (`until`)."""
    starts_at: int | None = None
    """No slot before this one, in nanoseconds since the Unix epoch (`starting`)."""

    @abstractmethod
    def first(self, now: int) -> int | None:
        """The first slot of a job that is added, or resumed, at ``now``. None: there is none."""

    @abstractmethod
    def next(self, planned: int, finished: int) -> int | None:
        """The slot after ``planned``, whose run ended at ``finished``. None: that was the last one."""

    def latest(self, planned: int, now: int) -> tuple[int, int]:
        """The latest slot up to ``now``, and how many slots lie in ``[planned, latest)``.

        ``planned`` must be a slot, and not after ``now``. A schedule that knows one slot at a time has no others:
        ``(planned, 0)``. The count is exact for `FixedRate`; a calendar counts up to 1,000, and a larger number of
        slots is reported as that.
        """
        return planned, 0

    def gap(self, planned: int) -> int | None:
        """Nanoseconds from the slot ``planned`` to the following one. None: that isn't known, or there is none."""
        return None

    def times(self, n: SupportsIndex) -> Self:
        """A copy that makes at most ``n`` runs, 1 or more. The smaller of two limits counts."""
        if isinstance(n, bool) or not hasattr(n, "__index__"):
            raise TypeError(f"times({n!r}): give a whole number of runs, such as times(3)")
        limit = operator.index(n)
        if limit < 1:
            raise ValueError(f"times({n!r}): give 1 or more runs, such as times(3)")
        return self._bounded("limit", limit if self.limit is None else min(limit, self.limit))

    def until(self, when: datetime) -> Self:
        """A copy whose last slot is at ``when``, an aware datetime, or before. The earlier of two ends counts."""
        last_at = wall_ns(when, "until()")
        return self._bounded("last_at", last_at if self.last_at is None else min(last_at, self.last_at))

    def starting(self, when: datetime) -> Self:
        """A copy whose first slot is at ``when``, an aware datetime, or after. The later of two starts counts."""
        starts_at = wall_ns(when, "starting()")
        return self._bounded("starts_at", starts_at if self.starts_at is None else max(starts_at, self.starts_at))

    def _bounded(self, bound: str, value: int) -> Self:
        """A copy with this bound. Not a wrapper: a bounded `FixedDelay` must still be seen to be one."""
        bounded = copy.copy(self)
        object.__setattr__(bounded, bound, value)  # past the frozen dataclasses, ours and users'
        if bounded.starts_at is not None and bounded.last_at is not None and bounded.starts_at > bounded.last_at:
            raise ValueError(
                f"a schedule starting {instant_at(bounded.starts_at)} and only until {instant_at(bounded.last_at)} "
                f"has no slot; give until() a later datetime than starting()"
            )
        return bounded


@dataclass(frozen=True, init=False, repr=False, kw_only=True)
class Value(Schedule):
    """What our own schedules have in common: they are equal, and hash, by what they say, bounds included."""

    limit: int | None = None
    last_at: int | None = None
    starts_at: int | None = None

    def _set(self, **fields: object) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @abstractmethod
    def _arguments(self) -> list[str]:
        """The arguments to write in code for the same schedule; what is left at its default may be left out."""

    def __repr__(self) -> str:
        text = f"{type(self).__name__}({', '.join(self._arguments())})"
        if self.starts_at is not None:
            text += f".starting({instant_at(self.starts_at)!r})"
        if self.last_at is not None:
            text += f".until({instant_at(self.last_at)!r})"
        if self.limit is not None:
            text += f".times({self.limit})"
        return text


@dataclass(frozen=True, init=False, repr=False)
class At(Value):
    """Once, at a date and time: an aware `datetime`. One in the past runs at once.

    Raises `ValueError` for a naive datetime, and `TypeError` for anything else.
    """

    timebase = Timebase.WALL

    when: datetime = field(compare=False)  # equal datetimes of one zone may be an hour apart: they compare without fold
    instant: int

    def __init__(self, when: datetime) -> None:
        self._set(instant=wall_ns(when, "At()"), when=when)

    def first(self, now: int) -> int | None:
        """The date and time, whether ``now`` is before or after."""
        return self.instant

    def next(self, planned: int, finished: int) -> int | None:
        """None: once is once."""
        return None

    def _arguments(self) -> list[str]:
        return [repr(self.when)]


@dataclass(frozen=True, init=False, repr=False)
class After(Value):
    """Once, ``delay`` (0 or more) from now, on the steady clock: suspended time doesn't count, nor do clock changes.

    Raises `ValueError` and `TypeError` for senseless durations.
    """

    timebase = Timebase.MONOTONIC

    delay: int

    def __init__(self, delay: Duration) -> None:
        self._set(delay=duration_ns(delay, "After() delay", zero=True))

    def first(self, now: int) -> int | None:
        """``now + delay``."""
        return now + self.delay

    def next(self, planned: int, finished: int) -> int | None:
        """None: once is once."""
        return None

    def _arguments(self) -> list[str]:
        return [repr(duration_text(self.delay))]


@dataclass(frozen=True, init=False, repr=False)
class FixedRate(Value):
    """Every ``period``, however long the runs take: slots stay on the grid of the first one, and never drift.

    ``period``: 1 microsecond or more. ``initial_delay``: until the first slot, 0 or more; by default the first is due
    at once. ``missed``: what becomes of slots that came due while nothing could run. ``jitter``: each start is late by
    a random part of it, 0 or more; the grid doesn't move. As ``scheduleAtFixedRate`` of the JDK, but for ``missed``,
    which is always `Missed.CATCH_UP` there.

    Raises `ValueError` and `TypeError` for senseless durations, and `TypeError` for a ``missed`` that isn't a `Missed`.
    """

    timebase = Timebase.MONOTONIC

    period: int
    initial_delay: int
    missed: Missed
    jitter: int

    def __init__(
        self,
        period: Duration,
        *,
        initial_delay: Duration = 0,
        missed: Missed = Missed.COALESCE,
        jitter: Duration = 0,
    ) -> None:
        self._set(
            period=_period(period, "FixedRate() period"),
            initial_delay=duration_ns(initial_delay, "FixedRate() initial_delay", zero=True),
            missed=checked_missed(missed, "FixedRate() missed"),
            jitter=duration_ns(jitter, "FixedRate() jitter", zero=True),
        )

    def first(self, now: int) -> int | None:
        """``now + initial_delay``."""
        return now + self.initial_delay

    def next(self, planned: int, finished: int) -> int | None:
        """``planned + period``, whenever the run finished: whether that slot still counts is up to `missed`."""
        return planned + self.period

    def latest(self, planned: int, now: int) -> tuple[int, int]:
        """See `Schedule.latest`. At once, and exact, however far ``now`` is."""
        count = max(0, (now - planned) // self.period)
        return planned + count * self.period, count

    def gap(self, planned: int) -> int | None:
        """The period."""
        return self.period

    def _arguments(self) -> list[str]:
        arguments = [repr(duration_text(self.period)), *_optional(self, "initial_delay")]
        if self.missed is not Missed.COALESCE:
            arguments.append(f"missed={self.missed}")
        return arguments + _optional(self, "jitter")


@dataclass(frozen=True, init=False, repr=False)
class FixedDelay(Value):
    """Again ``delay`` after each run has ended, whether it succeeded, failed or crashed. Runs never overlap.

    ``delay``: 1 microsecond or more. ``initial_delay``: until the first slot, 0 or more; by default the first is due at
    once. ``jitter``: each start is late by a random part of it, 0 or more. As ``scheduleWithFixedDelay`` of the JDK,
    but a failure doesn't end the series.

    Raises `ValueError` and `TypeError` for senseless durations.
    """

    timebase = Timebase.MONOTONIC

    delay: int
    initial_delay: int
    jitter: int

    def __init__(self, delay: Duration, *, initial_delay: Duration = 0, jitter: Duration = 0) -> None:
        self._set(
            delay=_period(delay, "FixedDelay() delay"),
            initial_delay=duration_ns(initial_delay, "FixedDelay() initial_delay", zero=True),
            jitter=duration_ns(jitter, "FixedDelay() jitter", zero=True),
        )

    def first(self, now: int) -> int | None:
        """``now + initial_delay``."""
        return now + self.initial_delay

    def next(self, planned: int, finished: int) -> int | None:
        """``finished + delay``."""
        return finished + self.delay

    def _arguments(self) -> list[str]:
        return [repr(duration_text(self.delay)), *_optional(self, "initial_delay"), *_optional(self, "jitter")]


def checked_missed(missed: Missed, what: str) -> Missed:
    """The policy itself. Raises `TypeError` for anything else, also for its name as text."""
    if not isinstance(missed, Missed):
        choices = ", ".join(map(str, Missed))
        raise TypeError(f"{what} is {missed!r}; give one of {choices}")
    return missed


def _period(value: Duration, what: str) -> int:
    period = duration_ns(value, what)
    if period < _SHORTEST_PERIOD:
        raise ValueError(
            f"{what} is {value!r}, which is {duration_text(period)}; give at least {duration_text(_SHORTEST_PERIOD)}, "
            f"such as '10ms' (a bare number counts seconds)"
        )
    return period


def _optional(schedule: Schedule, name: str) -> list[str]:
    value: int = getattr(schedule, name)
    return [f"{name}={duration_text(value)!r}"] if value else []
