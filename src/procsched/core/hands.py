"""Hands: how many runs an id has under way, over all its generations. Pure.

An id never has more than ``max_instances`` runs in hand: the ``hands`` of its living row, and the *ghosts*, runs of
older generations that still execute. What can't go for that reason is held on its row, and goes back to the ready
heap, under its old key, when a hand is free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from procsched.core.jobtable import JobTable
from procsched.core.model import _NO_RUNS, NOWHERE, JobState, Place, ReadyOrder, Run
from procsched.core.queues import Queues

if TYPE_CHECKING:
    from procsched.core.model import JobRow

__all__ = ["Hands"]


class Hands:
    """The generation table with its queues, and the account of what is in hand."""

    def __init__(self, order: ReadyOrder) -> None:
        self.jobs = JobTable()
        self.paused: set[JobRow] = set()
        self.ghosts: dict[str, int] = {}
        """By id: runs in hand of generations other than the living row's."""
        self.live = 0
        """Runs of jobs that haven't ended (next slots aren't runs yet)."""
        self.queues = Queues(self.jobs, order)

    def _join(self, row: JobRow, run: Run) -> None:
        row.live = [*row.live, run]
        self.live += 1

    def _leave(self, row: JobRow, run: Run, at: int) -> None:
        """The run is over since monotonic ``at``: out of the row's lists, its hand free."""
        self._uncount(row, run, at)
        row.live = [other for other in row.live if other is not run] or _NO_RUNS
        if row.held:
            row.held = [other for other in row.held if other is not run] or _NO_RUNS
        if row.extra is run:
            row.extra = None
        self.live -= 1

    def _count(self, row: JobRow, run: Run, at: int) -> None:
        if not run.counted:
            run.counted = True
            row.hands += 1
            if self._is_busy(row):
                row.busy_since = at
        if row.extra is run:
            row.extra = None

    def _uncount(self, row: JobRow, run: Run, at: int) -> None:
        if not run.counted:
            return
        if self._is_busy(row):
            if run.started:
                row.busy_until = at
            else:  # nothing has executed
                row.busy_since = None
        run.counted = False
        row.hands -= 1
        if not self.jobs.is_living(row):
            left = self.ghosts.get(row.id, 0) - 1
            if left > 0:
                self.ghosts[row.id] = left
            else:
                self.ghosts.pop(row.id, None)

    def _is_full(self, row: JobRow) -> bool:
        return row.hands + self.ghosts.get(row.id, 0) >= row.options.max_instances

    def _is_busy(self, row: JobRow) -> bool:
        """Whether the job itself takes up all of `max_instances`, without the runs of older generations."""
        hands = row.hands
        if hands >= row.options.max_instances:
            hands = sum(run.counted and run.generation == row.generation for run in row.live)
        return hands >= row.options.max_instances

    def _free_hand(self, id: str) -> None:
        """What the living job of this id holds may try again, under its old keys."""
        row = self.jobs.awake(id)
        if row is None or (row.place is not Place.HELD and not row.held) or self._is_full(row):
            return
        if row.place is Place.HELD:
            self.queues.push_ready(row)
        held, row.held = row.held, _NO_RUNS
        for run in held:
            self.queues.push_ready(run)

    def check_valid(self) -> None:
        """Asserts the laws of this table. An expensive no-op, for tests."""
        self.queues.check_valid()
        assert self.paused == {row for row in self.jobs.rows() if row.state is JobState.PAUSED}, "paused jobs"
        assert all(count > 0 for count in self.ghosts.values()), "a ghost that isn't there"
        for row in self.jobs.rows():
            self._check_row(row)

    def _check_row(self, row: JobRow) -> None:
        assert row.state in (JobState.SCHEDULED, JobState.PAUSED), f"{row!r} has ended, and has an id"
        assert row.place in (Place.TIMER, Place.READY, Place.HELD, NOWHERE), f"the slot of {row!r} is nowhere"
        assert (row.entry != 0) == (row.place in (Place.TIMER, Place.READY)), f"the entry of {row!r} doesn't match"
        if row.state is JobState.PAUSED:
            assert row.place is NOWHERE, f"{row!r} is paused, and has a slot"
            waiting = (Place.TIMER, Place.READY, Place.HELD)
            slots = [run for run in row.live if run.planned is not None and not run.started and run.place in waiting]
            assert not slots, f"{row!r} is paused, and a slot of it waits"
        else:
            waits = row.place is not NOWHERE or row.planning
            assert waits or (row.over and row.live), f"{row!r} never ends and never runs"
            assert not waits or not row.over, f"{row!r} has a slot after its last one"
        assert not (row.planning and row.place is not NOWHERE), f"{row!r} has planned twice"
        assert row.hands == sum(run.counted for run in row.live), f"the hands of {row!r}"
        assert row.executing == sum(run.started for run in row.live), f"what of {row!r} executes"
        assert row.hands <= row.options.max_instances, f"too many instances of {row!r}"
        assert self._is_full(row) or (row.place is not Place.HELD and not row.held), f"{row!r} is held by nobody"
        slot_runs = sum(run.planned is not None and run.generation == row.generation for run in row.live)
        assert slot_runs or not row.planning, f"nothing will plan the next slot of {row!r}"
        assert row.extra is None or row.extra in row.live, f"the extra run of {row!r}"
        for run in row.live:
            assert run.row is row and run.place not in (Place.POSTED, Place.DONE), f"{run!r} is over, and lives"
            assert run.counted == (run.started or run.place in (Place.OFFERED, Place.EXECUTING)), f"{run!r} in hand"
            assert (run.place is Place.HELD) == (run in row.held), f"{run!r} held"
