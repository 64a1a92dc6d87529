"""Jobs at rest: packed as one tuple of atoms, and the same jobs again when somebody touches them."""

from __future__ import annotations

import gc
import weakref
from datetime import UTC, datetime
from typing import Any

import pytest

from procsched.core.jobtable import default_options
from procsched.core.model import JobOptions, JobRow, JobState, Missed, Now, Place
from procsched.core.schedules import After, At, FixedDelay, FixedRate, Schedule
from procsched.core.timetable import Timetable

SECOND = 1_000_000_000
NOW = Now(5_000 * SECOND, 1_700_000_000 * SECOND)
RESTING = [
    At(datetime(2030, 1, 1, tzinfo=UTC)),
    After("1h"),
    FixedRate("1h", initial_delay="2h", missed=Missed.SKIP, jitter="1s"),
    FixedDelay("1h", initial_delay="3h", jitter="5s"),
]
AWAKE = [After(0), FixedRate("1h"), RESTING[2].times(3), RESTING[1].until(datetime(2040, 1, 1, tzinfo=UTC))]


class Payload:
    def __init__(self, function: object, args: object) -> None:
        self.function = function
        self.args = args


class Function: ...


def laid_down(table: Timetable, schedule: Schedule, id: str = "job", args: object = b"args") -> JobRow:
    row = JobRow(id, schedule, Payload(Function(), args), default_options(2))
    if table.lay_down(row, NOW, 0.5) is None:
        table.add(row, NOW, 0.5)
    table.check_valid()
    return row


def atoms(row: JobRow) -> tuple[Any, ...]:
    """All that a row says."""
    values = {name: getattr(row, name) for name in JobRow.__slots__ if name not in ("__weakref__", "payload")}
    return values, row.payload.function, row.payload.args


@pytest.mark.parametrize("size", [0, 10, 10_000])
@pytest.mark.parametrize("schedule", RESTING)
def test_a_job_that_nobody_held_is_the_same_again(schedule: Schedule, size: int) -> None:
    """Its row is made anew, with all that the first one said."""
    table = Timetable()
    row = laid_down(table, schedule, args=bytes(size))
    before, gone = atoms(row), weakref.ref(row)
    del row
    assert gone() is None and len(table.jobs) == 1
    looked = table.jobs.look("job")
    assert looked is not None and atoms(looked) == before and table.jobs.awake("job") is None
    assert table.jobs.get("job") is looked and table.jobs.awake("job") is looked
    table.check_valid()


@pytest.mark.parametrize("schedule", AWAKE)
def test_what_is_due_soon_or_bounded_does_not_rest(schedule: Schedule) -> None:
    table = Timetable()
    row = laid_down(table, schedule)
    assert table.jobs.awake("job") is row


def test_only_usual_options_and_bytes_rest() -> None:
    table = Timetable()
    assert table.jobs.awake("live") is None
    assert laid_down(table, RESTING[1], "live", [1]) is table.jobs.awake("live")
    row = JobRow("tagged", RESTING[1], Payload(Function(), b""), JobOptions(tags=frozenset({"x"})))
    assert table.lay_down(row, NOW) is None and "tagged" not in table.jobs


def test_a_held_row_is_the_one_that_wakes() -> None:
    """So a handle sees what becomes of its job."""
    table = Timetable()
    row = laid_down(table, RESTING[1])
    table.promote(Now(NOW.mono + 3600 * SECOND, NOW.wall))
    assert (row.place, table.jobs.awake("job")) == (Place.READY, row)
    table.check_valid()


def test_a_job_at_rest_is_due_in_its_time() -> None:
    table = Timetable()
    laid_down(table, RESTING[1], "later")
    laid_down(table, After("10m"), "sooner")
    later = Now(NOW.mono + 3600 * SECOND, NOW.wall)
    table.promote(later)
    runs = table.take(later, 10, 1 << 80).runs + table.take(later, 10, 1 << 80).runs
    assert [run.row.id for run in runs if run.row] == ["sooner", "later"]
    assert [run.expected - NOW.mono for run in runs] == [600 * SECOND, 3600 * SECOND]


def test_cancelled_at_rest() -> None:
    """It is over for whoever holds it, and its function and arguments are let go."""
    table = Timetable()
    row = laid_down(table, RESTING[1])
    function = weakref.ref(row.payload.function)
    assert table.cancel_resting(row) and not table.cancel_resting(row)
    assert (row.state, row.place, row.entry, row.payload) == (JobState.CANCELLED, Place.DONE, 0, None)
    assert len(table.jobs) == 0
    assert function() is None
    assert table.queues.next_wakeup(NOW) is None
    table.check_valid()


def test_another_generation_is_not_cancelled() -> None:
    table = Timetable()
    old = laid_down(table, RESTING[1])
    table.cancel_resting(old)
    new = laid_down(table, RESTING[2])
    assert not table.cancel_resting(old) and table.jobs.is_living(new) and not table.jobs.is_living(old)


def test_replacing_one_at_rest_keeps_its_place() -> None:
    table = Timetable()
    for name in "abc":
        laid_down(table, RESTING[1], name)
    laid_down(table, RESTING[2], "b")
    assert [row.id for row in table.jobs.look_at_all()] == ["a", "b", "c"]
    table.check_valid()


def test_close_ends_those_at_rest() -> None:
    table = Timetable()
    row = laid_down(table, RESTING[1])
    laid_down(table, RESTING[2], "unheld")
    changes = table.close(NOW, cancel_calls=False)
    assert changes.over == [] and len(table.jobs) == 0 and row.state is JobState.CANCELLED
    table.check_valid()


def test_the_collector_does_not_see_jobs_at_rest() -> None:
    """Tuples of atoms: it has nothing to follow in a million of them."""
    table = Timetable()
    function = Function()
    for number in range(200):
        row = JobRow(f"job-{number}", FixedRate("1h", initial_delay="1h"), Payload(function, b"x"), default_options(2))
        assert table.lay_down(row, NOW) is not None
    del row
    gc.collect()
    before = len(gc.get_objects())
    for number in range(200, 1200):
        row = JobRow(f"job-{number}", FixedRate("1h", initial_delay="1h"), Payload(function, b"x"), default_options(2))
        table.lay_down(row, NOW)
    del row
    gc.collect()
    assert len(gc.get_objects()) - before < 10


def test_a_mass_of_cancels_is_swept_out_step_by_step() -> None:
    """No cancel touches more than a few entries, and the heap doesn't outgrow what lives in it."""
    table = Timetable()
    rows = [laid_down_fast(table, f"job-{number}") for number in range(5_000)]
    looked: list[int] = []
    heap = table.queues._mono
    is_live = heap._is_live

    def counted(entry: Any) -> bool:
        looked[-1] += 1
        return is_live(entry)

    heap._is_live = counted
    for row in rows[:4_900]:
        looked.append(0)
        assert table.cancel_resting(row)
        assert len(heap._entries) + len(heap._leaving) <= 3 * (len(table.jobs) + 64)
    assert max(looked) <= 4
    heap._is_live = is_live
    table.check_valid()
    assert len(table.jobs) == len(heap) == 100


def laid_down_fast(table: Timetable, id: str) -> JobRow:
    row = JobRow(id, RESTING[1], Payload(print, b""), default_options(2))
    assert table.lay_down(row, NOW) is not None
    return row


def test_large_arguments_go_with_the_job() -> None:
    """A cancelled job leaves a small entry in the heap, and nothing of its payload."""
    table = Timetable()
    row = laid_down(table, RESTING[1], args=bytes(10_000))
    table.cancel_resting(row)
    assert not table.jobs._args
    [entry] = table.queues._mono._entries
    assert not [part for part in entry if isinstance(part, bytes)]  # type: ignore[misc]
