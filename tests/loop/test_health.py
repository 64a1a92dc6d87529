"""How a scheduler is, as it tells itself."""

from __future__ import annotations

import threading

import pytest

from procsched import After, figures
from procsched.testing import ManualScheduler


def test_a_loop_that_somebody_keeps_from_its_lock_is_not_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """And whoever asks is told so, after a moment: he doesn't wait for the lock himself."""
    monkeypatch.setattr(figures, "PATIENCE", 0.01)
    scheduler = ManualScheduler()
    scheduler.schedule(int, After("1h"))
    scheduler.tick()
    scheduler.clock.advance("60s")
    scheduler._engine.mailbox.read()  # the clock has woken the loop; this one sleeps on
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with scheduler._engine.lock:
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    assert scheduler.health().ok  # it sleeps: nothing is due
    thread.start()
    try:
        held.wait(30)
        health = scheduler.health()
        assert not health.ok
        assert health.loop_age == 60
    finally:
        done.set()
        thread.join()
    assert scheduler.health().ok
