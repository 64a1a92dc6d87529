"""Daily and Cron against an oracle that walks real time minute by minute and looks at the clock on the wall.

The oracle knows the rules in words only: what is shown, for the first time, or jumped over. It shares nothing with the
code, neither its arithmetic nor its search, and knows the zones from `zoneinfo` alone.
"""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys
import time as clock
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from procsched.core import calendars
from procsched.core.calendars import Calendar, Cron, Daily
from procsched.core.model import Missed, Timebase

S = 10**9
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

CHANGES = [
    ("Europe/Berlin", "2024-03-31"),
    ("Europe/Berlin", "2024-10-27"),
    ("America/New_York", "2024-03-10"),
    ("America/New_York", "2024-11-03"),
    ("America/Los_Angeles", "2022-03-13"),
    ("America/Havana", "2024-03-10"),  # midnight doesn't exist
    ("America/Havana", "2024-11-03"),  # midnight comes twice on one date
    ("Asia/Beirut", "2024-03-31"),
    ("Asia/Beirut", "2024-10-27"),  # the last hour of a date comes twice
    ("America/Santiago", "2024-09-08"),
    ("America/Santiago", "2024-04-07"),
    ("Africa/Cairo", "2024-04-26"),
    ("Africa/Cairo", "2024-11-01"),
    ("America/Nuuk", "2024-03-31"),  # the last hour of a date doesn't exist
    ("America/Nuuk", "2024-10-27"),
    ("Asia/Pyongyang", "2018-05-05"),  # the last half hour
    ("Australia/Lord_Howe", "2024-10-06"),  # by half an hour
    ("Australia/Lord_Howe", "2024-04-07"),
    ("Antarctica/Troll", "2024-03-31"),  # by two hours
    ("Antarctica/Troll", "2024-10-27"),
    ("Pacific/Apia", "2011-12-30"),  # a date that never was
    ("Pacific/Kwajalein", "1993-08-21"),
    ("Africa/Casablanca", "2024-03-10"),  # goes back for Ramadan
    ("America/Recife", "2000-10-11"),  # a summer time of one week
    ("Asia/Kolkata", "2024-06-01"),  # nothing happens
]


def ns(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(microseconds=1) * 1000


def utc(*args: int) -> int:
    return ns(datetime(*args, tzinfo=UTC))  # type: ignore[arg-type, misc]


@functools.cache
def walk(zone: str, around: str) -> list[tuple[int, datetime]]:
    """Every minute of nine days: its instant, and what the clock shows."""
    start = datetime.fromisoformat(around).replace(tzinfo=UTC) - timedelta(days=4)
    minutes = (start + k * MINUTE for k in range(9 * 1440))
    return [(ns(m), m.astimezone(ZoneInfo(zone)).replace(tzinfo=None)) for m in minutes]


@functools.cache
def first_shown(zone: str, around: str) -> dict[datetime, int]:
    first: dict[datetime, int] = {}
    for instant, at in walk(zone, around):
        first.setdefault(at, instant)
    return first


def served(zone: str, around: str, local: datetime) -> int:
    """When a time of day is served: the first time that it is shown, else the first instant after the jump over it."""
    shown = first_shown(zone, around).get(local)
    if shown is not None:
        return shown
    return next((instant for instant, at in walk(zone, around) if at > local), sys.maxsize)


def slots(schedule: Calendar, start: int, end: int) -> list[int]:
    """The slots in ``(start, end]``, as an engine asks for them."""
    found: list[int] = []
    slot = schedule.first(start)
    while slot is not None and slot <= end:
        found.append(slot)
        slot = schedule.next(slot, slot + 1)
    return found


def inner(zone: str, around: str) -> tuple[int, int]:
    """The seven days of the walk around which it knows two more."""
    minutes = walk(zone, around)
    return minutes[1440][0], minutes[8 * 1440][0]


def daily_oracle(zone: str, around: str, times: list[time], weekdays: set[int]) -> list[int]:
    start, end = inner(zone, around)
    dates = {at.date() for _, at in walk(zone, around)[720:-720]}
    due = {
        served(zone, around, datetime.combine(day, at)) for day in dates if day.weekday() in weekdays for at in times
    }
    return sorted(slot for slot in due if start < slot <= end)


times_of_day = st.one_of(
    st.times(),
    st.sampled_from([time(0), time(0, 30), time(1), time(1, 45), time(2), time(2, 30), time(2, 59), time(3)]),
    st.sampled_from([time(23), time(23, 30), time(23, 59)]),
).map(lambda t: t.replace(second=0, microsecond=0))


@given(
    st.sampled_from(CHANGES),
    st.lists(times_of_day, min_size=1, max_size=5),
    st.sets(st.integers(0, 6), min_size=1),
)
@settings(deadline=None, max_examples=150)
@example(("Pacific/Apia", "2011-12-30"), [time(0), time(12)], set(range(7)))
@example(("America/Nuuk", "2024-03-31"), [time(0), time(23, 30)], set(range(7)))
@example(("America/Nuuk", "2024-03-31"), [time(23, 30)], {5})
@example(("Asia/Pyongyang", "2018-05-05"), [time(23, 45)], set(range(7)))
@pytest.mark.case("B69", "B70")
def test_daily_is_what_the_clocks_say(change: tuple[str, str], times: list[time], weekdays: set[int]) -> None:
    """Each time once on each date that there was, around every odd change of clocks."""
    days = ",".join(calendars._DAYS[day] for day in weekdays)
    schedule = Daily(*[f"{t:%H:%M}" for t in times], timezone=change[0], days=days)
    assert slots(schedule, *inner(*change)) == daily_oracle(*change, times, weekdays)


FIELDS = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 7)}


def numbers(field: str, low: int, high: int) -> set[int]:
    """What a field of a cron expression means, for the forms that the tests use."""
    chosen: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = span.partition("-")
        bounds = (low, high) if span == "*" else (int(first), int(last or first))
        chosen.update(range(bounds[0], bounds[1] + 1, int(step or 1)))
    return chosen


def matches(expression: str) -> Any:
    """Whether a local minute matches five fields, by the manual of Debian's cron."""
    minute, hour, day, month, weekday = (
        numbers(field, *bounds) for field, bounds in zip(expression.split(), FIELDS.values(), strict=True)
    )
    stars = [field.startswith("*") for field in expression.split()]

    def match(at: datetime) -> bool:
        on_day, on_weekday = at.day in day, at.isoweekday() in weekday or at.isoweekday() % 7 in weekday
        on = (on_day and on_weekday) if stars[2] or stars[4] else (on_day or on_weekday)
        return at.minute in minute and at.hour in hour and at.month in month and on

    return match


def cron_oracle(zone: str, around: str, expression: str) -> list[int]:
    start, end = inner(zone, around)
    minutes = walk(zone, around)
    match = matches(expression)
    minute, hour, *_ = expression.split()
    if minute.startswith("*") or hour.startswith("*"):
        due = {instant for instant, at in minutes if match(at)}
    else:
        first, last = minutes[720][1], minutes[-720][1]
        every = (first + k * MINUTE for k in range((last - first) // MINUTE))
        due = {served(zone, around, at) for at in every if match(at)}
    return sorted(slot for slot in due if start < slot <= end)


@st.composite
def cron_fields(draw: st.DrawFn, low: int, high: int) -> str:
    number = st.integers(low, high)
    kind = draw(st.sampled_from(["*", "*/", "n", "n", "a,b", "a-b", "a-b/"]))
    first, last = sorted((draw(number), draw(number)))
    step = draw(st.integers(1, 7))
    return {
        "*": "*",
        "*/": f"*/{step}",
        "n": f"{first}",
        "a,b": f"{last},{first}",
        "a-b": f"{first}-{last}",
        "a-b/": f"{first}-{last}/{step}" if first < last else f"{first}",  # cronsim takes 5-5/2 for 5/2
    }[kind]


crons = st.tuples(
    cron_fields(0, 59),
    st.one_of(cron_fields(0, 3), cron_fields(0, 23)),
    st.one_of(st.just("*"), cron_fields(1, 31)),
    st.just("*"),
    st.one_of(st.just("*"), cron_fields(0, 7)),
).map(" ".join)


@given(st.sampled_from(CHANGES), crons)
@settings(deadline=None, max_examples=150)
@example(("Australia/Lord_Howe", "2024-04-07"), "*/7 2 * * *")
@example(("Asia/Beirut", "2024-03-31"), "* 1 * * 0")
@example(("Asia/Beirut", "2024-03-31"), "15 0 * * *")
@example(("Europe/Berlin", "2024-10-27"), "*/20 2 * * *")
@example(("Europe/Berlin", "2024-10-27"), "0,30 2 * * *")
@example(("Pacific/Apia", "2011-12-30"), "30 12 * * *")
def test_cron_is_what_the_clocks_say(change: tuple[str, str], expression: str) -> None:
    """Fields by the manual, named hours once, and stars as the clocks show."""
    assert slots(Cron(expression, change[0]), *inner(*change)) == cron_oracle(*change, expression)


@given(st.sampled_from(CHANGES), crons, st.integers(0, 59))
@settings(deadline=None, max_examples=50)
def test_cron_with_seconds_follows_the_clocks(change: tuple[str, str], expression: str, second: int) -> None:
    """Six fields are as if they began with a star: nothing in a gap, both passes of a repeated hour."""
    start, end = inner(*change)
    match = matches(expression)
    due = [instant + second * S for instant, at in walk(*change) if match(at)]
    expected = [slot for slot in due if start < slot <= end]
    assert slots(Cron(f"{second} {expression}", change[0]), start, end) == expected


zones = st.sampled_from([zone for zone, _ in CHANGES])
schedules = st.one_of(
    st.builds(lambda at, zone: Daily(f"{at:%H:%M:%S}", timezone=zone), st.times(), zones),
    st.builds(Cron, crons, zones),
)


@given(schedules, st.integers(0, 2**61))
@settings(deadline=None)
@example(Cron("50 2 * * *", "Europe/Berlin"), utc(2024, 10, 27, 1, 45))  # in the second pass of that hour
@example(Daily("02:50", timezone="Europe/Berlin"), utc(2024, 10, 27, 1, 45))
def test_strictly_after_now_to_the_nanosecond(schedule: Calendar, now: int) -> None:
    """A slot is in the future, and is found from the last nanosecond before it."""
    slot = schedule.first(now)
    if slot is None:  # nothing in fifty years
        return
    assert slot > now
    assert slot % S == 0
    assert schedule.first(slot - 1) == slot
    following = schedule.first(slot)
    assert following is None or following > slot
    assert schedule.next(slot, slot + 10**18) == schedule.first(slot + 1) == following
    assert schedule.gap(slot) == (None if following is None else following - slot)


@given(schedules, st.integers(0, 2**60), st.integers(0, 4 * 10**15))
@settings(deadline=None, max_examples=60)
def test_latest_is_the_last_one_that_passed(schedule: Calendar, now: int, later: int) -> None:
    """The same slot that a walk over all of them ends at, and the same count as far as it is counted."""
    planned = schedule.first(now)
    if planned is None:
        return
    walked = [planned, *itertools.islice(iter(slots(schedule, planned, planned + later)), 10**5)]
    latest, count = schedule.latest(planned, planned + later)
    assert latest == walked[-1]
    assert count == min(len(walked) - 1, 1000)


def test_latest_is_quick_however_far_now_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second, and nobody looked for eight years: some thousand steps, not 250 million."""
    drawn = 0
    original = Cron._matches

    def counted(self: Cron, after: datetime) -> Iterator[datetime]:
        nonlocal drawn
        for local in original(self, after):
            drawn += 1
            yield local

    monkeypatch.setattr(Cron, "_matches", counted)
    planned = utc(2022, 1, 1)
    for schedule in (Cron("* * * * * *", "Europe/Berlin"), Cron("* * * * * mon", "Europe/Berlin")):
        first = schedule.first(planned)
        assert first is not None
        assert schedule.latest(first, utc(2030, 1, 1, 12) + 1)[1] == 1000
    assert drawn < 5_000
    assert Cron("* * * * * *", UTC).latest(planned, utc(2030, 1, 1) + 1)[0] == utc(2030, 1, 1)
    assert Cron("* * * * * mon", UTC).latest(utc(2022, 1, 3), utc(2030, 1, 1, 12))[0] == utc(2029, 12, 31, 23, 59, 59)


@pytest.mark.parametrize("steps", [998, 999, 1000, 1001, 1002, 1003])
def test_latest_where_counting_ends(steps: int) -> None:
    """Nothing is lost where one way of finding it hands over to the other."""
    start = utc(2022, 1, 1)
    for later in (0, 1, S - 1):
        assert Cron("* * * * * *", UTC).latest(start, start + steps * S + later) == (
            start + steps * S,
            min(steps, 1000),
        )


def test_a_shared_slot_counts_once() -> None:
    """Three times of day that fall on the end of one gap are one slot, in the count of missed ones too."""
    start, end = utc(2024, 3, 31), utc(2024, 3, 31, 12)
    schedules = (
        Daily("01:30", "02:00", "02:30", "03:00", timezone="Europe/Berlin"),
        Cron("0,30 1,2,3 * * *", "Europe/Berlin"),
    )
    assert schedules[0].latest(start + 1800 * S, end) == (start + 3600 * S, 1)
    assert schedules[1].latest(start, end) == (start + 5400 * S, 3)


def test_a_short_summer_time_is_not_overlooked() -> None:
    """Recife had one of a week in 2000; half an hour before midnight came twice at its end, and both count."""
    cron = Cron("30 */23 14 10 *", "America/Recife")
    assert slots(cron, utc(2000, 10, 7), utc(2000, 11, 1)) == [
        utc(2000, 10, 14, 2, 30),
        utc(2000, 10, 15, 1, 30),
        utc(2000, 10, 15, 2, 30),
    ]
    assert Cron("* 23 14 10 *", "America/Recife").first(utc(2000, 10, 7)) == utc(2000, 10, 15, 1)


@pytest.mark.case("B69")
def test_midnight_in_los_angeles_in_march_2022() -> None:
    """One run on every date across the change, each at its own offset."""
    expected = [utc(2022, 3, day, 8) for day in (11, 12, 13)] + [utc(2022, 3, day, 7) for day in (14, 15, 16)]
    daily = Daily("00:00", timezone="America/Los_Angeles")
    assert slots(daily, utc(2022, 3, 11, 7), utc(2022, 3, 16, 7)) == expected


@pytest.mark.parametrize(
    ("zone", "date_", "times", "expected"),
    [
        ("Europe/Berlin", (2024, 3, 31), ["02:00", "02:30", "02:59", "03:00"], [(2024, 3, 31, 1, 0)]),
        (
            "Europe/Berlin",
            (2024, 10, 27),
            ["02:00", "02:30", "02:59", "03:00"],
            [(2024, 10, 27, 0, 0), (2024, 10, 27, 0, 30), (2024, 10, 27, 0, 59), (2024, 10, 27, 2, 0)],
        ),
        ("America/New_York", (2024, 3, 10), ["02:00", "02:30", "02:59", "03:00"], [(2024, 3, 10, 7, 0)]),
        ("America/Havana", (2024, 3, 10), ["00:00", "00:30"], [(2024, 3, 10, 5, 0)]),
        ("Australia/Lord_Howe", (2024, 10, 6), ["02:00", "02:15:07", "02:29:59"], [(2024, 10, 5, 15, 30)]),
        ("Europe/Berlin", (2024, 3, 31), ["02:30:15", "03:00:01"], [(2024, 3, 31, 1, 0), (2024, 3, 31, 1, 0, 1)]),
        ("Pacific/Apia", (2011, 12, 30), ["00:00", "12:00"], []),
        ("Pacific/Apia", (2011, 12, 31), ["00:00", "12:00"], [(2011, 12, 30, 10), (2011, 12, 30, 22)]),
    ],
)
@pytest.mark.case("B70")
def test_days_of_change_by_hand(zone: str, date_: Any, times: list[str], expected: list[Any]) -> None:
    """The well-known ones, worked out on paper."""
    day = date(*date_)
    weekday = calendars._DAYS[day.weekday()]
    middle = ns(datetime.combine(day, time(12), tzinfo=UTC))
    daily = Daily(*times, timezone=zone, days=[weekday])
    assert slots(daily, middle - 2 * 86_400 * S, middle + 2 * 86_400 * S) == [utc(*at) for at in expected]


@pytest.mark.parametrize(
    "schedule",
    [
        Daily("12:00", timezone="Asia/Tokyo"),
        Daily("12:00", timezone="America/New_York"),
        Daily("12:00"),
        *[Cron(text, "America/New_York") for text in ("0 12 * * *", "* * * * *", "* * * * * *", "0 0 1 1 *")],
    ],
    ids=repr,
)
def test_the_calendar_ends_quietly(schedule: Calendar) -> None:
    """Past the year 9999 and before the year 1 there is no slot, and no exception."""
    end, begin = utc(9999, 12, 31, 23, 59, 59), utc(1, 1, 1)
    for now in (end, end + 10**18, 10**30, begin - 10**18, -(10**30)):
        assert schedule.first(now) is None
        assert schedule.next(now, now) is None
        assert schedule.gap(now) is None
        assert schedule.latest(now, now + 5) == (now, 0)
    before = end - 800 * 86_400 * S
    slot = schedule.first(before)
    assert slot is not None
    latest, _ = schedule.latest(slot, 10**30)
    assert end - 367 * 86_400 * S < latest <= end


def test_due_years_away() -> None:
    """Leap days, and Mondays among them."""
    assert Cron("0 0 29 2 *", UTC).first(utc(2096, 3, 1)) == utc(2104, 2, 29)
    assert Cron("0 0 * 2 mon#5", UTC).first(utc(2072, 3, 1)) == utc(2112, 2, 29)
    assert Cron("* * * 2 mon#5", "Europe/Berlin").first(utc(2072, 3, 1)) == utc(2112, 2, 28, 23)


def test_both_live_on_the_wall_clock() -> None:
    """And by default serve what was missed once."""
    for schedule in (Daily("02:00"), Cron("@daily")):
        assert schedule.timebase is Timebase.WALL
        assert schedule.missed is Missed.COALESCE
        assert schedule.timezone is None


@pytest.fixture
def machine_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Puts this machine into a time zone, and back."""
    before = os.environ.get("TZ")

    def move(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        clock.tzset()

    yield move
    if before is None:
        monkeypatch.delenv("TZ", raising=False)
    else:
        monkeypatch.setenv("TZ", before)
    clock.tzset()


@pytest.mark.parametrize("change", CHANGES, ids="-".join)
def test_no_zone_is_the_zone_of_the_machine(machine_zone: Any, change: tuple[str, str]) -> None:
    """With all its changes of clocks, as if it had been named."""
    machine_zone(change[0])
    times = [time(0), time(0, 30), time(2, 30), time(23, 45)]
    expected = daily_oracle(*change, times, set(range(7)))
    assert slots(Daily(*[f"{t:%H:%M}" for t in times]), *inner(*change)) == expected
    for expression in ("15 0-3 * * *", "*/30 0-3,23 * * *"):
        assert slots(Cron(expression), *inner(*change)) == cron_oracle(*change, expression)


def test_the_machine_may_have_a_zone_without_a_name(machine_zone: Any) -> None:
    """POSIX rules in TZ, which zoneinfo doesn't take."""
    machine_zone("CET-1CEST,M3.5.0,M10.5.0/3")
    change = ("Europe/Berlin", "2024-03-31")
    assert slots(Daily("02:30"), *inner(*change)) == daily_oracle(*change, [time(2, 30)], set(range(7)))


class WithoutFold(tzinfo):
    """As pytz makes them: right from an instant to local time, and misleading the other way."""

    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(minutes=53, seconds=28)  # local mean time

    def dst(self, when: datetime | None) -> None:
        return None

    def tzname(self, when: datetime | None) -> None:
        return None

    def fromutc(self, when: datetime) -> datetime:
        local = when.replace(tzinfo=UTC).astimezone(ZoneInfo("Europe/Berlin"))
        return local.replace(tzinfo=timezone(local.utcoffset() or timedelta(0)))


@pytest.mark.parametrize("change", CHANGES[:2], ids="-".join)
def test_a_tzinfo_need_not_know_of_fold(change: tuple[str, str]) -> None:
    """Only the unambiguous direction is used."""
    times = [time(2), time(2, 30), time(3)]
    daily = Daily("02:00", "02:30", "03:00", timezone=WithoutFold())
    assert slots(daily, *inner(*change)) == daily_oracle(*change, times, set(range(7)))


def test_what_is_not_used_is_not_imported() -> None:
    """Importing the calendars costs no cronsim, and no zoneinfo."""
    code = (
        "import sys; before = set(sys.modules); import procsched.core.calendars; "
        "print(sorted({'cronsim', 'zoneinfo', 'difflib'} & (set(sys.modules) - before)))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
