"""A Ctrl-C between any two bytecodes of a call, seen from outside: nobody waits for ever, and the books balance."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from interrupting import interrupted

import procsched
from procsched import After, FixedRate, Retry
from procsched.testing import ManualScheduler

SOURCES = tuple(str(Path(procsched.__file__).parent / name) for name in ("core", "engine.py"))


def fail() -> None:
    raise ValueError("as asked")


class World:
    """One worker; a job in back-off with an extra run queued, one that waits, one without a slot, and two calls."""

    def __init__(self) -> None:
        self.scheduler = scheduler = ManualScheduler(workers=1)
        self.backoff = scheduler.schedule(fail, After(0), retry=Retry(3, backoff="3s"), id="backoff")
        self.futures: list[Future[Any]] = [self.backoff.next_future()]
        scheduler.tick()
        assert scheduler.stats().executing == 1
        self.futures.append(self.backoff.run_now())
        self.waiting = scheduler.schedule(int, FixedRate("1h", initial_delay="1h"), id="waiting")
        self.futures += [self.waiting.run_now(), self.waiting.next_future()]
        self.call, self.delayed = scheduler.submit(int), scheduler.submit_after("5s", int)
        self.futures += [self.call, self.delayed]

    def deeds(self) -> dict[str, Callable[[], object]]:
        return {
            "cancel backoff": self.backoff.cancel,
            "cancel waiting": self.waiting.cancel,
            "pause waiting": self.waiting.pause,
            "replace backoff": lambda: self.scheduler.schedule(int, After(1), id="backoff", replace_existing=True),
            "reschedule backoff": lambda: self.backoff.reschedule(After(1)),
            "cancel a call": self.call.cancel,
            "cancel a delayed call": self.delayed.cancel,
            "run now": self.waiting.run_now,
        }

    def end(self) -> None:
        """After all has been run or cancelled, nothing is left over."""
        scheduler = self.scheduler
        for _ in range(20):
            scheduler.tick()
            scheduler._engine.check_valid()
            scheduler.clock.advance("1s")
        for job in scheduler.get_jobs():
            job.cancel()
        scheduler.tick()
        assert [future for future in self.futures if not future.done()] == [], "somebody waits for ever"
        stats = scheduler.stats()
        assert (stats.started - stats.ended, stats.executing, stats.ready, stats.scheduled) == (0, 0, 0, 0)
        assert not scheduler._engine.settling.open
        scheduler.shutdown()


@pytest.mark.parametrize("deed", sorted(World().deeds()))
def test_an_interrupted_call_leaves_nobody_waiting(deed: str) -> None:
    """Every Future is done in the end, and every run that had started has ended."""
    step, cut_short = 1, True
    while cut_short:
        world = World()
        cut_short = interrupted(world.deeds()[deed], step, SOURCES)
        world.end()
        step += 7
