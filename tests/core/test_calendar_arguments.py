"""What Daily and Cron take for an argument, what they refuse, and with which words."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from procsched.core.calendars import Calendar, Cron, Daily

S = 10**9


def utc(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> int:
    return int((datetime(year, month, day, hour, minute) - datetime(1970, 1, 1)) / timedelta(seconds=1)) * S


def slots(schedule: Calendar, start: int, end: int) -> list[int]:
    """The slots in ``(start, end]``."""
    found: list[int] = []
    slot = schedule.first(start)
    while slot is not None and slot <= end:
        found.append(slot)
        slot = schedule.next(slot, slot)
    return found


def test_zones_of_any_kind() -> None:
    """A name, a ZoneInfo, a fixed offset."""
    now = utc(2024, 1, 1)
    named = Daily("02:00", timezone="Europe/Berlin")
    assert named == Daily("02:00", timezone=ZoneInfo("Europe/Berlin"))
    assert named.first(now) == utc(2024, 1, 1, 1)
    assert Daily("02:00", timezone=timezone(timedelta(hours=5, minutes=30))).first(now) == utc(2024, 1, 1, 20, 30)
    assert Cron("0 2 * * *", timezone(timedelta(hours=-5))).first(now) == utc(2024, 1, 1, 7)


@pytest.mark.parametrize("make", [lambda z: Daily("02:00", timezone=z), lambda z: Cron("@daily", z)])
def test_unknown_zones(make: Any) -> None:
    """The name that was given, and one that may have been meant."""
    for zone in ("Europe/Pari", "europe/paris", "", "America", "../etc/passwd", "a\0b", "x" * 5000, "EST5EDT4"):
        with pytest.raises(ValueError, match=r"no known time zone.*'Europe/Paris'") as caught:
            make(zone)
        assert len(str(caught.value)) < 400
    with pytest.raises(ValueError, match=r"perhaps 'Europe/Paris'\?"):
        make("europe/paris")
    others: list[Any] = [1, b"UTC", True, [], UTC.utcoffset]
    for other in others:
        with pytest.raises(TypeError, match=r"timezone is .*'Europe/Paris'"):
            make(other)


@pytest.mark.parametrize(
    "text",
    ["25:00", "24:00", "12:60", "12:00:60", "", "2:00", "2", "02:00 ", "02:00:00.5", "\u0660\u0662:00", "-1:00"],
)
def test_times_of_day_that_cannot_be_read(text: str) -> None:
    """The text, and how to write it."""
    with pytest.raises(ValueError, match=r"Daily\(\) time is .*HH:MM or HH:MM:SS"):
        Daily("12:00", text)


def test_times_of_day_of_other_types() -> None:
    """One text per time, and at least one."""
    for other in (2, time(2), ["02:00", "03:00"], None, 2.0):
        with pytest.raises(TypeError, match=r"Daily\('02:00', '14:30'\)"):
            Daily(other)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"no time of day.*Daily\('02:00', '14:30'\)"):
        Daily()


def test_times_in_any_order_and_twice() -> None:
    """Order and repetition mean nothing."""
    assert Daily("03:00", "02:00:00", "02:00") == Daily("02:00", "03:00")


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (None, [0, 1, 2, 3, 4, 5, 6]),
        ("mon-sun", [0, 1, 2, 3, 4, 5, 6]),
        ("mon-fri", [0, 1, 2, 3, 4]),
        ("mon,wed,fri", [0, 2, 4]),
        ("sat-sun", [5, 6]),
        ("fri-mon", [0, 4, 5, 6]),
        ("Sun, Monday", [0, 6]),
        ("mon-tue,sat", [0, 1, 5]),
        ("wed", [2]),
        (["sun", "mon"], [0, 6]),
        ({"tue"}, [1]),
        ((name for name in ("tue", "thu")), [1, 3]),
    ],
)
def test_days_of_the_week(days: Any, expected: list[int]) -> None:
    """Names, lists and spans of names, over the weekend too; and only those dates."""
    daily = Daily("12:00", timezone=UTC, days=days)
    assert list(daily.days) == expected
    week = slots(daily, utc(2024, 1, 1), utc(2024, 1, 8))  # from a Monday
    assert [(slot - utc(2024, 1, 1)) // (86_400 * S) for slot in week] == expected


@pytest.mark.parametrize("days", ["", "mo", "mon-", "-mon", "mon-wed-fri", "mon;tue", "1-5", "weekdays", [], ["x"]])
def test_days_that_cannot_be_read(days: Any) -> None:
    """The text, and how to write it."""
    with pytest.raises(ValueError, match=r"Daily\(\) days .*'mon-fri'"):
        Daily("12:00", days=days)


@pytest.mark.parametrize("days", [5, [5], b"mon", True, [["mon"]]])
def test_days_of_other_types(days: Any) -> None:
    """Numbers are refused: people count from 0 or 1, and from Monday or Sunday."""
    with pytest.raises(TypeError, match=r"Daily\(\) days .*'mon-fri'"):
        Daily("12:00", days=days)


@pytest.mark.parametrize(
    ("nickname", "expression"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        (" @Daily ", "0 0 * * *"),
        ("0 0 * * 7", "0 0 * * SUN"),
        ("0  0 * jan-mar mon-fri", "0 0 * 1-3 1-5"),
    ],
)
def test_nicknames_and_names(nickname: str, expression: str) -> None:
    """Both mean the same; 0 and 7 are Sunday."""
    span = utc(2024, 12, 30), utc(2026, 1, 2)
    assert slots(Cron(nickname, UTC), *span) == slots(Cron(expression, UTC), *span) != []


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "*",
        "* * * *",
        "* * * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "@reboot",
        "@",
        "@every 5m",
        "every 5s",
        "*/0 * * * *",
        "5-1 * * * *",
        "x * * * *",
        "* * * * mon#6",
        "9" * 5000 + " * * * *",
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "* * */20 * 1L",
    ],
)
def test_cron_expressions_that_cannot_be_read_or_never_match(expression: str) -> None:
    """At once, with the text and the way to write it: a job that never runs isn't found out later."""
    with pytest.raises(ValueError, match=r"Cron\(\) expression is .*'\*/5 9-17 \* \* mon-fri'") as caught:
        Cron(expression)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("expression", [None, 5, b"* * * * *", True, ["*"] * 5])
def test_cron_expressions_of_other_types(expression: Any) -> None:
    """Text only."""
    with pytest.raises(TypeError, match=r"Cron\(\) expression is .*write five fields"):
        Cron(expression)


@given(st.text("0123456789*/,-#LWSUNMO @", max_size=20) | st.lists(st.text("0159*/,-#LWSUN", max_size=5)).map(" ".join))
@settings(deadline=None, max_examples=300)
def test_cron_takes_any_text_without_a_strange_error(text: str) -> None:
    """What isn't an expression raises ValueError and nothing else."""
    try:
        schedule = Cron(text, UTC)
    except ValueError as error:
        assert "write five fields" in str(error)
    else:
        assert schedule.first(0) is not None


def test_special_days() -> None:
    """cronsim's own: the last day, the last working day, the last Friday, the second Monday."""
    now = utc(2024, 6, 1)
    for field, day in (("L * *", 30), ("LW * *", 28), ("* * 5L", 28), ("* * mon#2", 10)):
        assert Cron(f"0 0 {field}", UTC).first(now) == utc(2024, 6, day)
