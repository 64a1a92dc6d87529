"""Offers can be taken back until they are claimed; nothing is run twice, lost, or run after it was taken back."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import time
from typing import Any

import cloudpickle
import pytest

from procsched.pool.api import Died, Ended, Started, Voided
from procsched.pool.channel import FUNCTIONS_KEPT
from procsched.spool import Spooled
from procsched.wire import WANT_VALUE, Function, encode


def hold(path: str) -> None:
    with open(path, "rb", buffering=0) as latch:
        latch.read(1)


def test_a_batch_is_reported_singly_and_in_order(driver: Any) -> None:
    """64 orders in one message, 64 reports."""
    function = driver.open().expression("lambda: 7")
    orders = driver.orders(function, 64)
    driver.pool.offer(0, orders, [function])
    ended = [driver.until(Ended) for _ in range(64)]
    assert [event.ticket for event in ended] == [order[0] for order in orders]
    assert {driver.pool.decode(None, event.body) for event in ended} == {7}
    assert all(first.finished <= second.started for first, second in itertools.pairwise(ended))


def test_a_value_nobody_wants_stays_there(driver: Any) -> None:
    """Without WANT_VALUE it is dropped, pickled or not."""
    ended = driver.open().until(Ended, ticket=driver.start(lambda: object, flags=2))
    assert ended.success
    assert ended.body is None
    assert ended.size == 0


def test_times_and_sizes(driver: Any) -> None:
    """On the parent's monotonic clock, cpu time apart from waiting."""
    before = time.monotonic_ns()
    ended = driver.open().run(driver.expression("lambda: __import__('time').sleep(0.02) or b'x' * 1000"))
    assert before < ended.started < ended.finished < time.monotonic_ns()
    assert ended.finished - ended.started >= 20_000_000
    assert ended.cpu_time < 15_000_000
    assert 1000 < ended.size < 1100
    assert ended.max_rss > 5_000_000


def test_the_start_is_reported_when_asked_for(driver: Any, latch: Any) -> None:
    """While it runs, with the time of the later report."""
    ticket = driver.open().start(hold, latch.path)
    started = driver.until(Started, ticket=ticket)
    latch.open()
    assert driver.until(Ended, ticket=ticket).started == started.started


def test_withdraw_takes_what_is_not_claimed(driver: Any, latch: Any) -> None:
    """Those behind a long run; the worker acknowledges once it can."""
    first = driver.open().start(hold, latch.path)
    driver.until(Started)
    function = driver.expression("lambda: 1")
    orders = driver.orders(function, 5)
    driver.pool.offer(0, orders, [function])
    assert driver.pool.withdraw(0) == [order[0] for order in orders]
    assert driver.pool.withdraw(0) == []
    driver.nothing(Voided)
    latch.open()
    driver.until(Ended, ticket=first)
    driver.until(Voided)
    driver.nothing(Ended)
    assert driver.value(function) == 1


def test_the_new_runs_behind_a_withdrawal_are_run(driver: Any, latch: Any) -> None:
    """An anonymous count would run the withdrawn ones in their place."""
    driver.open().start(hold, latch.path)
    driver.until(Started)
    function = driver.expression("lambda: 1")
    driver.pool.offer(0, driver.orders(function, 7), [function])
    driver.pool.withdraw(0)
    new = driver.orders(function, 7)
    driver.pool.offer(0, new, [function])
    latch.open()
    driver.until(Ended)
    assert [driver.until(Ended).ticket for _ in new] == [order[0] for order in new]
    driver.until(Voided)
    driver.nothing(Ended)


def test_retract_takes_one_and_leaves_the_others_in_order(driver: Any, latch: Any) -> None:
    """And says whether it was in time."""
    first = driver.open().start(hold, latch.path)
    driver.until(Started)
    function = driver.expression("lambda: 1")
    orders = driver.orders(function, 4)
    driver.pool.offer(0, orders, [function])
    tickets = [order[0] for order in orders]
    assert driver.pool.retract(0, tickets[1])
    assert not driver.pool.retract(0, tickets[1])
    assert not driver.pool.retract(0, first)
    latch.open()
    assert [driver.until(Ended).ticket for _ in range(4)] == [first, tickets[0], tickets[2], tickets[3]]
    driver.until(Voided)
    driver.nothing(Ended)


def test_an_armed_order_starts_at_its_time(driver: Any) -> None:
    """Not before, and a message doesn't disturb it."""
    driver.open()
    due = time.monotonic_ns() + 30_000_000
    ticket = driver.start(driver.expression("lambda: 1"), due=due)
    driver.pool.ask_stop(0, 12345)
    ended = driver.until(Ended, ticket=ticket)
    assert due <= ended.started


def test_an_armed_order_can_be_taken_back(driver: Any) -> None:
    """The sleeping worker acknowledges at once."""
    driver.open()
    ticket = driver.start(driver.expression("lambda: 1"), due=time.monotonic_ns() + 10**12)
    assert driver.pool.withdraw(0) == [ticket]
    driver.until(Voided)
    assert driver.value(driver.expression("lambda: 2")) == 2


@pytest.mark.case("B06")
def test_a_stopped_worker_holds_nobody_up(driver: Any) -> None:
    """A megabyte for a pipe nobody reads: the offer returns, the rest follows when there is room."""
    driver.open()
    os.kill(driver.pids[0], signal.SIGSTOP)
    function = driver.expression("len")
    argument = b"x" * 15_000
    orders = driver.orders(function, 64, argument)
    began = time.monotonic()
    driver.pool.offer(0, orders, [function])
    assert time.monotonic() - began < 0.5
    os.kill(driver.pids[0], signal.SIGCONT)
    assert [driver.until(Ended).ticket for _ in orders] == [order[0] for order in orders]


def test_many_descriptors_for_a_stopped_worker(driver: Any) -> None:
    """The socket is full of them: the rest waits as well."""
    driver.open()
    os.kill(driver.pids[0], signal.SIGSTOP)
    function = driver.expression("len")
    parts = encode(((b"x" * 20_000,), {}), pickle.dumps)
    assert not isinstance(parts, bytes)
    args = Spooled.store(parts)
    total = 0
    for _ in range(8):
        orders = [(*order[:-1], args) for order in driver.orders(function, 64)]
        total += len(orders)
        driver.pool.offer(0, orders, [function])
    os.kill(driver.pids[0], signal.SIGCONT)
    values = {driver.pool.decode(None, driver.until(Ended).body) for _ in range(total)}
    assert values == {20_000}


def test_an_offer_to_a_dead_worker_is_no_error(driver: Any) -> None:
    """EPIPE is no event; the death says what was not claimed."""
    driver.open()
    os.kill(driver.pids[0], signal.SIGKILL)
    driver.gone(driver.pids[0])
    function = driver.expression("lambda: 1")
    orders = driver.orders(function, 10)
    for order in orders:
        driver.pool.offer(0, [order], [function])
    died = driver.until(Died)
    assert died.unclaimed == [order[0] for order in orders]
    assert not driver.pool.withdraw(0)
    assert not driver.pool.retract(0, 1)
    driver.pool.ask_stop(0, 1)
    driver.pool.kill(0)
    driver.pool.retire(0)


def test_functions_are_forgotten_on_both_sides(driver: Any) -> None:
    """More functions than a worker keeps, used again in every order."""
    driver.open()
    functions = [Function(driver.expression(f"lambda: {i}").body, True, "f") for i in range(FUNCTIONS_KEPT + 100)]
    for start in (*range(0, len(functions), 50), 0):
        chunk = functions[start : start + 50]
        orders = [driver.orders(function)[0] for function in chunk]
        driver.pool.offer(0, orders, chunk)
        values = [driver.pool.decode(None, driver.until(Ended).body) for _ in chunk]
        assert values == list(range(start, start + len(chunk)))
    assert driver.value(functions[0]) == 0


def test_a_large_function_travels_too(driver: Any) -> None:
    """By the spool, and once."""
    data = os.urandom(200_000)

    def closure() -> int:
        return len(data)

    parts = encode(closure, cloudpickle.dumps)
    assert not isinstance(parts, bytes)
    function = Function(Spooled.store(parts), False, "closure")
    driver.open()
    assert [driver.value(function) for _ in range(3)] == [200_000] * 3


def test_a_function_by_value_starts_afresh(driver: Any) -> None:
    """One run's changes don't reach the next."""
    kept: list[int] = []

    def grow() -> int:
        kept.append(1)
        return len(kept)

    driver.open()
    assert [driver.value(grow) for _ in range(2)] == [1, 1]


def test_should_stop(driver: Any, latch: Any) -> None:
    """Only the run that is asked, or everyone."""

    def until_asked() -> bool:
        import time

        from procsched.context import current_run

        until = time.monotonic() + 10
        while not current_run().should_stop():
            assert time.monotonic() < until
        return True

    driver.open()
    for ask in (lambda ticket: ticket, lambda ticket: -1):
        ticket = driver.start(until_asked)
        driver.pool.ask_stop(0, ticket + 1)
        driver.until(Started)
        driver.nothing(Ended)
        driver.pool.ask_stop(0, ask(ticket))
        assert driver.pool.decode(None, driver.until(Ended, ticket=ticket).body) is True


def test_wake_lets_poll_return(driver: Any) -> None:
    """Before the sleep or during it."""
    driver.open()
    began = time.monotonic()
    driver.pool.wake()
    driver.pool.poll(10)
    assert time.monotonic() - began < 5


def test_a_run_knows_itself(driver: Any) -> None:
    """Number, attempt, planned time, deadline."""

    def look() -> tuple[Any, ...]:
        from procsched.context import current_run, in_worker

        run = current_run()
        return run.job_id, run.number, run.attempt, run.planned.isoformat(), run.deadline is not None, in_worker()

    function = driver.open().named(look, job_id="nightly")
    order = (99, function.key, 0, WANT_VALUE, 5, 2, 1_700_000_000_000_000_000, 60 * 10**9, "nightly", b"")
    driver.pool.offer(0, [order], [function])
    seen = driver.pool.decode(None, driver.until(Ended).body)
    assert seen == ("nightly", 5, 2, "2023-11-14T22:13:20+00:00", True, True)
