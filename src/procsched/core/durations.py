"""Durations at the door: from what people write to ``int`` nanoseconds, and back to text. Pure; runs anywhere.

This is the only place where seconds become nanoseconds. It rounds to the nearest one, on exact fractions, and never
rounds a positive duration down to nothing: what is not zero outside isn't zero inside.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import TypeAlias

__all__ = ["SECOND", "Duration", "duration_ns", "duration_text"]

Duration: TypeAlias = int | float | Fraction | Decimal | timedelta | str
"""A number of seconds, a `timedelta`, or text such as ``"250ms"``, ``"90s"``, ``"1h30m"``, ``"1d"``."""

SECOND = 10**9

# Largest first, as they must stand in a text. No weeks and months: a month has no length, and people differ about "M".
_UNITS = {
    "d": 86_400 * SECOND,
    "h": 3_600 * SECOND,
    "m": 60 * SECOND,
    "s": SECOND,
    "ms": 10**6,
    "us": 10**3,
    "ns": 1,
}
# Eighteen digits are more than _LONGEST has. A bound at all, because int() of a page of digits is refused, or hangs.
_TEXT = re.compile("(-?)" + "".join(rf"(?:([0-9]{{1,18}}(?:\.[0-9]{{1,18}})?){unit})?" for unit in _UNITS))

# 31 million years. Nobody means more, and an exact Decimal("1e999999999") wouldn't fit into memory.
_LONGEST = 10**15

_ACCEPTED = (
    "write a number of seconds (90, 0.25), a datetime.timedelta, or text with units, largest first: "
    "'250ms', '90s', '1h30m', '1d' (units: d, h, m, s, ms, us, ns)"
)


def duration_ns(value: Duration, what: str, *, zero: bool = False, negative: bool = False) -> int:
    """A duration in nanoseconds.

    ``what`` names the argument in error messages. ``zero=True`` accepts 0, and ``negative=True`` everything below it
    too. Rounds to the nearest nanosecond; a duration smaller than one counts as one.

    Raises `TypeError` for what is no duration (booleans and None too) and `ValueError` for text that can't be read,
    NaN, infinities, more than 10**15 seconds, and zero or less where that makes no sense.
    """
    if isinstance(value, timedelta):
        nanoseconds = (value.days * 86_400 + value.seconds) * SECOND + value.microseconds * 1_000
    elif isinstance(value, str):
        nanoseconds = _from_text(value, what)
    else:
        nanoseconds = _from_number(value, what)
    if nanoseconds < 0 and not negative:
        raise ValueError(f"{what} is {_shown(value)}, and must not be negative; {_ACCEPTED}")
    if nanoseconds == 0 and not (zero or negative):
        raise ValueError(f"{what} is {_shown(value)}, and must be longer than nothing; {_ACCEPTED}")
    return nanoseconds


def duration_text(nanoseconds: int) -> str:
    """The shortest exact text for a duration, which `duration_ns` reads back: ``"1h30m"``, ``"1.5s"``, ``"0s"``."""
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    parts: list[str] = []
    for unit, size in _UNITS.items():
        if rest < size:
            continue
        if size > SECOND:  # whole days, hours and minutes; what is below a minute takes a decimal point instead
            count, rest = divmod(rest, size)
            parts.append(f"{count}{unit}")
        else:
            whole, part = divmod(rest, size)
            decimals = f"{part:0{len(str(size)) - 1}}".rstrip("0") if part else ""
            parts.append(f"{whole}.{decimals}{unit}" if decimals else f"{whole}{unit}")
            break
    return sign + ("".join(parts) or "0s")


def _from_text(text: str, what: str) -> int:
    found = _TEXT.fullmatch(text)
    if found is None or not any(found.groups()[1:]):
        hint = f"; it lacks a unit, perhaps {text.strip() + 's'!r}" if re.fullmatch(r"\s*[0-9.]+\s*", text) else ""
        raise ValueError(f"{what} is {_shown(text)}, which can't be read as a duration{hint}; {_ACCEPTED}")
    sign, *counts = found.groups()
    exact = sum(
        (Fraction(count) * size for count, size in zip(counts, _UNITS.values(), strict=True) if count), Fraction(0)
    )
    if exact > _LONGEST * SECOND:
        raise _too_long(text, what)
    return _rounded(-exact if sign else exact)


def _from_number(value: object, what: str) -> int:
    # bool is an int in Python, but FixedDelay(True) is a slip. numpy's numbers register as Integral and Real.
    if isinstance(value, bool) or not isinstance(value, (Real, Decimal)):
        raise TypeError(f"{what} is {_shown(value)} ({type(value).__name__}), which is no duration; {_ACCEPTED}")
    number: int | float | Fraction | Decimal
    if isinstance(value, Decimal):
        number = value
    elif isinstance(value, Integral):
        number = int(value)
    elif isinstance(value, Rational):
        number = Fraction(value)
    else:
        number = float(value)
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError(f"{what} is {_shown(value)}, and must be finite; {_ACCEPTED}")
    if not -_LONGEST <= number <= _LONGEST:
        raise _too_long(value, what)
    if -1e-9 < number < 1e-9:  # a Decimal("1e-999999999") as a Fraction wouldn't fit into memory either
        return (number > 0) - (number < 0)
    return _rounded(Fraction(number) * SECOND)


def _rounded(nanoseconds: Fraction) -> int:
    return round(nanoseconds) or (nanoseconds > 0) - (nanoseconds < 0)


def _too_long(value: object, what: str) -> ValueError:
    return ValueError(f"{what} is {_shown(value)}, and must not be longer than 10**15 seconds; {_ACCEPTED}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
