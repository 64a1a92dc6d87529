"""The board: how things stand, for whoever shows it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from procsched import FixedRate, ProcessScheduler, RunEnded, current_run
from procsched.observe import board as module
from procsched.observe.board import Board, BoardView


def fail() -> None:
    """As expected."""
    raise ValueError("no such luck")


def tell_and_wait(go: Path) -> None:
    """Half of it is done, says the run, and waits for that file."""
    import time

    current_run().progress(0.5, "half of it")
    while not go.exists():
        time.sleep(0.01)


@pytest.fixture
def one() -> Any:
    with ProcessScheduler(1) as scheduler:
        yield scheduler
        scheduler.shutdown(cancel_futures=True)


def until(look: Any) -> Any:
    """What it gives, once it is true."""
    pause = threading.Event()
    for _ in range(3000):
        if found := look():
            return found
        pause.wait(0.01)
    raise AssertionError("it never was")


def test_jobs_and_their_runs(one: ProcessScheduler, caplog: Any) -> None:
    """Counts, last outcome, lateness, durations; failures with what is known of them; calls by their function."""
    board = Board(one)
    good = one.schedule(abs, FixedRate("1ms").times(30), args=(1,), id="good")
    bad = one.schedule(fail, FixedRate("1h"), id="bad")
    good.wait(30)
    assert one.submit(abs, -1).result(30) == 1
    view: BoardView = until(lambda: (v := board.view()).stats.ended == 32 and len(v.jobs) == 3 and v)
    jobs = {job.id: job for job in view.jobs}
    assert (jobs["good"].runs, jobs["good"].failures, jobs["good"].last_outcome, jobs["good"].state) == (
        30, 0, "succeeded", "ended"
    )  # fmt: skip
    assert len(jobs["good"].durations) == 30 and jobs["good"].lateness_p50 is not None
    assert (jobs["bad"].failures, jobs["bad"].last_outcome) == (1, "failed")
    following, expected = jobs["bad"].next_run, bad.next_run_time
    assert following is not None and expected is not None and abs(following - expected).total_seconds() < 1
    assert jobs["abs"].runs == 1
    assert [record.error.message for record in view.failures if record.error] == ["no such luck"]
    assert view.health.ok and view.rate >= 0 and view.uptime > 0
    bad.pause()
    assert {job.id: job.state for job in board.view().jobs}["bad"] == "paused"
    board.close()


def test_workers_and_what_waits(one: ProcessScheduler, tmp_path: Path) -> None:
    """The run that executes, for how long, how far it is; behind it those that wait, and why."""
    board, go = Board(one), tmp_path / "go"
    one.submit(abs, 1).result(30)
    holder = one.submit(tell_and_wait, go)
    others = [one.submit(abs, number) for number in range(50)]
    view: BoardView = until(lambda: (v := board.view()).waiting and v.workers[0].fraction is not None and v)
    (worker,) = view.workers
    assert worker.state == "busy" and worker.run.startswith("tell_and_wait-") and worker.elapsed is not None
    assert (worker.fraction, worker.message) == (0.5, "half of it") and worker.memory and worker.pid
    assert 0 < len(view.waiting) <= 30 and view.stats.ready == 50
    assert view.waiting[0].run.startswith("abs-") and "tell_and_wait" in view.waiting[0].why
    json.dumps(view._asdict(), default=str)
    go.touch()
    assert holder.result(30) is None and len([other.result(30) for other in others]) == 50
    assert until(lambda: not (v := board.view()).waiting and v.workers[0].state == "idle")
    board.close()


def test_it_is_bounded(one: ProcessScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of jobs: as many as are shown, and the number of the others; those that ran come first."""
    monkeypatch.setattr(module, "_MOST_JOBS", 100)
    monkeypatch.setattr(module, "_MOST_FIGURES", 150)
    board = Board(one)
    for number in range(300):
        one.schedule(abs, FixedRate("1h", initial_delay="1h"), args=(1,), id=f"far{number}")
    one["far250"].run_now().result(30)
    view = until(lambda: (v := board.view()).jobs and v)
    assert [job.id for job in view.jobs] == ["far250"] and view.more_jobs == 299
    for number in range(200):
        one[f"far{number}"].run_now()
    until(lambda: one.stats().ended == 201)
    until(lambda: len(board._figures) == 150)
    assert len(board.view().jobs) <= 100
    board.close()


def test_it_costs_nothing_once_it_is_closed(one: ProcessScheduler) -> None:
    board = Board(one)
    board.close()
    ended = threading.Event()
    one.subscribe(lambda event: ended.set(), RunEnded)
    one.submit(abs, 1).result(30)
    assert ended.wait(30) and board._figures == {} and not one._engine.announcer._followers
