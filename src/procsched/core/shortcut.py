"""Shortcut: plain jobs on a grid, from the due slot to its run and on to the next slot, without a thought. Pure.

Nearly all runs of a busy scheduler are of jobs without retries, limits or runs side by side, whose next slot is one
period on. For these the rules of `planning` come down to a few lines. Law: whatever goes this way ends up as if it had
gone the long way; what isn't sure to is refused here, untouched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from procsched.core.changes import NO_CHANGES, Changes
from procsched.core.model import _NO_RUNS, NOWHERE, JobRow, JobState, Missed, Place, Run, Timebase
from procsched.core.planning import Planning
from procsched.core.schedules import FixedRate

if TYPE_CHECKING:
    from procsched.core.model import Now

__all__ = ["Shortcut"]


def _pace_of(row: JobRow) -> int:
    """The period of a job whose every slot is one period after the last; 0: its slots need thought."""
    schedule = row.schedule
    if type(schedule) is not FixedRate or not row.plain:
        return 0
    if schedule.jitter or schedule.last_at is not None or schedule.missed is Missed.SKIP:
        return 0
    return schedule.period


class Shortcut(Planning):
    """The table with the short way through it. The owner's lock is held in every method."""

    def _take_shortcuts(self, runs: list[Run], limit: int, spent: int, budget: int, now: Now) -> int:
        """Adds the first of the ready to ``runs``, up to one that needs thought; what they all cost by then."""
        queues, living, mono = self.queues, self.jobs.by_id, now.mono
        line, heap = queues.line, queues.heap
        while len(runs) < limit and (line or heap) and not queues.arrivals:
            from_heap = heap and (not line or heap[0] < line[0])
            _first, _second, arrival, row = heap[0] if from_heap else line[0]
            if type(row) is not JobRow or row.entry != arrival or living.get(row.id) is not row:
                break
            if not self._is_simple(row, mono) or (runs and spent + row.cost > budget):
                break
            if from_heap:
                queues.pop_ready(row)
            else:
                line.popleft()
                row.entry = 0
            run = self._take_simple(row, now)
            run.place = Place.OFFERED
            spent += run.cost
            runs.append(run)
        return spent

    def _is_simple(self, row: JobRow, mono: int) -> bool:
        """Whether its due slot needs no thought: a job with a pace, nothing under way, and one slot to be served."""
        pace = row.pace
        if pace < 0:
            pace = row.pace = _pace_of(row)
        if not pace or row.live is not _NO_RUNS or row.hands or self.ghosts:
            return False
        return row.schedule.missed is Missed.CATCH_UP or mono < row.planned + pace

    def _take_simple(self, row: JobRow, now: Now) -> Run:
        """`_take_slot` for such a slot."""
        planned = row.planned
        run = Run(row, row.payload, row.options.priority, row.due, now.wall - now.mono + planned)
        row.number = run.number = row.number + 1
        row.made += 1
        run.planned = planned
        run.noticed = row.noticed
        if row.was_held:
            run.was_held, row.was_held = True, False
        run.arrival = row.arrival
        run.cost = row.cost
        run.counted = True
        row.place = NOWHERE
        row.planning = True
        row.live = [run]
        row.hands = 1
        row.busy_since = now.mono
        self.live += 1
        return run

    def settle_slot(self, run: Run, finished: int, now: Now, draw: float = 0.0) -> Changes | None:
        """`settle` for a success of a plain job that has nothing else under way. None: it isn't; nothing is done."""
        row = run.row
        if (
            row is None
            or not row.plain
            or run.planned is None
            or not row.planning
            or len(row.live) != 1
            or run.generation != row.generation
            or self.ghosts
            or row.state is not JobState.SCHEDULED
            or self.jobs.by_id.get(row.id) is not row
        ):
            return None
        run.place = Place.DONE
        run.counted = False
        run.started = True
        row.hands = row.executing = row.failures = 0
        row.busy_until = finished
        row.live = _NO_RUNS
        self.live -= 1
        pace, limit = row.pace, row.schedule.limit
        if pace > 0 and row.resumed is None and (limit is None or row.made < limit):
            row.planning = row.over = row.was_held = False
            row.planned = slot = run.planned + pace
            row.epoch = self.jobs.epoch
            if slot <= now.mono:
                self.queues.push_due(row, slot, now)
            else:
                self.queues.push_timer(row, Timebase.MONOTONIC, slot)
            return NO_CHANGES
        changes = Changes()
        base = now.wall - (now.mono - finished) if row.schedule.timebase is Timebase.WALL else finished
        self._plan_following(row, run.planned, base, now, changes, draw)
        self._finish_if_over(row, changes)
        return changes
