"""The Executor half, with real workers: what `concurrent.futures` promises, and more where that is weak."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, as_completed, wait
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from procsched import ProcessScheduler, RemoteError, SchedulerFull

Stage = Any
Make = Callable[..., ProcessScheduler]


def add(a: int, b: int = 0, **more: Any) -> Any:
    return a + b + sum(more.values())


def echo(**kwargs: Any) -> Any:
    return kwargs


def raise_custom() -> None:
    raise Custom(1, 2)


def fail(kind: str) -> Any:
    if kind == "custom":
        raise Custom(1, 2)
    if kind == "keyword":
        raise KeywordOnly(code=5)
    if kind == "exit":
        raise SystemExit(kind)
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "cause":
        try:
            {}["missing"]
        except KeyError as error:
            raise ValueError("outer") from error
    raise ValueError(kind)


class Custom(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class KeywordOnly(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(code)


class NotLoadable:
    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    import multiprocessing

    if multiprocessing.current_process().name == "MainProcess":
        raise RuntimeError("not here")


def test_a_call_with_arguments(two: ProcessScheduler) -> None:
    """Positional and named ones, in another process."""
    assert two.submit(add, 1, b=2, c=3).result(30) == 6
    assert two.submit(os.getpid).result(30) != os.getpid()


def test_any_keyword_may_be_used(two: ProcessScheduler) -> None:
    """`fn`, `self` and our own argument names belong to the user."""
    given = {"fn": 1, "self": 2, "args": 3, "id": 4, "when": 5, "delay": 6, "timeout": 7}
    assert two.submit(echo, **given).result(30) == given
    assert two.submit_after(0, echo, **given).result(30) == given
    assert two.submit_at(datetime.now(UTC), echo, **given).result(30) == given
    with pytest.raises(TypeError):
        two.submit()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        two.submit(fn=add)  # type: ignore[call-arg]


@pytest.mark.case("B34")
def test_functions_of_every_kind(two: ProcessScheduler) -> None:
    """Lambda, closure, partial, bound method, builtin, class, callable instance."""
    from functools import partial

    offset = 5

    class Adder:
        def __init__(self, n: int) -> None:
            self.n = n

        def add(self, m: int) -> int:
            return self.n + m

        def __call__(self, m: int) -> int:
            return self.n * m

    calls: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = [
        (lambda x: x + offset, (1,), 6),
        (partial(add, 1), (2,), 3),
        (Adder(3).add, (4,), 7),
        (Adder(3), (4,), 12),
        (len, ("abc",), 3),
        (str.upper, ("a",), "A"),
        (complex, (1, 2), 1 + 2j),
    ]
    futures = [two.submit(fn, *args) for fn, args, _ in calls]
    assert [future.result(30) for future in futures] == [expected for _, _, expected in calls]


def test_map_gives_values_in_order(two: ProcessScheduler) -> None:
    """Over several iterables, as long as the shortest; all calls are made at once."""
    assert list(two.map(add, range(50), range(100))) == [2 * n for n in range(50)]
    assert list(two.map(add, [])) == []


@pytest.mark.parametrize("chunksize", [2, 7, 1000])
def test_map_in_chunks(two: ProcessScheduler, chunksize: int) -> None:
    """The same values, with fewer runs."""
    assert list(two.map(add, range(20), range(20), chunksize=chunksize)) == [2 * n for n in range(20)]
    assert two.stats().started == -(-20 // chunksize)


def test_map_checks_its_chunksize(two: ProcessScheduler) -> None:
    """Below 1: ValueError at the call."""
    for chunksize in (0, -1):
        with pytest.raises(ValueError, match="chunksize"):
            two.map(add, [1], chunksize=chunksize)


@pytest.mark.parametrize("chunksize", [1, 2])
def test_maps_timeout_counts_from_the_call(one: ProcessScheduler, stage: Stage, chunksize: int) -> None:
    """When it has passed, asking for the next value raises TimeoutError."""
    one.submit(int).result(30)
    started = time.monotonic()
    values = one.map(stage.hold, [stage.at[0]], [stage.at[1]], timeout=0.2, chunksize=chunksize)
    with pytest.raises(TimeoutError):
        next(values)
    assert time.monotonic() - started < 5
    stage.entered()
    stage.open(2)


@pytest.mark.parametrize("chunksize", [1, 3])
def test_map_raises_where_a_call_raised(two: ProcessScheduler, chunksize: int) -> None:
    """Values before it come first."""
    values = two.map(int, ["1", "2", "x", "4"], chunksize=chunksize)
    if chunksize == 1:
        assert [next(values), next(values)] == [1, 2]
    with pytest.raises(ValueError, match="invalid literal"):
        list(values)


def test_wait_and_as_completed(two: ProcessScheduler, stage: Stage) -> None:
    """The functions of `concurrent.futures` take these Futures."""
    held = two.submit(stage.hold, *stage.at, "held")
    quick = two.submit(add, 1)
    done, pending = wait([held, quick], 30, FIRST_COMPLETED)
    assert (done, pending) == ({quick}, {held})
    stage.entered()
    stage.open()
    assert {future.result() for future in as_completed([held, quick], 30)} == {"held", 1}
    assert isinstance(held, Future)


def test_asyncio(two: ProcessScheduler) -> None:
    """`run_in_executor`, `wrap_future`, and cancelling there."""

    async def main() -> Any:
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(two, add, 1, 2)
        later = asyncio.wrap_future(two.submit_after("1h", add, 1))
        later.cancel()
        with pytest.raises(asyncio.CancelledError):
            await later
        return value, await asyncio.gather(*(loop.run_in_executor(two, add, n) for n in range(20)))

    assert asyncio.run(main()) == (3, list(range(20)))
    assert two.wait(30)


def test_running_and_done(one: ProcessScheduler, stage: Stage, eventually: Any) -> None:
    """A Future is pending, running, done, as its run is."""
    held = one.submit(stage.hold, *stage.at)
    waiting = one.submit(add, 1)
    stage.entered()
    eventually(held.running)
    assert not waiting.running() and not held.cancel()
    stage.open()
    assert waiting.result(30) == 1 and held.done() and not held.running()


def test_cancel_until_it_has_started(one: ProcessScheduler, stage: Stage) -> None:
    """True for what waits, and told at once; False for what executes."""
    held = one.submit(stage.hold, *stage.at, 5)
    stage.entered()
    waiting = [one.submit(stage.hold, *stage.at) for _ in range(50)]
    delayed = one.submit_after("1h", add, 1)
    for future in (*waiting, delayed):
        assert future.cancel() and future.cancelled() and wait([future], 0).done == {future}
        with pytest.raises(CancelledError):
            future.result(0)
    assert not held.cancel() and not held.cancelled()
    stage.open(100)
    assert held.result(30) == 5 and one.wait(30) and stage.nobody()
    stats = one.stats()
    assert (stats.started, stats.ended, stats.succeeded, stats.cancelled, stats.executing) == (1, 1, 1, 51, 0)


def test_cancel_in_a_workers_queue(one: ProcessScheduler, stage: Stage) -> None:
    """Short runs are handed over in batches; one of them is still cancelled, and the others aren't touched."""
    [one.submit(add, n).result(30) for n in range(20)]
    held = one.submit(stage.hold, *stage.at)
    stage.entered()
    futures = [one.submit(add, n) for n in range(40)]
    stage.open()
    held.result(30)
    cancelled = [future for future in futures[::2] if future.cancel()]
    kept = [future for future in futures if future not in cancelled]
    assert wait(futures, 30).not_done == set()
    assert [future.result(0) for future in kept] == [n for n, future in enumerate(futures) if future in kept]
    assert all(future.cancelled() for future in cancelled)


def test_exceptions_keep_their_type(two: ProcessScheduler) -> None:
    """And carry the worker's traceback as their cause, with the causes there."""
    error = two.submit(fail, "cause").exception(30)
    assert type(error) is ValueError and error.args == ("outer",)
    assert isinstance(error.__cause__, RemoteError)
    text = str(error.__cause__)
    assert "KeyError: 'missing'" in text and "in fail" in text and "direct cause" in text


@pytest.mark.parametrize("kind", ["custom", "keyword"])
@pytest.mark.case("B17")
def test_exceptions_that_cant_travel(two: ProcessScheduler, kind: str) -> None:
    """A constructor that doesn't match its args: RemoteError with type name, message and traceback; others go on."""
    error = two.submit(fail, kind).exception(30)
    assert isinstance(error, RemoteError)
    assert error.type_name.rpartition(".")[2] in ("Custom", "KeywordOnly") and error.message in ("1 and 2", "5")
    assert "in fail" in error.traceback and two.submit(add, 1).result(30) == 1


@pytest.mark.parametrize(("kind", "type_"), [("exit", SystemExit), ("interrupt", KeyboardInterrupt)])
def test_other_ends_fail_the_run(one: ProcessScheduler, kind: str, type_: type[BaseException]) -> None:
    """`sys.exit` and KeyboardInterrupt fail the run; the worker lives on."""
    pid = one.submit(os.getpid).result(30)
    error = one.submit(fail, kind).exception(30)
    assert type(error) is type_ and one.submit(os.getpid).result(30) == pid
    assert one.stats().failed == 1


@pytest.mark.case("B19")
def test_values_that_cant_be_sent(one: ProcessScheduler) -> None:
    """A lock, a generator, something nested 50,000 deep: the run fails, naming the type; the worker lives on."""

    def lock() -> Any:
        import threading

        return {"a": [threading.Lock()]}

    def deep() -> Any:
        value: Any = []
        for _ in range(50_000):
            value = [value]
        return value

    pid = one.submit(os.getpid).result(30)
    assert "lock" in str(one.submit(lock).exception(30))
    assert "Recursion" in str(one.submit(deep).exception(30)) + repr(one.submit(deep).exception(30))
    assert one.submit(os.getpid).result(30) == pid


def test_values_that_cant_be_read_here(one: ProcessScheduler) -> None:
    """They pickle there and don't unpickle here: RemoteError, and the scheduler goes on."""
    error = one.submit(NotLoadable).exception(30)
    assert isinstance(error, RemoteError) and one.submit(add, 1).result(30) == 1


def test_large_values_and_arguments(two: ProcessScheduler) -> None:
    """Far beyond a pipe."""
    data = os.urandom(20 << 20)
    assert two.submit(bytes.__add__, data, b"x").result(60) == data + b"x"
    assert len(two.submit(bytes, 30 << 20).result(60)) == 30 << 20


def test_arguments_are_a_snapshot(one: ProcessScheduler, stage: Stage) -> None:
    """What happens to them after the call changes nothing."""
    one.submit(stage.hold, *stage.at)
    items = [1, 2]
    future = one.submit(sum, items)
    items.append(100)
    stage.open()
    assert future.result(30) == 3


def test_submit_after_and_at(two: ProcessScheduler) -> None:
    """They give Futures, run when it is time and not before; a past instant is now."""
    two.submit(int).result(30)
    started = time.monotonic()
    after = two.submit_after("200ms", time.monotonic)
    at = two.submit_at(datetime.now(UTC) + timedelta(seconds=0.2), time.monotonic)
    past = two.submit_at(datetime(2001, 1, 1, tzinfo=UTC), time.monotonic)
    assert past.result(30) - started < 0.2
    assert 0.2 <= after.result(30) - started < 2 and 0.19 <= at.result(30) - started < 2


def test_callbacks_come_once(two: ProcessScheduler) -> None:
    """Also for cancelled ones; one that raises changes nothing."""
    seen: list[Any] = []
    future, cancelled = two.submit(add, 1), two.submit_after("1h", add, 1)
    for each in (future, cancelled):
        each.add_done_callback(lambda _: 1 / 0)
        each.add_done_callback(seen.append)
    cancelled.cancel()
    future.result(30)
    assert two.submit(add, 2).result(30) == 2  # served behind them
    assert sorted(map(id, seen)) == sorted(map(id, [future, cancelled]))


def test_a_callback_may_submit(two: ProcessScheduler) -> None:
    """And get its value."""
    chain: Future[int] = Future()
    two.submit(add, 1).add_done_callback(
        lambda done: two.submit(add, done.result(), 1).add_done_callback(lambda last: chain.set_result(last.result()))
    )
    assert chain.result(30) == 2


def test_a_callback_that_blocks_delays_no_run(two: ProcessScheduler, stage: Stage) -> None:
    """Runs go on while a callback waits; only Futures wait behind it."""
    import threading

    release = threading.Event()
    two.submit(add, 1).add_done_callback(lambda _: release.wait(30))
    future = two.submit(stage.hold, *stage.at, 7)
    stage.entered()
    stage.open()
    release.set()
    assert future.result(30) == 7


def test_max_pending_blocks(make: Make, stage: Stage) -> None:
    """`submit` waits for a place; recurring jobs and run_now don't count."""
    import threading

    from procsched import FixedRate

    scheduler = make(workers=1, max_pending=2)
    held = [scheduler.submit(stage.hold, *stage.at) for _ in range(2)]
    for _ in range(5):
        scheduler.schedule(int, FixedRate("1h"))
    submitted: list[Future[Any]] = []
    thread = threading.Thread(target=lambda: submitted.append(scheduler.submit(add, 1)))
    thread.start()
    stage.entered()
    assert not submitted
    stage.open()
    held[0].result(30)
    thread.join(30)
    stage.open()
    assert submitted[0].result(30) == 1


def test_max_pending_raises(make: Make, stage: Stage) -> None:
    """With `on_full="raise"`: SchedulerFull, a `queue.Full`; cancelling makes room."""
    import queue

    scheduler = make(workers=1, max_pending=2, on_full="raise")
    scheduler.submit(stage.hold, *stage.at)
    waiting = scheduler.submit_after("1h", add, 1)
    for call in (scheduler.submit, lambda fn: scheduler.submit_after(1, fn)):
        with pytest.raises(queue.Full) as caught:
            call(int)
        assert isinstance(caught.value, SchedulerFull)
    waiting.cancel()
    deadline = time.monotonic() + 10
    while True:
        try:
            future = scheduler.submit(add, 2)
            break
        except SchedulerFull:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    stage.open()
    assert future.result(30) == 2


def test_who_waits_for_room_is_released_by_shutdown(make: Make, stage: Stage) -> None:
    """With `SchedulerClosed`."""
    import threading

    from procsched import SchedulerClosed

    scheduler = make(workers=1, max_pending=1)
    scheduler.submit(stage.hold, *stage.at)
    stage.entered()
    caught: list[BaseException] = []

    def submit() -> None:
        try:
            scheduler.submit(add, 1)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=submit)
    thread.start()
    scheduler.shutdown(wait=False)
    thread.join(30)
    stage.open()
    assert isinstance(caught[0], SchedulerClosed)


def test_signals_to_workers_are_the_parents_matter(one: ProcessScheduler, stage: Stage) -> None:
    """SIGINT and SIGTERM don't end a worker."""
    held = one.submit(stage.hold, *stage.at, 5)
    stage.entered()
    pid = one.workers()[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGTERM)
    stage.open()
    assert held.result(30) == 5 and one.workers()[0].pid == pid
