"""The published decision table, row by row, on the real dispatcher with a clock that stands still."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from procsched import At, Cron, Daily, FixedDelay, FixedRate, Missed, RunEnded
from procsched.pool.api import Died
from procsched.testing import FakeClock, InlinePool, ManualScheduler

START = datetime(2024, 1, 1, tzinfo=UTC)
TABLE = Path(__file__).parents[2] / "docs" / "decision-table.md"
NAMES = {
    "At": At, "Cron": Cron, "Daily": Daily, "FixedDelay": FixedDelay, "FixedRate": FixedRate, "Missed": Missed,
    "START": START, "timedelta": timedelta,
}  # fmt: skip


def rows() -> list[tuple[str, ...]]:
    text = TABLE.read_text("utf-8")
    return [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in text.splitlines() if line[:3] == "| `"]


class Crash(Exception):
    """The worker dies at this point of the run."""


class MortalPool(InlinePool):
    """An InlinePool whose workers die of a Crash."""

    def poll(self, timeout: float | None, linger: float = 0.0) -> list:
        events = super().poll(timeout)
        for index, event in enumerate(events):
            error = getattr(getattr(event, "body", None), "error", None)
            if isinstance(error, Crash):
                unclaimed = self.withdraw(event.slot)
                events[index] = Died(event.slot, 1, True, False, None, "SIGKILL", unclaimed, "", [], 0, False, "")
        return events


class Story:
    """One row: a job, its first run, what happens meanwhile, and the starts that came of it."""

    def __init__(self, schedule: str, first_run: str, meanwhile: str) -> None:
        self.hourly = schedule[1:].startswith(("Daily", "At", "Cron"))
        self.unit = 3600 if self.hourly else 1
        self.when = eval(schedule.strip("`"), dict(NAMES))
        self.first_run = first_run
        self.deeds = [
            (int(at), deed) for at, deed in re.findall(r"at (\d+) ([^,]+)", meanwhile)
        ]  # fmt: skip
        self.clock = FakeClock(start=START)
        self.elapsed = 0
        self.scheduler = ManualScheduler(clock=self.clock, pool=MortalPool(), workers=1)
        self.told: list[str] = []
        self.scheduler.subscribe(self.note, RunEnded)
        self.ran = 0
        self.begin = self.clock.monotonic_ns()
        self.job = self.scheduler.schedule(self.run, self.when, id="job")

    def note(self, event: RunEnded) -> None:
        record = event.record
        if record.started is None:
            return
        late = round(record.lateness / self.unit)
        name = "" if record.outcome.value == "succeeded" else f" {record.outcome.value}"
        self.told.append(f"{self.starts.pop(0)}{name}" + (f" late {late}" if late else ""))

    starts: list[int]

    def run(self) -> None:
        self.starts.append(self.elapsed)
        self.ran += 1
        if self.ran > 1:
            return
        if took := re.search(r"takes (\d+)", self.first_run):
            self.pass_time(int(took[1]))
        if "fails" in self.first_run:
            raise ValueError("as the row says")
        if "crashes" in self.first_run:
            raise Crash

    def pass_time(self, units: int) -> None:
        for _ in range(units):
            self.clock.advance(self.unit)
            self.elapsed += 1
            while self.deeds and self.deeds[0][0] <= self.elapsed:
                self.do(self.deeds.pop(0)[1])

    def do(self, deed: str) -> None:
        word, _, rest = deed.partition(" ")
        if word == "clock":
            sign = -1 if rest[0] == "-" else 1
            self.clock.step_wall(sign * int(rest[1:-1]) * 3600)
        elif word == "replace":
            self.scheduler.schedule(self.run, self.when, id="job", replace_existing=True)
        elif word == "reschedule":
            self.job.reschedule(self.when)
        elif word == "run":
            self.job.run_now()
        elif word == "shutdown":
            self.scheduler._engine.shutdown(wait=False)
        else:
            getattr(self.job, word)()

    def play(self) -> str:
        self.starts = []
        end = 71 if self.hourly else 60
        while True:
            self.scheduler.tick()
            self.scheduler._engine.check_valid()
            if self.elapsed >= end:
                break
            self.pass_time(1)
        self.scheduler.shutdown()
        return ", ".join(self.told) or "none"


def test_the_table_is_there() -> None:
    """A change of its format mustn't leave it untested."""
    assert len(rows()) > 60


@pytest.mark.parametrize(("schedule", "first_run", "meanwhile", "runs"), rows())
def test_row(schedule: str, first_run: str, meanwhile: str, runs: str) -> None:
    """The runs are those that the table promises."""
    assert Story(schedule, first_run, meanwhile).play() == runs
