"""For tests of programs that schedule, without sleeping: a clock that you move, a pool without processes. Anywhere.

::

    def test_runs_when_the_clock_advances():
        scheduler, ran = ManualScheduler(), []
        scheduler.schedule(ran.append, After("5s"), args=(1,))
        assert scheduler.tick() == []
        scheduler.clock.advance("5s")
        assert [r.outcome for r in scheduler.tick()] == [Outcome.SUCCEEDED] and ran == [1]
"""

from __future__ import annotations

import pickle
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from procsched import context
from procsched.clock import Clock
from procsched.core.durations import duration_ns
from procsched.core.model import Outcome
from procsched.errors import NotShippable, RemoteError
from procsched.events import RunEnded
from procsched.jobs import Job
from procsched.pool.api import Died, Ended, Started, Up, Voided
from procsched.scheduler import ProcessScheduler
from procsched.shipping.callables import refuse_what_never_runs, short_name
from procsched.shipping.payload import Payload, ship
from procsched.wire import WANT_VALUE, Failure, Function

if TYPE_CHECKING:
    from procsched.core.durations import Duration
    from procsched.pool.api import Event, PoolSettings
    from procsched.records import RunRecord

__all__ = ["FakeClock", "InlinePool", "ManualScheduler"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MOST_RUNS = 100_000


class FakeClock:
    """A clock that stands still until it is told to move.

    Args:
        start: What the wall clock shows at first, an aware datetime. Default: 2024-01-01 00:00 UTC.
    """

    def __init__(self, start: datetime | None = None) -> None:
        moment = start if start is not None else datetime(2024, 1, 1, tzinfo=UTC)
        if moment.tzinfo is None or moment.utcoffset() is None:
            raise ValueError(f"start must be an aware datetime, such as one with tzinfo=timezone.utc, not {moment!r}")
        self._wall = (moment - _EPOCH) // _MICROSECOND * 1000
        self._mono = 1_000_000_000_000
        self._watchers: list[Callable[[], object]] = []

    def monotonic_ns(self) -> int:
        return self._mono

    def wall_ns(self) -> int:
        return self._wall

    def advance(self, duration: Duration) -> None:
        """Time passes, on both clocks."""
        step = duration_ns(duration, "advance()", zero=True)
        self._mono += step
        self._wall += step
        self._moved()

    def step_wall(self, duration: Duration) -> None:
        """Somebody sets the wall clock, forward or back (or the machine was suspended); the monotonic one stays."""
        self._wall += duration_ns(duration, "step_wall()", zero=True, negative=True)
        self._moved()

    def watch(self, callback: Callable[[], object]) -> None:
        """Call this whenever the clock is moved."""
        self._watchers.append(callback)

    def _moved(self) -> None:
        for callback in self._watchers:
            callback()


class _LiveCall:
    """A call that isn't pickled at all."""

    __slots__ = ("args", "fn", "kwargs")

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.fn = fn
        self.args = args
        self.kwargs = kwargs

    def __call__(self) -> Any:
        return self.fn(*self.args, **self.kwargs)


class _PickledCall:
    """A call that goes through pickle, as on its way to a worker."""

    __slots__ = ("payload",)

    def __init__(self, payload: Payload) -> None:
        self.payload = payload

    def __call__(self) -> Any:
        from procsched.wire import decode, loads

        fn = decode(self.payload.function.body, loads)
        args, kwargs = decode(self.payload.args, loads) if self.payload.args else ((), {})
        return fn(*args, **kwargs)


class _Value:
    """A result that stays where it is."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Failed:
    """What a run raised, as it was raised, beside the plain text that a worker would have reported."""

    __slots__ = ("error", "failure")

    def __init__(self, error: BaseException) -> None:
        text = "".join(traceback.format_exception(error))
        self.error = error
        self.failure = Failure(type(error).__name__, str(error), text, None)
        if error.__cause__ is None:
            error.__cause__ = RemoteError(type(error).__name__, str(error), text)


class InlinePool:
    """A pool without processes: runs are made by the thread that polls, one after the other.

    Args:
        strict: Send function, arguments and values through pickle and back, as real workers would. By default the
            function itself is called, so that a test can look at its effects.
    """

    def __init__(self, strict: bool = False) -> None:
        self._strict = strict
        self._clock: Clock | None = None
        self._orders: dict[int, deque[tuple[Any, ...]]] = {}
        self._jobs: dict[int, Function] = {}
        self._events: list[Event] = []
        self._stop: set[int] = set()
        self._woken = threading.Event()
        self._closed = False

    # -- callers' threads

    def ship(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Payload:
        if self._strict:
            payload = ship(fn, args, kwargs)
            call: Any = _PickledCall(payload)
            return Payload(payload.function, call)
        refuse_what_never_runs(fn)
        for argument in (*args, *kwargs.values()):
            if isinstance(argument, (ProcessScheduler, Job)):
                kind = type(argument).__name__
                raise NotShippable(f"a {kind} can't be an argument: a worker could only pretend to use it")
        live: Any = _LiveCall(fn, args, kwargs)
        return Payload(Function(b"", False, short_name(fn)), live)

    def decode(self, outcome: Outcome, body: object) -> object:
        value = body.value if isinstance(body, _Value) else None
        if outcome is Outcome.FAILED and isinstance(body, _Failed):
            return body.error
        return value

    # -- the loop's thread

    def use_clock(self, clock: Clock) -> None:
        """Take the times of runs from this clock: the scheduler's own."""
        self._clock = clock

    def open(self, settings: PoolSettings, chatter: Callable[[Any], None]) -> None:
        if settings.initializer is not None:
            fn, args = pickle.loads(settings.initializer)
            fn(*args)

    def spawn(self, slot: int) -> None:
        self._orders[slot] = deque()
        self._events.append(Up(slot, 0))

    def offer(self, slot: int, orders: list[Any], functions: list[Function]) -> None:
        for function in functions:
            self._jobs[function.key] = function
        self._orders[slot].extend(orders)

    def withdraw(self, slot: int) -> list[int]:
        tickets = [order[0] for order in self._orders[slot]]
        self._orders[slot].clear()
        if tickets:
            self._events.append(Voided(slot))
        return tickets

    def retract(self, slot: int, ticket: int) -> bool:
        orders = self._orders[slot]
        for order in orders:
            if order[0] == ticket:
                orders.remove(order)
                self._events.append(Voided(slot))
                return True
        return False

    def ask_stop(self, slot: int, ticket: int) -> None:
        self._stop.add(ticket)

    def retire(self, slot: int) -> None:
        self._bury(slot, retired=True)

    def kill(self, slot: int) -> None:
        self._bury(slot, retired=False)

    def poll(self, timeout: float | None, linger: float = 0.0) -> list[Event]:
        if not self._events and not self._run_next() and timeout != 0:
            self._woken.wait(timeout)
        self._woken.clear()
        events, self._events = self._events, []
        return events

    def close(self, deadline: float) -> None:
        self._closed = True

    # -- any thread

    def wake(self) -> None:
        self._woken.set()

    def pids(self) -> dict[int, int]:
        return {}

    def dump_stack(self, slot: int) -> str:
        return ""

    # -- inside

    def _should_stop(self, ticket: int) -> bool:
        return ticket in self._stop or -1 in self._stop

    def _bury(self, slot: int, *, retired: bool) -> None:
        unclaimed = [order[0] for order in self._orders.pop(slot, ())]
        how = None if retired else "SIGKILL"
        self._events.append(Died(slot, 0, True, retired, None, how, unclaimed, "", [], 0, False, ""))

    def _now(self) -> int:
        if self._clock is None:
            import time

            return time.monotonic_ns()
        return self._clock.monotonic_ns()

    def _run_next(self) -> bool:
        """Makes the first run that is due; False if there is none."""
        for slot, orders in list(self._orders.items()):
            if orders and orders[0][2] <= self._now():
                self._execute(slot, orders.popleft())
                return True
        return False

    def _execute(self, slot: int, order: tuple[Any, ...]) -> None:
        ticket, key, _due, flags, number, attempt, planned, timeout, job, call = order
        function = self._jobs[key]
        started = self._now()
        self._events.append(Started(slot, ticket, started))
        job_id = job or f"{function.name}-{number}"
        outer = context.peek()
        context.enter(context.CurrentRun(job_id, number, attempt, planned, timeout, 0, self._should_stop, None, ticket))
        body: Any = None
        try:
            value = call()
            if self._strict:
                value = pickle.loads(pickle.dumps(value))
            success = True
            body = _Value(value) if flags & WANT_VALUE else None
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            success = False
            body = _Failed(error)
        finally:
            context.enter(outer)
        self._stop.discard(ticket)
        self._events.append(Ended(slot, ticket, success, started, self._now(), 0, 0, 0, body, False))


class ManualScheduler(ProcessScheduler):
    """A scheduler that moves only when `tick` is called: no thread, no process, no waiting.

    Args:
        clock: Default: a new `FakeClock`, as ``scheduler.clock``.
        pool: Default: a new `InlinePool`.
        **arguments: As for `ProcessScheduler`.
    """

    _threaded = False

    def __init__(self, clock: FakeClock | None = None, pool: Any = None, **arguments: Any) -> None:
        self.clock = clock if clock is not None else FakeClock()
        self.pool = pool if pool is not None else InlinePool()
        super().__init__(clock=self.clock, pool=self.pool, **arguments)
        records: list[RunRecord] = []
        self._records = records  # not a method: the engine would keep this alive
        self._engine.announcer.subscribe(lambda event: records.append(event.record), [RunEnded])

    def tick(self) -> list[RunRecord]:
        """Run all that is due, and what becomes due meanwhile; the records of the runs that ended, in order.

        Futures are done and subscribers have been told when this returns.

        Raises:
            RuntimeError: After 100,000 runs: something is due again and again without any time passing.
        """
        engine = self._engine
        if engine.inert is None and not engine.stopping.ended.is_set():
            engine.start()
            self._turn_until_quiet()
        records = self._records[:]
        self._records.clear()
        return records

    def _turn_until_quiet(self) -> None:
        engine = self._engine
        quiet = 0
        while quiet < 2:
            before = self._progress()
            engine.dispatcher.turn(0)
            engine.delivery.flush()
            engine.announcer.flush()
            if len(self._records) > _MOST_RUNS:
                raise RuntimeError(
                    f"tick() made {_MOST_RUNS} runs and something is still due: a job of no period, "
                    f"or a run that makes itself due again without advancing the clock?"
                )
            quiet = quiet + 1 if self._progress() == before and not engine.mailbox else 0

    def _progress(self) -> tuple[int, ...]:
        """Changes whenever a turn has brought something about."""
        engine = self._engine
        slots = engine.roster.slots
        return (
            engine.ledger.started,
            sum(engine.ledger.counts.values()),
            engine.offering.offers,
            sum(slot.owes for slot in slots),
            sum(slot.state.value != "down" for slot in slots),
            engine.timetable.queues.ready,
        )

    def wait(self, timeout: float | None = None) -> bool:
        """As `tick`; then whether nothing is left to run."""
        self.tick()
        return self._engine.is_idle()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False, timeout: float | None = None) -> None:
        engine = self._engine
        engine.shutdown(wait=False, cancel_calls=cancel_futures, timeout=timeout)
        if engine.stopping.ended.is_set() or engine.inert is not None:
            return
        while not engine.stopping.finished():
            self._turn_until_quiet()
            if engine.stopping.finished() or not engine.roster.holding():
                break
        engine.wind_up()
