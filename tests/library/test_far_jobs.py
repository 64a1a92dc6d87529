"""Jobs that wait for a far time: they wake nobody, cost little, and are there when somebody asks."""

from __future__ import annotations

import threading

import pytest

from procsched import After, FixedRate, JobAdded, JobCancelled, JobLookupError, JobState, ProcessScheduler


@pytest.fixture
def quiet(one: ProcessScheduler) -> ProcessScheduler:
    """A scheduler whose loop sleeps until tomorrow."""
    assert one.submit(abs, -1).result(30) == 1
    one.schedule(abs, After("20h"), args=(1,), id="tomorrow")
    assert one.wait(0) is False
    return one


def test_a_far_job_does_not_wake_the_loop(quiet: ProcessScheduler) -> None:
    """One that is due before the loop means to wake does."""
    engine = quiet._engine
    turned = threading.Event()
    original = engine.dispatcher.turn

    def turn(longest: float | None = None) -> None:
        turned.set()
        original(longest)

    engine.waiting.until(lambda: engine.dispatcher.sleeps_until > 0, 30)
    engine.dispatcher.turn = turn  # type: ignore[method-assign]
    engine.mailbox.nudge()
    assert turned.wait(30)
    assert _sleeps(quiet)
    turned.clear()
    for number in range(100):
        quiet.schedule(abs, FixedRate("1d", initial_delay="1d"), args=(number,))
    assert not turned.wait(0.05)
    sooner = quiet.schedule(abs, After("5h"), args=(1,))
    assert turned.wait(30)
    assert _sleeps(quiet)
    turned.clear()
    assert sooner.cancel() and not turned.wait(0.05)


def _sleeps(scheduler: ProcessScheduler) -> bool:
    """Waits until the loop is about to sleep."""
    mailbox, pause = scheduler._engine.mailbox, threading.Event()
    return any(mailbox._asleep or pause.wait(0.01) for _ in range(1000))


def test_a_job_that_nobody_held_is_found(quiet: ProcessScheduler) -> None:
    quiet.schedule(abs, After("1d"), args=(1,), id="a")
    quiet.schedule(abs, FixedRate("1d", initial_delay="1d"), args=(1,), id="b")
    quiet.schedule(abs, After(3600), args=(1,), id="c", tags=["t"])
    assert [job.id for job in quiet.get_jobs()] == ["tomorrow", "a", "b", "c"]
    assert quiet["a"] == quiet["a"] and quiet["a"].schedule == After("1d") and quiet["b"].state is JobState.SCHEDULED
    assert quiet["b"].next_run_time is not None and quiet.stats().scheduled == 4


def test_a_far_job_does_all_that_a_job_does(quiet: ProcessScheduler) -> None:
    quiet.schedule(abs, After("1d"), args=(-5,), id="far")
    held = quiet["far"]
    assert quiet["far"].run_now().result(30) == 5 and held.stats.succeeded == 1
    quiet.pause("far")
    assert held.state is JobState.PAUSED
    quiet.resume("far")
    quiet["far"].reschedule(After("2d"))
    assert held.schedule == After("2d") and held.state is JobState.SCHEDULED
    replaced = quiet.schedule(abs, After("1d"), args=(1,), id="far", replace_existing=True)
    assert held.state is JobState.CANCELLED and held != replaced == quiet["far"]
    assert quiet.cancel("far") and replaced.state is JobState.CANCELLED
    with pytest.raises(JobLookupError):
        quiet["far"]
    with pytest.raises(JobLookupError, match="ended"):
        replaced.pause()
    assert replaced.cancel() is False


def test_waiting_for_a_far_job_that_is_cancelled(quiet: ProcessScheduler) -> None:
    job = quiet.schedule(abs, After("1d"), args=(1,))
    future = job.next_future()
    threading.Timer(0.05, job.cancel).start()
    assert job.wait(30) and future.cancelled()


def test_shutdown_ends_those_at_rest() -> None:
    with ProcessScheduler(1) as scheduler:
        job = scheduler.schedule(abs, After("1d"), args=(1,))
        scheduler.schedule(abs, After("1d"), args=(1,))
    assert job.state is JobState.CANCELLED and job.next_run_time is None


def test_news_of_many_far_jobs_is_told_by_a_few_turns(quiet: ProcessScheduler) -> None:
    """All of it, in order; the loop, which has nothing to do, doesn't turn for each, and the last isn't left lying."""
    told: list[tuple[type, str]] = []
    complete = threading.Event()

    def note(event: JobAdded | JobCancelled) -> None:
        told.append((type(event), event.job_id))
        if event.job_id == "last":
            complete.set()

    quiet.subscribe(note, JobAdded, JobCancelled)
    assert _sleeps(quiet)
    turns = [0]
    original = quiet._engine.dispatcher.turn

    def turn(longest: float | None = None) -> None:
        turns[0] += 1
        original(longest)

    quiet._engine.dispatcher.turn = turn  # type: ignore[method-assign]
    expected: list[tuple[type, str]] = []
    for number in range(3000):
        quiet.schedule(abs, After("1d"), args=(1,), id=f"far{number}")
        expected.append((JobAdded, f"far{number}"))
        if number % 2:
            quiet.cancel(f"far{number}")
            expected.append((JobCancelled, f"far{number}"))
    quiet.schedule(abs, After("1d"), args=(1,), id="last")
    assert complete.wait(30)
    assert told == [*expected, (JobAdded, "last")]
    assert turns[0] < 1500
