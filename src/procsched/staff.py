"""Staff: which slots get a worker, when, and what a death means. Runs in the loop.

A worker is disposable: whatever ends it, its slot gets another one as soon as `RestartBudget` says so. Only workers
that never come up use that budget up.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from procsched import events
from procsched.core.restarts import GIVE_UP
from procsched.core.roster import SlotState
from procsched.errors import PoolUnusable
from procsched.ledger import job_id_of

if TYPE_CHECKING:
    from procsched.core.model import Now, Run
    from procsched.core.roster import Slot
    from procsched.engine import Engine
    from procsched.pool.api import Died, Up

__all__ = ["Staff"]

SECOND = 1_000_000_000
MINUTE = 60 * SECOND


class Staff:
    """The workers of one scheduler, over the engine's roster and pool."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._spawn_at: dict[int, int] = {}
        """By slot: when to ask for a worker, monotonic ns."""
        self._old_pids: dict[int, int] = {}
        self._born_heavy: set[int] = set()
        """Slots whose worker was above the memory limit after its first run already."""
        self._renewing = False
        """Whether there are workers with code that has been changed since."""
        self._replaced_at: int | None = None
        """When the last one of those was replaced."""

    def renew(self) -> None:
        """What is handed over from now on goes to workers that start from now on; executing runs may finish."""
        engine = self._engine
        now = engine.now()
        for slot in engine.roster:
            if slot.state in (SlotState.UP, SlotState.BOOTING):
                slot.stale = self._renewing = True
                if slot.runs:
                    engine.offering.take_back(slot, now)

    def hire(self) -> None:
        """Every slot is to have a worker."""
        for slot in self._engine.roster:
            self._spawn_at[slot.index] = 0

    def next(self) -> int | None:
        """When there is something to do here again."""
        return min(self._spawn_at.values(), default=None)

    def tend(self, now: Now) -> None:
        """Asks for workers for the slots whose time has come, and replaces those that have done their share."""
        engine = self._engine
        for index in [index for index, at in self._spawn_at.items() if at <= now.mono]:
            del self._spawn_at[index]
            engine.roster.booting(index, now.mono)
            engine.pool.spawn(index)
            engine.alarms.set(now.mono + engine.start_timeout, partial(self._slow_boot, index, now.mono))
        if self._renewing:
            self._renewing = False
            for slot in engine.roster:
                if slot.stale and slot.state in (SlotState.UP, SlotState.BOOTING):
                    self._renewing = True
                    if slot.state is SlotState.UP and not slot.runs and not slot.owes:
                        slot.state = SlotState.LEAVING
                        engine.pool.retire(slot.index)
        if engine.recycles:
            for slot in engine.roster.free_slots():
                worn = engine.max_tasks is not None and slot.runs_done >= engine.max_tasks
                if worn or (slot.heavy and self._may_replace(slot, now.mono)):
                    slot.state = SlotState.LEAVING
                    engine.pool.retire(slot.index)

    def _slow_boot(self, index: int, since: int) -> None:
        engine = self._engine
        slot = engine.roster[index]
        if slot.state is SlotState.BOOTING and slot.booting_since == since:
            slot.doomed = f"it was not ready within {engine.start_timeout / SECOND:g} s"
            engine.pool.kill(index)

    def weighed(self, slot: Slot) -> None:
        """The worker was above its memory limit after a run: if that was its first one, the limit is too small."""
        if slot.runs_done == 1:
            self._born_heavy.add(slot.index)

    def _may_replace(self, slot: Slot, now: int) -> bool:
        """Whether a worker above its memory limit is replaced: one that a new one would equal, only once a minute."""
        if slot.index not in self._born_heavy:
            return True
        engine = self._engine
        if self._replaced_at is None:
            engine.log(
                logging.WARNING,
                "scheduler %r: a fresh worker is above max_memory_per_child (%d bytes) after its first run; "
                "such workers are replaced once a minute at most",
                engine.name,
                engine.settings.max_memory,
            )
        elif now - self._replaced_at < MINUTE:
            return False
        self._replaced_at = now
        return True

    # -- what the pool tells --------------------------------------------------------------------------------------

    def came_up(self, event: Up) -> None:
        """A worker is ready."""
        engine = self._engine
        engine.roster.up(event.slot, event.pid)
        self._born_heavy.discard(event.slot)
        engine.budget.came_up()
        old = self._old_pids.pop(event.slot, None)
        if old is None:
            engine.dispatcher.announce(events.WorkerStarted, event.slot, event.pid)
        else:
            engine.dispatcher.announce(events.WorkerReplaced, event.slot, event.pid, old)
        if engine.closing:
            engine.pool.ask_stop(event.slot, -1)

    def senseless(self, slot: Slot) -> None:
        """Its worker reports what it can't have done: what else it says can't be believed, and its run has crashed."""
        if slot.state is SlotState.UP:
            slot.state = SlotState.LEAVING
            self._engine.log(
                logging.ERROR,
                "scheduler %r: worker %d (pid %d) is ended: its reports make no sense",
                self._engine.name,
                slot.index,
                slot.pid,
            )
            self._engine.pool.kill(slot.index)

    def died(self, event: Died) -> None:
        """A worker is gone: its runs go back, or are lost, and its slot gets another one in time.

        Raises:
            PoolUnusable: No worker can be started.
        """
        engine = self._engine
        slot = engine.roster[event.slot]
        now = engine.now()
        doomed = slot.doomed
        back, lost = engine.roster.died(slot, event.unclaimed)
        assert len(lost) <= 1, f"a dead worker had claimed {len(lost)} runs at once"
        for run in reversed(back):
            with engine.lock:
                changes = engine.timetable.put_back(run, now)
            engine.settling.note(changes, now)
        victim = lost[0] if lost else None
        asked_for = event.retired or doomed in ("timeout", "abort") or (engine.closing and not lost)
        if not asked_for:
            engine.dispatcher.announce(*_obituary(event, victim, doomed, now))
        if victim is not None:
            engine.settling.lost(event, victim, doomed, now)
        if event.pid:
            self._old_pids[event.slot] = event.pid
        if engine.closing and not engine.timetable.calls and not engine.timetable.live:
            return
        if event.started:
            at = now.mono if event.retired else engine.budget.crashed(now.mono)
        else:
            others_up = any(other.state is SlotState.UP for other in engine.roster)
            at = engine.budget.boot_failed(now.mono, others_up=others_up)
            if at == GIVE_UP:
                why = (event.boot_error or doomed or "it ended before it was ready").rstrip()
                last_line = why.rpartition("\n")[2]
                raise PoolUnusable(f"no worker can be started: {last_line}" + (f"\n{why}" if why != last_line else ""))
        self._spawn_at[event.slot] = at


def _obituary(event: Died, victim: Run | None, doomed: str | None, now: Now) -> tuple[Any, ...]:
    seconds = None
    if victim is not None and victim.start:
        seconds = (now.mono - victim.start) / SECOND
    return (
        events.WorkerLost,
        event.slot,
        event.pid,
        event.exitcode,
        event.signal,
        job_id_of(victim) if victim is not None else None,
        victim.number if victim is not None else None,
        seconds,
        event.oom,
        "" if event.started else (doomed or event.boot_error or "it ended before it was ready"),
    )
