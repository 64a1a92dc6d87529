"""The only reader of the time. Runs in the parent.

Two clocks: a monotonic one for intervals, which no step moves and which stands still while the machine is suspended
(Linux's CLOCK_MONOTONIC), and the wall clock for calendars.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from procsched.core.model import Now

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Clock", "SystemClock", "follow", "read"]


class Clock(Protocol):
    """Where a scheduler gets the time from. `procsched.testing.FakeClock` is one that stands still."""

    def monotonic_ns(self) -> int:
        """Nanoseconds of a clock that never goes back."""

    def wall_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""


class SystemClock:
    """The clocks of the operating system."""

    monotonic_ns = staticmethod(time.monotonic_ns)
    wall_ns = staticmethod(time.time_ns)


def read(clock: Clock) -> Now:
    """Both clocks at one instant, as nearly as two calls can."""
    return Now(clock.monotonic_ns(), clock.wall_ns())


def follow(clock: Clock, callback: Callable[[], object]) -> None:
    """Have a clock that is moved by hand say so (``watch``); those of the system have nothing to say."""
    watch = getattr(clock, "watch", None)
    if watch is not None:
        watch(callback)
