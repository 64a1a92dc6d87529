"""Calendar schedules: `Daily` and `Cron`, which follow the local time of a zone. Pure; runs anywhere.

Both are a rising sequence of *local* times (dates times hours; what a cron expression matches), laid over instants:

- *once*: each local time has one instant, the first at which clocks show it or, in a gap, have gone past it. Two local
  times on one instant are one slot. So it is for `Daily`, and for cron expressions that name their hours.
- *as shown*: a slot is whenever clocks show such a local time: not at all in a gap, twice in a repeated hour. So it
  is for cron expressions with ``*`` as the minute or hour.

Laying out is bounded: a day at a time for `Daily`, fifty years for `Cron`, and the year 9999 ends all.
"""

from __future__ import annotations

import contextlib
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from procsched.core.model import Missed, Timebase
from procsched.core.schedules import Value, checked_missed
from procsched.core.walltime import change_within, find_zone, instant_at, local_time, offset_at, reached, to_ns

__all__ = ["Calendar", "Cron", "Daily"]

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_ONE_DAY = timedelta(days=1)
_ONE_SECOND = timedelta(seconds=1)

_COUNTED = 1_000  # slots that `latest` counts one by one: some milliseconds

_NICKNAMES = {  # crontab(5); not @reboot, which is no time
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclass(frozen=True, init=False, repr=False)
class Calendar(Value):
    """What `Daily` and `Cron` have in common: everything but the sequence of slots."""

    timebase = Timebase.WALL

    timezone: tzinfo | None
    missed: Missed

    @abstractmethod
    def _slots(self, after: datetime) -> Iterator[datetime]:
        """Every slot strictly after the instant, rising, a second or more apart. `OverflowError` ends it too."""

    def first(self, now: int) -> int | None:
        """The first slot strictly after ``now``; None past the year 9999."""
        return next(self._slots_after(now), None)

    def next(self, planned: int, finished: int) -> int | None:
        """The slot that follows ``planned``, whenever its run finished: whether it still counts is up to `missed`."""
        return next(self._slots_after(planned), None)

    def latest(self, planned: int, now: int) -> tuple[int, int]:
        """See `Schedule.latest`. Counts up to 1,000; finds the latest in about thirty steps, however far ``now`` is."""
        latest, count = planned, 0
        for slot in self._slots_after(planned):
            if slot > now:
                return latest, count
            if count == _COUNTED:
                return self._latest_by_halving(slot, now), count
            latest, count = slot, count + 1
        return latest, count

    def gap(self, planned: int) -> int | None:
        """Nanoseconds from ``planned`` to the slot that follows it; None at the end of the calendar."""
        following = self.next(planned, planned)
        return None if following is None else following - planned

    def _latest_by_halving(self, slot: int, now: int) -> int:
        """The latest slot up to ``now``, given an earlier one."""
        # "The slot after x lies at or before now" is true for every x before the latest slot and false from there on.
        # Whole seconds will do, since slots are never closer.
        low, high = -1, (now - slot) // 10**9 + 1
        latest = slot
        while high - low > 1:
            middle = (low + high) // 2
            following = self.first(slot + middle * 10**9)
            if following is not None and following <= now:
                low, latest = middle, following
            else:
                high = middle
        return latest

    def _slots_after(self, ns: int) -> Iterator[int]:
        with contextlib.suppress(OverflowError):  # before the year 1, past 9999
            for slot in self._slots(instant_at(ns)):
                yield to_ns(slot)

    def _once(self, after: datetime, local_times: Iterator[datetime]) -> Iterator[datetime]:
        """Each local time at its one instant, as far as that is after the given one."""
        for local in local_times:
            instant = reached(local, self.timezone)
            if instant > after:
                yield instant
                after = instant

    def _options(self) -> list[str]:
        options = []
        if self.timezone is not None:
            options.append(f"timezone={getattr(self.timezone, 'key', None) or self.timezone!r}")
        if self.missed is not Missed.COALESCE:
            options.append(f"missed={self.missed}")
        return options


@dataclass(frozen=True, init=False, repr=False)
class Daily(Calendar):
    """At one or more times of day, on every date of a time zone or on some days of the week::

        Daily("02:00", timezone="Europe/Paris")
        Daily("09:00", "12:30", "17:00", days="mon-fri")

    ``times``: ``"HH:MM"`` or ``"HH:MM:SS"``, 24 hours. ``timezone``: an IANA name, a tzinfo, or None for this machine's
    local time. ``days``: ``"mon-fri"``, ``"mon,wed,fri"``, names in an iterable, or None for all. ``missed``: what
    becomes of slots that came due while nothing could run.

    There is exactly one slot for each date and time, whatever clocks do: a time that they jump over is served at the
    first valid instant after it, one that they show twice at the first pass. Times that so fall on one instant share a
    slot. A date that a zone skipped altogether (2011-12-30 in Pacific/Apia) never was, and has none.

    Raises `ValueError` for a time, zone or day that can't be read, and `TypeError` for other types.
    """

    at: tuple[time, ...]
    days: tuple[int, ...]

    def __init__(
        self,
        *times: str,
        timezone: str | tzinfo | None = None,
        days: str | Iterable[str] | None = None,
        missed: Missed = Missed.COALESCE,
    ) -> None:
        if not times:
            raise ValueError("Daily() has no time of day; give one or more, such as Daily('02:00', '14:30')")
        self._set(
            at=tuple(sorted({_time_of_day(text) for text in times})),
            timezone=find_zone(timezone, "Daily() timezone"),
            days=tuple(range(7)) if days is None else _days_of_week(days),
            missed=checked_missed(missed, "Daily() missed"),
        )

    def _slots(self, after: datetime) -> Iterator[datetime]:
        return self._once(after, self._local_times(local_time(after, self.timezone).date()))

    def _local_times(self, day: date) -> Iterator[datetime]:
        while True:  # until the date overflows
            if day.weekday() in self.days and self._exists(day):
                for time_of_day in self.at:
                    yield datetime.combine(day, time_of_day)
            day += _ONE_DAY

    def _exists(self, day: date) -> bool:
        # A date is missing when what comes first at or after its midnight belongs to another one. (It isn't enough that
        # a time of it is jumped to the next date: in America/Nuuk the gap is the last hour of a Saturday.)
        midnight = reached(datetime.combine(day, time()), self.timezone)
        return local_time(midnight, self.timezone).date() == day

    def _arguments(self) -> list[str]:
        times = [repr(t.isoformat("seconds" if t.second else "minutes")) for t in self.at]
        days = [] if len(self.days) == 7 else [f"days={','.join(_DAYS[day] for day in self.days)!r}"]
        return times + days + self._options()


@dataclass(frozen=True, init=False, repr=False)
class Cron(Calendar):
    """By a cron expression, in a time zone::

        Cron("*/5 9-17 * * mon-fri")                   # minute, hour, day of month, month, day of week
        Cron("*/10 * * * * *")                         # six fields: seconds first
        Cron("@daily", timezone="America/New_York")    # also @hourly @weekly @monthly @yearly @midnight @annually

    ``timezone``: an IANA name, a tzinfo, or None for this machine's local time. ``missed``: what becomes of slots that
    came due while nothing could run.

    The language is that of cronsim: Debian's cron (0 and 7 are Sunday; of day of
    month and day of week one is enough, unless one starts with ``*``), and ``L``, ``LW``, ``5L`` and ``mon#2``.
    Daylight saving time is handled as Debian's cron(8) and cronsim do: where minute and hour don't start with ``*``, a
    time that clocks jump over is served right after the gap, and one that they show twice at the first pass.
    All other expressions, and those with seconds, which Debian doesn't know, follow the clocks as they show: nothing in
    a gap, both passes of a repeated hour.

    Raises `ValueError` for an expression that can't be read or never matches (30 February), and for an unknown zone;
    `TypeError` for other types.
    """

    expression: str

    def __init__(self, expression: str, timezone: str | tzinfo | None = None, missed: Missed = Missed.COALESCE) -> None:
        if not isinstance(expression, str):
            raise TypeError(f"Cron() expression is {expression!r} ({type(expression).__name__}); {_CRON_ACCEPTED}")
        self._set(
            expression=" ".join(expression.split()),
            timezone=find_zone(timezone, "Cron() timezone"),
            missed=checked_missed(missed, "Cron() missed"),
        )
        self._check()

    def _check(self) -> None:
        from cronsim import CronSimError

        reason = "it never matches a date"
        try:
            # From 2000 on, twenty-eight years contain every kind of year: leap or not, by each day of the week.
            found = next(self._matches(datetime(2000, 1, 1)), None)
        except (CronSimError, ValueError) as error:  # ValueError: a number of thousands of digits
            found, reason = None, str(error) if isinstance(error, CronSimError) else "Bad number"
        if found is None:
            shown = self.expression if len(self.expression) <= 80 else f"{self.expression[:77]}..."
            raise ValueError(f"Cron() expression is {shown!r}: {reason}; {_CRON_ACCEPTED}")

    @property
    def _fields(self) -> str:
        return _NICKNAMES.get(self.expression.lower(), self.expression)

    def _matches(self, after: datetime) -> Iterator[datetime]:
        """The local times that match, strictly after the given one, up to a gap of fifty years."""
        from cronsim import CronSim  # here, since many programs have no cron jobs

        # Naive, so that cronsim does its dates and fields and leaves the zone to us: given zones, it loses slots in
        # Australia/Lord_Howe, whose clocks move by half an hour, and at midnights that don't exist.
        return CronSim(self._fields, after)

    def _slots(self, after: datetime) -> Iterator[datetime]:
        minute, hour, *others = self._fields.split()
        if len(others) == 3 and not minute.startswith("*") and not hour.startswith("*"):
            return self._once(after, self._matches(local_time(after, self.timezone)))
        return self._as_shown(after)

    def _as_shown(self, after: datetime) -> Iterator[datetime]:
        """Each instant at which clocks show a match: one stretch of a constant offset after the other."""
        since, local_since = after, local_time(after, self.timezone)
        while True:
            offset = offset_at(since, self.timezone)
            for local in self._matches(local_since):
                slot = local.replace(tzinfo=UTC) - offset
                change = change_within(since, slot, self.timezone)
                if change is not None:
                    since, local_since = change, local_time(change, self.timezone) - _ONE_SECOND
                    break
                yield slot
                since = slot
            else:
                return

    def _arguments(self) -> list[str]:
        return [repr(self.expression), *self._options()]


_CRON_ACCEPTED = (
    "write five fields (minute, hour, day of month, month, day of week) or six with seconds first, "
    "such as '*/5 9-17 * * mon-fri', or one of " + ", ".join(_NICKNAMES)
)


def _time_of_day(text: str) -> time:
    if not isinstance(text, str):
        raise TypeError(
            f"Daily() time is {text!r} ({type(text).__name__}); write each time as text: Daily('02:00', '14:30')"
        )
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"Daily() time is {text[:80]!r}; write it as HH:MM or HH:MM:SS, from '00:00' to '23:59:59'")
    hour, minute, second = found.groups("0")
    return time(int(hour), int(minute), int(second))


def _days_of_week(days: str | Iterable[str]) -> tuple[int, ...]:
    accepted = "write 'mon-fri', 'mon,wed,fri' or ['sat', 'sun'] (mon, tue, wed, thu, fri, sat, sun)"
    if not isinstance(days, (str, Iterable)):
        raise TypeError(f"Daily() days is {days!r} ({type(days).__name__}); {accepted}")
    terms = days.split(",") if isinstance(days, str) else list(days)
    chosen: set[int] = set()
    for term in terms:
        if not isinstance(term, str):
            raise TypeError(f"Daily() days has {term!r} ({type(term).__name__}); {accepted}")
        ends = [_day_of_week(name) for name in term.split("-")]
        first, last = ends[0], ends[-1]
        if len(ends) > 2 or first is None or last is None:
            raise ValueError(f"Daily() days has {term[:80]!r}; {accepted}")
        chosen.update((first + step) % 7 for step in range((last - first) % 7 + 1))  # "fri-mon" goes over the weekend
    if not chosen:
        raise ValueError(f"Daily() days is {days!r}, which leaves no day; {accepted}")
    return tuple(sorted(chosen))


def _day_of_week(name: str) -> int | None:
    name = name.strip().lower()
    if name in _DAYS:
        return _DAYS.index(name)
    return _DAY_NAMES.index(name) if name in _DAY_NAMES else None
