"""Changes: what one operation of the timetable did beside what was asked for. Pure.

The core calls nobody: what others must hear of comes back as one of these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from procsched.core.model import JobRow, Run

__all__ = ["NO_CHANGES", "Changes"]


@dataclass(slots=True)
class Changes:
    """What one operation did beside what was asked for."""

    runs: list[Run] = field(default_factory=list)
    """From `Timetable.take`: for a worker."""
    skipped: list[Run] = field(default_factory=list)
    """Ended SKIPPED: too late."""
    cancelled: list[Run] = field(default_factory=list)
    """Ended CANCELLED: they never start."""
    offered: list[Run] = field(default_factory=list)
    """In some worker's hands: whoever owns the channels should take them back, and `drop` those that it could."""
    ended: list[Run] = field(default_factory=list)
    """Were in back-off and aren't tried again: they end as their last attempt did."""
    unmade: list[Run] = field(default_factory=list)
    """Slots of a paused job that had been handed over and hadn't started: as if they had never been runs."""
    paused: list[tuple[JobRow, Exception | None]] = field(default_factory=list)
    """By failures (None), or by what the schedule raised."""
    finished: list[JobRow] = field(default_factory=list)
    over: list[JobRow] = field(default_factory=list)
    """Jobs that a shutdown has ended."""
    retry_at: int | None = None
    """The settled run goes on, at this monotonic instant."""
    prevented: bool = False
    """Whether something was kept from starting."""


NO_CHANGES = Changes()
"""One for all operations that did nothing else; never changed."""
