"""What `schedule` and `submit` refuse at the door: at once, with a message that helps, and nothing is registered."""

from __future__ import annotations

import functools
import math
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from procsched import (
    After,
    At,
    Cron,
    Daily,
    FixedDelay,
    FixedRate,
    NotShippable,
    ProcessScheduler,
    Retry,
)


@pytest.fixture
def scheduler() -> Iterator[ProcessScheduler]:
    """What is refused starts nothing: asserted at the end."""
    before = threading.active_count()
    made = ProcessScheduler(workers=1)
    yield made
    jobs, threads = made.get_jobs(), threading.active_count()
    made.shutdown()
    assert jobs == [] and threads == before


@pytest.mark.parametrize("when", [5, 0.5, timedelta(1), "5s"])
def test_a_bare_number_is_no_schedule(scheduler: ProcessScheduler, when: Any) -> None:
    """It doesn't say whether it is a delay or a period."""
    with pytest.raises(TypeError, match="delay or a period"):
        scheduler.schedule(int, when)


@pytest.mark.parametrize("when", [None, True, object(), FixedRate, [FixedRate(1)]])
def test_what_is_no_schedule_at_all(scheduler: ProcessScheduler, when: Any) -> None:
    """A TypeError that says what is taken."""
    with pytest.raises(TypeError, match="Schedule"):
        scheduler.schedule(int, when)


def test_naive_datetimes(scheduler: ProcessScheduler) -> None:
    """Refused everywhere."""
    naive = datetime(2030, 1, 1)
    for call in (
        lambda: scheduler.schedule(int, naive),
        lambda: At(naive),
        lambda: scheduler.submit_at(naive, int),
        lambda: FixedRate(1).until(naive),
        lambda: FixedRate(1).starting(naive),
    ):
        with pytest.raises(ValueError, match=r"aware|naive|time zone"):
            call()


@pytest.mark.parametrize(
    "value", [0, -1, math.nan, math.inf, "0s", "-1s", "", "5 parsecs", timedelta(0), timedelta(-1)]
)
@pytest.mark.case("B64")
def test_senseless_periods(value: Any) -> None:
    """Zero, negative, not finite, unreadable: ValueError."""
    for kind in (FixedRate, FixedDelay):
        with pytest.raises(ValueError):
            kind(value)


@pytest.mark.parametrize("value", [True, False, None, [], b"5s"])
@pytest.mark.case("B64")
def test_what_is_no_duration(scheduler: ProcessScheduler, value: Any) -> None:
    """Booleans and others: TypeError, for periods, delays and limits alike."""
    for call in (
        lambda: FixedRate(value),
        lambda: FixedDelay(value),
        lambda: After(value),
        lambda: scheduler.submit_after(value, int),
    ):
        with pytest.raises(TypeError):
            call()
    if value is not None:
        for name in ("timeout", "warn_after", "misfire_grace_time"):
            with pytest.raises(TypeError, match=name):
                scheduler.schedule(int, After(1), **{name: value})


@pytest.mark.parametrize("name", ["timeout", "warn_after"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "0s", "soon"])
def test_senseless_limits(scheduler: ProcessScheduler, name: str, value: Any) -> None:
    """Zero, negative, not finite, unreadable: ValueError naming the argument."""
    with pytest.raises(ValueError, match=name):
        scheduler.schedule(int, After(1), **{name: value})


def test_negative_delays(scheduler: ProcessScheduler) -> None:
    """Refused; zero is at once."""
    with pytest.raises(ValueError):
        scheduler.submit_after(-1, int)
    with pytest.raises(ValueError):
        After("-1s")
    with pytest.raises(ValueError, match="misfire_grace_time"):
        scheduler.schedule(int, After(1), misfire_grace_time=-1)


def test_calendars_that_make_no_sense() -> None:
    """Unknown zones, bad times, bad cron."""
    for call in (
        lambda: Daily("25:00"),
        lambda: Daily("02:00", timezone="Mars/Olympus"),
        lambda: Daily("02:00", days="someday"),
        lambda: Daily(),
        lambda: Cron("* * *"),
        lambda: Cron("61 * * * *"),
        lambda: Cron("* * * * *", timezone="Mars/Olympus"),
    ):
        with pytest.raises((ValueError, TypeError)):
            call()


@pytest.mark.parametrize("name", ["max_instances", "pause_after_failures"])
def test_counts(scheduler: ProcessScheduler, name: str) -> None:
    """At least one, whole."""
    for value in (0, -1):
        with pytest.raises(ValueError, match=name):
            scheduler.schedule(int, FixedRate(1), **{name: value})
    for wrong in (True, 1.5, "2"):
        with pytest.raises(TypeError, match=name):
            scheduler.schedule(int, FixedRate(1), **{name: wrong})


def test_a_fixed_delay_has_one_instance(scheduler: ProcessScheduler) -> None:
    """Its next slot counts from the end of the run."""
    with pytest.raises(ValueError, match="max_instances"):
        scheduler.schedule(int, FixedDelay(1), max_instances=2)
    with pytest.raises(ValueError, match="max_instances"):
        scheduler.schedule(int, FixedDelay(1).times(5), max_instances=2)


def test_ids(scheduler: ProcessScheduler) -> None:
    """A str that isn't empty."""
    for wrong in (5, b"a", True):
        with pytest.raises(TypeError, match="id"):
            scheduler.schedule(int, After(1), id=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="id"):
        scheduler.schedule(int, After(1), id="")


def test_tags(scheduler: ProcessScheduler) -> None:
    """Several str; one str alone would be taken for its letters."""
    for wrong in ("night", 5, [5], [None]):
        with pytest.raises(TypeError, match="tag"):
            scheduler.schedule(int, After(1), tags=wrong)  # type: ignore[arg-type]


def test_priorities_and_retries(scheduler: ProcessScheduler) -> None:
    """An int; a Retry."""
    for wrong in (True, "high", 1.5, None):
        with pytest.raises(TypeError, match="priority"):
            scheduler.schedule(int, After(1), priority=wrong)  # type: ignore[arg-type]
    for number in (3, "3", True):
        with pytest.raises(TypeError, match="retry"):
            scheduler.schedule(int, After(1), retry=number)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [
        {"attempts": 0},
        {"attempts": -1},
        {"attempts": 2, "backoff": -1},
        {"attempts": 2, "backoff": math.nan},
        {"attempts": 2, "factor": 0.5},
        {"attempts": 2, "factor": math.inf},
        {"attempts": 2, "max_backoff": -1},
        {"attempts": 2, "jitter": -1},
    ],
)
def test_senseless_retries(arguments: Any) -> None:
    """ValueError at once."""
    with pytest.raises(ValueError, match="Retry"):
        Retry(**arguments)
    for wrong in (True, 1.5, "3"):
        with pytest.raises(TypeError, match="Retry"):
            Retry(wrong)  # type: ignore[arg-type]


def test_args_and_kwargs(scheduler: ProcessScheduler) -> None:
    """A tuple, a dict with names; a text as args is a slip."""
    for wrong in ("ab", 5, {"a": 1}):
        with pytest.raises(TypeError, match="args"):
            scheduler.schedule(int, After(1), args=wrong)  # type: ignore[arg-type]
    for other in (5, [1], {1: 2}):
        with pytest.raises(TypeError, match="kwargs"):
            scheduler.schedule(int, After(1), kwargs=other)  # type: ignore[arg-type]


async def coroutine() -> None: ...


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> Any:
    yield 1


class AsyncCallable:
    async def __call__(self) -> None: ...


@pytest.mark.parametrize(
    "fn",
    [coroutine, generator, async_generator, AsyncCallable(), *map(functools.partial, (coroutine, generator))],
)
@pytest.mark.case("B36")
def test_what_would_never_run(scheduler: ProcessScheduler, fn: Any) -> None:
    """Coroutine and generator functions, wrapped or not, are refused by schedule and submit."""
    calls = (
        lambda: scheduler.schedule(fn, After(1)),
        lambda: scheduler.submit(fn),
        lambda: scheduler.submit_after(1, fn),
    )
    for call in calls:
        with pytest.raises(TypeError, match=r"async|coroutine|generator"):
            call()


@pytest.mark.parametrize("fn", [5, None, "print", object()])
def test_what_cant_be_called(scheduler: ProcessScheduler, fn: Any) -> None:
    """TypeError."""
    for call in (lambda: scheduler.schedule(fn, After(1)), lambda: scheduler.submit(fn)):
        with pytest.raises(TypeError, match="call"):
            call()


@pytest.mark.case("B21")
def test_what_cant_be_shipped_names_the_argument(scheduler: ProcessScheduler) -> None:
    """NotShippable, a TypeError, saying which argument, where in it, and why."""
    with socket.socket() as sock:
        with pytest.raises(NotShippable, match="argument 2"):
            scheduler.schedule(print, After(1), args=(1, sock))
        with pytest.raises(NotShippable, match="deep"):
            scheduler.schedule(print, After(1), kwargs={"where": {"deep": [sock]}})
    with pytest.raises(NotShippable, match="lock"):
        scheduler.submit(print, key=threading.Lock())
    lock = threading.Lock()
    with pytest.raises(NotShippable, match="lock"):
        scheduler.submit(lambda: lock)
    with pytest.raises(TypeError):
        scheduler.submit_after(5, print, lock)
    with pytest.raises(NotShippable):
        scheduler.map(print, [lock, 1])


@pytest.mark.case("B82")
def test_a_scheduler_is_no_argument(scheduler: ProcessScheduler) -> None:
    """Also deep inside, or closed over, or as a bound method."""
    for call in (
        lambda: scheduler.submit(print, scheduler),
        lambda: scheduler.schedule(print, After(1), args=([{"s": scheduler}],)),
        lambda: scheduler.submit(lambda: scheduler),
        lambda: scheduler.submit(scheduler.get_jobs),
    ):
        with pytest.raises(NotShippable, match="scheduler"):
            call()


@pytest.mark.case("B82")
def test_a_job_is_no_argument() -> None:
    """Refused too, with the advice to send its id."""
    with ProcessScheduler(workers=1) as scheduler:
        job = scheduler.schedule(int, FixedRate("1h", initial_delay="1h"))
        with pytest.raises(NotShippable, match="id"):
            scheduler.submit(print, job)
        job.cancel()


def test_datetimes_stand_for_at() -> None:
    """`when` may be an aware datetime."""
    with ProcessScheduler(workers=1) as scheduler:
        when = datetime.now(UTC) + timedelta(hours=1)
        job = scheduler.schedule(int, when)
        assert job.next_run_time == when
