"""Jobs on a fake clock: ids, generations, cancel, pause, extra runs, Futures, series, retries, limits."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError, wait
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from procsched import (
    After,
    At,
    ConflictingIdError,
    FixedDelay,
    FixedRate,
    JobAdded,
    JobCancelled,
    JobFinished,
    JobLookupError,
    JobPaused,
    JobReplaced,
    JobResumed,
    JobState,
    Missed,
    Outcome,
    Priority,
    ReadyOrder,
    Retry,
    RunEnded,
    RunRetrying,
    Schedule,
    SchedulerClosed,
    Timebase,
)
from procsched.testing import FakeClock, ManualScheduler

UTC = UTC


@pytest.fixture
def scheduler() -> ManualScheduler:
    return ManualScheduler(FakeClock(datetime(2024, 1, 1, tzinfo=UTC)), workers=1)


def boom() -> None:
    raise ValueError("boom")


# -- ids and generations ----------------------------------------------------------------------------------------------


def test_an_id_in_use_conflicts(scheduler: ManualScheduler) -> None:
    """A second job of the same id is refused, and the first one goes on."""
    first = scheduler.schedule(int, After(1), id="a")
    with pytest.raises(ConflictingIdError, match="'a'"):
        scheduler.schedule(int, After(1), id="a")
    assert scheduler.get_jobs() == [first]


def test_ids_are_made_when_none_is_given(scheduler: ManualScheduler) -> None:
    """Two jobs of one function get different ids, which are text."""
    ids = {scheduler.schedule(int, After(1)).id for _ in range(3)}
    assert len(ids) == 3 and all(isinstance(id_, str) for id_ in ids)


def test_a_made_id_avoids_given_ones(scheduler: ManualScheduler) -> None:
    """An id that a user happens to have chosen is never made."""
    for number in range(1, 30):
        scheduler.schedule(int, After(1), id=f"int-{number}")
    scheduler.schedule(int, After(1))
    assert len(scheduler.get_jobs()) == 30


def test_an_id_is_free_when_its_job_ended(scheduler: ManualScheduler) -> None:
    """Finished: out of `get_jobs()`, its id free; the handle keeps its data."""
    job = scheduler.schedule(int, After(0), id="a")
    scheduler.tick()
    assert scheduler.get_jobs() == [] and job.state is JobState.FINISHED
    assert job.last is not None and job.last.outcome is Outcome.SUCCEEDED and job.stats.runs == 1
    with pytest.raises(JobLookupError):
        scheduler["a"]
    scheduler.schedule(int, After(0), id="a")


def test_looking_up(scheduler: ManualScheduler) -> None:
    """`get_job` and `[]` find a job; what isn't there is a `JobLookupError`, which is a `KeyError`."""
    job = scheduler.schedule(int, After(1), id="a")
    assert scheduler["a"] == scheduler.get_job("a") == job
    for call in (scheduler.get_job, scheduler.cancel, scheduler.pause, scheduler.resume, scheduler.__getitem__):
        with pytest.raises(KeyError, match="nowhere"):
            call("nowhere")


def test_generations_count_for_the_whole_scheduler(scheduler: ManualScheduler) -> None:
    """Each schedule, replacement and reschedule makes a new one; none is used twice."""
    a = scheduler.schedule(int, After(1), id="a")
    b = scheduler.schedule(int, After(1), id="b")
    c = scheduler.schedule(int, After(1), id="a", replace_existing=True)
    seen = [a.generation, b.generation, c.generation]
    c.reschedule(After(2))
    seen.append(c.generation)
    assert seen == sorted(set(seen))


def test_replacing_kills_the_queued_run_quietly(scheduler: ManualScheduler) -> None:
    """The old generation's slot never runs; the new one does."""
    ran: list[str] = []
    old = scheduler.schedule(ran.append, After(1), args=("old",), id="a")
    scheduler.schedule(ran.append, After(2), args=("new",), id="a", replace_existing=True)
    scheduler.clock.advance(5)
    assert len(scheduler.tick()) == 1 and ran == ["new"] and old.state is JobState.CANCELLED


def test_replace_existing_without_an_old_one_adds(scheduler: ManualScheduler) -> None:
    """`replace_existing=True` on a free id is an addition."""
    told: list[Any] = []
    scheduler.subscribe(told.append, JobAdded, JobReplaced)
    scheduler.schedule(int, After(1), id="a", replace_existing=True)
    scheduler.schedule(int, After(1), id="a", replace_existing=True)
    scheduler.tick()
    assert [type(event) for event in told] == [JobAdded, JobReplaced]


def test_reschedule_goes_by_the_new_schedule(scheduler: ManualScheduler) -> None:
    """Same function and arguments, other times."""
    ran: list[int] = []
    job = scheduler.schedule(ran.append, After(10), args=(1,))
    job.reschedule(FixedRate(1, initial_delay=1))
    scheduler.clock.advance(1)
    scheduler.tick()
    assert ran == [1] and job.state is JobState.SCHEDULED


def test_reschedule_checks_like_schedule(scheduler: ManualScheduler) -> None:
    """A number, a FixedDelay with several instances, an ended job: refused, and nothing changes."""
    job = scheduler.schedule(int, FixedRate(5), max_instances=2)
    generation = job.generation
    with pytest.raises(TypeError, match="delay or a period"):
        job.reschedule(5)
    with pytest.raises(ValueError, match="max_instances"):
        job.reschedule(FixedDelay(5))
    assert job.generation == generation
    job.cancel()
    with pytest.raises(JobLookupError):
        job.reschedule(FixedRate(5))


# -- cancel, pause, resume --------------------------------------------------------------------------------------------


def test_cancel_tells_whether_it_prevented_something(scheduler: ManualScheduler) -> None:
    """True the first time, False the second, False when the last run has been made."""
    job = scheduler.schedule(int, After(1))
    done = scheduler.schedule(int, After(0))
    scheduler.tick()
    assert (job.cancel(), job.cancel(), done.cancel()) == (True, False, False)
    assert job.state is JobState.CANCELLED and job.next_run_time is None and scheduler.get_jobs() == []


def test_a_cancelled_job_never_runs(scheduler: ManualScheduler) -> None:
    """Due and waiting, it is dropped, and recorded as CANCELLED."""
    job = scheduler.schedule(boom, After(0))
    scheduler.cancel(job.id)
    assert [record.outcome for record in scheduler.tick()] in ([], [Outcome.CANCELLED])
    assert job.stats.runs == 0


def test_a_run_may_cancel_its_own_job(scheduler: ManualScheduler) -> None:
    """It finishes, is recorded, and is the last one."""
    job = scheduler.schedule(lambda: scheduler.cancel("a"), FixedRate(1), id="a")
    assert [record.outcome for record in scheduler.tick()] == [Outcome.SUCCEEDED]
    scheduler.clock.advance(5)
    assert scheduler.tick() == [] and job.last is not None


def test_pause_drops_what_passes(scheduler: ManualScheduler) -> None:
    """Slots that pass during a pause never run; resume goes on with the next future one on the old grid."""
    job = scheduler.schedule(int, FixedRate(10, initial_delay=10))
    job.pause()
    assert job.state is JobState.PAUSED and job.next_run_time is None
    scheduler.clock.advance(35)
    assert scheduler.tick() == []
    job.resume()
    assert scheduler.tick() == [] and job.state is JobState.SCHEDULED
    assert job.next_run_time == datetime(2024, 1, 1, 0, 0, 40, tzinfo=UTC)


def test_a_fixed_delay_resumes_with_a_whole_delay(scheduler: ManualScheduler) -> None:
    """FixedDelay: now + delay."""
    job = scheduler.schedule(int, FixedDelay(10, initial_delay=10))
    job.pause()
    scheduler.clock.advance(35)
    job.resume()
    assert job.next_run_time == datetime(2024, 1, 1, 0, 0, 45, tzinfo=UTC)


def test_bulk_pause_and_resume(scheduler: ManualScheduler) -> None:
    """No id: all; `tag=`: those; both: refused."""
    a = scheduler.schedule(int, After(1), tags=["x"])
    b = scheduler.schedule(int, After(1), tags=["x", "y"])
    c = scheduler.schedule(int, After(1))
    scheduler.pause(tag="y")
    assert [job.state for job in (a, b, c)] == [JobState.SCHEDULED, JobState.PAUSED, JobState.SCHEDULED]
    scheduler.pause()
    assert {job.state for job in (a, b, c)} == {JobState.PAUSED}
    scheduler.resume(tag="x")
    assert [job.state for job in (a, b, c)] == [JobState.SCHEDULED, JobState.SCHEDULED, JobState.PAUSED]
    with pytest.raises(TypeError, match="not both"):
        scheduler.pause(a.id, tag="x")
    assert scheduler.get_jobs("x") == [a, b] and scheduler.get_jobs(tag="nothing") == []


def test_pausing_twice_is_once(scheduler: ManualScheduler) -> None:
    """Pause and resume are idempotent, and are told once."""
    told: list[Any] = []
    scheduler.subscribe(told.append, JobPaused, JobResumed)
    job = scheduler.schedule(int, After(1))
    for call in (job.pause, job.pause, job.resume, job.resume):
        call()
    scheduler.tick()
    assert [type(event) for event in told] == [JobPaused, JobResumed] and told[0].reason == ""


def test_an_ended_job_cant_be_paused(scheduler: ManualScheduler) -> None:
    """pause, resume and run_now of a job that ended are a `JobLookupError`; a Future of it is cancelled at once."""
    job = scheduler.schedule(int, After(0))
    scheduler.tick()
    for call in (job.pause, job.resume, job.run_now):
        with pytest.raises(JobLookupError):
            call()
    future = job.next_future()
    assert future.cancelled() and wait([future], 0).done == {future}
    assert list(job.results()) == []


def test_a_schedule_that_raises_pauses_its_job(scheduler: ManualScheduler) -> None:
    """`next()` of a user's schedule raises: PAUSED, announced with the reason; others go on."""

    class Broken(Schedule):
        timebase = Timebase.MONOTONIC

        def first(self, now: int) -> int:
            return now

        def next(self, planned: int, finished: int) -> int:
            raise ZeroDivisionError("mine")

    told: list[JobPaused] = []
    scheduler.subscribe(told.append, JobPaused)
    job = scheduler.schedule(int, Broken())
    scheduler.tick()
    assert job.state is JobState.PAUSED and "mine" in told[0].reason


def test_a_schedule_that_raises_at_once_registers_nothing(scheduler: ManualScheduler) -> None:
    """`first()` raises: so does `schedule`."""

    class Broken(Schedule):
        timebase = Timebase.MONOTONIC

        def first(self, now: int) -> int:
            raise ZeroDivisionError("mine")

        def next(self, planned: int, finished: int) -> None: ...

    with pytest.raises(ZeroDivisionError, match="mine"):
        scheduler.schedule(int, Broken())
    assert scheduler.get_jobs() == []


def test_anything_with_the_three_parts_is_a_schedule(scheduler: ManualScheduler) -> None:
    """A Schedule is a protocol: no base class is needed."""

    class Once:
        timebase = Timebase.MONOTONIC

        def first(self, now: int) -> int:
            return now

        def next(self, planned: int, finished: int) -> None: ...

    scheduler.schedule(int, Once())
    assert len(scheduler.tick()) == 1
    with pytest.raises(TypeError, match="class"):
        scheduler.schedule(int, Once)


# -- extra runs, Futures, series --------------------------------------------------------------------------------------


def test_run_now_is_an_extra_run(scheduler: ManualScheduler) -> None:
    """Its value comes by its Future, and the schedule is left alone."""
    job = scheduler.schedule(lambda: 7, After(100))
    before = job.next_run_time
    future = job.run_now()
    scheduler.tick()
    assert future.result(0) == 7 and job.next_run_time == before and job.stats.runs == 1


def test_one_extra_run_is_queued_at_most(scheduler: ManualScheduler) -> None:
    """Later calls share its Future until it starts."""
    job = scheduler.schedule(int, After(100))
    first, second = job.run_now(), job.run_now()
    assert first is second
    assert len(scheduler.tick()) == 1
    assert job.run_now() is not first


def test_run_now_while_paused(scheduler: ManualScheduler) -> None:
    """Allowed, and the job stays paused."""
    job = scheduler.schedule(int, After(100))
    job.pause()
    future = job.run_now()
    scheduler.tick()
    assert future.done() and job.state is JobState.PAUSED


def test_an_extra_run_can_be_cancelled_alone(scheduler: ManualScheduler) -> None:
    """Cancelling its Future keeps it from running, and nothing else."""
    ran: list[int] = []
    job = scheduler.schedule(ran.append, After(1), args=(1,))
    future = job.run_now()
    assert future.cancel() and wait([future], 0).done == {future}
    scheduler.clock.advance(1)
    scheduler.tick()
    assert ran == [1]


def test_cancelling_the_job_cancels_its_futures(scheduler: ManualScheduler) -> None:
    """The extra run's, the next one's, and the series ends."""
    job = scheduler.schedule(int, After(100))
    extra, following, series = job.run_now(), job.next_future(), job.results()
    job.cancel()
    scheduler.tick()
    assert wait([extra, following], 0).not_done == set() and extra.cancelled() and following.cancelled()
    assert list(series) == []


def test_next_future_is_of_one_run(scheduler: ManualScheduler) -> None:
    """The first run handed over after the call; each caller has his own Future."""
    numbers = iter(range(10))
    job = scheduler.schedule(lambda: next(numbers), FixedRate(1))
    scheduler.tick()
    one, two = job.next_future(), job.next_future()
    scheduler.clock.advance(1)
    scheduler.tick()
    scheduler.clock.advance(1)
    scheduler.tick()
    assert (one.result(0), two.result(0)) == (1, 1) and one is not two


def test_next_future_of_a_failing_run_raises(scheduler: ManualScheduler) -> None:
    """It has the run's exception."""
    job = scheduler.schedule(boom, After(1))
    future = job.next_future()
    scheduler.clock.advance(1)
    scheduler.tick()
    assert isinstance(future.exception(0), ValueError)


def test_a_next_future_can_be_given_up(scheduler: ManualScheduler) -> None:
    """Cancelling it is told at once, and doesn't touch the run."""
    job = scheduler.schedule(int, After(1))
    future = job.next_future()
    assert future.cancel() and wait([future], 0).done == {future}
    scheduler.clock.advance(1)
    assert [record.outcome for record in scheduler.tick()] == [Outcome.SUCCEEDED] and job.stats.succeeded == 1


def test_a_next_future_is_cancelled_when_the_job_finishes(scheduler: ManualScheduler) -> None:
    """Asked for in the last run, there is no further one: cancelled, waiters told."""
    futures: list[Any] = []
    job = scheduler.schedule(lambda: futures.append(job.next_future()), After(0))
    scheduler.tick()
    with pytest.raises(CancelledError):
        futures[0].result(0)


def test_a_values_size_is_recorded_only_when_somebody_waits(scheduler: ManualScheduler) -> None:
    """A recurring run's value is dropped when no Future waits for it."""
    job = scheduler.schedule(lambda: 5, FixedRate(1))
    scheduler.tick()
    assert job.last is not None and job.last.result_size is None
    following = job.next_future()
    scheduler.clock.advance(1)
    scheduler.tick()
    assert following.result(0) == 5 and job.last.result_size is not None


def test_a_series_gives_each_run_in_order(scheduler: ManualScheduler) -> None:
    """A done Future per run, failed ones too; it ends when the job does."""
    numbers = iter(range(10))

    def work() -> int:
        number = next(numbers)
        if number == 1:
            raise ValueError
        return number

    job = scheduler.schedule(work, FixedRate(1).times(4))
    series = job.results()
    for _ in range(4):
        scheduler.tick()
        scheduler.clock.advance(1)
    seen = [future.exception(0) or future.result(0) for future in series]
    assert isinstance(seen.pop(1), ValueError) and seen == [0, 2, 3]


def test_a_slow_reader_keeps_the_newest(scheduler: ManualScheduler) -> None:
    """100 are kept; what went for them is counted."""
    numbers = iter(range(1000))
    job = scheduler.schedule(lambda: next(numbers), FixedRate(1).times(130))
    series = job.results()
    for _ in range(130):
        scheduler.tick()
        scheduler.clock.advance(1)
    assert [future.result(0) for future in series] == list(range(30, 130)) and series.dropped == 30


def test_a_series_by_async_for(scheduler: ManualScheduler) -> None:
    """`async for` gives the same, and wakes when a run ends."""

    async def read() -> list[int]:
        seen = []
        async for future in job.results():
            seen.append(future.result(0))
        return seen

    async def main() -> list[int]:
        reader = asyncio.create_task(read())
        await asyncio.sleep(0)
        for _ in range(3):
            scheduler.tick()
            scheduler.clock.advance(1)
            await asyncio.sleep(0)
        return await reader

    numbers = iter(range(10))
    job = scheduler.schedule(lambda: next(numbers), FixedRate(1).times(3))
    assert asyncio.run(main()) == [0, 1, 2]


def test_a_reader_that_went_away_costs_nothing(scheduler: ManualScheduler) -> None:
    """A series that nobody holds asks for no values."""
    job = scheduler.schedule(lambda: 5, FixedRate(1))
    job.results()
    scheduler.tick()
    assert job.last is not None and job.last.result_size is None


# -- attempts ---------------------------------------------------------------------------------------------------------


def test_retries_are_attempts_of_one_run(scheduler: ManualScheduler) -> None:
    """One record, with the last attempt; the earlier ones are told by RunRetrying; back-off 1, 2, … seconds."""
    told: list[Any] = []
    scheduler.subscribe(told.append, RunRetrying, RunEnded)
    job = scheduler.schedule(boom, After(0), retry=Retry(3))
    assert scheduler.tick() == [] and job.executing == 1
    scheduler.clock.advance(1)
    assert scheduler.tick() == []
    scheduler.clock.advance("1999ms")
    assert scheduler.tick() == []
    scheduler.clock.advance("1ms")
    [record] = scheduler.tick()
    assert (record.attempt, record.number, record.outcome) == (3, 1, Outcome.FAILED)
    assert [type(event) for event in told] == [RunRetrying, RunRetrying, RunEnded]
    assert [event.retry_in for event in told[:2]] == [1, 2]
    assert [event.record.attempt for event in told] == [1, 2, 3]
    assert (job.stats.runs, job.stats.failed, len(job.history), job.executing) == (1, 1, 1, 0)


def test_a_retry_that_succeeds_is_a_success(scheduler: ManualScheduler) -> None:
    """Futures wait for the last attempt: the extra run's, the next one's, and the series has one entry."""
    results: Any = iter([ValueError(), 5])

    def work() -> int:
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return int(result)

    job = scheduler.schedule(work, After(100), retry=Retry(2, backoff=0))
    following, series = job.next_future(), job.results()
    extra = job.run_now()
    scheduler.tick()
    assert (extra.result(0), following.result(0)) == (5, 5)
    job.cancel()
    scheduler.tick()
    assert [future.result(0) for future in series] == [5]


def test_a_run_in_back_off_counts_as_executing(scheduler: ManualScheduler) -> None:
    """For `max_instances`, for the stats, and its Future can't be cancelled any more."""
    job = scheduler.schedule(boom, FixedRate(1), retry=Retry(2, backoff=10))
    scheduler.tick()
    stats = scheduler.stats()
    assert (stats.started, stats.ended, stats.executing, job.executing) == (1, 0, 1, 1)
    extra = job.run_now()
    scheduler.clock.advance(5)
    assert scheduler.tick() == [] and not extra.done()


def test_a_future_in_back_off_cant_be_cancelled(scheduler: ManualScheduler) -> None:
    """Its run has started."""
    job = scheduler.schedule(boom, After(100), retry=Retry(2, backoff=10))
    future = job.run_now()
    scheduler.tick()
    assert not future.cancel()
    scheduler.clock.advance(10)
    scheduler.tick()
    assert isinstance(future.exception(0), ValueError)


def test_cancel_in_back_off_ends_with_the_last_outcome(scheduler: ManualScheduler) -> None:
    """No further attempt; the run ends as its last attempt did."""
    job = scheduler.schedule(boom, FixedRate(100), retry=Retry(2, backoff=10))
    scheduler.tick()
    job.cancel()
    [record] = scheduler.tick()
    assert (record.outcome, record.attempt) == (Outcome.FAILED, 1)
    stats = scheduler.stats()
    assert (stats.started, stats.ended, stats.executing, stats.failed) == (1, 1, 0, 1)


def test_pause_after_failures(scheduler: ManualScheduler) -> None:
    """After n failed runs in a row: PAUSED, announced; a success in between starts the count anew."""
    results = iter([boom, boom, int, boom, boom, boom])
    told: list[JobPaused] = []
    scheduler.subscribe(told.append, JobPaused)
    job = scheduler.schedule(lambda: next(results)(), FixedRate(1), pause_after_failures=3)
    for _ in range(6):
        assert job.state is JobState.SCHEDULED
        scheduler.tick()
        scheduler.clock.advance(1)
    assert job.state is JobState.PAUSED and "3 failures" in told[0].reason


@pytest.mark.case("B88")
def test_failures_keep_the_schedule_by_default(scheduler: ManualScheduler) -> None:
    """A hundred failures in a row are recorded, and the job goes on."""
    job = scheduler.schedule(boom, FixedRate(1))
    for _ in range(101):
        scheduler.tick()
        scheduler.clock.advance(1)
    assert job.state is JobState.SCHEDULED and job.stats.failed == 101 and len(job.history) == 100
    assert [record.number for record in job.history] == list(range(2, 102))


# -- lateness and turn ------------------------------------------------------------------------------------------------


@pytest.mark.case("B63")
def test_a_late_run_is_made_once_and_marked(scheduler: ManualScheduler) -> None:
    """By default nothing is dropped for being late."""
    scheduler.schedule(int, After(1))
    scheduler.clock.advance(100)
    [record] = scheduler.tick()
    assert record.outcome is Outcome.SUCCEEDED and record.lateness == 99


def test_misfire_grace_skips_what_is_too_late(scheduler: ManualScheduler) -> None:
    """Later than that: SKIPPED, recorded and announced, never started."""
    told: list[RunEnded] = []
    scheduler.subscribe(told.append, RunEnded)
    job = scheduler.schedule(int, After(1), misfire_grace_time=5)
    other = scheduler.schedule(int, After(1), misfire_grace_time=10)
    scheduler.clock.advance(7)
    outcomes = {record.job_id: record for record in scheduler.tick()}
    assert outcomes[job.id].outcome is Outcome.SKIPPED and outcomes[job.id].started is None
    assert outcomes[job.id].worker is None and outcomes[other.id].outcome is Outcome.SUCCEEDED
    assert len(told) == 2 and (job.stats.skipped, job.stats.runs, scheduler.stats().skipped) == (1, 0, 1)


def test_an_at_in_the_past_runs_at_once(scheduler: ManualScheduler) -> None:
    """Unless its grace says SKIPPED."""
    past = datetime(2023, 12, 31, tzinfo=UTC)
    scheduler.schedule(int, past, id="late")
    scheduler.schedule(int, At(past), id="too late", misfire_grace_time="1h")
    outcomes = {record.job_id: record.outcome for record in scheduler.tick()}
    assert outcomes == {"late": Outcome.SUCCEEDED, "too late": Outcome.SKIPPED}


def test_a_skipped_slot_doesnt_end_a_schedule(scheduler: ManualScheduler) -> None:
    """A recurring job goes on behind a slot that came too late."""
    job = scheduler.schedule(int, FixedRate(10, missed=Missed.CATCH_UP), misfire_grace_time=1)
    scheduler.clock.advance(5)
    assert [record.outcome for record in scheduler.tick()] == [Outcome.SKIPPED]
    scheduler.clock.advance(5)
    assert [record.outcome for record in scheduler.tick()] == [Outcome.SUCCEEDED] and job.state is JobState.SCHEDULED


@pytest.mark.parametrize(
    ("order", "expected"),
    [(ReadyOrder.DUE, ["early", "high", "medium", "low"]), (ReadyOrder.PRIORITY, ["high", "medium", "low", "early"])],
)
def test_ready_order(order: ReadyOrder, expected: list[str]) -> None:
    """DUE: when it became due, ties by priority; PRIORITY: that first."""
    scheduler, ran = ManualScheduler(ready_order=order, workers=1), []
    for name, delay, priority in (
        ("low", 2, Priority.LOW),
        ("medium", 2, Priority.MEDIUM),
        ("high", 2, Priority.HIGH),
        ("early", 1, 99),
    ):
        scheduler.schedule(ran.append, After(delay), args=(name,), priority=priority)
    scheduler.clock.advance(5)
    scheduler.tick()
    assert ran == expected


def test_ties_go_by_submission(scheduler: ManualScheduler) -> None:
    """Same due time, same priority: first come, first served, whatever the arguments are."""
    ran: list[Any] = []
    for number in range(100):
        scheduler.schedule(lambda *args: ran.append(args[0]), After(1), args=(number, object()))
    scheduler.clock.advance(1)
    scheduler.tick()
    assert ran == list(range(100))


def test_the_default_priority_is_medium(scheduler: ManualScheduler) -> None:
    """Jobs and submitted calls are MEDIUM."""
    ran: list[str] = []
    scheduler.schedule(ran.append, After(0), args=("low",), priority=Priority.LOW)
    scheduler.submit(ran.append, "call")
    scheduler.schedule(ran.append, After(0), args=("default",))
    scheduler.schedule(ran.append, After(0), args=("high",), priority=Priority.HIGH)
    scheduler.tick()
    assert ran == ["high", "call", "default", "low"]
    assert (Priority.HIGH, Priority.MEDIUM, Priority.LOW) == (1, 2, 3)


# -- what is told -----------------------------------------------------------------------------------------------------


def test_events_of_a_jobs_life(scheduler: ManualScheduler) -> None:
    """Added, paused, resumed, replaced, ended and finished or cancelled, in that order, with their generations."""
    told: list[Any] = []
    kinds = (JobAdded, JobPaused, JobResumed, JobReplaced, JobCancelled, JobFinished, RunEnded)
    scheduler.subscribe(told.append, *kinds)
    job = scheduler.schedule(int, After(5), id="a")
    job.pause()
    job.resume()
    job.reschedule(After(1))
    scheduler.clock.advance(1)
    scheduler.tick()
    other = scheduler.schedule(int, After(5), id="a")
    other.cancel()
    scheduler.tick()
    assert [type(event) for event in told] == [
        JobAdded, JobPaused, JobResumed, JobReplaced, RunEnded, JobFinished, JobAdded, JobCancelled
    ]  # fmt: skip
    assert told[3].generation == job.generation and told[-1].generation == other.generation


def test_unsubscribing(scheduler: ManualScheduler) -> None:
    """What `subscribe` returns ends it; twice is once."""
    told: list[Any] = []
    unsubscribe = scheduler.subscribe(told.append)
    scheduler.submit(int)
    scheduler.tick()
    count = len(told)
    unsubscribe()
    unsubscribe()
    scheduler.submit(int)
    scheduler.tick()
    assert count and len(told) == count


def test_a_subscriber_that_raises_changes_nothing(scheduler: ManualScheduler, caplog: Any) -> None:
    """It is logged; others are told, and the run ends as it did. `sys.exit` in it, too."""
    told: list[Any] = []
    scheduler.subscribe(lambda _: 1 / 0, RunEnded)
    scheduler.subscribe(lambda _: exit(1), RunEnded)
    scheduler.subscribe(told.append, RunEnded)
    future = scheduler.submit(int)
    scheduler.tick()
    assert future.result(0) == 0 and len(told) == 1 and "ZeroDivisionError" in caplog.text


def test_subscribe_checks_what_it_is_given(scheduler: ManualScheduler) -> None:
    """A callback that can't be called, a type that is no event."""
    with pytest.raises(TypeError, match="function"):
        scheduler.subscribe("nothing")
    with pytest.raises(TypeError, match="RunEnded"):
        scheduler.subscribe(print, int)


def test_a_callback_of_a_future_that_exits_changes_nothing(scheduler: ManualScheduler) -> None:
    """Other Futures of the same run are served."""
    job = scheduler.schedule(int, After(100))
    one, two = job.next_future(), job.next_future()
    one.add_done_callback(lambda _: exit(1))
    extra = job.run_now()
    extra.add_done_callback(lambda _: exit(1))
    scheduler.tick()
    assert extra.done() and one.done() and two.result(0) == 0


def test_the_record_of_a_run(scheduler: ManualScheduler) -> None:
    """All that can be said on a fake clock."""
    clock = scheduler.clock
    job = scheduler.schedule(lambda: clock.advance(3), FixedRate(10, initial_delay=10), id="a")
    clock.advance(12)
    [record] = scheduler.tick()
    start = datetime(2024, 1, 1, tzinfo=UTC)
    assert record.planned == start + timedelta(seconds=10)
    assert record.started == start + timedelta(seconds=12)
    assert record.finished == start + timedelta(seconds=15)
    assert (record.lateness, record.duration) == (2, 3)
    assert (record.job_id, record.number, record.generation, record.attempt) == ("a", 1, job.generation, 1)
    assert record.outcome is Outcome.SUCCEEDED and record.error is None and record.worker == 0
    with pytest.raises(AttributeError):
        record.number = 2
    assert job.last == record and job.history == [record]
    assert (job.stats.mean_duration, job.stats.max_duration) == (3, 3)
    assert (job.stats.mean_lateness, job.stats.max_lateness) == (2, 2)


def test_waiting_for_ones_own_instance_is_said(scheduler: ManualScheduler) -> None:
    """A run that was held by `max_instances` says so."""
    results = iter([boom, int, int])
    job = scheduler.schedule(lambda: next(results)(), After(0), retry=Retry(2, backoff=30))
    scheduler.tick()
    extra = job.run_now()
    assert scheduler.tick() == []
    scheduler.clock.advance(40)
    scheduler.tick()
    assert extra.done() and job.last is not None and "max_instances" in job.last.held_by


def test_after_the_end_nothing_is_taken(scheduler: ManualScheduler) -> None:
    """submit, schedule and the rest raise `SchedulerClosed`, a `RuntimeError`; asking goes on working."""
    job = scheduler.schedule(int, After(1))
    scheduler.shutdown()
    for call in (
        lambda: scheduler.submit(int),
        lambda: scheduler.submit_after(1, int),
        lambda: scheduler.submit_at(datetime.now(UTC), int),
        lambda: scheduler.schedule(int, After(1)),
        lambda: scheduler.map(int, "12"),
        lambda: scheduler.load("tasks.py"),
        job.run_now,
        lambda: job.reschedule(After(1)),
    ):
        with pytest.raises(RuntimeError) as caught:
            call()
        assert isinstance(caught.value, SchedulerClosed | JobLookupError)
    assert scheduler.get_jobs() == [] and scheduler.stats().started == 0 and scheduler.wait() and job.wait()
    assert job.cancel() is False and job.state is JobState.CANCELLED
