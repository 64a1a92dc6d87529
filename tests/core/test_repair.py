"""A Ctrl-C between any two bytecodes of a change: what `repair` leaves is whole again, and goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from driving import MONO, SECOND, Driver
from interrupting import interrupted

import procsched.core
from procsched.core.jobtable import default_options
from procsched.core.model import JobOptions, JobRow, JobState, Outcome, Place, Run
from procsched.core.repair import repair
from procsched.core.retry import Retry
from procsched.core.schedules import After, FixedRate

CORE = str(Path(procsched.core.__file__).parent)
RATE = FixedRate(10)
LATER = FixedRate("20s", initial_delay="20s")
NOTHING = RATE.until(datetime(2000, 1, 1, tzinfo=UTC))


class World:
    """Jobs in every place there is, and calls: due, delayed, and in a worker's hands. Two seconds after the start."""

    def __init__(self) -> None:
        self.driver = driver = Driver()
        self.in_hand: list[Run] = []
        self.rows: dict[str, JobRow] = {}
        for name, options in {
            "executing": {},
            "offered": {},
            "backoff": {"retry": Retry(5, backoff=3)},
            "several": {"max_instances": 3},
            "old": {},
            "over": {},
            "ready": {},
        }.items():
            self.rows[name] = driver.add(RATE.times(1) if name == "over" else RATE, name, **options)
        driver.submit()
        taken = {run.row.id if run.row else "call": run for run in driver.take(8)}
        for name in ("executing", "several", "old"):
            driver.table.started(taken[name])
        for name in ("executing", "backoff", "several", "over"):
            driver.table.run_now(self.rows[name], driver.now)
        driver.end(taken.pop("backoff"), Outcome.FAILED)
        driver.end(taken.pop("over"))
        self.in_hand = [*taken.values(), *driver.take()]
        (put_back,) = [run for run in self.in_hand if run.row is self.rows["ready"]]
        self.in_hand.remove(put_back)
        driver.put_back(put_back)
        self.rows["timer"] = driver.add(FixedRate(10, initial_delay=5), "timer")
        for name in ("paused", "spent"):
            self.rows[name] = driver.add(RATE.times(1), name)
            driver.table.pause(self.rows[name], driver.now)
        self.rows["spent"].made = 1
        self.rows["replaced"] = driver.add(RATE, "old")
        self.calls = [driver.submit(), driver.submit(delay=7)]
        driver.at(2)
        self.timer_was = self.rows["timer"].generation

    def drain(self) -> None:
        """Everything that was begun comes to its end, and every job that isn't paused makes another run."""
        driver, table = self.driver, self.driver.table
        extras = {run.row.id for row in table.jobs.rows() for run in row.live if run.row and run.planned is None}
        for run in self.in_hand:
            driver.end(run)
        ran: set[str] = set()
        for second in range(3, 40):
            driver.at(second)
            for run in driver.take(100):
                if run.row is not None and run.attempt == 1:
                    ran.add(run.row.id)
                driver.end(run)
        for row in list(table.jobs.rows()):
            if row.state is JobState.PAUSED:
                assert row.id not in ran or row.id in extras, "a paused job ran"
            else:
                assert row.id in ran, "a job makes no further run"
            assert row.state is JobState.PAUSED or row.schedule.limit is None, "a job doesn't end"
        assert table.ghosts == {}
        for row in list(table.jobs.rows()):
            table.cancel(row, driver.now)
        table.check_valid()
        assert (table.calls, table.live, list(table.queues.items())) == (0, 0, [])


class Atoms:
    """What a job at rest may have as its payload."""

    def __init__(self, function: object = print, args: bytes = b"") -> None:
        self.function = function
        self.args = args


def changes_of(world: World) -> dict[str, Callable[[], Any]]:
    """What callers' threads do, on jobs in every place."""
    table, now, rows = world.driver.table, world.driver.now, world.rows
    deeds: dict[str, Callable[[], Any]] = {}
    for name, row in rows.items():
        if name == "old":
            continue
        new = JobRow(row.id, RATE, object(), JobOptions())
        deeds[f"replace {name}"] = lambda new=new: table.add(new, now)
        deeds[f"cancel {name}"] = lambda row=row: table.cancel(row, now)
        deeds[f"pause {name}"] = lambda row=row: table.pause(row, now)
        deeds[f"resume {name}"] = lambda row=row: table.resume(row, now)
        deeds[f"reschedule {name}"] = lambda row=row: table.reschedule(row, RATE, now)
        deeds[f"run now {name}"] = lambda row=row: table.run_now(row, now)
    deeds["cancel the last extra run"] = lambda: table.drop(rows["over"].extra, now)  # type: ignore[arg-type]
    deeds["reschedule to nothing"] = lambda: table.reschedule(rows["timer"], NOTHING, now)
    resting = JobRow("rests", LATER, Atoms(), default_options(2))
    table.lay_down(resting, now)
    deeds["cancel resting"] = lambda: table.cancel_resting(resting)
    deeds["wake resting"] = lambda: table.jobs.get("rests")
    new = JobRow("new", LATER, Atoms(), default_options(2))
    deeds["lay down"] = lambda: table.lay_down(new, now)
    deeds["add"] = lambda: table.add(JobRow("new", RATE, object(), JobOptions()), now)
    call = Run(None, object(), 2, now.mono, now.wall)
    deeds["submit"] = lambda: table.submit(call, now)
    deeds["submit later"] = lambda: table.submit(call, now, when=now.mono + 5 * SECOND)
    deeds["cancel a call"] = lambda: table.drop(world.calls[0], now)
    deeds["cancel a delayed call"] = lambda: table.drop(world.calls[1], now)
    return deeds


STRIDE = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 11
"""Every bytecode takes half a minute; of one in eleven, another one for each change, a few changes are hit by any."""


@pytest.mark.parametrize(("offset", "deed"), [*enumerate(sorted(changes_of(World())))])
def test_an_interrupt_anywhere_in_a_change_is_mended(offset: int, deed: str) -> None:
    """The laws hold, accounts add up, slots stay on their grid, and every job goes on or has ended."""
    step, cut_short = 1 + offset % STRIDE, True
    while cut_short:
        world = World()
        cut_short = interrupted(changes_of(world)[deed], step, CORE)
        driver = world.driver
        repair(driver.table, world.in_hand, driver.now)
        driver.table.check_valid()
        timer = world.rows["timer"]
        if timer.generation == world.timer_was and timer.place is Place.TIMER:
            assert timer.planned == MONO + 5 * SECOND
        world.drain()
        step += STRIDE


@pytest.mark.parametrize("deed", ["cancel timer", "pause ready", "reschedule backoff", "resume paused"])
def test_an_interrupt_at_any_bytecode_at_all(deed: str) -> None:
    """Four changes that touch much, before each and every bytecode; what passed in a pause stays dropped."""
    step, cut_short = 1, True
    while cut_short:
        world = World()
        cut_short = interrupted(changes_of(world)[deed], step, CORE)
        driver, table, rows = world.driver, world.driver.table, world.rows
        repair(table, world.in_hand, driver.now)
        table.check_valid()
        if rows["timer"].place is Place.TIMER:
            assert rows["timer"].planned == MONO + 5 * SECOND
        if rows["paused"].state is JobState.SCHEDULED:
            assert rows["paused"].planned == MONO + 10 * SECOND
        step += 1


def test_what_is_whole_is_left_as_it_is() -> None:
    """Nothing ends, nothing is planned anew."""
    world = World()
    table = world.driver.table
    before = [(row.id, row.place, row.planned, row.entry, row.hands, set(row.live)) for row in table.jobs.rows()]
    counts = (table.calls, table.live, dict(table.ghosts), set(table.paused), len(list(table.queues.items())))
    changes = repair(table, world.in_hand, world.driver.now)
    assert not (changes.cancelled or changes.ended or changes.finished or changes.paused)
    after = [(row.id, row.place, row.planned, row.entry, row.hands, set(row.live)) for row in table.jobs.rows()]
    assert before == after
    assert counts == (table.calls, table.live, table.ghosts, table.paused, len(list(table.queues.items())))


def test_a_job_whose_one_slot_was_served_is_not_run_again() -> None:
    """It only waits for an extra run: an interrupt somewhere else is no reason to plan it anew."""
    driver = Driver()
    row = driver.add(After(0))
    run = driver.start()
    driver.table.run_now(row, driver.now)
    driver.end(run)
    repair(driver.table, [], driver.now)
    driver.table.check_valid()
    assert (row.place, row.state) == (Place.DONE, JobState.SCHEDULED)
    driver.end(driver.start())
    assert row.state is JobState.FINISHED
