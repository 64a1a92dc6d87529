"""Who follows the news as they come, beside those who subscribe to events."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from procsched import After, FixedRate, RunEnded
from procsched.testing import ManualScheduler


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """The log wants no successes: what comes, comes for the follower."""
    caplog.set_level(logging.WARNING, "procsched")


def fail() -> None:
    raise ValueError


def test_a_follower_gets_every_end_though_nobody_subscribed() -> None:
    """Of jobs and calls, good and bad; and none any more once it has left."""
    scheduler, ends = ManualScheduler(), []

    def take(news: list[tuple[Any, ...]]) -> None:
        ends.extend(item[1] for item in news if item[0] is RunEnded)

    scheduler._engine.announcer._subscribers = ()  # that of the ManualScheduler itself
    leave = scheduler._engine.announcer.follow(take)
    scheduler.schedule(int, FixedRate("1s").times(2))
    scheduler.schedule(fail, After(0))
    scheduler.submit(int)
    for _ in range(2):
        scheduler.tick()
        scheduler.clock.advance("1s")
    assert len(ends) == 4
    leave()
    scheduler.submit(int)
    scheduler.tick()
    assert len(ends) == 4


def test_a_follower_that_raises_keeps_news_from_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither from other followers nor from subscribers."""
    monkeypatch.setattr(logging, "raiseExceptions", False)
    scheduler, taken, told = ManualScheduler(), [], []
    scheduler._engine.announcer.follow(lambda news: fail())
    scheduler._engine.announcer.follow(taken.append)
    scheduler.subscribe(told.append, RunEnded)
    scheduler.submit(int)
    scheduler.tick()
    assert taken
    assert len(told) == 1
