"""Futures that make their lock only for whoever waits: stock `concurrent.futures.Future` to everybody all the same."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, CancelledError, Future, as_completed, wait
from typing import Any

import pytest

from procsched import ProcessScheduler
from procsched.core.model import Run
from procsched.futures import Follower, RunFuture, SlimFuture, cancel_and_notify, finish, finish_all


class NobodyPrevents:
    def prevent(self, run: Run) -> bool:
        return False


def fresh() -> SlimFuture:
    return SlimFuture()


def test_it_is_one() -> None:
    """Before anybody waits it has no lock; a stock one has all its attributes."""
    future = fresh()
    assert isinstance(future, Future) and not vars(future)
    assert set(vars(Future())) <= set(dir(future))
    assert not future.done() and not future.running() and not future.cancelled()
    assert not vars(future).keys() - {"_lock"}


def test_done_at_once_without_a_lock() -> None:
    one, two = fresh(), fresh()
    assert finish_all([(one, 1), (two, None)]) == []
    assert (one.result(), two.result(0), one.done(), one.exception(), one._lock is None) == (1, None, True, None, False)
    assert not one.cancel() and not finish(one, 2) and one.result() == 1
    called: list[Any] = []
    one.add_done_callback(called.append)
    assert called == [one]


def test_one_that_is_looked_at_is_left_to_finish() -> None:
    future, called = fresh(), []
    future.add_done_callback(called.append)
    assert finish_all([(future, 7)]) == [(future, 7)] and not future.done() and called == []
    assert finish(future, 7) and called == [future] and future.result() == 7


def test_the_states_of_a_stock_one() -> None:
    future = fresh()
    assert future.set_running_or_notify_cancel() and future.running() and not future.cancel()
    future.set_exception(ValueError("x"))
    with pytest.raises(ValueError, match="x"):
        future.result()
    assert isinstance(future.exception(), ValueError)
    with pytest.raises(Exception, match=r"(?i)finished"):
        future.set_result(1)
    other = fresh()
    assert other.cancel() and other.cancelled() and other.done()
    with pytest.raises(CancelledError):
        other.result()
    third = fresh()
    with pytest.raises(TimeoutError):
        third.result(0)
    assert cancel_and_notify(third) and not cancel_and_notify(third)


@pytest.mark.parametrize("future", [SlimFuture(), Follower(), RunFuture(NobodyPrevents(), Run(None, None, 2, 0, 0))])
def test_it_does_not_travel(future: Future[Any]) -> None:
    """As a stock one: a copy would wait for ever."""
    for deed in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="Future"):
            deed(future)


@pytest.mark.parametrize("how", ["ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION"])
def test_wait_while_they_are_finished(how: str) -> None:
    """Some before, some during, some by one at a time and some all at once."""
    for _ in range(50):
        futures = [fresh() for _ in range(60)]
        finish_all([(future, 0) for future in futures[:10]])
        entered = threading.Event()

        def end(futures: list[SlimFuture] = futures, entered: threading.Event = entered) -> None:
            entered.wait()
            for start in range(10, 60, 10):
                for future, value in finish_all([(future, start) for future in futures[start : start + 10]]):
                    finish(future, value)

        thread = threading.Thread(target=end)
        thread.start()
        entered.set()
        done, pending = wait(futures, 30, return_when=how)
        thread.join()
        assert all(future.done() for future in done)
        if how == "ALL_COMPLETED":
            assert not pending and len(done) == 60
        assert done


def test_first_exception() -> None:
    good, bad, late = fresh(), fresh(), fresh()
    timer = threading.Timer(0.01, finish, (bad, None, ValueError()))
    timer.start()
    done, pending = wait([good, bad, late], 30, return_when=FIRST_EXCEPTION)
    assert bad in done and {good, late} == pending
    assert wait([good, bad], 30, return_when=FIRST_COMPLETED).done == {bad}
    timer.join()


def test_as_completed_while_they_are_finished() -> None:
    for _ in range(50):
        futures = [fresh() for _ in range(40)]
        thread = threading.Thread(target=lambda futures=futures: [finish(f, n) for n, f in enumerate(futures)])
        thread.start()
        assert sorted(future.result() for future in as_completed(futures, 30)) == list(range(40))
        thread.join()


def test_a_callback_is_called_once_whoever_comes_first() -> None:
    """The end of a Future without a lock, and somebody who makes one at that moment."""
    for _ in range(300):
        futures = [fresh() for _ in range(20)]
        called: list[Any] = []
        start = threading.Barrier(2)

        def look(
            futures: list[SlimFuture] = futures, called: list[Any] = called, start: threading.Barrier = start
        ) -> None:
            start.wait()
            for future in futures:
                future.add_done_callback(called.append)

        thread = threading.Thread(target=look)
        thread.start()
        start.wait()
        for future, value in finish_all([(future, 1) for future in futures]):
            finish(future, value)
        thread.join()
        assert len(called) == 20 == len(set(map(id, called)))


def test_asyncio_waits_for_one() -> None:
    async def main() -> list[Any]:
        futures = [fresh() for _ in range(10)]
        waiting = [asyncio.wrap_future(future) for future in futures]
        threading.Thread(target=lambda: [finish(future, n) for n, future in enumerate(futures)]).start()
        return list(await asyncio.gather(*waiting))

    assert asyncio.run(main()) == list(range(10))


def test_results_in_every_way(one: ProcessScheduler) -> None:
    """Calls of a real scheduler, with values and without, waited for in all the ways there are."""
    futures = [one.submit(abs, -n) for n in range(200)] + [one.submit(print, end="") for _ in range(50)]
    assert wait(futures, 60).not_done == set()
    assert [future.result() for future in futures[:200]] == list(range(200))
    assert sum(future.result() for future in as_completed([one.submit(abs, -1) for _ in range(200)], 60)) == 200

    async def main() -> int:
        loop = asyncio.get_running_loop()
        return sum(await asyncio.gather(*(loop.run_in_executor(one, abs, -1) for _ in range(100))))

    assert asyncio.run(main()) == 100
