"""Roster: who is free? Which slot holds which runs. Pure.

A *slot* is a place for a worker, for ever; workers come and go in it. What a slot holds was offered to its worker and
hasn't been reported, so after a death the account is exact: reported runs are over; of the others, those whose ticket
nobody had claimed never started, and at most one was executing.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from procsched.core.model import Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from procsched.core.model import Run

__all__ = ["Roster", "Slot", "SlotState"]


class SlotState(enum.Enum):
    """What is in a slot."""

    DOWN = "down"
    """No worker, and none asked for."""
    BOOTING = "booting"
    UP = "up"
    LEAVING = "leaving"
    """Its worker was told to go: it takes nothing more."""


class Slot:
    """One place for a worker."""

    __slots__ = (
        "armed",
        "booting_since",
        "doomed",
        "heavy",
        "index",
        "owes",
        "pid",
        "progress",
        "runs",
        "runs_done",
        "stale",
        "state",
        "tried",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.state = SlotState.DOWN
        self.pid = 0
        self.runs: dict[int, Run] = {}
        """By ticket: offered and not reported, in the order of the offers."""
        self.owes = 0
        """Acknowledgements of withdrawals. A slot that owes one isn't free: its worker may still hold the old orders,
        or be stopped, and would be offered the same runs for ever."""
        self.armed = 0
        """Ticket of a run that was offered before its time; 0: none."""
        self.progress = 0
        """Monotonic instant of the last offer to an empty slot, or of the last report."""
        self.tried = 0
        """Ticket of the single run that couldn't be withdrawn: it has been claimed."""
        self.booting_since = 0
        self.runs_done = 0
        self.heavy = False
        """Its worker was above its memory limit after its last run."""
        self.stale = False
        """Its worker has code that has been changed since: it takes nothing more, and goes when it is empty."""
        self.doomed: str | None = None
        """Why its worker was killed by us; None: it wasn't."""

    @property
    def free(self) -> bool:
        return self.state is SlotState.UP and not self.runs and not self.owes and not self.stale

    @property
    def current(self) -> Run | None:
        """The run at the head of the slot: the one that executes, if any does."""
        return next(iter(self.runs.values()), None)

    def reported(self, ticket: int, now: int) -> Run | None:
        """Its worker has reported the end of a run; None: it had been given up, and its account is closed."""
        run = self.runs.pop(ticket, None)
        if run is not None:
            self.progress = now
            self.runs_done += 1
            if self.armed == ticket:
                self.armed = 0
        return run

    def __repr__(self) -> str:
        return f"<Slot {self.index} {self.state.value} pid {self.pid} with {len(self.runs)} runs>"


class Roster:
    """All slots of the pool."""

    def __init__(self, workers: int) -> None:
        self.slots = [Slot(index) for index in range(workers)]

    def __getitem__(self, index: int) -> Slot:
        return self.slots[index]

    def __iter__(self) -> Iterator[Slot]:
        return iter(self.slots)

    def booting(self, index: int, now: int) -> None:
        slot = self.slots[index]
        assert slot.state is SlotState.DOWN and not slot.runs
        slot.state = SlotState.BOOTING
        slot.booting_since = now

    def up(self, index: int, pid: int) -> None:
        slot = self.slots[index]
        slot.state = SlotState.UP
        slot.pid = pid
        slot.runs_done = 0
        slot.heavy = False

    def offered(self, slot: Slot, runs: Iterable[Run], now: int, *, armed: bool = False) -> None:
        if not slot.runs:
            slot.progress = now
        for run in runs:
            slot.runs[run.ticket] = run
            run.slot = slot.index
            if armed:
                slot.armed = run.ticket

    def withdrawn(self, slot: Slot, tickets: Iterable[int]) -> list[Run]:
        """These were taken back unclaimed: the slot owes one acknowledgement for them all."""
        runs = [slot.runs.pop(ticket) for ticket in tickets]
        if runs:
            slot.owes += 1
            if slot.armed and slot.armed not in slot.runs:
                slot.armed = 0
        return runs

    def acknowledged(self, slot: Slot) -> None:
        slot.owes -= 1

    def died(self, slot: Slot, unclaimed: Iterable[int]) -> tuple[list[Run], list[Run]]:
        """Empties the slot of a dead worker: (never started, was executing: none or one)."""
        keep = set(unclaimed)
        back = [run for ticket, run in slot.runs.items() if ticket in keep]
        lost = [run for ticket, run in slot.runs.items() if ticket not in keep]
        slot.runs = {}
        slot.state = SlotState.DOWN
        slot.pid = slot.owes = slot.armed = slot.tried = 0
        slot.doomed = None
        slot.stale = False
        return back, lost

    def free_slots(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.free]

    def holding(self) -> list[Run]:
        """All runs in workers' hands."""
        return [run for slot in self.slots for run in slot.runs.values()]

    def unclaimed(self) -> int:
        """Runs in workers' hands that haven't begun, as far as is known."""
        return sum(run.place is Place.OFFERED for slot in self.slots for run in list(slot.runs.values()))

    def check_valid(self) -> None:
        seen: set[int] = set()
        for slot in self.slots:
            if slot.state in (SlotState.DOWN, SlotState.BOOTING):
                assert not slot.runs and not slot.owes, f"{slot!r} holds runs without a worker"
            assert slot.owes >= 0, f"{slot!r} acknowledged what nobody withdrew"
            assert not slot.armed or slot.armed in slot.runs, f"{slot!r} is armed with what it doesn't hold"
            for ticket, run in slot.runs.items():
                assert run.ticket == ticket and run.slot == slot.index, f"{run!r} thinks it is elsewhere"
                assert id(run) not in seen, f"{run!r} is in two slots"
                seen.add(id(run))
