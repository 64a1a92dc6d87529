"""Dispatcher: the loop, the one place where timetable, roster, pool and clock meet. A thread of the parent.

::

    callers' threads            THE LOOP                                    other threads
    ────────────────            ────────                                    ─────────────
    schedule, cancel ─lock─►    timetable ─take─► offering ─► pool ═══════► workers
    submit, ask ──mailbox──►                                   ║
                                timetable ◄settle─ reports ◄───╝
                                    └──► ledger ──► delivery (Futures), announcer (events, log)

It runs no user code, except `Schedule.next`, and waits for nobody: it sleeps in ``pool.poll`` and nowhere else. An
error in it that nobody understands ends the scheduler loudly: alive but not scheduling is not a state it can be in.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from procsched.pool import api

if TYPE_CHECKING:
    from procsched.engine import Engine

__all__ = ["Dispatcher"]

SECOND = 1_000_000_000
FAR = 1 << 62
DOZE = 1_000_000
"""How long news of jobs that come and go may gather (ns) once there is much of it."""
AT_ONCE = 64
"""Ends of runs that are settled under one hold of the lock: some hundred µs for callers' threads to wait."""


class Dispatcher:
    """Turns of the loop, over the engine's parts. It runs in the loop's thread, except where it says otherwise."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.news: list[tuple[Any, ...]] = []
        """Of this turn so far, as for `announce`. In the loop, or under the engine's lock."""
        self.last_turn = 0
        self.sleeps_until = 0
        """Monotonic instant until which the loop means to sleep, or slept, at most, as it judged under the lock."""

    # -- the loop -------------------------------------------------------------------------------------------------

    def turn(self, longest: float | None = None) -> None:
        """This is the loop's body. ``longest`` bounds its sleep (seconds)."""
        engine = self._engine
        engine.mailbox.read()
        now = engine.now()
        self.last_turn = now.mono
        if engine.interrupted:
            engine.mend(now)
        engine.alarms.ring(now.mono)
        with engine.lock:
            engine.timetable.promote(now)
        engine.staff.tend(now)
        engine.offering.hand_over(now, random.random())
        again = engine.offering.watch_overstays(now)
        self.tell()
        news = engine.pool.poll(self._patience(again, longest), engine.offering.linger())
        engine.mailbox.awake()
        if news:
            self._handle_all(news)

    def _patience(self, again: int | None, longest: float | None) -> float | None:
        """How long the loop may sleep, in seconds; None: until it is woken."""
        engine = self._engine
        if not engine.mailbox.about_to_sleep() or engine.stopping.finished():
            return 0
        now = engine.now()
        with engine.lock:
            wakeups = [engine.timetable.queues.next_wakeup(now)]
            self.sleeps_until = FAR if wakeups[0] is None else wakeups[0]
        if wakeups[0] is not None and any(slot.free for slot in engine.roster):
            early = wakeups[0] - engine.offering.horizon
            if early > now.mono:
                wakeups[0] = early
        wakeups += [again, engine.alarms.next(), engine.staff.next()]
        if self.news or engine.mailbox.dozing:  # others have had news since this turn told its own
            wakeups.append(now.mono + DOZE)
        patience = min((at - now.mono for at in wakeups if at is not None), default=None)
        seconds = None if patience is None else max(0, patience) / SECOND
        if longest is not None:
            seconds = longest if seconds is None else min(seconds, longest)
        return seconds

    def _handle_all(self, news: list[api.Event]) -> None:
        """In order; ends of runs, which are most of it, in groups."""
        ended: list[api.Ended] = []
        self._engine.announcer.look_who_minds()
        for event in news:
            if isinstance(event, api.Ended):
                ended.append(event)
                if len(ended) == AT_ONCE:
                    self._engine.settling.reported(ended)
                    ended = []
                continue
            self._engine.settling.reported(ended)
            ended = []
            self._handle(event)
        self._engine.settling.reported(ended)

    def _handle(self, event: api.Started | api.Voided | api.Up | api.Died) -> None:
        engine = self._engine
        if isinstance(event, api.Started):
            run = engine.roster[event.slot].runs.get(event.ticket)
            if run is not None:
                engine.settling.claimed(run, event.started)
        elif isinstance(event, api.Voided):
            slot = engine.roster[event.slot]
            if slot.owes:
                engine.roster.acknowledged(slot)
            else:
                engine.staff.senseless(slot)
        elif isinstance(event, api.Up):
            engine.staff.came_up(event)
        else:
            engine.staff.died(event)

    # -- the news -------------------------------------------------------------------------------------------------

    def announce(self, *news: Any) -> None:
        """(event class, *fields), for subscribers and the log. In the loop, or under the engine's lock."""
        self.news.append(news)

    def tell(self) -> None:
        """Hands the news of this turn to those who wait for it."""
        engine = self._engine
        engine.delivery.send()
        if self.news:
            with engine.lock:  # callers' threads have news too
                news, self.news = self.news, []
            engine.announcer.put(news)
        engine.waiting.tell()
