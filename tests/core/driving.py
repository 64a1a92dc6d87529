"""A timetable that is driven by hand, in seconds since the start: enough of a loop to state facts about it."""

from __future__ import annotations

from typing import Any

from procsched.core.changes import Changes
from procsched.core.model import JobOptions, JobRow, Now, Outcome, ReadyOrder, Run, Timebase
from procsched.core.schedules import Schedule
from procsched.core.timetable import Timetable

SECOND = 1_000_000_000
MONO = 5_000 * SECOND
WALL = 1_700_000_000 * SECOND


class Driver:
    """Both clocks stand still until `at` moves them."""

    def __init__(self, order: ReadyOrder = ReadyOrder.DUE) -> None:
        self.table = Timetable(order)
        self.now = Now(MONO, WALL)
        self.calls = 0

    # -- time

    def at(self, seconds: float) -> Driver:
        """So many seconds after the start, on both clocks (a step of the wall clock stays)."""
        mono = MONO + round(seconds * SECOND)
        self.now = Now(mono, self.now.wall + mono - self.now.mono)
        self.table.promote(self.now)
        self.table.check_valid()
        return self

    def step_wall(self, seconds: float) -> None:
        self.now = Now(self.now.mono, self.now.wall + round(seconds * SECOND))
        self.table.promote(self.now)

    @property
    def seconds(self) -> float:
        return (self.now.mono - MONO) / SECOND

    # -- operations

    def add(self, schedule: Schedule, id: str = "job", **options: Any) -> JobRow:
        row = JobRow(id, schedule, object(), JobOptions(**options))
        self.table.add(row, self.now)
        self.table.promote(self.now)
        self.table.check_valid()
        return row

    def submit(self, priority: int = 2, delay: float | None = None) -> Run:
        self.calls += 1
        run = Run(None, object(), priority, self.now.mono, self.now.wall)
        run.number = self.calls
        when = None if delay is None else self.now.mono + round(delay * SECOND)
        self.table.submit(run, self.now, when=when, timebase=Timebase.MONOTONIC)
        return run

    def take(self, limit: int = 1, budget: int = 1 << 80) -> list[Run]:
        """What goes to a worker now; all that fits."""
        changes = self.changes = self.table.take(self.now, limit, budget)
        self.table.check_valid()
        return changes.runs

    def start(self) -> Run:
        """The one run that goes to a worker now, and is claimed."""
        (run,) = self.take()
        self.table.started(run)
        return run

    def end(self, run: Run, outcome: Outcome = Outcome.SUCCEEDED) -> Changes:
        """It has ended, now."""
        if not run.started:
            self.table.started(run)
        changes = self.table.settle(run, outcome, self.now.mono, self.now)
        self.table.promote(self.now)
        self.table.check_valid()
        return changes

    def put_back(self, run: Run) -> Changes:
        changes = self.table.put_back(run, self.now)
        self.table.check_valid()
        return changes

    def planned(self, run: Run) -> float:
        """Its slot, in seconds after the start (monotonic schedules)."""
        assert run.planned is not None
        return (run.planned - MONO) / SECOND

    def wakeup(self) -> float | None:
        """When the timetable wants to be looked at again, in seconds after the start."""
        at = self.table.queues.next_wakeup(self.now)
        return None if at is None else (at - MONO) / SECOND

    # -- a little loop

    def trace(self, until: float, durations: dict[float, float] | None = None, usual: float = 0) -> list[str]:
        """What starts when, with always a free worker: ``"slot@start"`` in seconds, or ``"slot"`` when on time.

        ``durations``: of the runs for these slots; all others take ``usual`` seconds.
        """
        said: list[str] = []
        executing: list[tuple[float, Run]] = []
        while True:
            for run in self.take(limit=100):
                self.table.started(run)
                slot = self.planned(run)
                said.append(f"{slot:g}" if slot == self.seconds else f"{slot:g}@{self.seconds:g}")
                executing.append((self.seconds + (durations or {}).get(slot, usual), run))
            executing.sort(key=lambda pair: pair[0])
            times = [executing[0][0]] if executing else []
            if (wakeup := self.wakeup()) is not None:
                times.append(wakeup)
            if not times or min(times) > until:
                self.at(until)
                return said
            self.at(max(min(times), self.seconds))
            while executing and executing[0][0] <= self.seconds:
                self.end(executing.pop(0)[1])
