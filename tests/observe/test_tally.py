"""Runs are counted by job, straight from what the loop writes down."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from procsched import (
    After,
    FixedDelay,
    FixedRate,
    Outcome,
    Retry,
    RunEnded,
    RunRecord,
    RunRetrying,
    WorkerLost,
    WorkerReplaced,
)
from procsched.observe.tally import DURATIONS, KEEP, LATENESSES, OTHER, WAITS, JobTally, Tally
from procsched.testing import FakeClock, ManualScheduler

SECOND = 1_000_000_000
NAMES = {"boot": 0, "exit": 0, "oom": 0, "recycled": 0, "signal": 0, "timeout": 0}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def scheduler(clock: FakeClock) -> ManualScheduler:
    return ManualScheduler(clock)


def follow(scheduler: ManualScheduler, most: int = 200) -> tuple[Tally, list[RunRecord]]:
    """A tally of all that this scheduler does, and the records of it."""
    tally, records = Tally(most), []
    scheduler._engine.announcer.follow(tally.take)
    scheduler.subscribe(lambda event: records.append(event.record), RunEnded)
    return tally, records


def jobs_of(tally: Tally) -> dict[str, JobTally]:
    return {job.label: job for _name, job in tally.jobs()}


def fail() -> None:
    raise ValueError


def test_it_counts_what_the_records_say(scheduler: ManualScheduler, clock: FakeClock) -> None:
    """Of plain runs, whose lines are short, and of all others: outcomes, times, and where the lateness went."""
    tally, records = follow(scheduler)
    step = clock.advance
    scheduler.schedule(step, FixedRate("2s").times(4), args=("30ms",), id="plain")
    scheduler.schedule(step, FixedDelay("1s").times(3), args=("1.5s",), id="limited", timeout="1h")
    scheduler.schedule(fail, FixedRate("3s").times(2), id="bad")
    scheduler.schedule(step, FixedRate("1s").times(3), args=("20ms",), id="late", misfire_grace_time="10ms")
    scheduler.submit(step, "100ms")
    for _ in range(40):
        scheduler.tick()
        clock.advance("300ms")
    jobs = jobs_of(tally)
    for label, job in jobs.items():
        mine = [r for r in records if r.job_id == label or (label == "advance" and not r.generation)]
        counts = Counter(record.outcome.value for record in mine)
        assert {outcome: n for outcome, n in job.counts().items() if n} == counts
        ran = [record for record in mine if record.started is not None]
        assert sum(job.durations.counts) == sum(job.latenesses.counts) == len(ran)
        assert job.durations.sum == round(sum(r.duration for r in ran) * SECOND)
        assert job.latenesses.sum == round(sum(r.lateness for r in ran) * SECOND)
        assert job.last_end / SECOND == max(r.finished for r in mine).timestamp()
    assert set(jobs) == {"plain", "limited", "bad", "late", "advance"}
    assert {r.outcome for r in records} == {Outcome.SUCCEEDED, Outcome.FAILED, Outcome.SKIPPED}
    for cause in ("loop", "worker"):
        waits = [getattr(r.waited, cause) if r.waited else 0 for r in records if r.started is not None]
        assert sum(tally.waits[cause].counts) == len(waits)
        assert tally.waits[cause].sum == round(sum(waits) * SECOND)
        assert tally.waits[cause].sum > 0
    assert jobs["bad"].failures == 2
    assert jobs["bad"].last_success == 0


@pytest.mark.parametrize("bounds", [DURATIONS, LATENESSES, WAITS])
def test_bounds_rise(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))


def test_a_run_as_long_as_a_bound_is_below_it(scheduler: ManualScheduler, clock: FakeClock) -> None:
    """As Prometheus has it: ``le`` is less or equal."""
    tally, _records = follow(scheduler)
    scheduler.submit(clock.advance, "100ms")
    scheduler.submit(clock.advance, "100001us")
    scheduler.tick()
    counts = jobs_of(tally)["advance"].durations.counts
    place = DURATIONS.index(0.1)
    assert counts[place : place + 2] == [1, 1]


def test_failures_in_a_row_end_with_a_success(scheduler: ManualScheduler, clock: FakeClock) -> None:
    outcomes = iter([True, True, False])

    def work() -> None:
        if next(outcomes):
            fail()

    tally, _records = follow(scheduler)
    scheduler.schedule(work, FixedRate("1s").times(3), id="work")
    seen = []
    for _ in range(3):
        scheduler.tick()
        seen.append(jobs_of(tally)["work"].failures)
        clock.advance("1s")
    assert seen == [1, 2, 0]


def test_a_repeated_attempt_is_no_run(scheduler: ManualScheduler, clock: FakeClock) -> None:
    """It counts as a retry; the run counts once, at its end."""
    tally, _records = follow(scheduler)

    scheduler.subscribe(tally.run_retrying, RunRetrying)
    scheduler.schedule(fail, After(0), id="bad", retry=Retry(3, backoff="1s", factor=1))
    for _ in range(4):
        scheduler.tick()
        clock.advance("1s")
    job = jobs_of(tally)["bad"]
    assert (job.retries, job.counts()["failed"], job.failures) == (2, 1, 1)


# -- whose numbers are kept ----------------------------------------------------------------------------------------


def test_further_jobs_are_counted_together(scheduler: ManualScheduler, clock: FakeClock) -> None:
    """Under one label, and that one isn't a job's own."""
    tally, _records = follow(scheduler, most=2)
    for number in range(5):
        scheduler.schedule(int, After(number), id=f"job-{number}")
    scheduler.schedule(int, After(9), id=OTHER)
    for _ in range(10):
        scheduler.tick()
        clock.advance("1s")
    found = {label: job.succeeded for label, job in jobs_of(tally).items()}
    assert found == {"job-0": 1, "job-1": 1, OTHER: 4}


def test_calls_are_counted_by_function(scheduler: ManualScheduler) -> None:
    """Not by number, whichever way they end; a call has no end to be forgotten at."""
    tally, _records = follow(scheduler)
    for _ in range(3):
        scheduler.submit(int)
        scheduler.submit(fail)
    scheduler.tick()
    assert {label: sum(job.counts().values()) for label, job in jobs_of(tally).items()} == {"int": 3, "fail": 3}
    tally.look_over((), (), 0)
    tally.look_over((), (), KEEP + 1)
    assert set(jobs_of(tally)) == {"int", "fail"}


def test_scheduled_jobs_are_there_before_their_first_run() -> None:
    """As zeros: the first failure is a change then, and not a beginning."""
    tally = Tally(2)
    tally.look_over({"a", "b", "c"}, ["a", "b", "c"], 0)
    assert [job.label for _name, job in tally.jobs()] == ["a", "b"]
    assert set(jobs_of(tally)["a"].counts().values()) == {0}


def test_ended_jobs_are_kept_for_some_scrapes() -> None:
    tally = Tally(10)
    tally.look_over({"a", "b"}, ["a", "b"], 0)
    tally.look_over({"b"}, ["b"], 5)
    tally.look_over({"b"}, ["b"], 5 + KEEP)
    assert set(jobs_of(tally)) == {"a", "b"}
    tally.look_over({"b"}, ["b"], 6 + KEEP)
    assert set(jobs_of(tally)) == {"b"}


def test_ended_jobs_make_room_at_once() -> None:
    """For one that is scheduled."""
    tally = Tally(2)
    tally.look_over({"a", "b"}, ["a", "b"], 0)
    tally.look_over({"b", "c"}, ["b", "c"], 5)
    assert set(jobs_of(tally)) == {"b", "c"}


def test_a_job_that_comes_back_counts_on() -> None:
    """If it does so in time."""
    tally = Tally(2)
    tally.look_over({"a"}, ["a"], 0)
    tally.look_over((), (), 5)
    tally.look_over({"a"}, ["a"], 10)
    tally.look_over((), (), 2 * KEEP)
    assert set(jobs_of(tally)) == {"a"}


def test_labels_can_be_written_and_are_unique() -> None:
    """Whatever ids people think of: no UTF-8, endless, alike at the beginning."""
    ids = ["\ud800", "x" * 5000, "x" * 5000 + "y", OTHER, 'a"b\n']
    tally = Tally(10)
    tally.look_over(ids, ids, 0)
    labels = [job.label for _name, job in tally.jobs()]
    assert len(set(labels)) == len(ids)
    assert OTHER not in labels
    assert max(map(len, labels)) < 300
    "".join(labels).encode()


# -- workers ---------------------------------------------------------------------------------------------------------


def lost(**other: Any) -> WorkerLost:
    return WorkerLost(**({"worker": 0, "pid": 10, "exitcode": None, "signal": None} | other))


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (lost(signal="SIGSEGV"), "signal"),
        (lost(exitcode=1), "exit"),
        (lost(signal="SIGKILL", oom=True), "oom"),
        (lost(exitcode=1, boot_error="ImportError"), "boot"),
    ],
)
def test_a_lost_worker_counts_once(event: WorkerLost, reason: str) -> None:
    """When it ends, not when another one comes."""
    tally = Tally(1)
    tally.worker_lost(event)
    assert tally.restarts == NAMES | {reason: 1}
    tally.worker_came(WorkerReplaced(0, 11, 10))
    assert tally.restarts == NAMES | {reason: 1}


def test_a_replaced_worker_that_nobody_missed_was_ended_by_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a run, or its own."""
    tally = Tally(1)
    whole = ("job", 1, 1, 1, 0, 5, 6, 0, 1, 0, 0, 0, 10, "timed_out", None, None, 0, 0, "")
    tally.take([(RunEnded, whole)])
    tally.worker_came(WorkerReplaced(0, 11, 10))
    tally.worker_came(WorkerReplaced(0, 12, 11))
    assert tally.restarts == NAMES | {"timeout": 1, "recycled": 1}
