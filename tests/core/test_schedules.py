"""Schedules on a steady clock, `At`, bounds, and schedules that users write."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from procsched.core.calendars import Cron, Daily
from procsched.core.model import Missed, Timebase
from procsched.core.schedules import After, At, FixedDelay, FixedRate, Schedule

S = 10**9
NOON = datetime(2030, 1, 31, 12, 0, tzinfo=UTC)
NOON_NS = 1_896_091_200 * S


def ours() -> list[Schedule]:
    return [
        At(NOON),
        After("5s"),
        FixedRate("10s", initial_delay="1s", missed=Missed.SKIP, jitter="100ms"),
        FixedDelay("5m", initial_delay=0, jitter="1s"),
        Daily("02:00", "14:30:15", timezone="Europe/Paris", days="mon-fri"),
        Daily("02:00"),
        Cron("*/5 9-17 * * mon-fri", timezone=UTC, missed=Missed.CATCH_UP),
    ]


def test_at_is_once_and_exact() -> None:
    """The instant, to the microsecond, in the past too: what becomes of a late run isn't the schedule's business."""
    at = At(NOON + timedelta(microseconds=1))
    assert at.timebase is Timebase.WALL
    assert at.first(0) == at.first(NOON_NS * 2) == NOON_NS + 1_000
    assert at.next(NOON_NS, NOON_NS + 1) is None
    assert at.latest(NOON_NS, NOON_NS + S) == (NOON_NS, 0)
    assert at.gap(NOON_NS) is None


def test_at_tells_the_passes_of_a_repeated_hour_apart() -> None:
    """Python calls the two datetimes equal; they are an hour apart, and so are the schedules."""
    first = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    second = first.replace(fold=1)
    assert first == second
    assert At(first) != At(second)
    assert At(second).instant - At(first).instant == 3600 * S
    assert At(first) == At(first.astimezone(UTC))


@pytest.mark.parametrize("make", [At, After(1).until, After(1).starting])
def test_dates_must_be_aware(make: Any) -> None:
    """A naive datetime leaves open which instant it is, so it is refused with the ways to say it."""
    with pytest.raises(ValueError, match=r"naive.*tzinfo=ZoneInfo"):
        make(datetime(2030, 1, 1))
    for other in ("2030-01-01T00:00Z", date(2030, 1, 1), 1_896_091_200, None):
        with pytest.raises(TypeError, match="give an aware datetime"):
            make(other)
    with pytest.raises(ValueError, match="years 1 to 9999"):
        make(datetime.min.replace(tzinfo=ZoneInfo("Asia/Tokyo")))


def test_after_is_once() -> None:
    """So long from now, and zero is now."""
    assert After("5s").first(7) == 5 * S + 7
    assert After(0).first(7) == 7
    assert After("5s").next(0, 0) is None
    assert After("5s").timebase is Timebase.MONOTONIC


def test_fixed_rate_stays_on_its_grid() -> None:
    """However late a run ends, the following slot is one period after the last."""
    rate = FixedRate(10)
    assert rate.timebase is Timebase.MONOTONIC
    assert rate.first(7) == 7
    assert FixedRate(10, initial_delay="3s").first(7) == 3 * S + 7
    assert rate.next(7, 7) == rate.next(7, 35 * S) == 10 * S + 7
    assert rate.gap(7) == 10 * S
    assert (rate.missed, rate.jitter) == (Missed.COALESCE, 0)


@pytest.mark.parametrize(
    ("now", "expected"),
    [(0, (0, 0)), (9, (0, 0)), (10, (10, 1)), (35, (30, 3)), (10**9, (10**9, 10**8)), (-5, (0, 0))],
)
def test_fixed_rate_finds_the_latest_at_once(now: int, expected: tuple[int, int]) -> None:
    """By arithmetic, exact at any distance."""
    latest, count = FixedRate(10).latest(0, now * S)
    assert (latest, count) == (expected[0] * S, expected[1])


@given(st.integers(10**3, 10**13), st.integers(0, 10**18), st.integers(0, 10**18))
def test_fixed_rate_latest_law(period: int, planned: int, later: int) -> None:
    """The latest slot is on the grid, not in the future, and no other fits behind it."""
    rate = FixedRate(Fraction(period, S))
    latest, count = rate.latest(planned, planned + later)
    assert latest == planned + count * period
    assert latest <= planned + later < latest + period


def test_fixed_delay_counts_from_the_end() -> None:
    """``finished + delay``, wherever the slot was."""
    delay = FixedDelay("5m")
    assert delay.timebase is Timebase.MONOTONIC
    assert delay.first(7) == 7
    assert FixedDelay(1, initial_delay=timedelta(seconds=2)).first(7) == 2 * S + 7
    assert delay.next(7, 100 * S) == 400 * S
    assert delay.latest(7, 10**18) == (7, 0)
    assert delay.gap(7) is None


@pytest.mark.parametrize("kind", [FixedRate, FixedDelay])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e-9, True, "5", None, timedelta(0), "999ns"])
@pytest.mark.case("B64")
def test_senseless_periods_raise_at_once(kind: Any, value: Any) -> None:
    """Among them those so short that only the parent would be busy. The message names argument and way out."""
    with pytest.raises((ValueError, TypeError), match=rf"^{kind.__name__}\(\) (period|delay) is .*(give|write) "):
        kind(value)


@pytest.mark.parametrize("kind", [FixedRate, FixedDelay])
def test_bounds_of_what_is_accepted(kind: Any) -> None:
    """From a microsecond to tens of thousands of years."""
    assert kind("1us").first(0) == 0
    assert kind(10**12).next(0, 0) == 10**21


@pytest.mark.parametrize("value", [-1, float("nan"), True, "5", None])
def test_senseless_delays_raise_at_once(value: Any) -> None:
    """Delays and jitter may be zero, and nothing below."""
    for make in (
        After,
        lambda v: FixedRate(1, initial_delay=v),
        lambda v: FixedRate(1, jitter=v),
        lambda v: FixedDelay(1, initial_delay=v),
        lambda v: FixedDelay(1, jitter=v),
    ):
        with pytest.raises((ValueError, TypeError), match=r"(delay|jitter) is "):
            make(value)


def test_jitter_is_a_duration() -> None:
    """In nanoseconds for whoever draws it."""
    assert FixedRate(1, jitter="5s").jitter == 5 * S
    assert FixedDelay(1, jitter=0.5).jitter == S // 2
    assert Daily("02:00").jitter == 0


@pytest.mark.parametrize("missed", ["skip", "SKIP", None, True, Timebase.WALL])
def test_missed_must_be_a_policy(missed: Any) -> None:
    """Its name as text isn't one; the message lists them."""
    for make in (
        lambda m: FixedRate(1, missed=m),
        lambda m: Daily("02:00", missed=m),
        lambda m: Cron("@daily", missed=m),
    ):
        with pytest.raises(TypeError, match=r"missed is .*Missed\.CATCH_UP, Missed\.COALESCE, Missed\.SKIP"):
            make(missed)


@pytest.mark.parametrize("schedule", ours(), ids=repr)
def test_ours_are_values(schedule: Schedule) -> None:
    """Equal, hashed, copied and pickled by what they say, bounds included; and never changed."""
    bounded = schedule.times(3).until(NOON).starting(NOON - timedelta(days=9))
    for one in (schedule, bounded):
        for twin in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
            assert twin == one and hash(twin) == hash(one) and repr(twin) == repr(one)
    assert len({schedule, bounded, schedule.times(3), schedule.times(4), schedule.until(NOON)}) == 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        schedule.jitter = 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        bounded.limit = 5


@pytest.mark.parametrize("schedule", ours(), ids=repr)
def test_repr_is_code(schedule: Schedule) -> None:
    """What is shown can be pasted back."""
    import datetime as datetime_module

    names = {"datetime": datetime_module, "Missed": Missed}
    names |= {kind.__name__: kind for kind in (At, After, FixedRate, FixedDelay, Daily, Cron)}
    for one in (schedule, schedule.times(3).until(NOON).starting(NOON)):
        assert eval(repr(one), names) == one


@pytest.mark.parametrize("schedule", ours(), ids=repr)
def test_bounds_leave_the_old_one_alone(schedule: Schedule) -> None:
    """A new schedule of the same kind, which plans as before: bounds are applied by the engine."""
    before = repr(schedule)
    bounded = schedule.times(3).until(NOON).starting(NOON - timedelta(days=1))
    assert type(bounded) is type(schedule)
    assert (bounded.limit, bounded.last_at, bounded.starts_at) == (3, NOON_NS, NOON_NS - 86_400 * S)
    assert (schedule.limit, schedule.last_at, schedule.starts_at) == (None, None, None)
    assert repr(schedule) == before
    now = 10**18
    first = schedule.first(now)
    assert bounded.first(now) == first is not None
    assert bounded.next(first, first + 5) == schedule.next(first, first + 5)
    assert (bounded.missed, bounded.jitter) == (schedule.missed, schedule.jitter)


def test_bounds_only_narrow() -> None:
    """Given twice, the tighter one counts, in either order."""
    later = NOON + timedelta(hours=1)
    for schedule in (After(1).times(3).times(5), After(1).times(5).times(3)):
        assert schedule.limit == 3
    for schedule in (After(1).until(NOON).until(later), After(1).until(later).until(NOON)):
        assert schedule.last_at == NOON_NS
    for schedule in (After(1).starting(NOON).starting(later), After(1).starting(later).starting(NOON)):
        assert schedule.starts_at == NOON_NS + 3600 * S


def test_bounds_that_leave_nothing_are_refused() -> None:
    """An end before the start can't be meant; both on one instant leave one slot."""
    earlier = NOON - timedelta(microseconds=1)
    with pytest.raises(ValueError, match="has no slot"):
        After(1).starting(NOON).until(earlier)
    with pytest.raises(ValueError, match="has no slot"):
        After(1).until(earlier).starting(NOON)
    assert After(1).starting(NOON).until(NOON).last_at == NOON_NS


@pytest.mark.parametrize("n", [0, -1, True, False, 1.0, "3", None, float("nan"), int])
def test_times_takes_a_count(n: Any) -> None:
    """One or more, whole, and no boolean."""
    with pytest.raises((ValueError, TypeError), match="times"):
        After(1).times(n)


class Doubling(Schedule):
    """A user's schedule: the bare minimum."""

    timebase = Timebase.MONOTONIC

    def first(self, now: int) -> int | None:
        return now + S

    def next(self, planned: int, finished: int) -> int | None:
        return planned * 2


class Slotted(Doubling):
    __slots__ = ("offset",)

    def __init__(self, offset: int) -> None:
        self.offset = offset


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen(Doubling):
    offset: int


@dataclasses.dataclass
class Open(Doubling):
    offset: int


@pytest.mark.parametrize("schedule", [Doubling(), Slotted(1), Frozen(1), Open(1)], ids=lambda s: type(s).__name__)
def test_users_schedules_can_be_bounded_too(schedule: Any) -> None:
    """Whatever way the class is written; it needs a timebase, first() and next()."""
    bounded = schedule.times(3).until(NOON).starting(NOON)
    assert type(bounded) is type(schedule)
    assert (bounded.limit, bounded.last_at, bounded.starts_at) == (3, NOON_NS, NOON_NS)
    assert (schedule.limit, schedule.last_at, schedule.starts_at) == (None, None, None)
    assert bounded.first(5) == S + 5
    assert getattr(bounded, "offset", 1) == 1


def test_users_schedules_are_taken_at_their_word() -> None:
    """What next() says runs, one slot at a time, without jitter."""
    schedule = Doubling()
    assert (schedule.missed, schedule.jitter) == (Missed.CATCH_UP, 0)
    assert schedule.latest(5, 10**18) == (5, 0)
    assert schedule.gap(5) is None


def test_half_a_schedule_is_refused_when_it_is_made() -> None:
    """Not when the loop asks it for the first time."""

    class Half(Schedule):
        timebase = Timebase.WALL

        def first(self, now: int) -> int | None:
            return now

    with pytest.raises(TypeError, match="next"):
        Half()  # type: ignore[abstract]
