"""Durations at the door: what is read, how it is rounded, and what is refused with which words."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from procsched.core.durations import duration_ns, duration_text


@pytest.mark.parametrize(
    ("value", "nanoseconds"),
    [
        (5, 5_000_000_000),
        (0.1, 100_000_000),
        (0.25, 250_000_000),
        (1.1, 1_100_000_000),
        (Fraction(1, 3), 333_333_333),
        (Fraction(2, 3), 666_666_667),
        (Decimal("0.000000001"), 1),
        (10**12, 10**21),
        (timedelta(days=1, seconds=2, microseconds=3), 86_402_000_003_000),
        ("1ns", 1),
        ("1us", 1_000),
        ("250ms", 250_000_000),
        ("90s", 90_000_000_000),
        ("5m", 300_000_000_000),
        ("1h", 3_600_000_000_000),
        ("1d", 86_400_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1.5h", 5_400_000_000_000),
        ("1d2h3m4s5ms6us7ns", 93_784_005_006_007),
        ("0.1s", 100_000_000),
    ],
)
def test_reads(value: Any, nanoseconds: int) -> None:
    """Numbers are seconds; a timedelta and text say their units."""
    result = duration_ns(value, "delay")
    assert result == nanoseconds
    assert type(result) is int


@pytest.mark.parametrize("value", [1e-9, 1e-12, 5e-324, Fraction(1, 10**12), Decimal("1e-999999"), "0.3ns"])
def test_what_is_not_zero_never_becomes_zero(value: Any) -> None:
    """Rounding down to nothing would make no delay at all out of a short one."""
    assert duration_ns(value, "delay") == 1


@pytest.mark.parametrize("value", [0, 0.0, -0.0, timedelta(0), "0s", "0d0s", Decimal(0), Fraction(0)])
def test_zero_is_for_those_who_allow_it(value: Any) -> None:
    """Zero raises, unless the argument has a meaning for it."""
    assert duration_ns(value, "delay", zero=True) == 0
    assert duration_ns(value, "delay", negative=True) == 0
    with pytest.raises(ValueError, match=r"^delay is .*longer than nothing.*'90s'"):
        duration_ns(value, "delay")


@pytest.mark.parametrize("value", [-1, -0.5, -1e-12, timedelta(seconds=-1), "-5s", "-1h30m", Decimal("-1")])
def test_negative_is_for_those_who_allow_it(value: Any) -> None:
    """A step of a clock may go back; nothing else may."""
    assert duration_ns(value, "step", negative=True) < 0
    for zero in (False, True):
        with pytest.raises(ValueError, match=r"^step is .*must not be negative"):
            duration_ns(value, "step", zero=zero)


def test_a_negative_text_is_negative_as_a_whole() -> None:
    """The sign belongs to the whole duration, not to its first part."""
    assert duration_ns("-1h30m", "step", negative=True) == -5_400_000_000_000


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        Decimal("NaN"),
        Decimal("Infinity"),
        1e300,
        10**16,
        Decimal("1e999999999"),
        "999999999999999999d",
        "",
        " ",
        "5",
        "1.5",
        "s",
        "-",
        "five",
        "5 s",
        " 5s",
        "5s\n",
        "+5s",
        "--5s",
        "5S",
        "5M",
        "1w",
        "5sec",
        ".5s",
        "5.s",
        "1e3s",
        "1_000s",
        "٣s",
        "30m1h",
        "1m1m",
        "every 5s",
        "PT5M",
        "00:05",
        "9" * 5000 + "s",
    ],
)
def test_refuses_senseless_values(value: Any) -> None:
    """What can't be a duration raises at once, named, and with what would be accepted."""
    with pytest.raises(ValueError, match=r"^period is .*'1h30m'") as caught:
        duration_ns(value, "period", zero=True, negative=True)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("value", [None, True, False, b"5s", 1j, [], (1, 2), object(), int])
def test_refuses_other_types(value: Any) -> None:
    """Above all booleans, which Python counts among the ints."""
    with pytest.raises(TypeError, match=r"^period is .*no duration.*'1h30m'"):
        duration_ns(value, "period", zero=True, negative=True)


def test_a_forgotten_unit_is_pointed_at() -> None:
    """The most likely slip gets its own words."""
    with pytest.raises(ValueError, match=r"lacks a unit, perhaps '5s'"):
        duration_ns("5", "delay")


def test_reads_numbers_of_numpy() -> None:
    """Periods come out of computations, too."""
    numpy = pytest.importorskip("numpy")
    assert duration_ns(numpy.int64(5), "delay") == 5_000_000_000
    assert duration_ns(numpy.float32(0.5), "delay") == 500_000_000
    with pytest.raises(TypeError):
        duration_ns(numpy.bool_(True), "delay")


@given(st.integers(-(10**24), 10**24))
def test_text_reads_back(nanoseconds: int) -> None:
    """`duration_text` is exact, and is understood at the door."""
    assert duration_ns(duration_text(nanoseconds), "delay", negative=True) == nanoseconds


@given(st.decimals(0, 10**12, allow_nan=False, places=9))
def test_exact_whatever_the_form(seconds: Decimal) -> None:
    """Nanoseconds survive as Decimal, Fraction and text; no float is in between."""
    expected = int(seconds.scaleb(9))
    forms: list[Any] = [seconds, Fraction(seconds), f"{seconds:f}s"]
    assert [duration_ns(form, "delay", zero=True) for form in forms] == [expected] * 3


@given(st.floats(1e-9, 1e12))
def test_floats_round_to_nearest(seconds: float) -> None:
    """Off by half a nanosecond at most, of what the float really is."""
    assert abs(duration_ns(seconds, "delay") - Fraction(seconds) * 10**9) <= Fraction(1, 2)


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5us"),
        (250_000_000, "250ms"),
        (90 * 10**9, "1m30s"),
        (1_500_000_000, "1.5s"),
        (60_000_000_001, "1m1ns"),
        (86_400 * 10**9, "1d"),
        (-5_400 * 10**9, "-1h30m"),
    ],
)
def test_writes(nanoseconds: int, text: str) -> None:
    """Short, in the units that people use."""
    assert duration_text(nanoseconds) == text
