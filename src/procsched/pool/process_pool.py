"""The pool on loky processes: spawn, offer, withdraw, poll, kill, close. Runs in the parent, in the loop's thread.

::

    loop's thread          starter's thread     reaper's thread         listener's thread
    spawn ──────────────►  Ends, Process.start
    poll  ◄── arrived ───  (1-40 ms)
      ◄── outboxes, pidfds, room in an inbox (one epoll)
    kill  ─────────────────────────────────►    tree, group, marker
                                                                        chatter pipes ──► sink
"""

from __future__ import annotations

import contextlib
import heapq
import os
import select
import threading
import time
import weakref
from collections import deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from procsched.pool.api import Event, PoolSettings, Up
from procsched.pool.decoding import decode_body
from procsched.pool.ends import DESCRIPTORS_PER_WORKER
from procsched.pool.listener import Listener
from procsched.pool.oom import OomCounter
from procsched.pool.reaper import Reaper
from procsched.pool.reports import BrokenReports
from procsched.pool.spares import Spares
from procsched.pool.stack import dump
from procsched.pool.starter import Starter
from procsched.pool.tenant import Stage, Tenant, drop_bodies
from procsched.pool.waiter import Waiter
from procsched.spool import above_standard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from procsched.core.model import Outcome
    from procsched.pool.api import Chatter
    from procsched.shipping.payload import Payload
    from procsched.wire import Function, Order

__all__ = ["ProcessPool"]

EXIT_HOOKS_TIME = 1.0
"""Seconds for the atexit hooks of a retired worker. The contract's number."""
_LOOK_AGAIN = 0.002  # seconds, for a death that was seen before the corpse can be reaped
_LOOK_FOR_DEATHS = 0.25  # seconds, only where there is no pidfd


_ship: Callable[..., Payload] | None = None  # imported with the first call: a scheduler that has none starts faster


class ProcessPool:
    """Law: a slot has at most one tenant, from ``spawn`` to its Died; a spare is a tenant without a slot."""

    DESCRIPTORS_PER_WORKER = DESCRIPTORS_PER_WORKER

    def __init__(self) -> None:
        self._slots: dict[int, Tenant] = {}
        self._spares = Spares(0, self._start_spare, self._after)
        self._events: list[Event] = []
        self._arrivals: deque[Tenant] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_number = count()
        self._opened = self._closing = self._closed = False
        self._wake_lock = threading.RLock()  # re-entrant: wake() may come from a signal handler during a wake()
        self._wake_write = self._wake_read = -1

    # -- other threads -------------------------------------------------------------------------------------------

    def ship(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Payload:
        """Pickle for a worker, in the caller's thread."""
        global _ship
        if _ship is None:
            from procsched.shipping import payload

            _ship = payload.ship
        return _ship(fn, args, kwargs)

    def decode(self, outcome: Outcome, body: object) -> object:
        """The value, or the exception of a failed run. Runs user code (unpickling): in the delivery thread."""
        return decode_body(outcome, body)

    def wake(self) -> None:
        """Let ``poll`` return. Any thread, also a signal handler, also after ``close``."""
        with self._wake_lock:
            if self._wake_write >= 0:
                try:
                    os.write(self._wake_write, b"x")
                except BlockingIOError:  # it is full of wake-ups
                    pass

    def pids(self) -> dict[int, int]:
        """Process id by slot."""
        return {slot: tenant.handle.pid for slot, tenant in list(self._slots.items()) if tenant.handle is not None}

    def dump_stack(self, slot: int) -> str:
        """The Python stack of a running worker; waits up to 0.2 s for it."""
        tenant = self._slots.get(slot)
        return dump(tenant) if tenant is not None and tenant.stage is Stage.UP else ""

    # -- the loop's thread ---------------------------------------------------------------------------------------

    def open(self, settings: PoolSettings, chatter: Callable[[Chatter], None]) -> None:
        """Start the helper threads; no worker yet."""
        import procsched.shipping.homes  # noqa: F401  (notes, at its import, on which sys.path the workers will start)

        assert not self._opened, "a pool is opened once"
        self._settings = settings
        self._spares = Spares(settings.spares, self._start_spare, self._after)
        with (
            contextlib.ExitStack() as undo
        ):  # for want of descriptors or threads it may stop halfway, and be tried again
            self._waiter = Waiter()
            undo.callback(self._waiter.close)
            self._wake_read, self._wake_write = map(above_standard, os.pipe())
            undo.callback(self._close_wake_up)
            os.set_blocking(self._wake_read, False)
            os.set_blocking(self._wake_write, False)
            self._waiter.add(self._wake_read, self._woken)
            self._oom = OomCounter()
            self._listener = Listener(settings.name, chatter)
            undo.callback(self._listener.stop, 1.0)
            self._reaper = Reaper(settings.name)
            undo.callback(self._reaper.stop, 1.0)
            self._starter = Starter(settings.name, self._arrived)
            undo.pop_all()
        self._opened = True
        _open_pools.add(self)

    def spawn(self, slot: int) -> None:
        """Start a worker for an empty slot, or take a spare."""
        assert slot not in self._slots, f"slot {slot} has a worker"
        spare = self._spares.take()
        if spare is None:
            tenant = self._slots[slot] = Tenant(slot, self._settings)
            self._starter.start(tenant)
            return
        spare.move_in(slot)
        self._slots[slot] = spare
        if spare.stage is Stage.UP and spare.handle is not None:
            self._events.append(Up(slot, spare.handle.pid))
            self._refill()

    def offer(self, slot: int, orders: list[Order], functions: list[Function]) -> None:
        """Hand over runs, still to be claimed."""
        tenant = self._slots.get(slot)
        assert tenant is not None, f"slot {slot} has no worker"
        assert tenant.stage is Stage.UP, f"slot {slot} isn't up"
        tenant.channel.offer(orders, functions)
        self._follow_up(tenant)

    def withdraw(self, slot: int) -> list[int]:
        """Take back every unclaimed ticket."""
        tenant = self._living(slot)
        if tenant is None:
            return []
        tickets = tenant.channel.withdraw()
        self._follow_up(tenant)
        return tickets

    def retract(self, slot: int, ticket: int) -> bool:
        """Take back this one only."""
        tenant = self._living(slot)
        if tenant is None:
            return False
        found = tenant.channel.retract(ticket)
        self._follow_up(tenant)
        return found

    def ask_stop(self, slot: int, ticket: int) -> None:
        """Let ``should_stop()`` of that run, or with -1 of every run there, become True."""
        tenant = self._living(slot)
        if tenant is not None:
            tenant.channel.ask_stop(ticket)

    def retire(self, slot: int) -> None:
        """A polite end of an idle worker."""
        tenant = self._slots.get(slot)
        if tenant is None or tenant.stage is not Stage.UP:
            return
        tenant.stage = Stage.RETIRING
        tenant.channel.retire()
        self._follow_up(tenant)
        self._after(EXIT_HOOKS_TIME, partial(self._end_retiring, tenant))

    def kill(self, slot: int) -> None:
        """The worker and all its descendants, in the reaper's thread."""
        tenant = self._slots.get(slot)
        if tenant is not None:
            self._kill(tenant)

    def poll(self, timeout: float | None, linger: float = 0.0) -> list[Event]:
        """The loop's only sleep; then everything that has happened. Reports may gather for ``linger`` seconds first."""
        if self._closed:
            return []
        if self._arrivals:
            self._welcome()
        if self._events:
            timeout = 0
        elif self._timers:
            rest = max(0.0, self._timers[0][0] - time.monotonic())
            timeout = rest if timeout is None else min(timeout, rest)
        if linger and timeout != 0 and self._wake_read < 1024:  # beyond that select() refuses
            select.select([self._wake_read], [], [], linger if timeout is None else min(linger, timeout))
        self._waiter.wait(timeout)
        if self._arrivals:
            self._welcome()
        if self._timers:
            self._run_timers()
        events, self._events = self._events, []
        return events

    def close(self, deadline: float) -> None:
        """End everything; takes ``deadline`` seconds at most. The events of these ends are dropped."""
        if not self._opened or self._closed:
            return
        self._closing = True  # a close that failed in the middle can be tried again
        until = time.monotonic() + deadline
        self._spares.stop()
        everyone = [*self._slots.values(), *self._spares]
        for tenant in everyone:
            self._kill(tenant)
        while (self._slots or self._spares) and (rest := until - time.monotonic()) > 0:
            drop_bodies(self.poll(min(rest, 0.5)))
        self._starter.stop(max(0.1, until - time.monotonic()))
        self._reaper.stop(max(0.1, until - time.monotonic()))
        for tenant in (*self._slots.values(), *self._spares):  # can't be ended: their lifelines close at least
            tenant.abandon()
        self._listener.stop(max(0.1, until - time.monotonic()))
        with self._wake_lock:
            self._waiter.close()
            self._close_wake_up()
        drop_bodies(self._events)
        self._slots, self._events, self._timers = {}, [], []
        self._closed = True
        _open_pools.discard(self)

    def check_valid(self) -> None:
        """The law of the slots."""
        for slot, tenant in self._slots.items():
            assert tenant.slot == slot
            assert tenant.stage is not Stage.BURIED
            tenant.check_valid()
        self._spares.check_valid()

    # -- what poll finds -----------------------------------------------------------------------------------------

    def _woken(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            pass

    def _arrived(self, tenant: Tenant) -> None:
        """In the starter's thread."""
        self._arrivals.append(tenant)
        self.wake()

    def _welcome(self) -> None:
        while self._arrivals:
            tenant = self._arrivals.popleft()
            if not tenant.settle():
                self._bury(tenant)
                continue
            handle = tenant.handle
            assert handle is not None
            self._listener.add(tenant.ear)
            self._waiter.add(tenant.outbox, partial(self._read, tenant))
            self._waiter.add(handle.sentinel, partial(self._bury, tenant))
            if not handle.exact:
                self._after(_LOOK_FOR_DEATHS, partial(self._look_for_death, tenant))
            if tenant.killed:
                self._kill(tenant)

    def _read(self, tenant: Tenant) -> None:
        reports = tenant.reports
        try:
            reports.read(tenant.slot, self._events)
        except BrokenReports:
            self._waiter.remove(tenant.outbox)
            self._kill(tenant)
            return
        if reports.ended:  # the worker closed its end, or is dead; the pidfd says which
            self._waiter.remove(tenant.outbox)
        if tenant.stage is Stage.BOOTING and reports.hello:
            tenant.stage = Stage.UP
            if tenant.slot >= 0:
                assert tenant.handle is not None
                self._events.append(Up(tenant.slot, tenant.handle.pid))
            else:
                self._spares.came_up()
            self._refill()

    def _bury(self, tenant: Tenant) -> None:
        if tenant.stage is Stage.BURIED:
            return
        self._unwatch(tenant)
        booting = tenant.stage is Stage.BOOTING
        died = tenant.bury(self._events, self._oom)
        if died is None:  # its sentinel closed, but it lived or is just dying; it has been killed now
            self._after(_LOOK_AGAIN, partial(self._bury, tenant))
            return
        if died.pid:
            self._listener.remove(tenant.ear)
            self._reaper.sweep(tenant.marker)
        if died.stack:
            # The native dump belongs on stderr, too; faulthandler knows one file only. Not here: stderr may block.
            self._reaper.post(partial(_print_stack, died.stack))
        if tenant.slot >= 0:
            del self._slots[tenant.slot]
            if booting and died.started:  # its hello was only found at the burial
                self._events.append(Up(tenant.slot, died.pid))
            self._events.append(died)
        else:
            self._spares.lose(tenant)
        self._refill()

    def _look_for_death(self, tenant: Tenant) -> None:
        """Without a pidfd a forked descendant hides the death from the sentinel."""
        if tenant.stage is Stage.BURIED or tenant.handle is None:
            return
        if tenant.handle.exited():
            self._bury(tenant)
        else:
            self._after(_LOOK_FOR_DEATHS, partial(self._look_for_death, tenant))

    def _flush(self, tenant: Tenant) -> None:
        tenant.channel.flush()
        self._follow_up(tenant)

    # -- helpers -------------------------------------------------------------------------------------------------

    def _living(self, slot: int) -> Tenant | None:
        tenant = self._slots.get(slot)
        return tenant if tenant is not None and tenant.stage in (Stage.UP, Stage.RETIRING) else None

    def _follow_up(self, tenant: Tenant) -> None:
        """After each write: watch for room when something waits for it."""
        if tenant.channel.broken:
            self._kill(tenant)
        waiting = tenant.channel.blocked_on
        if waiting != tenant.waiting_on:
            self._waiter.remove(tenant.waiting_on)
            tenant.waiting_on = waiting
            if waiting >= 0:
                self._waiter.add(waiting, partial(self._flush, tenant), write=True)

    def _unwatch(self, tenant: Tenant) -> None:
        """Before its descriptors are closed; a number that isn't watched does no harm."""
        if tenant.handle is not None and tenant.stage is not Stage.STARTING:
            for fd in (tenant.outbox, tenant.waiting_on, tenant.handle.sentinel):
                if fd >= 0:
                    self._waiter.remove(fd)
            tenant.waiting_on = tenant.outbox = -1

    def _kill(self, tenant: Tenant) -> None:
        tenant.killed = True
        if tenant.handle is not None and tenant.stage is not Stage.BURIED:
            self._reaper.kill(tenant.handle, tenant.marker)

    def _end_retiring(self, tenant: Tenant) -> None:
        if tenant.stage is Stage.RETIRING and tenant.handle is not None:
            self._reaper.kill(tenant.handle, tenant.marker)  # still a retirement, if an impolite one

    def _refill(self) -> None:
        if len(self._slots) >= self._settings.workers:  # else somebody is about to spawn
            self._spares.refill(self._slots.values())

    def _start_spare(self) -> Tenant:
        tenant = Tenant(-1, self._settings)
        self._starter.start(tenant)
        return tenant

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._timer_number), action))

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def _close_wake_up(self) -> None:
        ends, self._wake_read, self._wake_write = (self._wake_read, self._wake_write), -1, -1
        for fd in ends:
            if fd >= 0:
                os.close(fd)

    def _become_inert(self) -> None:
        """In a forked copy of the parent: the descriptors are shared with the original, so nothing is done to them."""
        self._wake_lock = threading.RLock()
        self._wake_write = -1
        self._closing = self._closed = True


def _print_stack(stack: str) -> None:
    try:
        os.write(2, stack.encode("utf-8", "replace"))
    except OSError:
        pass


_open_pools: weakref.WeakSet[ProcessPool] = weakref.WeakSet()


def _after_fork() -> None:
    for pool in list(_open_pools):
        pool._become_inert()


os.register_at_fork(after_in_child=_after_fork)
