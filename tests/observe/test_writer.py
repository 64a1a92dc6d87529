"""BackgroundWriter: everything is written, in order; what can't be is told of, once, and costs nobody anything else."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from procsched.observe import writer as module
from procsched.observe.writer import BackgroundWriter


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pauses are of no interest here."""
    monkeypatch.setattr(module, "_EVERY", 0.001)
    monkeypatch.setattr(module, "_LONGEST", 0.002)


class Goal:
    """Where it is written to; broken for as long as it is told."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.broken = False
        self.tried = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)

    def write(self, batch: list[Any]) -> None:
        self.tried.release()
        if self.broken:
            raise OSError("no space left on device")
        self.written += batch
        self.begun.release()


def test_all_is_written_in_order() -> None:
    goal = Goal()
    writer = BackgroundWriter("the test", goal.write, 100_000)
    writer.start()
    for start in range(0, 30_000, 100):
        writer.note(range(start, start + 100))
    writer.stop()
    assert goal.written == list(range(30_000)) and writer.dropped == 0


def test_a_goal_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """With nothing lost, and one line for the beginning and one for the end of it."""
    goal = Goal()
    goal.broken = True
    writer = BackgroundWriter("the test", goal.write, 1000)
    with caplog.at_level(logging.INFO, "procsched"):
        writer.start()
        writer.note(range(10))
        for _ in range(5):
            assert goal.tried.acquire(timeout=30)
        goal.broken = False
        assert goal.begun.acquire(timeout=30)
        writer.stop()
    assert goal.written == list(range(10))
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "no space left on device" in caplog.text and "is written again" in caplog.text


def test_what_waits_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """The newest are kept, the others counted and told of."""
    goal = Goal()
    goal.broken = True
    writer = BackgroundWriter("the test", goal.write, 1000)
    writer.start()
    for start in range(0, 5000, 50):
        writer.note(range(start, start + 50))
    assert goal.tried.acquire(timeout=30)
    assert writer.dropped >= 4000 - module._AT_ONCE and len(writer._waiting) <= 1000 + module._AT_ONCE
    writer.stop()
    assert "entries that couldn't be written in time" in caplog.text and goal.written == []


def test_the_end_does_not_wait_for_a_goal_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    released = threading.Event()

    def hang(batch: list[Any]) -> None:
        released.wait()

    writer = BackgroundWriter("the test", hang, 1000)
    writer.start()
    writer.note([1, 2])
    _bounded(lambda: writer.stop(timeout=0.05))
    released.set()
    writer._thread.join()


def _bounded(deed: Callable[[], object]) -> None:
    thread = threading.Thread(target=deed)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
