"""The next runs of a job, by asking its schedule as if each run took no time. In the parent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from procsched.core.model import Timebase

if TYPE_CHECKING:
    from procsched.cli.selection import Plan

__all__ = ["upcoming_runs"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def upcoming_runs(plan: Plan, now: datetime, most: int) -> list[datetime]:
    """At most so many, earliest first."""
    first = plan.job.next_run_time
    if first is None:
        return []
    times = [first]
    schedule = plan.when
    if isinstance(schedule, datetime):
        return times
    limit = getattr(schedule, "limit", None)
    last_at = getattr(schedule, "last_at", None)
    wall = _nanoseconds(first)
    # Monotonic schedules count from a moment of their own: any will do, as long as it isn't negative
    offset = 0 if schedule.timebase is Timebase.WALL else _nanoseconds(now)
    while len(times) < most and (limit is None or len(times) < limit):
        following = schedule.next(wall - offset, wall - offset)
        if following is None or (last_at is not None and following + offset > last_at):
            break
        wall = following + offset
        try:
            times.append(_EPOCH + timedelta(microseconds=wall // 1000))
        except OverflowError:  # beyond the year 9999
            break
    return times


def _nanoseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
