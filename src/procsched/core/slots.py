"""What is asked of a schedule, with its bounds applied and its answers checked. Pure.

A schedule may be a user's own: whatever goes wrong in it comes out as `ScheduleFailed`, so that the loop, which asks
under its lock, never sees a stranger's exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from procsched.core.model import Timebase
from procsched.core.schedules import FixedDelay

if TYPE_CHECKING:
    from procsched.core.model import Now
    from procsched.core.schedules import Schedule

__all__ = [
    "ScheduleFailed",
    "base_time",
    "first_slot",
    "following_slot",
    "latest_slot",
    "slot_after_pause",
    "to_mono",
    "to_wall",
]

_MOST_QUESTIONS = 1000
"""How often a user's schedule is asked for a slot in the future before its answer is taken as it is."""


class ScheduleFailed(Exception):
    """A schedule raised, or answered with something that isn't a later instant."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


def base_time(schedule: Schedule, now: Now) -> int:
    """The time in the schedule's own timebase."""
    return now.wall if schedule.timebase is Timebase.WALL else now.mono


def to_mono(schedule: Schedule, slot: int, now: Now) -> int:
    """The monotonic instant of a slot, as the clocks stand now."""
    return now.mono - (now.wall - slot) if schedule.timebase is Timebase.WALL else slot


def to_wall(schedule: Schedule, slot: int, now: Now) -> int:
    """The wall instant of a slot, as the clocks stand now."""
    return slot if schedule.timebase is Timebase.WALL else now.wall - (now.mono - slot)


def _bound(schedule: Schedule, now: Now) -> int | None:
    """``until`` in the schedule's timebase, as the clocks stand now."""
    if schedule.last_at is None:
        return None
    return schedule.last_at if schedule.timebase is Timebase.WALL else now.mono + schedule.last_at - now.wall


def _checked(schedule: Schedule, slot: object, after: int | None, now: Now) -> int | None:
    if slot is None:
        return None
    if isinstance(slot, bool) or not isinstance(slot, int):
        raise ScheduleFailed(TypeError(f"{schedule!r} answered {slot!r}: a slot is an int of nanoseconds, or None"))
    if after is not None and slot <= after:
        raise ScheduleFailed(ValueError(f"{schedule!r} answered {slot}, which isn't later than its last slot {after}"))
    bound = _bound(schedule, now)
    return None if bound is not None and slot > bound else slot


def first_slot(schedule: Schedule, now: Now) -> int | None:
    """The first slot of a job that is scheduled (or planned anew) now. What the schedule raises passes as a failure."""
    asked = base_time(schedule, now)
    earliest = None
    if schedule.starts_at is not None:
        if schedule.timebase is Timebase.WALL:
            earliest = schedule.starts_at
            asked = max(asked, earliest - 1)  # calendar schedules answer strictly later than what they are told
        else:
            earliest = now.mono + schedule.starts_at - now.wall
            asked = max(asked, earliest)
    try:
        slot = schedule.first(asked)
    except Exception as error:
        raise ScheduleFailed(error) from error
    slot = _checked(schedule, slot, None, now)
    return None if slot is None or (earliest is not None and slot < earliest) else slot


def following_slot(schedule: Schedule, planned: int, finished: int, now: Now) -> int | None:
    """The slot after ``planned``, for a run that ended at ``finished`` (both in the schedule's timebase)."""
    try:
        slot = schedule.next(planned, finished)
    except Exception as error:
        raise ScheduleFailed(error) from error
    return _checked(schedule, slot, planned, now)


def latest_slot(schedule: Schedule, planned: int, at: int, now: Now) -> tuple[int, int]:
    """The latest slot that is due at ``at``, and how many unserved ones lie before it."""
    bound = _bound(schedule, now)
    if bound is not None and bound < at:
        at = max(bound, planned)
    try:
        return schedule.latest(planned, at)
    except Exception as error:
        raise ScheduleFailed(error) from error


def slot_after_pause(schedule: Schedule, planned: int, at: int, now: Now) -> int | None:
    """The first slot later than ``at``: what was passed over in a pause is dropped (`FixedDelay`: a whole delay)."""
    if isinstance(schedule, FixedDelay):
        return following_slot(schedule, planned, at, now)
    slot: int | None = planned
    for _ in range(_MOST_QUESTIONS):
        if slot is None or slot > at:
            break
        latest, _dropped = latest_slot(schedule, slot, at, now)
        slot = following_slot(schedule, latest, at, now)
    return slot
