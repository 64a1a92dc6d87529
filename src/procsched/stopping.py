"""Stopping: a shutdown from its first word to its last. Asked for in any thread, carried out by the loop."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from procsched.core.roster import SlotState
from procsched.ledger import job_id_of

if TYPE_CHECKING:
    from procsched.core.model import Now
    from procsched.engine import Engine

__all__ = ["Stopping"]

SECOND = 1_000_000_000


class Stopping:
    """The state of a shutdown; asking again can only make it stricter."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.begun = False
        self.ended = threading.Event()
        self._closed = False
        self._abandoned = False

    def ask(self, *, cancel_calls: bool, timeout: float | None, only_jobs: bool = False) -> None:
        """Begin to stop, or stop more strictly. Takes no lock: a signal handler may ask.

        ``timeout`` (seconds): what still executes then is ended; with ``only_jobs`` only runs of jobs are, and calls
        complete.
        """
        self.begun = True
        self._engine.admits = False
        self._engine.gate.close()
        self._engine.mailbox.post(lambda: self._begin(cancel_calls, timeout, only_jobs))

    def when_idle(self) -> None:
        """Nobody can give more work: stop once what there is is done. In the loop."""
        self._abandoned = True

    def _begin(self, cancel_calls: bool, timeout: float | None, only_jobs: bool) -> None:
        engine = self._engine
        now = engine.now()
        self._take_back(now)
        with engine.lock:
            changes = engine.timetable.close(now, cancel_calls=cancel_calls)
        delayed = sum(1 for run in changes.cancelled if run.row is None and run.planned is not None)
        if delayed and not self._closed:
            engine.log(logging.INFO, "scheduler %r: cancelled %d delayed calls at shutdown", engine.name, delayed)
        engine.settling.note(changes, now)
        for row in changes.over:
            engine.settling.job_over(row)
        self._closed = True
        for slot in engine.roster:
            if slot.state is SlotState.UP:
                engine.pool.ask_stop(slot.index, -1)
        if timeout is not None:
            engine.alarms.set(now.mono + max(0, int(timeout * SECOND)), lambda: self._abort(only_jobs))

    def _abort(self, only_jobs: bool) -> None:
        """The time has run out: what still executes is ended, what waits is cancelled."""
        engine = self._engine
        now = engine.now()
        if not only_jobs:
            self._take_back(now)
            with engine.lock:
                changes = engine.timetable.close(now, cancel_calls=True)
            engine.settling.note(changes, now)
        for slot in engine.roster:
            run = slot.current
            if run is None or slot.state is SlotState.LEAVING or (only_jobs and run.row is None):
                continue
            who = (engine.name, job_id_of(run), run.number)
            engine.log(logging.WARNING, "scheduler %r: gave up %s #%d, which still executes", *who)
            slot.doomed = "abort"
            slot.state = SlotState.LEAVING
            engine.pool.kill(slot.index)

    def _take_back(self, now: Now) -> None:
        """What no worker has claimed goes back to the queues, where `Timetable.close` sees it."""
        for slot in self._engine.roster:
            if slot.runs and slot.state is SlotState.UP:
                self._engine.offering.take_back(slot, now)

    def finished(self) -> bool:
        """Whether nothing is left to do. In the loop."""
        timetable = self._engine.timetable
        if self._abandoned and not self.begun and self._engine.is_idle() and not timetable.jobs:
            self.ask(cancel_calls=False, timeout=None)
        return self._closed and not timetable.calls and not timetable.live and not self._engine.mailbox
