"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from procsched.observe import human


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 us"),
        (0.000412, "412 us"),
        (0.00041249, "412 us"),
        (0.0009996, "1.00 ms"),
        (0.00999, "9.99 ms"),
        (0.0123, "12.3 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (1.32, "1.32 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (90000, "1 d 01 h"),
        (-0.5, "-500 ms"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    """Three digits, and no 1000 of the smaller unit."""
    assert human.seconds(value) == text


@given(st.floats(0, 59.94))
def test_seconds_can_be_read_back(value: float) -> None:
    """Within half a digit of what was written."""
    number, unit = human.seconds(value).split()
    back = float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1}[unit]
    assert back == pytest.approx(value, rel=0.0051, abs=0.51e-6)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (999, "999 B"), (1536, "1.50 KiB"), (30 << 20, "30.0 MiB"), (5 << 40, "5.00 TiB")]
)
def test_size(value: int, text: str) -> None:
    assert human.size(value) == text


def test_count() -> None:
    assert human.count(1, "run") == "1 run"
    assert human.count(0, "run") == "0 runs"
