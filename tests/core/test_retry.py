"""Retry: the pauses between attempts, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from procsched import Retry

SECOND = 1_000_000_000


def test_each_pause_is_longer_than_the_one_before() -> None:
    retry = Retry(5, backoff="2s", factor=3)
    assert [retry.pause_after(attempt, 0.0) // SECOND for attempt in (1, 2, 3)] == [2, 6, 18]


def test_the_longest_pause() -> None:
    retry = Retry(100, backoff="1s", max_backoff="10s")
    assert [retry.pause_after(attempt, 0.0) // SECOND for attempt in (3, 4, 5, 99)] == [4, 8, 10, 10]


def test_jitter_only_lengthens() -> None:
    retry = Retry(3, backoff="1s", jitter="500ms")
    assert retry.pause_after(1, 0.0) == SECOND
    assert retry.pause_after(1, 0.5) == SECOND + SECOND // 4


def test_ten_thousand_attempts_don_t_overflow() -> None:
    assert Retry(10_000, backoff="1h", factor=10).pause_after(9_999, 0.9) <= 10**18


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"attempts": 0}, ValueError),
        ({"attempts": True}, TypeError),
        ({"attempts": 2.0}, TypeError),
        ({"attempts": 3, "factor": 0.5}, ValueError),
        ({"attempts": 3, "factor": float("nan")}, ValueError),
        ({"attempts": 3, "factor": "2"}, TypeError),
        ({"attempts": 3, "backoff": -1}, ValueError),
        ({"attempts": 3, "backoff": "soon"}, ValueError),
        ({"attempts": 3, "max_backoff": True}, TypeError),
        ({"attempts": 3, "jitter": "-1s"}, ValueError),
    ],
)
def test_senseless_arguments(arguments: dict[str, Any], error: type[Exception]) -> None:
    """At once, naming what was given."""
    with pytest.raises(error, match="Retry"):
        Retry(**arguments)
