"""A pool in virtual time: workers that boot, execute, report and die as a script says, without a process."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any

from procsched.pool.api import Died, Ended, Event, Started, Up, Voided
from procsched.shipping.payload import Payload
from procsched.testing import FakeClock
from procsched.wire import REPORT_START, Function

BOOT = 50_000_000


class Worker:
    """What is in a slot: orders that it may claim, the one that it executes, and until when."""

    def __init__(self, pid: int, up_at: int, fails: bool) -> None:
        self.pid = pid
        self.up_at = up_at
        self.fails = fails
        """It dies instead of coming up."""
        self.orders: deque[tuple[Any, ...]] = deque()
        self.current: tuple[Any, ...] | None = None
        self.started = 0
        self.up = False
        self.owes = 0
        """Withdrawals that it hasn't acknowledged: it can't while it executes."""


class FakePool:
    """Implements `pool.api.Pool`. Its ``poll`` moves the clock to whatever happens next: that is its way to sleep.

    ``duration_of(job id, number)`` gives ns; ``deaths`` is a list of (monotonic ns, slot); ``fails(job id, number)``
    says which runs raise, and ``boot(pid)`` how long a worker takes to come up (ns), negative: until it has failed to.
    """

    def __init__(
        self,
        clock: FakeClock,
        duration_of: Callable[[str, int], int],
        deaths: list[tuple[int, int]] | None = None,
        fails: Callable[[str, int], bool] = lambda job_id, number: False,
        boot: Callable[[int], int] = lambda pid: BOOT,
    ) -> None:
        self._fails = fails
        self._boot = boot
        self._clock = clock
        self._duration_of = duration_of
        self._deaths = list(deaths or [])
        heapq.heapify(self._deaths)
        self._workers: dict[int, Worker] = {}
        self._ready: list[Event] = []
        self._functions: dict[int, Function] = {}
        self._calls: dict[Any, Function] = {}
        self._pid = 1000
        self.executed: list[tuple[str, int, int]] = []
        """(job id, number, attempt) of every claim: what really happened."""
        self.lost = 0
        """Deaths that hit a run."""
        self.deaths = 0
        self.failed_boots = 0

    def ship(self, fn: Any, args: Any, kwargs: Any) -> Payload:
        function = Function(b"", True, getattr(fn, "__name__", "call"))
        return Payload(self._calls.setdefault(fn, function), b"")

    def decode(self, outcome: object, body: object) -> object:
        return None

    def open(self, settings: Any, chatter: Any) -> None: ...

    def spawn(self, slot: int) -> None:
        assert slot not in self._workers, "two workers in one slot"
        self._pid += 1
        takes = self._boot(self._pid)
        self._workers[slot] = Worker(self._pid, self._clock.monotonic_ns() + abs(takes), takes < 0)

    def offer(self, slot: int, orders: list[Any], functions: list[Function]) -> None:
        self._functions.update({function.key: function for function in functions})
        self._workers[slot].orders.extend(orders)

    def withdraw(self, slot: int) -> list[int]:
        self._step()
        worker = self._workers[slot]
        tickets = [order[0] for order in worker.orders]
        worker.orders.clear()
        if tickets:
            self._acknowledge(slot, worker)
        return tickets

    def _acknowledge(self, slot: int, worker: Worker) -> None:
        if worker.current is None:
            self._ready.append(Voided(slot))
        else:
            worker.owes += 1

    def retract(self, slot: int, ticket: int) -> bool:
        self._step()
        worker = self._workers[slot]
        kept = [order for order in worker.orders if order[0] != ticket]
        if len(kept) == len(worker.orders):
            return False
        worker.orders = deque(kept)
        self._acknowledge(slot, worker)
        return True

    def ask_stop(self, slot: int, ticket: int) -> None: ...

    def retire(self, slot: int) -> None:
        self._die(slot, retired=True)

    def kill(self, slot: int) -> None:
        self._die(slot)

    def close(self, deadline: float) -> None:
        self._workers.clear()

    def wake(self) -> None: ...

    def pids(self) -> dict[int, int]:
        return {slot: worker.pid for slot, worker in self._workers.items()}

    def dump_stack(self, slot: int) -> str:
        return ""

    def poll(self, timeout: float | None, linger: float = 0.0) -> list[Event]:
        self._step()
        if not self._ready and timeout != 0:
            moments = [moment for worker in self._workers.values() for moment in self._moments(worker)]
            if self._deaths:
                moments.append(self._deaths[0][0])
            if timeout is not None:
                moments.append(self._clock.monotonic_ns() + int(timeout * 1e9) + 1)
            assert moments, "the loop would sleep for ever"
            self._clock.advance(max(0, min(moments) - self._clock.monotonic_ns()) / 1_000_000_000)
            self._step()
        events, self._ready = self._ready, []
        return events

    def _moments(self, worker: Worker) -> list[int]:
        if not worker.up:
            return [worker.up_at]
        if worker.current is not None:
            return [worker.started + self._duration(worker.current)]
        return [worker.orders[0][2]] if worker.orders else []

    def _duration(self, order: tuple[Any, ...]) -> int:
        return self._duration_of(order[8], order[4])

    def _step(self) -> None:
        """Everything that has happened by now."""
        now = self._clock.monotonic_ns()
        for slot, worker in list(self._workers.items()):
            self._work(slot, worker, now)
        while self._deaths and self._deaths[0][0] <= now:
            _, slot = heapq.heappop(self._deaths)
            if slot in self._workers:
                self._die(slot)

    def _work(self, slot: int, worker: Worker, now: int) -> None:
        if not worker.up:
            if worker.up_at > now:
                return
            if worker.fails:
                self._die(slot)
                return
            worker.up = True
            self._ready.append(Up(slot, worker.pid))
        free_since = worker.up_at
        while True:
            if worker.current is not None:
                end = worker.started + self._duration(worker.current)
                if end > now:
                    return
                order = worker.current
                success = not self._fails(order[8], order[4])
                self._ready.append(Ended(slot, order[0], success, worker.started, end, 0, 0, 0, None, False))
                worker.current, free_since = None, end
                self._ready += [Voided(slot)] * worker.owes
                worker.owes = 0
            if not worker.orders or worker.orders[0][2] > now:
                return
            order = worker.orders.popleft()
            worker.current, worker.started = order, max(free_since, order[2]) if order[2] else now
            self.executed.append((order[8], order[4], order[5]))
            if order[3] & REPORT_START:
                self._ready.append(Started(slot, order[0], worker.started))

    def _die(self, slot: int, *, retired: bool = False) -> None:
        worker = self._workers.pop(slot)
        self.deaths += not retired
        self.failed_boots += not worker.up
        self.lost += worker.current is not None
        unclaimed = [order[0] for order in worker.orders]
        error = "" if worker.up else "killed while it started"
        self._ready.append(
            Died(slot, worker.pid, worker.up, retired, None, "SIGKILL", unclaimed, "", [], 0, False, error)
        )
