"""Repair: makes a timetable whole again after a change was cut short by a KeyboardInterrupt. Pure.

A change has one commit point, but it has counts to keep beside it, and an interrupt in the caller's thread may fall
between any two of its steps. What is told here is who really holds a run: the queues, a row's own list, and the
workers. Everything else follows from that: counts are counted anew, a run that nobody holds ends, and a job whose next
slot was lost is planned anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from procsched.core.changes import Changes
from procsched.core.model import _NO_RUNS, NOWHERE, JobState, Place, Run
from procsched.core.slots import ScheduleFailed, first_slot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from procsched.core.model import JobRow, Now
    from procsched.core.timetable import Timetable

__all__ = ["repair"]


def repair(table: Timetable, in_hand: Iterable[Run], now: Now) -> Changes:
    """``in_hand``: the runs that workers hold. Returns what has ended by it."""
    changes = Changes()
    queued = list(table.queues.items())
    slots = {id(item) for item in queued if not isinstance(item, Run)}
    runs = [item for item in queued if isinstance(item, Run)]
    for row in table.jobs.rows():
        runs += [run for run in row.held if run.entry == 0 and run.place is Place.HELD]
    known = {id(run): run for run in (*runs, *in_hand) if run.place is not Place.DONE}
    for run in known.values():
        run.counted = run.row is not None and (run.started or run.place in (Place.OFFERED, Place.EXECUTING))
    by_row: dict[int, list[Run]] = {}
    table.ghosts.clear()
    for run in known.values():
        if run.row is not None:
            by_row.setdefault(id(run.row), []).append(run)
            if run.counted and not table.jobs.is_living(run.row):
                table.ghosts[run.row.id] = table.ghosts.get(run.row.id, 0) + 1
    table.admitted = sum(run.row is None and run.place is not Place.POSTED for run in known.values())
    table.live = sum(run.row is not None for run in known.values())
    table.paused.clear()
    for row in table.jobs.rows():
        _repair_row(table, row, by_row.get(id(row), []), id(row) in slots, now, changes)
    table.queues.recount()
    return changes


def _repair_row(table: Timetable, row: JobRow, live: list[Run], queued: bool, now: Now, changes: Changes) -> None:
    for run in row.live:
        if not any(run is other for other in live) and run.place is not Place.DONE:
            table.queues.forget(run)
            run.place = Place.DONE
            (changes.ended if run.started else changes.cancelled).append(run)
    row.live = live or _NO_RUNS
    row.held = [run for run in live if run.place is Place.HELD] or _NO_RUNS
    row.hands = sum(run.counted for run in live)
    row.executing = sum(run.started for run in live)
    extras = [run for run in live if run.planned is None and not run.counted]
    row.extra = extras[-1] if extras else None
    for extra in extras:
        extra.generation = row.generation
    current = [run for run in live if run.planned is not None and run.generation == row.generation]
    row.planning = row.options.max_instances == 1 and bool(current)
    if row.state is JobState.PAUSED:  # once more, for what the pause had not come to
        table._pause(row, now, changes)
        changes.paused.pop()
        return
    row.state = JobState.SCHEDULED
    if not queued and row.place is not Place.HELD:
        row.entry = 0
        row.place = NOWHERE
    elif row.planning:
        table.queues.disowned(row)
    if row.place is NOWHERE and not row.planning:
        _plan_again(table, row, now, changes)
    table._free_hand(row.id)


def _plan_again(table: Timetable, row: JobRow, now: Now, changes: Changes) -> None:
    """The slot that was lost, which nothing has served; a new one only where a new schedule had just come."""
    if row.over:
        table._finish_if_over(row, changes)
    elif row.resumed is not None:
        table._go_on(row, now, changes, 0.0)
    else:
        try:
            table._plan(row, row.planned or first_slot(row.schedule, now), changes, 0.0)
        except ScheduleFailed as failure:
            table._pause(row, now, changes, failure.reason)
