"""Log handlers of the program that raise whatever they are given: nobody waits for ever, and the news go on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from procsched import FixedRate, InternalError, ProcessScheduler, RunEnded


class Raising(logging.Handler):
    """A mistake in somebody's logging."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ValueError("a handler's own mistake")


@pytest.fixture(autouse=True)
def raising() -> Iterator[None]:
    """It hears everything."""
    logger, handler = logging.getLogger("procsched"), Raising()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield
    logger.removeHandler(handler)
    logger.setLevel(level)


def fail() -> None:
    raise KeyError("for the log")


def test_results_and_news_are_brought() -> None:
    """Failures, callbacks that raise, and subscribers behind them."""
    ended: list[Any] = []
    with ProcessScheduler(1) as scheduler:
        scheduler.subscribe(ended.append, RunEnded)
        first = scheduler.submit(abs, -1)
        first.add_done_callback(lambda future: 1 / 0)
        assert first.result(30) == 1
        with pytest.raises(KeyError):
            scheduler.submit(fail).result(30)
        job = scheduler.schedule(abs, FixedRate("1ms").times(3), args=(1,))
        assert job.wait(30)
        assert scheduler.submit(abs, -2).result(30) == 2
    assert len(ended) == 6


def test_a_loop_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even the last complaint raises: all who wait are told all the same."""
    scheduler = ProcessScheduler(1)
    scheduler.submit(abs, 1).result(30)

    def broken(*_: object) -> None:
        raise MemoryError

    job = scheduler.schedule(abs, FixedRate("1h", initial_delay="1h"), args=(1,))
    following = job.next_future()
    monkeypatch.setattr(scheduler._engine.offering, "hand_over", broken)
    future = scheduler.submit(abs, 2)
    assert isinstance(future.exception(30), InternalError)
    with pytest.raises(InternalError):
        scheduler.wait(30)
    scheduler.shutdown()
    assert following.done() and not scheduler.health().ok
