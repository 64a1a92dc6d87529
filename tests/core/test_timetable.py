"""Facts about the timetable, one by one. What holds in any order of events is in `test_timetable_machine`."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from driving import MONO, SECOND, WALL, Driver

from procsched.core.model import JobOptions, JobRow, JobState, Missed, Now, Outcome, Place, ReadyOrder, Run, Timebase
from procsched.core.retry import Retry
from procsched.core.schedules import After, At, FixedDelay, FixedRate, Schedule
from procsched.core.slots import ScheduleFailed

START = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=WALL // 1000)


def rate(missed: Missed = Missed.COALESCE, period: float = 10, **more: object) -> FixedRate:
    return FixedRate(period, missed=missed, **more)  # type: ignore[arg-type]


class Hourly(Schedule):
    """A calendar of whole hours."""

    timebase = Timebase.WALL
    missed = Missed.COALESCE
    period = 3600 * SECOND

    def first(self, now: int) -> int:
        return (now // self.period + 1) * self.period

    def next(self, planned: int, finished: int) -> int:
        return planned + self.period

    def latest(self, planned: int, now: int) -> tuple[int, int]:
        count = max(0, (now - planned) // self.period)
        return planned + count * self.period, count


class Failing(Schedule):
    """Its second slot can't be had."""

    timebase = Timebase.MONOTONIC

    def first(self, now: int) -> int:
        return now

    def next(self, planned: int, finished: int) -> int:
        raise LookupError("no idea")


# -- missed runs


@pytest.mark.parametrize(
    ("missed", "trace", "dropped"),
    [
        (Missed.SKIP, ["0", "40", "50"], 3),
        (Missed.COALESCE, ["0", "30@35", "40", "50"], 2),
        (Missed.CATCH_UP, ["0", "10@35", "20@35", "30@35", "40", "50"], 0),
    ],
)
def test_the_three_policies_after_a_long_run(missed: Missed, trace: list[str], dropped: int) -> None:
    """Due at 0, period 10, finished at 35: the traces that the contract gives, and the count of what was dropped."""
    driver = Driver()
    row = driver.add(rate(missed))
    assert driver.trace(until=55, durations={0: 35}) == trace
    assert row.missed == driver.table.missed == dropped


@pytest.mark.parametrize(("finished", "following"), [(9, "10"), (10, "20"), (19, "20"), (20, "30"), (21, "30")])
def test_skip_goes_on_with_the_next_future_slot(finished: float, following: str) -> None:
    """SKIP: ``planned + ((finished - planned) // period + 1) * period``; a run that ends on a slot misses it."""
    driver = Driver()
    driver.add(rate(Missed.SKIP))
    assert driver.trace(until=35, durations={0: finished})[1] == following


@pytest.mark.parametrize(
    ("missed", "trace"), [(Missed.SKIP, "0@4"), (Missed.COALESCE, "0@4"), (Missed.CATCH_UP, "0@4")]
)
def test_a_single_slot_that_waited_is_run_late(missed: Missed, trace: str) -> None:
    """What merely waited for a worker runs, under any policy."""
    driver = Driver()
    driver.add(rate(missed))
    assert driver.at(4).trace(until=5) == [trace]


def test_skip_lets_a_slot_be_late_by_half_the_gap_or_a_minute() -> None:
    """SKIP without a grace time: later than half the gap to the next slot, or than 60 s, is too late."""
    for period, ok, late in ((10, 5, 5.1), (3600, 60, 60.1)):
        driver = Driver()
        driver.add(rate(Missed.SKIP, period))
        assert driver.at(ok).trace(until=ok) == [f"0@{ok}"]
        driver = Driver()
        row = driver.add(rate(Missed.SKIP, period))
        assert driver.at(late).trace(until=late) == []
        assert row.missed == 1


def test_when_no_worker_is_free_the_policy_decides_at_hand_over() -> None:
    """Three slots pass while the job waits for a worker: COALESCE runs the latest, CATCH_UP all of them."""
    driver = Driver()
    driver.add(rate(Missed.COALESCE), "coalesces")
    driver.add(rate(Missed.CATCH_UP), "catches up")
    driver.at(25)
    runs = driver.take(10)
    assert [(run.row.id, driver.planned(run)) for run in runs if run.row] == [("coalesces", 20), ("catches up", 0)]


def test_what_came_due_while_max_instances_executed_is_skipped_though_no_worker_was_free_to_ask() -> None:
    """SKIP, two instances from 0 and 10, both busy until 22: the slot 20 is missed, with or without an idle worker."""
    for idle_worker in (False, True):
        driver = Driver()
        driver.add(rate(Missed.SKIP), max_instances=2)
        first = driver.start()
        driver.at(10).start()
        driver.at(20)
        if idle_worker:
            assert driver.take() == []
        driver.at(22).end(first)
        assert driver.take() == []
        assert driver.trace(until=30) == ["30"]


def test_an_extra_run_makes_skip_miss_what_comes_due_meanwhile() -> None:
    """An extra run is an execution like any other."""
    driver = Driver()
    row = driver.add(rate(Missed.SKIP, initial_delay=10))
    driver.at(8)
    driver.table.run_now(row, driver.now)
    extra = driver.start()
    driver.at(12).end(extra)
    assert driver.trace(until=20) == ["20"]


def test_a_waiting_job_keeps_the_place_of_its_first_due_slot() -> None:
    """COALESCE replaces the slot, not the place in the queue."""
    driver = Driver()
    driver.add(rate(period=10), "old")
    driver.at(15).submit()
    driver.at(25)
    assert [run.row.id if run.row else "call" for run in driver.take(5)] == ["old", "call"]


def test_a_run_that_came_back_is_for_the_latest_slot() -> None:
    """Taken back unclaimed at 1, handed over again at 35: COALESCE, so it is one run, for 30."""
    driver = Driver()
    row = driver.add(rate())
    (run,) = driver.take()
    driver.at(1).put_back(run)
    driver.at(35)
    assert driver.take() == [run]
    assert (driver.planned(run), run.expected, row.missed) == (30, run.planned, 3)
    driver.end(run)
    assert driver.trace(until=50) == ["40", "50"]


def test_a_run_that_came_back_too_late_for_skip_is_skipped_with_a_record() -> None:
    """It had a number already, so its end is SKIPPED; the job goes on with the next future slot."""
    driver = Driver()
    driver.add(rate(Missed.SKIP))
    (run,) = driver.take()
    driver.at(1).put_back(run)
    driver.at(9)
    assert driver.take() == []
    assert driver.changes.skipped == [run]
    assert driver.trace(until=20) == ["10", "20"]


def test_an_armed_run_that_came_back_is_not_its_own_obstacle() -> None:
    """Handed over before its time and taken back, it hasn't executed: SKIP runs it."""
    driver = Driver()
    driver.add(rate(Missed.SKIP, initial_delay=10))
    driver.at(9.998)
    (run,) = driver.table.take_early(driver.now, 2_500_000).runs
    driver.at(10.001).put_back(run)
    assert driver.take() == [run]


# -- order


def test_due_order_then_priority_then_arrival() -> None:
    """Earlier first; at the same instant the smaller priority; then first come."""
    driver = Driver()
    for name, delay, priority in (("d", 2, 3), ("c", 2, 2), ("e", 3, 1), ("a", 1, 3), ("b", 2, 1), ("c2", 2, 2)):
        driver.add(After(delay), name, priority=priority)
    assert [run.row.id for run in driver.at(5).take(10) if run.row] == ["a", "b", "c", "c2", "d", "e"]


def test_priority_order_is_asked_for() -> None:
    """`ReadyOrder.PRIORITY`: priority first, then planned time, then arrival."""
    driver = Driver(ReadyOrder.PRIORITY)
    for name, delay, priority in (("d", 2, 3), ("b", 2, 2), ("a", 3, 1), ("c", 2, 2)):
        driver.add(After(delay), name, priority=priority)
    assert [run.row.id for run in driver.at(5).take(10) if run.row] == ["a", "b", "c", "d"]


@pytest.mark.case("B108")
def test_a_thousand_jobs_due_together_go_first_come_first_served() -> None:
    """Ties are served in the order of arrival, and what they carry is never compared."""
    driver = Driver()
    for number in range(1000):
        driver.add(After(1), f"{number}")  # payloads are plain objects: comparing two raises
    runs = driver.at(1).take(2000)
    assert [run.row.id for run in runs if run.row] == [str(number) for number in range(1000)]


def test_wall_and_monotonic_jobs_share_one_queue() -> None:
    """A calendar job that became due earlier goes first, though its time is a number of another size."""
    driver = Driver()
    driver.add(After(2), "later")
    driver.add(At(START + timedelta(seconds=1)), "earlier")
    driver.add(At(START + timedelta(seconds=3)), "last")
    assert [run.row.id for run in driver.at(9).take(10) if run.row] == ["earlier", "later", "last"]


def test_among_recurring_jobs_the_one_planned_first_comes_first() -> None:
    """Slots that are due together are served in the order in which they were planned: whose run ended first."""
    driver = Driver()
    driver.add(rate(), "a")
    driver.add(rate(), "b")
    for run in reversed(driver.take(2)):
        driver.end(run)
    assert [run.row.id for run in driver.at(10).take(2) if run.row] == ["b", "a"]


def test_what_was_held_has_kept_its_place() -> None:
    """A slot that had to step aside for an extra run of its job comes before what became due together with it."""
    driver = Driver()
    row = driver.add(rate(initial_delay=10), "first")
    extra = driver.table.run_now(row, driver.now)
    driver.start()
    driver.add(After(10), "second")
    driver.add(After(10), "third")
    assert [taken.row.id for taken in driver.at(10).take(1) if taken.row] == ["second"]
    driver.end(extra)
    assert [taken.row.id for taken in driver.take(5) if taken.row] == ["first", "third"]


def test_what_comes_back_has_kept_its_place() -> None:
    """Put back in reverse, runs come out again in their old order, before what is newer."""
    driver = Driver()
    calls = [driver.submit() for _ in range(3)]
    assert driver.take(3) == calls
    driver.submit()
    for run in reversed(calls):
        driver.put_back(run)
    assert driver.take(3) == calls


def test_a_batch_is_bounded_by_its_cost() -> None:
    """Runs share an offer while their costs fit in the budget; one of unknown cost goes alone."""
    driver = Driver()
    calls = [driver.submit() for _ in range(4)]
    for run in calls[:3]:
        run.cost = 400
    assert driver.take(10, 1000) == calls[:2]
    assert driver.take(10, 1000) == calls[2:3]
    assert driver.take(10, 1000) == calls[3:]


# -- instances and generations


def test_a_job_does_not_overlap_itself() -> None:
    """Without max_instances a slot that comes due during the run waits for its end."""
    driver = Driver()
    driver.add(rate())
    assert driver.trace(until=45, durations={0: 12, 20: 25}) == ["0", "10@12", "20", "40@45"]


def test_max_instances_bounds_how_many_overlap() -> None:
    """Two may, the third slot waits until a hand is free."""
    driver = Driver()
    driver.add(rate(Missed.CATCH_UP), max_instances=2)
    assert driver.trace(until=40, usual=25) == ["0", "10", "20@25", "30@35"]


@pytest.mark.parametrize("missed", list(Missed))
@pytest.mark.case("B76")
def test_an_id_never_overlaps_across_generations(missed: Missed) -> None:
    """A replaced job's run executes until 13: the new generation's slot of 10 waits for it, late, not missed."""
    driver = Driver()
    driver.add(After(0))
    old = driver.start()
    driver.at(10)
    new = driver.add(rate(missed))
    assert driver.take() == []
    assert new.place is Place.HELD
    driver.at(13).end(old)
    run = driver.start()
    assert (run.row, driver.planned(run), new.missed) == (new, 10, 0)


def test_a_rescheduled_job_does_not_miss_what_its_own_old_run_holds_up() -> None:
    """`reschedule` makes a new generation: under SKIP too, what the old one's run holds up is late, not missed."""
    driver = Driver()
    row = driver.add(After(0))
    old = driver.start()
    driver.at(10)
    driver.table.reschedule(row, rate(Missed.SKIP), driver.now)
    driver.at(13)
    assert driver.take() == []
    driver.end(old)
    run = driver.start()
    assert (driver.planned(run), run.generation, row.missed) == (10, 2, 0)


def test_hands_of_an_older_generation_do_not_make_a_job_busy() -> None:
    """Two instances, one of them an old generation's: the slot that both hold up is late under SKIP, not missed."""
    driver = Driver()
    row = driver.add(After(0), max_instances=2)
    old = driver.start()
    driver.table.reschedule(row, rate(Missed.SKIP), driver.now)
    driver.at(0).start()
    driver.at(10)
    assert driver.take() == []
    driver.at(13).end(old)
    assert driver.planned(driver.start()) == 10


def test_many_generations_wait_for_all_their_ghosts() -> None:
    """Three generations of an id with two instances: never more than two of them in hand."""
    driver = Driver()
    first = driver.add(After(0), max_instances=2)
    old = driver.start()
    second = driver.add(After(0), max_instances=2)
    older = driver.start()
    third = driver.add(After(0), max_instances=2)
    assert driver.take() == []
    assert driver.table.ghosts == {"job": 2}
    driver.end(older)
    assert driver.start().row is third
    assert driver.table.ghosts == {"job": 1}
    driver.end(old)
    assert driver.table.ghosts == {}
    assert {first.state, second.state} == {JobState.CANCELLED}


def test_a_replaced_jobs_run_changes_nothing_of_the_new_generation() -> None:
    """It fails: the new generation counts no failure, and isn't tried again for it."""
    driver = Driver()
    driver.add(rate(), retry=Retry(3))
    old = driver.start()
    new = driver.add(rate(initial_delay=50), pause_after_failures=1)
    changes = driver.at(5).end(old, Outcome.FAILED)
    assert changes.retry_at is None
    assert (new.failures, new.state, new.number) == (0, JobState.SCHEDULED, 0)


def test_generations_are_never_used_twice() -> None:
    """One counter for the whole table: also after a cancel, and for another id."""
    driver = Driver()
    generations = []
    for name in ("a", "b", "a", "a"):
        row = driver.add(rate(), name)
        generations.append(row.generation)
        driver.table.reschedule(row, rate(), driver.now)
        generations.append(row.generation)
        driver.table.cancel(row, driver.now)
    assert generations == list(range(1, 9))


# -- cancel


def test_cancelling_prevents_and_says_so() -> None:
    """True when a run was prevented: waiting, due, or to come after the one that executes."""
    driver = Driver()
    waiting, due = driver.add(rate(initial_delay=5), "waiting"), driver.add(rate(), "due")
    executing, last = driver.add(rate(), "executing"), driver.add(After(0), "last")
    runs = {run.row: run for run in driver.take(10)}
    driver.put_back(runs[due])
    for row in (executing, last):
        driver.table.started(runs[row])
    prevented = [driver.table.cancel(row, driver.now).prevented for row in (waiting, due, executing, last)]
    assert prevented == [True, True, True, False]
    assert driver.take(10) == []
    assert [driver.table.cancel(row, driver.now).prevented for row in (waiting, due, executing, last)] == [False] * 4


def test_a_due_slot_leaves_a_record_when_its_job_is_cancelled() -> None:
    """Somebody may be waiting for it: CANCELLED. A slot of the future leaves nothing."""
    driver = Driver()
    row = driver.add(rate())
    cancelled = driver.table.cancel(row, driver.now).cancelled
    assert [(run.number, driver.planned(run)) for run in cancelled] == [(1, 0)]
    assert driver.table.cancel(driver.add(rate(initial_delay=1)), driver.now).cancelled == []


@pytest.mark.case("B104")
def test_cancelling_lets_go_of_function_and_arguments() -> None:
    """The row keeps no payload."""
    driver = Driver()
    row = driver.add(rate())
    driver.table.cancel(row, driver.now)
    assert row.payload is None


def test_a_run_in_a_workers_hands_is_named_for_taking_back() -> None:
    """Cancel and pause can't reach it: whoever owns the channels must."""
    driver = Driver()
    row = driver.add(rate())
    (run,) = driver.take()
    assert driver.table.cancel(row, driver.now).offered == [run]
    assert driver.table.drop(run, driver.now).cancelled == [run]
    assert driver.table.live == 0


@pytest.mark.parametrize("count", [100_000])
@pytest.mark.case("B104")
def test_the_heap_stays_small_however_much_is_cancelled(count: int) -> None:
    """A hundred thousand times schedule and cancel, beside ten jobs that stay: the heap holds a few dozen entries."""
    driver = Driver()
    for number in range(10):
        driver.add(rate(initial_delay=5), f"stays {number}")
    schedule = rate(initial_delay=10)
    table, most = driver.table, 0
    heap = table.queues._mono
    for _ in range(count):
        row = JobRow("goes", schedule, None, JobOptions())
        table.add(row, driver.now)
        table.cancel(row, driver.now)
        most = max(most, len(heap._entries))
    assert most <= 80
    table.check_valid()
    assert len(driver.at(5).take(100)) == 10


# -- pause, resume, reschedule


def test_slots_that_pass_in_a_pause_are_dropped() -> None:
    """Paused from 12 to 35: the grid goes on at 40."""
    driver = Driver()
    row = driver.add(rate(Missed.CATCH_UP))
    assert driver.trace(until=11) == ["0", "10"]
    driver.table.pause(row, driver.at(12).now)
    assert driver.trace(until=34) == []
    driver.table.resume(row, driver.at(35).now)
    assert driver.trace(until=50) == ["40", "50"]
    assert row.missed == 0


def test_a_paused_fixed_delay_goes_on_a_whole_delay_after_resume() -> None:
    """FixedDelay has no grid: now plus its delay."""
    driver = Driver()
    row = driver.add(FixedDelay(10))
    assert driver.trace(until=5) == ["0"]
    driver.table.pause(row, driver.now)
    driver.table.resume(row, driver.at(33).now)
    assert driver.trace(until=50) == ["43"]


def test_a_run_under_way_outlives_the_pause_and_plans_from_the_resume() -> None:
    """It executes from 0 to 37, paused from 5 to 25: under CATCH_UP 10 and 20 are dropped, 30 is caught up with."""
    driver = Driver()
    row = driver.add(rate(Missed.CATCH_UP))
    run = driver.start()
    driver.table.pause(row, driver.at(5).now)
    driver.table.resume(row, driver.at(25).now)
    driver.at(37).end(run)
    assert driver.trace(until=40) == ["30@37", "40"]


def test_a_due_slot_is_dropped_by_a_pause_without_a_trace() -> None:
    """No record, no number, no run made: as if it had never been due; times(2) still makes two."""
    driver = Driver()
    row = driver.add(rate().times(2))
    (run,) = driver.take()
    driver.put_back(run)
    changes = driver.table.pause(row, driver.now)
    assert (changes.cancelled, row.number, row.made) == ([], 0, 0)
    driver.table.resume(row, driver.at(3).now)
    assert driver.trace(until=50) == ["10", "20"]


def test_a_last_run_that_a_pause_took_back_is_made_after_the_resume() -> None:
    """It was the only one of times(1), and no further slot was planned: undone, it isn't the last one any more."""
    driver = Driver()
    row = driver.add(rate().times(1), max_instances=2)
    (run,) = driver.take()
    assert driver.table.pause(row, driver.now).offered == [run]
    assert driver.table.drop(run, driver.now).unmade == [run]
    driver.table.resume(row, driver.at(3).now)
    assert driver.trace(until=50) == ["10"]


def test_a_job_resumed_before_its_run_was_taken_back_still_goes_on() -> None:
    """Pause asks for the run in a worker's hands; when it comes back after the resume, the next slot is planned."""
    driver = Driver()
    row = driver.add(rate())
    (run,) = driver.take()
    assert driver.table.pause(row, driver.at(1).now).offered == [run]
    driver.table.resume(row, driver.at(2).now)
    driver.table.drop(run, driver.at(3).now)
    driver.table.check_valid()
    assert driver.trace(until=10) == ["10"]


def test_an_extra_run_of_a_paused_job_that_came_back_waits_on() -> None:
    """Its worker died before it claimed it: a pause is no reason to drop it."""
    driver = Driver()
    row = driver.add(rate())
    driver.table.pause(row, driver.now)
    extra = driver.table.run_now(row, driver.now)
    assert driver.take() == [extra]
    driver.put_back(extra)
    assert (row.extra, driver.take()) == (extra, [extra])


def test_a_further_attempt_that_came_back_is_still_in_hand() -> None:
    """Taken back unclaimed, a retry counts for max_instances all the while."""
    driver = Driver()
    row = driver.add(rate(), retry=Retry(2, backoff=1))
    run = driver.start()
    driver.end(run, Outcome.FAILED)
    driver.table.run_now(row, driver.now)
    assert driver.at(1).take() == [run]
    driver.put_back(run)
    assert (row.hands, row.executing, driver.take(5)) == (1, 1, [run])


def test_extra_runs_are_made_while_paused() -> None:
    """`run_now` leaves the schedule alone, and a pause leaves it alone."""
    driver = Driver()
    row = driver.add(rate())
    driver.table.pause(row, driver.now)
    extra = driver.table.run_now(row, driver.now)
    assert driver.start() is extra
    driver.at(3).end(extra)
    assert (row.state, row.made, extra.planned) == (JobState.PAUSED, 0, None)


def test_one_extra_run_is_queued_at_most() -> None:
    """Until it starts, asking again gives the same one; afterwards another."""
    driver = Driver()
    row = driver.add(rate())
    slot = driver.start()
    extra = driver.table.run_now(row, driver.now)
    assert driver.table.run_now(row, driver.now) is extra
    assert driver.take() == []  # it waits for its turn under max_instances
    driver.at(3).end(slot)
    assert driver.start() is extra
    assert driver.table.run_now(row, driver.now) is not extra


def test_a_job_ends_with_its_last_run_also_when_that_is_a_cancelled_extra() -> None:
    """The schedule is over, an extra run is queued, its Future is cancelled: nothing is left, the job is FINISHED."""
    driver = Driver()
    row = driver.add(After(0))
    run = driver.start()
    extra = driver.table.run_now(row, driver.now)
    driver.end(run)
    assert row.state is JobState.SCHEDULED
    changes = driver.table.drop(extra, driver.now)
    assert (changes.finished, row.state, driver.table.jobs.rows()) == ([row], JobState.FINISHED, [])


def test_reschedule_starts_anew() -> None:
    """A new generation: counters of the schedule begin again, the old slot is stale, the run number goes on."""
    driver = Driver()
    row = driver.add(rate().times(2))
    assert driver.trace(until=5) == ["0"]
    driver.table.reschedule(row, rate(period=3).times(2), driver.now)
    assert driver.trace(until=50) == ["5", "8"]
    assert (row.number, row.generation, row.state) == (3, 2, JobState.FINISHED)


@pytest.mark.parametrize("place", ["ready", "held", "offered"])
def test_an_extra_run_survives_a_reschedule(place: str) -> None:
    """It is beside the schedule, wherever it waits, and belongs to the new generation."""
    driver = Driver()
    row = driver.add(After(0), retry=Retry(2))
    if place == "held":
        driver.end(driver.start(), Outcome.FAILED)  # in back-off, which takes up the one hand
    else:
        driver.end(driver.start())
        row = driver.add(rate(initial_delay=50))
    extra = driver.table.run_now(row, driver.now)
    taken = driver.take() if place != "ready" else []
    assert taken == ([extra] if place == "offered" else [])
    changes = driver.table.reschedule(row, rate(initial_delay=50), driver.now)
    driver.table.check_valid()
    assert changes.offered == changes.cancelled == []
    assert (extra.generation == row.generation, extra.place in (Place.READY, Place.OFFERED)) == (True, True)


def test_rescheduling_a_paused_job_leaves_it_paused() -> None:
    """It goes on with the new schedule when it is resumed."""
    driver = Driver()
    row = driver.add(rate())
    driver.table.pause(row, driver.now)
    driver.table.reschedule(row, rate(period=7), driver.at(1).now)
    assert (row.state, driver.trace(until=20)) == (JobState.PAUSED, [])
    driver.table.resume(row, driver.at(20).now)
    assert driver.trace(until=30) == ["22", "29"]


def test_rescheduling_a_paused_job_to_nothing_ends_it() -> None:
    """There is no slot that could be paused."""
    driver = Driver()
    row = driver.add(rate())
    driver.table.pause(row, driver.now)
    changes = driver.table.reschedule(row, rate().until(START - timedelta(seconds=1)), driver.now)
    assert (changes.finished, row.state) == ([row], JobState.FINISHED)


def test_a_job_whose_schedule_is_over_stays_so_through_pause_and_resume() -> None:
    """Rescheduled to nothing while an extra run is queued: resume doesn't bring back the old schedule's slot."""
    driver = Driver()
    row = driver.add(rate(initial_delay=50))
    extra = driver.table.run_now(row, driver.now)
    driver.table.reschedule(row, rate().until(START - timedelta(seconds=1)), driver.now)
    driver.table.pause(row, driver.now)
    driver.table.resume(row, driver.now)
    driver.table.check_valid()
    assert driver.end(driver.start()).finished == [row]
    assert (extra.place, driver.wakeup()) == (Place.DONE, None)


# -- bounds


def test_times_bounds_the_runs() -> None:
    """times(3): three runs, then the job is FINISHED and its id free."""
    driver = Driver()
    row = driver.add(rate().times(3))
    assert driver.trace(until=100) == ["0", "10", "20"]
    assert (row.state, driver.table.jobs.rows()) == (JobState.FINISHED, [])


@pytest.mark.parametrize("instances", [1, 2])
def test_a_skipped_run_does_not_count_for_times(instances: int) -> None:
    """times(2) makes two runs, beside those that came too late."""
    driver = Driver()
    driver.add(rate(Missed.CATCH_UP).times(2), misfire_grace=0, max_instances=instances)
    driver.at(1)
    assert driver.trace(until=100) == ["10", "20"]


def test_until_is_inclusive() -> None:
    """The slot at that very instant is the last one."""
    driver = Driver()
    driver.add(rate().until(START + timedelta(seconds=20)))
    assert driver.trace(until=100) == ["0", "10", "20"]


@pytest.mark.parametrize(("missed", "trace"), [(Missed.COALESCE, ["0", "20@55"]), (Missed.SKIP, ["0"])])
def test_until_bounds_what_is_caught_up_with(missed: Missed, trace: list[str]) -> None:
    """The run of 0 lasts until 55: the latest slot that counts is the last one within the bound."""
    driver = Driver()
    row = driver.add(rate(missed).until(START + timedelta(seconds=20)))
    assert driver.trace(until=100, durations={0: 55}) == trace
    assert row.state is JobState.FINISHED


def test_starting_is_inclusive() -> None:
    """Monotonic: the grid begins there. Calendar: a slot at that very instant is the first one."""
    driver = Driver()
    driver.add(rate().starting(START + timedelta(seconds=5)))
    assert driver.trace(until=20) == ["5", "15"]
    hour = -(-WALL // Hourly.period) * Hourly.period
    driver = Driver()
    row = driver.add(Hourly().starting(datetime.fromtimestamp(hour // SECOND, UTC)))
    assert row.planned == hour


def test_jitter_moves_the_start_and_never_the_plan() -> None:
    """Each start is within the jitter after its slot, they differ, and the grid stays."""
    driver = Driver()
    driver.add(rate(jitter=5), "job")
    delays = []
    for number in range(1, 20):
        driver.at(number * 10 - 10)
        wakeup = driver.wakeup()
        if wakeup is not None:
            driver.at(wakeup)
        run = driver.start()
        assert driver.planned(run) == number * 10 - 10
        delays.append(driver.seconds - driver.planned(run))
        assert run.expected == driver.now.mono
        driver.end(run)
    assert all(0 <= delay < 5 for delay in delays)
    assert len({round(delay, 3) for delay in delays}) > 10


# -- how runs end


def test_a_retry_waits_without_a_worker_but_in_hand() -> None:
    """Back-off: EXECUTING for the account and max_instances, in the timer heap, then the same run once more."""
    driver = Driver()
    row = driver.add(rate(), retry=Retry(3, backoff=2))
    run = driver.start()
    changes = driver.at(1).end(run, Outcome.FAILED)
    assert (driver.wakeup(), changes.retry_at) == (3, run.due)
    assert (run.place, row.executing, row.hands) == (Place.BACKOFF, 1, 1)
    extra = driver.table.run_now(row, driver.now)
    assert driver.take() == []
    assert driver.at(3).start() is run
    assert (run.attempt, run.number) == (2, 1)
    driver.end(run, Outcome.CRASHED)
    assert driver.at(7).start() is run
    assert driver.end(run, Outcome.FAILED).retry_at is None
    assert (row.failures, row.executing) == (1, 0)
    assert driver.start() is extra


def test_a_crash_is_tried_again_unless_told_otherwise() -> None:
    """``on_crash=False``; an ABORTED run is never tried again."""
    for outcome, retry, again in (
        (Outcome.CRASHED, Retry(2), True),
        (Outcome.CRASHED, Retry(2, on_crash=False), False),
        (Outcome.TIMED_OUT, Retry(2, on_crash=False), True),
        (Outcome.ABORTED, Retry(2), False),
        (Outcome.SUCCEEDED, Retry(2), False),
    ):
        driver = Driver()
        driver.add(rate(), retry=retry)
        assert (driver.end(driver.start(), outcome).retry_at is not None) is again


def test_what_is_in_back_off_ends_as_its_last_attempt_did_when_its_job_ends() -> None:
    """Cancelled, replaced or shut down in between: it is over at once."""
    for operation in ("cancel", "replace", "reschedule", "close"):
        driver = Driver()
        row = driver.add(rate(), retry=Retry(3))
        run = driver.start()
        driver.end(run, Outcome.FAILED)
        if operation == "cancel":
            changes = driver.table.cancel(row, driver.now)
        elif operation == "replace":
            other = JobRow("job", rate(), None, row.options)
            changes = driver.table.add(other, driver.now)
        elif operation == "reschedule":
            changes = driver.table.reschedule(row, rate(), driver.now)
        else:
            changes = driver.table.close(driver.now, cancel_calls=False)
        driver.table.check_valid()
        assert (changes.ended, run.place, driver.table.live) == ([run], Place.DONE, 0)


def test_consecutive_failures_pause_the_job() -> None:
    """Crashes and timeouts count, a success in between starts the count anew, resume too."""
    driver = Driver()
    row = driver.add(rate(), pause_after_failures=3)
    failures = (Outcome.FAILED, Outcome.CRASHED, Outcome.SUCCEEDED, Outcome.TIMED_OUT, Outcome.FAILED, Outcome.CRASHED)
    for number, outcome in enumerate(failures):
        assert row.state is JobState.SCHEDULED
        changes = driver.at(number * 10).end(driver.start(), outcome)
    assert (row.state, changes.paused) == (JobState.PAUSED, [(row, None)])
    driver.table.resume(row, driver.at(75).now)
    assert row.failures == 0
    assert driver.trace(until=80) == ["80"]


def test_too_late_is_skipped_with_a_record() -> None:
    """`misfire_grace_time`: exactly within it the run is made, later it is SKIPPED, and the next slot is planned."""
    driver = Driver()
    row = driver.add(rate(Missed.CATCH_UP), misfire_grace=2 * SECOND)
    assert driver.at(2).trace(until=2) == ["0@2"]
    driver.at(12.1)
    assert driver.take() == []
    assert [(run.number, driver.planned(run)) for run in driver.changes.skipped] == [(2, 10)]
    assert driver.trace(until=20) == ["20"]
    assert (row.missed, row.failures) == (0, 0)


def test_a_schedule_that_raises_pauses_its_job() -> None:
    """What it raised is told; the run that was under way is unharmed."""
    driver = Driver()
    row = driver.add(Failing())
    changes = driver.end(driver.start())
    ((paused, reason),) = changes.paused
    assert (paused, row.state) == (row, JobState.PAUSED)
    assert isinstance(reason, LookupError)


@pytest.mark.parametrize("answer", [5, True, 2.5, "noon"])
def test_a_schedule_that_answers_nonsense_pauses_its_job(answer: object) -> None:
    """Not later than its last slot, or no int at all."""

    class Odd(Failing):
        def next(self, planned: int, finished: int) -> int:
            return answer  # type: ignore[return-value]

    driver = Driver()
    row = driver.add(Odd())
    driver.end(driver.start())
    assert row.state is JobState.PAUSED


def test_a_schedule_that_raises_at_once_registers_nothing() -> None:
    """And replaces nothing."""

    class Never(Failing):
        def first(self, now: int) -> int:
            raise LookupError("no idea")

    driver = Driver()
    row = driver.add(rate())
    with pytest.raises(ScheduleFailed):
        driver.add(Never())
    assert driver.table.jobs.rows() == [row]
    with pytest.raises(ScheduleFailed):
        driver.table.reschedule(row, Never(), driver.now)
    assert driver.trace(until=10) == ["0", "10"]


# -- the wall clock


@pytest.mark.parametrize("hours", [1, -1, -2, 24 * 365, -8 * 365 * 24])
@pytest.mark.case("B66", "B67")
def test_a_step_of_the_wall_clock_moves_no_interval(hours: int) -> None:
    """Monotonic jobs and delayed calls go on as if nothing had happened."""
    driver = Driver()
    driver.add(rate())
    driver.submit(delay=15)
    assert driver.trace(until=5) == ["0"]
    driver.step_wall(hours * 3600)
    driver.at(15)
    assert [run.row.id if run.row else "call" for run in driver.take(9)] == ["job", "call"]


def test_after_a_small_step_back_no_slot_is_served_twice() -> None:
    """Up to three hours: the calendar waits until the clock has caught up."""
    driver = Driver()
    row = driver.add(Hourly())
    served = []
    for minutes, step in ((60, 0), (120, -2 * 3600), (180, 0), (240, 0), (300, 0)):
        driver.at(minutes * 60)
        for run in driver.take():
            served.append(run.planned)
            driver.end(run)
        driver.step_wall(step)
    assert len(served) == len(set(served)) == 3
    assert row.planned == served[-1] + Hourly.period


@pytest.mark.parametrize(("hours", "anew"), [(3, False), (3.01, True)])
def test_three_hours_back_is_a_small_step(hours: float, anew: bool) -> None:
    """The bound is Debian cron's."""
    driver = Driver()
    row = driver.add(Hourly())
    planned = row.planned
    driver.step_wall(-hours * 3600)
    assert (row.planned < planned) is anew


def test_small_steps_back_do_not_add_up_over_the_years() -> None:
    """A step back counts from the latest time that was seen, so two of two hours, a day apart, are two small ones."""
    driver = Driver()
    row = driver.add(Hourly())
    driver.at(3600)
    driver.end(driver.start())
    planned = row.planned
    for day in (1, 2, 3):
        driver.step_wall(-2 * 3600)
        assert row.planned == planned
        driver.at(day * 86400)
        driver.end(driver.start())
        planned = row.planned


@pytest.mark.parametrize("where", ["waiting", "executing", "paused"])
def test_after_a_large_step_back_the_calendar_is_planned_anew(where: str) -> None:
    """Eight years back: the next run comes within the hour, not in eight years."""
    driver = Driver()
    row = driver.add(Hourly())
    driver.at(3600)
    run = driver.start()
    if where != "executing":
        driver.end(run)
    if where == "paused":
        driver.table.pause(row, driver.now)
    driver.step_wall(-8 * 365 * 86400)
    if where == "executing":
        driver.end(run)
    if where == "paused":
        driver.table.resume(row, driver.now)
    wakeup = driver.wakeup()
    assert wakeup is not None
    assert driver.at(3600 + 3600).start().planned == row.planned
    assert abs(row.planned - driver.now.wall) < 3600 * SECOND


def test_a_year_forward_is_one_late_run() -> None:
    """COALESCE: no burst of 8,760 runs; the others count as missed."""
    driver = Driver()
    row = driver.add(Hourly())
    driver.step_wall(365 * 86400)
    assert len(driver.take(100)) == 1
    assert row.missed == 8759 or row.missed == 8760


def test_while_a_calendar_entry_waits_the_clock_is_looked_at_every_30_seconds() -> None:
    """So that a step of it is noticed; intervals need no such look."""
    driver = Driver()
    driver.add(rate(initial_delay=10**9))
    assert driver.wakeup() == 10**9
    row = driver.add(At(START + timedelta(days=400)), "calendar")
    assert driver.wakeup() == 30
    driver.table.cancel(row, driver.now)
    assert driver.wakeup() == 10**9


# -- early, late, and the end


def test_a_run_may_be_handed_over_a_moment_early() -> None:
    """Within the horizon the next run goes, with its due time; it isn't late, and isn't early either."""
    driver = Driver()
    row = driver.add(rate(initial_delay=10))
    assert driver.table.take_early(driver.at(9).now, 2_500_000).runs == []
    (run,) = driver.table.take_early(driver.at(9.998).now, 2_500_000).runs
    assert (driver.planned(run), run.due, run.expected) == (10, run.planned, run.planned)
    driver.put_back(run)
    assert (run.place, driver.wakeup()) == (Place.TIMER, 10)
    assert driver.take() == []
    assert driver.at(10).start() is run
    driver.end(run)
    assert (row.number, driver.wakeup()) == (1, 20)


def test_what_is_held_up_by_its_own_job_is_not_armed() -> None:
    """`take_early` respects max_instances."""
    driver = Driver()
    row = driver.add(rate(initial_delay=10))
    driver.table.run_now(row, driver.now)
    driver.start()
    assert driver.table.take_early(driver.at(9.999).now, 2_500_000).runs == []


def test_close_keeps_calls_for_now_and_nothing_else() -> None:
    """The shutdown table: jobs end, delayed calls are cancelled, calls for now run, executing runs finish."""
    driver = Driver()
    executing = driver.add(rate(), "executing")
    run = driver.start()
    due, later = driver.add(rate(), "due"), driver.add(rate(initial_delay=5), "later")
    call, delayed, delayed_and_due = driver.submit(), driver.submit(delay=9), driver.submit(delay=0)
    changes = driver.table.close(driver.now, cancel_calls=False)
    assert [(gone.row, gone.number) for gone in changes.cancelled] == [(None, delayed.number), (due, 1)]
    assert changes.over == [executing, due, later]
    assert driver.take(10) == [call, delayed_and_due]
    driver.at(9).end(run)
    assert driver.table.live == 0
    assert driver.take(10) == []


def test_close_cancels_calls_when_asked_to() -> None:
    """``cancel_futures=True``: calls for now don't run either."""
    driver = Driver()
    calls = [driver.submit(), driver.submit(delay=5)]
    changes = driver.table.close(driver.now, cancel_calls=True)
    assert (set(changes.cancelled), driver.table.is_idle()) == (set(calls), True)


def test_idle_means_that_nothing_is_left_paused_jobs_aside() -> None:
    """A waiting job, a call or a run under way is something; a paused job isn't."""
    driver = Driver()
    row = driver.add(rate())
    assert not driver.table.is_idle()
    driver.table.pause(row, driver.now)
    assert driver.table.is_idle()
    call = driver.submit()
    assert not driver.table.is_idle()
    driver.end(driver.start())
    assert call.place is Place.DONE
    assert driver.table.is_idle()


def test_the_next_run_is_told_in_wall_time() -> None:
    """Also while a run is under way, where it doesn't depend on the end of that."""
    driver = Driver()
    fixed, delayed = driver.add(rate(), "rate"), driver.add(FixedDelay(5), "delay")
    at_zero = [driver.table.next_run(row, driver.now) for row in (fixed, delayed)]
    assert at_zero == [WALL, WALL]
    for run in driver.take(2):
        driver.table.started(run)
    assert [driver.table.next_run(row, driver.now) for row in (fixed, delayed)] == [WALL + 10 * SECOND, None]


def test_exhaustive_small_worlds_keep_the_order_of_calls() -> None:
    """Whatever three calls are put back in between, they come out in the order of their submission."""
    for pattern in itertools.product((False, True), repeat=3):
        driver = Driver()
        calls: list[Run] = [driver.submit() for _ in range(3)]
        out = []
        for back in pattern:
            (run,) = driver.take()
            if back:
                driver.put_back(run)
                (run,) = driver.take()
            out.append(run)
        assert out == calls


def test_a_crowd_that_is_due_at_once_comes_in_turns() -> None:
    """So that no turn of the loop takes long; in the order of their due times; and nothing is left out."""
    driver = Driver()
    for number in range(5_000):
        row = JobRow(f"job-{number}", After(10 + (4_999 - number) / 1000), object(), JobOptions())
        driver.table.add(row, driver.now)
    driver.now = Now(MONO + 60 * SECOND, driver.now.wall)
    driver.table.promote(driver.now)
    assert 0 < driver.table.queues.ready < 5_000
    wakeup = driver.table.queues.next_wakeup(driver.now)
    assert wakeup is not None and wakeup <= driver.now.mono, "the loop would sleep over the rest"
    taken = driver.take(5_000)
    while driver.table.queues.timers or driver.table.queues.ready:
        driver.table.promote(driver.now)
        taken += driver.take(5_000)
    assert [run.row.id for run in taken if run.row] == [f"job-{number}" for number in reversed(range(5_000))]
