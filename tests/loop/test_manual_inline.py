"""`InlinePool`: the function itself, or through pickle and back."""

from __future__ import annotations

import asyncio
import threading

import pytest

from procsched import After, NotShippable, Outcome, ProcessScheduler, RemoteError, current_run
from procsched.testing import FakeClock, InlinePool, ManualScheduler


def test_it_calls_the_function_itself() -> None:
    """Effects on the test's own objects are seen, unpicklable ones included."""
    scheduler, lock = ManualScheduler(), threading.Lock()
    scheduler.submit(lock.acquire)
    scheduler.tick()
    assert lock.locked()


def test_strict_sends_it_through_pickle() -> None:
    """With `strict=True` a run works on copies, as in a worker."""
    seen: list[int] = []
    scheduler = ManualScheduler(pool=InlinePool(strict=True))
    future = scheduler.submit(lambda items: items.append(1) or items, seen)
    scheduler.tick()
    assert future.result(0) == [1] and seen == []


def test_strict_refuses_what_cant_travel() -> None:
    """With `strict=True` an argument that can't be pickled raises at the call."""
    scheduler = ManualScheduler(pool=InlinePool(strict=True))
    with pytest.raises(NotShippable):
        scheduler.submit(len, threading.Lock())


def test_strict_fails_a_run_whose_value_cant_travel() -> None:
    """With `strict=True` a value that can't be pickled fails the run."""
    scheduler = ManualScheduler(pool=InlinePool(strict=True))
    future = scheduler.submit(threading.Lock)
    [record] = scheduler.tick()
    assert record.outcome is Outcome.FAILED and future.exception(0) is not None


def test_errors_are_the_ones_raised() -> None:
    """A run's exception arrives as itself, with the traceback as its cause."""
    scheduler = ManualScheduler()
    future = scheduler.submit(int, "x")
    [record] = scheduler.tick()
    error = future.exception(0)
    assert isinstance(error, ValueError) and isinstance(error.__cause__, RemoteError)
    assert record.error is not None and record.error.type == "ValueError" and "Traceback" in record.error.traceback


def test_sys_exit_is_a_failed_run() -> None:
    """`sys.exit` in a run fails it and nothing else."""
    scheduler = ManualScheduler()
    scheduler.submit(exit, 3)
    after = scheduler.submit(int)
    outcomes = [record.outcome for record in scheduler.tick()]
    assert outcomes == [Outcome.FAILED, Outcome.SUCCEEDED] and after.result(0) == 0


@pytest.mark.parametrize("strict", [False, True])
def test_coroutine_functions_are_refused(strict: bool) -> None:
    """Also without pickling, what would never run is refused."""

    async def work() -> None: ...

    with pytest.raises(TypeError, match=r"async|coroutine"):
        ManualScheduler(pool=InlinePool(strict=strict)).submit(work)
    with pytest.raises(TypeError, match=r"async|coroutine"):
        ManualScheduler(pool=InlinePool(strict=strict)).submit(asyncio.sleep, 1)


@pytest.mark.parametrize("strict", [False, True])
def test_a_scheduler_or_a_job_is_no_argument(strict: bool) -> None:
    """Both are refused, as with real workers."""
    scheduler = ManualScheduler(pool=InlinePool(strict=strict))
    job = scheduler.schedule(int, After(1))
    for argument in (scheduler, job):
        with pytest.raises(NotShippable):
            scheduler.submit(print, argument)


def test_current_run_inside_and_outside() -> None:
    """`current_run()` tells about the run while it runs, and raises LookupError outside."""
    scheduler = ManualScheduler()
    job = scheduler.schedule(lambda: seen.append((current_run().job_id, current_run().number)), After(0), id="me")
    seen: list[tuple[str, int]] = []
    scheduler.tick()
    assert seen == [("me", 1)] and job.id == "me"
    with pytest.raises(LookupError):
        current_run()


def test_should_stop_is_true_once_the_job_is_cancelled() -> None:
    """A run that cancels its own job is asked to stop."""
    scheduler, seen = ManualScheduler(), []

    def work() -> None:
        seen.append(current_run().should_stop())
        scheduler.cancel("me")
        seen.append(current_run().should_stop())

    scheduler.schedule(work, After(0), id="me")
    scheduler.tick()
    assert seen == [False, True]


def test_it_serves_a_threaded_scheduler_too() -> None:
    """The seams of `ProcessScheduler`: a `FakeClock` and an `InlinePool`; advancing the clock wakes the loop."""
    clock = FakeClock()
    with ProcessScheduler(clock=clock, pool=InlinePool(), workers=1) as scheduler:
        assert scheduler.submit(int).result(10) == 0
        future = scheduler.submit_after("1h", int)
        clock.advance("1h")
        assert future.result(10) == 0
