"""A start that fails halfway, for want of threads or descriptors, raises where the work was given; try again later."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from procsched import FixedDelay, ProcessScheduler, SchedulerClosed


@pytest.mark.parametrize("thread", ["listener", "reaper", "starter", "delivery", "events", "loop"])
@pytest.mark.parametrize("then", ["try again", "shut down"])
def test_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch, thread: str, then: str) -> None:
    """Any of them: what was begun is undone, or used the next time."""
    start = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name.endswith(thread):
            raise RuntimeError("can't start new thread")
        start(self)

    scheduler = ProcessScheduler(workers=1)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="can't start new thread"):
            scheduler.submit(abs, -1)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        scheduler.schedule(abs, FixedDelay(1), args=(1,))
    assert scheduler.get_jobs() == []
    monkeypatch.undo()
    if then == "try again":
        assert scheduler.submit(abs, -1).result(30) == 1
        assert scheduler.stats().ended == 1
    scheduler.shutdown()
    with pytest.raises(SchedulerClosed):
        scheduler.submit(abs, -1)


@pytest.mark.parametrize("call", [1, 2])
def test_no_descriptor_is_left(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """At the first pipe of the pool, or at a later one."""
    pipe, calls = os.pipe, [0]

    def refuse() -> tuple[int, int]:
        calls[0] += 1
        if calls[0] == call:
            raise OSError(errno.EMFILE, "Too many open files")
        return pipe()

    scheduler = ProcessScheduler(workers=1)
    monkeypatch.setattr(os, "pipe", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        scheduler.submit(abs, -1)
    assert scheduler.submit(abs, -1).result(30) == 1
    scheduler.shutdown()
