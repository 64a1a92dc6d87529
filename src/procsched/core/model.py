"""The nouns: what jobs and runs are, and the words for how they end. Pure; runs anywhere.

Times are ``int`` nanoseconds, in one of two timebases: monotonic, or wall (since the Unix epoch).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    pass

__all__ = ["JobState", "Missed", "Now", "Outcome", "Priority", "ReadyOrder", "Timebase"]


class Now(NamedTuple):
    """One reading of both clocks, in nanoseconds."""

    mono: int
    wall: int


class Timebase(enum.Enum):
    """In which time a schedule lives."""

    MONOTONIC = "monotonic"
    """Steady: no step of the wall clock moves it, and suspended time doesn't count."""
    WALL = "wall"
    """The calendar: nanoseconds since the Unix epoch."""


class Outcome(enum.Enum):
    """How a run ended. Every run ends exactly once."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """It raised, called `sys.exit`, or its value couldn't be sent."""
    CRASHED = "crashed"
    """Its worker died."""
    TIMED_OUT = "timed_out"
    ABORTED = "aborted"
    """Ended by a shutdown whose time had run out."""
    SKIPPED = "skipped"
    """Never started: it couldn't within its ``misfire_grace_time``."""
    CANCELLED = "cancelled"
    """Never started: cancelled, or dropped by a shutdown."""

    @property
    def started(self) -> bool:
        """Whether a run with this outcome had been executing."""
        return self not in (Outcome.SKIPPED, Outcome.CANCELLED)


class JobState(enum.Enum):
    """Where a job is in its life."""

    SCHEDULED = "scheduled"
    PAUSED = "paused"
    FINISHED = "finished"
    """No slot is left, and the last run has ended."""
    CANCELLED = "cancelled"


class Missed(enum.Enum):
    """What to do when several slots of a job are due and unserved.

    Due at 0, period 10, and the first run lasts until 35:
    """

    CATCH_UP = "catch_up"
    """Every slot, one after the other: ``0 … 35: 10, 20, 30, 40``."""
    COALESCE = "coalesce"
    """Once, for the latest: ``0 … 35: 30 (late, at once), 40``."""
    SKIP = "skip"
    """Not at all what came due meanwhile: ``0 … 35: 40``."""


class ReadyOrder(enum.Enum):
    """Who goes first among due runs that wait for a worker."""

    DUE = "due"
    """When it became due, then priority, then submission."""
    PRIORITY = "priority"
    """Priority, then planned time, then submission."""


class Priority(enum.IntEnum):
    """The smaller runs first, as with ``nice``. Any int will do."""

    HIGH = 1
    MEDIUM = 2
    LOW = 3
