"""A Ctrl-C between any two bytecodes of a change: what `repair` leaves is whole again, and goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from driving import SECOND, Driver

import procsched.core
from procsched.core.model import JobOptions, JobRow, JobState, Outcome, Place, Run
from procsched.core.repair import repair
from procsched.core.retry import Retry
from procsched.core.schedules import After, FixedRate

CORE = str(Path(procsched.core.__file__).parent)
RATE = FixedRate(10)
NOTHING = RATE.until(datetime(2000, 1, 1, tzinfo=UTC))


class World:
    """Jobs in every place there is, and calls: due, delayed, and in a worker's hands."""

    def __init__(self) -> None:
        self.driver = driver = Driver()
        self.in_hand: list[Run] = []
        self.rows = {
            name: driver.add(RATE, name, **options)
            for name, options in {
                "executing": {},
                "offered": {},
                "backoff": {"retry": Retry(5, backoff=3)},
                "several": {"max_instances": 3},
                "ready": {},
            }.items()
        }
        driver.submit()
        taken = {run.row.id if run.row else "call": run for run in driver.take(6)}
        for name in ("executing", "several"):
            driver.table.started(taken[name])
        driver.end(taken.pop("backoff"), Outcome.FAILED)
        driver.put_back(taken.pop("ready"))
        self.in_hand = list(taken.values())
        driver.table.run_now(self.rows["executing"], driver.now)  # held
        driver.table.run_now(self.rows["several"], driver.now)
        self.rows["timer"] = driver.add(FixedRate(10, initial_delay=5), "timer")
        self.rows["paused"] = driver.add(RATE, "paused")
        driver.table.pause(self.rows["paused"], driver.now)
        self.old = self.rows["old"] = driver.add(RATE, "old")
        (ghost,) = [run for run in driver.take(9) if run.row is self.old or self.in_hand.append(run)]
        driver.table.started(ghost)
        self.in_hand.append(ghost)
        self.rows["replaced"] = driver.add(RATE, "old")
        self.rows["over"] = driver.add(RATE.times(1), "over")
        (last,) = driver.take()
        driver.table.run_now(self.rows["over"], driver.now)
        driver.end(last)
        self.rows["spent"] = driver.add(RATE.times(1), "spent")
        driver.table.pause(self.rows["spent"], driver.now)
        self.rows["spent"].made = 1
        self.calls = [driver.submit(), driver.submit(delay=7)]

    def drain(self) -> None:
        """Everything that was begun comes to its end, and every job that isn't paused makes another run."""
        driver, table = self.driver, self.driver.table
        extras = {run.row.id for row in table.jobs.values() for run in row.live if run.row and run.planned is None}
        for run in self.in_hand:
            driver.end(run)
        ran: set[str] = set()
        for second in range(1, 40):
            driver.at(second)
            for run in driver.take(100):
                if run.row is not None and run.attempt == 1:
                    ran.add(run.row.id)
                driver.end(run)
        for row in list(table.jobs.values()):
            if row.state is JobState.PAUSED:
                assert row.id not in ran or row.id in extras, "a paused job ran"
            else:
                assert row.id in ran, "a job makes no further run"
            assert row.made or row.schedule.limit is None, "a job doesn't end"
        assert table.ghosts == {}
        for row in list(table.jobs.values()):
            table.cancel(row, driver.now)
        table.check_valid()
        assert (table.calls, table.live, list(table.queues.items())) == (0, 0, [])


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
    deeds["add"] = lambda: table.add(JobRow("new", RATE, object(), JobOptions()), now)
    call = Run(None, object(), 2, now.mono, now.wall)
    deeds["submit"] = lambda: table.submit(call, now)
    deeds["submit later"] = lambda: table.submit(call, now, when=now.mono + 5 * SECOND)
    deeds["cancel a call"] = lambda: table.drop(world.calls[0], now)
    deeds["cancel a delayed call"] = lambda: table.drop(world.calls[1], now)
    return deeds


def interrupted(deed: Callable[[], Any], step: int) -> bool:
    """Does it with a KeyboardInterrupt before the given bytecode in the core; False when it has fewer."""
    left = step

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(CORE):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        deed()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("deed", sorted(changes_of(World())))
def test_an_interrupt_anywhere_in_a_change_is_mended(deed: str) -> None:
    """After each bytecode: the laws hold, the accounts add up, and every job goes on or has ended."""
    step = 1
    while True:
        world = World()
        cut_short = interrupted(changes_of(world)[deed], step)
        driver = world.driver
        repair(driver.table, world.in_hand, driver.now)
        driver.table.check_valid()
        world.drain()
        if not cut_short:
            break
        step += 3  # a third of them, and the next test takes the others apart


@pytest.mark.parametrize("deed", ["replace executing", "cancel ready", "pause offered", "reschedule executing"])
@pytest.mark.parametrize("first", [2, 3])
def test_an_interrupt_at_the_bytecodes_between(deed: str, first: int) -> None:
    """The other two thirds, for four changes that touch much."""
    step = first
    while True:
        world = World()
        cut_short = interrupted(changes_of(world)[deed], step)
        repair(world.driver.table, world.in_hand, world.driver.now)
        world.driver.table.check_valid()
        world.drain()
        if not cut_short:
            break
        step += 3


def test_what_is_whole_is_left_as_it_is() -> None:
    """Nothing ends, nothing is planned anew."""
    world = World()
    table = world.driver.table
    before = [(row.id, row.place, row.planned, row.entry, row.hands, set(row.live)) for row in table.jobs.values()]
    counts = (table.calls, table.live, dict(table.ghosts), set(table.paused), len(list(table.queues.items())))
    changes = repair(table, world.in_hand, world.driver.now)
    assert not (changes.cancelled or changes.ended or changes.finished or changes.paused)
    after = [(row.id, row.place, row.planned, row.entry, row.hands, set(row.live)) for row in table.jobs.values()]
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
