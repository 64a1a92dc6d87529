"""What the constructor takes and refuses, at once and before anything is started."""

from __future__ import annotations

import asyncio
import math
import os
import resource
import sys
import threading
from concurrent.futures import Executor
from datetime import timedelta
from typing import Any

import loky
import pytest

from procsched import ProcessScheduler, ReadyOrder


def test_it_is_an_executor() -> None:
    """`isinstance(…, concurrent.futures.Executor)`."""
    assert isinstance(ProcessScheduler(), Executor)


def test_it_starts_nothing_by_itself() -> None:
    """No thread and no process before there is work."""
    before = threading.active_count()
    scheduler = ProcessScheduler(workers=2)
    assert threading.active_count() == before and [worker.pid for worker in scheduler.workers()] == [None, None]
    scheduler.shutdown()


@pytest.mark.case("B110")
def test_the_default_size_is_what_may_be_used() -> None:
    """`loky.cpu_count()` workers."""
    assert len(ProcessScheduler().workers()) == loky.cpu_count()


def test_both_names_of_the_size() -> None:
    """`workers`, positional or named, and `max_workers`; not both."""
    for scheduler in (ProcessScheduler(3), ProcessScheduler(workers=3), ProcessScheduler(max_workers=3)):
        assert len(scheduler.workers()) == 3
    with pytest.raises(TypeError, match="the same"):
        ProcessScheduler(3, max_workers=3)


NOT_WHOLE: list[Any] = [True, False, 1.0, "2", math.nan, [], timedelta(1)]


@pytest.mark.parametrize("name", ["workers", "max_workers", "max_tasks_per_child", "threads_per_worker", "max_pending"])
def test_counts_must_be_whole_and_positive(name: str) -> None:
    """Zero and negative: ValueError; bool, float, text: TypeError; the message names the argument."""
    for value in (0, -1):
        with pytest.raises(ValueError, match="workers" if "workers" in name else name):
            ProcessScheduler(**{name: value})
    for value in NOT_WHOLE:
        with pytest.raises(TypeError, match="workers" if "workers" in name else name):
            ProcessScheduler(**{name: value})


def test_spare_workers_may_be_none() -> None:
    """Zero is the default; negative and senseless ones are refused."""
    ProcessScheduler(spare_workers=0)
    with pytest.raises(ValueError, match="spare_workers"):
        ProcessScheduler(spare_workers=-1)
    for value in NOT_WHOLE:
        with pytest.raises(TypeError, match="spare_workers"):
            ProcessScheduler(spare_workers=value)


@pytest.mark.parametrize(
    ("value", "size"), [(1 << 29, 1 << 29), ("512MiB", 1 << 29), ("2GiB", 1 << 31), ("512 MB", 1 << 29)]
)
def test_memory_is_bytes_or_text(value: Any, size: int) -> None:
    """`max_memory_per_child` takes both."""
    assert ProcessScheduler(max_memory_per_child=value)._engine.settings.max_memory == size


@pytest.mark.parametrize("value", [0, -1, "", "0MiB", "lots", "-5MiB", "5 parsecs"])
def test_senseless_memory_values(value: Any) -> None:
    """Zero, negative and unreadable limits are refused."""
    with pytest.raises(ValueError, match="max_memory_per_child"):
        ProcessScheduler(max_memory_per_child=value)
    for wrong in (True, 1.5, []):
        with pytest.raises(TypeError, match="max_memory_per_child"):
            ProcessScheduler(max_memory_per_child=wrong)


@pytest.mark.parametrize("value", [0, -1, "0s", math.nan, math.inf, "soon", timedelta(0)])
def test_senseless_start_timeouts(value: Any) -> None:
    """Zero, negative, not finite, unreadable: ValueError."""
    with pytest.raises(ValueError, match="start_timeout"):
        ProcessScheduler(start_timeout=value)
    for wrong in (True, None, []):
        with pytest.raises(TypeError, match="start_timeout"):
            ProcessScheduler(start_timeout=wrong)


def test_start_timeout_is_a_minute() -> None:
    """The default, and the forms of a duration."""
    assert ProcessScheduler()._engine.start_timeout == 60 * 10**9
    for value in (5, "5s", timedelta(seconds=5), 5.0):
        assert ProcessScheduler(start_timeout=value)._engine.start_timeout == 5 * 10**9


@pytest.mark.parametrize("value", [{1: "x"}, {"X": 1}, {"X": None}, "X=1", 5])
def test_env_maps_text_to_text(value: Any) -> None:
    """Anything else is a TypeError."""
    with pytest.raises(TypeError, match="env"):
        ProcessScheduler(env=value)


@pytest.mark.parametrize("value", [{"": "x"}, {"A=B": "x"}, {"X": "a\0b"}])
def test_env_names_must_be_possible(value: Any) -> None:
    """What no environment can hold is a ValueError."""
    with pytest.raises(ValueError, match="env"):
        ProcessScheduler(env=value)


def test_the_other_arguments() -> None:
    """on_full, ready_order, name."""
    with pytest.raises(ValueError, match="on_full"):
        ProcessScheduler(on_full="explode")
    for order in ("due", 1, None):
        with pytest.raises(TypeError, match="ready_order"):
            ProcessScheduler(ready_order=order)  # type: ignore[arg-type]
    ProcessScheduler(ready_order=ReadyOrder.PRIORITY)
    for name in ("", 5, None):
        with pytest.raises(TypeError, match="name"):
            ProcessScheduler(name=name)  # type: ignore[arg-type]
    assert "'mine'" in repr(ProcessScheduler(name="mine"))


def test_arguments_behind_workers_are_named() -> None:
    """Only `workers` may be given by position; an unknown argument is an error."""
    with pytest.raises(TypeError):
        ProcessScheduler(2, print)  # type: ignore[misc]
    with pytest.raises(TypeError):
        ProcessScheduler(wrokers=2)  # type: ignore[call-arg]


def test_the_initializer_is_checked_and_shipped() -> None:
    """Not callable, a coroutine function, arguments that are no tuple or can't be pickled."""
    with pytest.raises(TypeError, match="initializer"):
        ProcessScheduler(initializer=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        ProcessScheduler(initializer=asyncio.sleep)
    with pytest.raises(TypeError, match="initargs"):
        ProcessScheduler(initializer=print, initargs="ab")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        ProcessScheduler(initializer=print, initargs=(threading.Lock(),))


@pytest.mark.case("B106")
def test_descriptors_are_checked_before_anything_starts() -> None:
    """More workers than descriptors: ValueError with both numbers, nothing half-started."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with pytest.raises(ValueError, match=r"200 workers need about \d+ file descriptors.* of the 256"):
            ProcessScheduler(workers=200)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_windows_isnt_supported_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The constructor says so."""
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(OSError, match="doesn't support Windows yet"):
        ProcessScheduler()


def test_the_parents_environment_is_left_alone() -> None:
    """`env` and the thread counts go to workers only."""
    before = dict(os.environ)
    ProcessScheduler(workers=1, env={"PROCSCHED_TEST": "1"}, threads_per_worker=3)
    assert dict(os.environ) == before
