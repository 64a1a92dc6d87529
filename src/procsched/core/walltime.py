"""Wall time: instants, and what the clocks of a time zone show at them. Pure; runs anywhere.

Three forms of time, and only these, so that no two of them can be mixed up unnoticed:

- ``int`` nanoseconds since the Unix epoch, as everywhere else in the core;
- an *instant*: an aware `datetime` in UTC. Differences are taken between these only, since Python's difference of two
  times of one zone ignores the change of offset that lies between them;
- a *local time*: a naive `datetime`, what a clock on the wall shows. It may show it twice, or never.

Everything rests on the one direction that is never ambiguous, from an instant to the local time. So it makes no
difference whether a tzinfo knows about ``fold``, and ``None`` needs no code of its own: it is the machine's local time,
as `datetime.astimezone` finds it through the C library (``TZ``, ``/etc/localtime``), which also understands the rules
that have no name (``TZ=CET-1CEST,M3.5.0,M10.5.0/3``).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo

__all__ = ["change_within", "find_zone", "instant_at", "local_time", "offset_at", "reached", "to_ns", "wall_ns"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
_STRIDE = timedelta(days=5)


def instant_at(ns: int) -> datetime:
    """The instant ``ns`` after the Unix epoch, rounded down to a microsecond. `OverflowError` outside years 1-9999."""
    return _EPOCH + timedelta(microseconds=ns // 1_000)


def to_ns(instant: datetime) -> int:
    """An aware datetime as nanoseconds since the Unix epoch, exactly."""
    return (instant.astimezone(UTC) - _EPOCH) // _MICROSECOND * 1_000


def wall_ns(when: datetime, what: str) -> int:
    """A datetime from a user as nanoseconds since the Unix epoch; ``what`` names the argument in error messages.

    Raises `TypeError` for anything but a datetime, and `ValueError` for a naive one: it leaves the instant open.
    """
    if not isinstance(when, datetime):
        raise TypeError(
            f"{what} is {when!r} ({type(when).__name__}); give an aware datetime, "
            f"such as datetime(2030, 1, 31, 12, 0, tzinfo=ZoneInfo('Europe/Paris'))"
        )
    if when.utcoffset() is None:
        raise ValueError(
            f"{what} is {when!r}, which is naive: it doesn't say in which time zone. Give an aware one: "
            f"add tzinfo=ZoneInfo('Europe/Paris') or tzinfo=UTC, or write .astimezone() for this machine's zone"
        )
    try:
        return to_ns(when)
    except OverflowError:
        raise ValueError(f"{what} is {when!r}, which lies outside the years 1 to 9999 in UTC") from None


def find_zone(timezone: str | tzinfo | None, what: str) -> tzinfo | None:
    """The time zone that a user named. None stays None: the machine's own.

    Raises `TypeError` for anything but a name, a tzinfo or None, and `ValueError` for an unknown name.
    """
    if timezone is None or isinstance(timezone, tzinfo):
        return timezone
    if not isinstance(timezone, str):
        raise TypeError(
            f"{what} is {timezone!r} ({type(timezone).__name__}); give a name such as 'Europe/Paris', a tzinfo such as "
            f"ZoneInfo('Europe/Paris'), or None for this machine's zone"
        )
    import zoneinfo  # here, since many programs have no calendar jobs

    try:
        return zoneinfo.ZoneInfo(timezone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder, a name too long
        pass
    import difflib

    names = {name.lower(): name for name in zoneinfo.available_timezones()}
    near = difflib.get_close_matches(timezone.lower()[:80], names, n=1, cutoff=0.75)
    hint = f" (perhaps {names[near[0]]!r}?)" if near else ""
    raise ValueError(
        f"{what} is {timezone[:80]!r}, which is no known time zone{hint}; "
        f"give a name of the IANA database, such as 'Europe/Paris', 'America/New_York' or 'UTC'"
    )


def local_time(instant: datetime, zone: tzinfo | None) -> datetime:
    """What a clock in the zone shows at the instant."""
    return instant.astimezone(zone).replace(tzinfo=None)


def offset_at(instant: datetime, zone: tzinfo | None) -> timedelta:
    """How far the zone's clocks are ahead of UTC at the instant."""
    return local_time(instant, zone) - instant.replace(tzinfo=None)


def reached(local: datetime, zone: tzinfo | None) -> datetime:
    """The first instant at which the zone's clocks show this local time or, where they jump over it, a later one.

    That is both rules of daylight saving time in one: the first pass of a repeated hour, and the first valid instant
    after a gap.
    """
    as_if_utc = local.replace(tzinfo=UTC)
    # Offsets are below 24 h, so these two instants lie on either side of any change that touches this local time.
    offsets = {offset_at(as_if_utc - _DAY, zone), offset_at(as_if_utc + _DAY, zone)}
    earliest, latest = as_if_utc - max(offsets), as_if_utc - min(offsets)
    for instant in (earliest, latest):
        if local_time(instant, zone) == local:
            return instant
    return _bisect(earliest, latest, lambda instant: local_time(instant, zone) > local)


def change_within(after: datetime, upto: datetime, zone: tzinfo | None) -> datetime | None:
    """The first instant in ``(after, upto]`` at which the zone's offset isn't that of ``after`` any more.

    It looks every few days: since 1970 no zone of the IANA database kept an offset for less than a week.
    """
    offset = offset_at(after, zone)
    probe = after
    while probe < upto:
        before, probe = probe, upto if upto - probe <= _STRIDE else probe + _STRIDE
        if offset_at(probe, zone) != offset:
            return _bisect(before, probe, lambda instant: offset_at(instant, zone) != offset)
    return None


def _bisect(low: datetime, high: datetime, holds: Callable[[datetime], bool]) -> datetime:
    """The first whole second after ``low`` from which on ``holds``, which is true at ``high``."""
    wrong, right = 0, -((low - high) // _SECOND)  # rounded up
    while right - wrong > 1:
        middle = (wrong + right) // 2
        if holds(low + middle * _SECOND):
            right = middle
        else:
            wrong = middle
    return low + right * _SECOND
