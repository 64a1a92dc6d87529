"""Nothing is kept alive: callables and arguments until the run is over, values until their Future is dropped."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from typing import Any

import pytest

from procsched import After, FixedRate, ProcessScheduler


class Thing:
    def __init__(self, payload: bytes = b"") -> None:
        self.payload = payload

    def work(self, *_: Any) -> int:
        return 1

    def __call__(self, *_: Any) -> int:
        return 1


class Boom(Exception):
    pass


def explode() -> None:
    raise Boom


def make_tracked() -> Any:
    """By value: a class with weak references that lives in the worker."""

    class Tracked:
        pass

    import weakref

    def give(argument: Any) -> Any:
        import builtins

        value = type(argument)()
        builtins.tracked = [weakref.ref(argument), weakref.ref(value)]  # type: ignore[attr-defined]
        return value

    def explode(argument: Any) -> None:
        import builtins

        local = type(argument)()
        builtins.tracked = [weakref.ref(argument), weakref.ref(local)]  # type: ignore[attr-defined]
        raise ValueError(argument)

    def left(_: Any) -> list[bool]:
        import builtins

        return [ref() is not None for ref in builtins.tracked]  # type: ignore[attr-defined]

    return Tracked, give, explode, left


def test_in_the_parent_arguments_are_let_go_at_the_call(one: ProcessScheduler) -> None:
    """They were pickled; neither callable nor argument is held, even while the run waits."""
    for call in (
        lambda fn, argument: one.submit_after("1h", fn, argument),
        lambda fn, argument: one.schedule(fn, After("1h"), args=(argument,)),
        lambda fn, argument: one.submit(fn, argument).result(30),
    ):
        fn, argument = Thing(), Thing()
        refs = [weakref.ref(fn), weakref.ref(argument)]
        kept = call(fn, argument)
        del fn, argument
        gc.collect()
        assert [ref() for ref in refs] == [None, None], kept
    del kept


def test_in_the_parent_a_value_lives_as_long_as_its_future(one: ProcessScheduler, eventually: Any) -> None:
    """No queue, record or thread holds it."""
    future = one.submit(Thing, b"x" * 1000)
    ref = weakref.ref(future.result(30))
    gc.collect()
    assert ref() is not None
    del future
    eventually(lambda: gc.collect() is not None and ref() is None)


def test_in_the_parent_an_exception_lives_as_long_as_its_future(one: ProcessScheduler, eventually: Any) -> None:
    """The record keeps text only."""
    job = one.schedule(explode, After("1h"))
    future = job.run_now()
    error = future.exception(30)
    assert isinstance(error, Boom)
    ref = weakref.ref(error)
    del error, future
    eventually(lambda: gc.collect() is not None and ref() is None)
    assert job.last is not None and job.last.error is not None and job.last.error.type.endswith("Boom")


@pytest.mark.case("B102")
def test_in_the_worker_nothing_stays(one: ProcessScheduler) -> None:
    """Neither argument nor value nor the failed run's frames, without a collection."""
    Tracked, give, explode, left = make_tracked()
    one.submit(give, Tracked()).result(30)
    assert one.submit(left, None).result(30) == [False, False]
    one.submit(explode, Tracked()).exception(30)
    assert one.submit(left, None).result(30) == [False, False]


def test_futures_are_let_go(one: ProcessScheduler, eventually: Any) -> None:
    """Done ones, cancelled ones, those of a job."""
    job = one.schedule(abs, After("1h"), args=(1,))
    futures = [one.submit(abs, 1), one.submit_after("1h", abs, 1), job.run_now(), job.next_future()]
    futures[0].result(30)
    futures[2].result(30)
    futures[1].cancel()
    refs = [weakref.ref(future) for future in futures]
    del futures
    job.cancel()
    one.wait(30)
    eventually(lambda: gc.collect() is not None and [ref() for ref in refs] == [None] * 4)


@pytest.mark.case("B102")
def test_large_values_leave_memory(one: ProcessScheduler, eventually: Any) -> None:
    """100 MB are released on both sides, without a next run."""

    def resident(pid: int) -> int:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    pid = one.submit(os.getpid).result(30)
    before = resident(os.getpid()), resident(pid)
    assert len(one.submit(bytes, 100 << 20).result(60)) == 100 << 20
    eventually(lambda: resident(os.getpid()) < before[0] + (40 << 20) and resident(pid) < before[1] + (40 << 20))


@pytest.mark.case("B102")
def test_growth_over_many_runs(one: ProcessScheduler) -> None:
    """After warming up, objects of the parent stay constant over thousands of runs, cancels and re-adds."""

    def round_(n: int) -> None:
        list(one.map(abs, range(n)))
        for number in range(n // 10):
            job = one.schedule(abs, FixedRate("1h"), args=(number,), id="same", replace_existing=True, timeout="1h")
            job.run_now().result(30)
        one.submit(int, "x").exception(30)
        one.get_job("same").cancel()
        assert one.wait(30)
        announcer, pause = one._engine.announcer, threading.Event()
        while announcer._told < announcer._put:  # it lets news gather for some milliseconds
            pause.wait(0.001)
        pause.wait(0.02)
        gc.collect()

    round_(1000)
    round_(1000)
    before = len(gc.get_objects())
    round_(3000)
    assert len(gc.get_objects()) - before < 500


def test_descriptors_of_large_failures(one: ProcessScheduler) -> None:
    """Errors with large payloads stay readable in the history, and don't hold a descriptor each."""

    def explode() -> None:
        raise ValueError(b"x" * (1 << 20))

    job = one.schedule(explode, After("1h"))
    job.run_now().exception(30)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert isinstance(job.run_now().exception(30), ValueError)
    one.schedule(explode, FixedRate("1ms").times(20)).wait(30)
    assert len(os.listdir("/proc/self/fd")) <= before + 3
    assert job.last is not None and job.last.error is not None and job.last.error.type == "ValueError"


def test_job_handles_hold_no_threads(one: ProcessScheduler) -> None:
    """A thousand waits that time out leave nothing behind."""
    job = one.schedule(abs, After("1h"), args=(1,))
    threads = threading.active_count()
    for _ in range(200):
        assert not job.wait(0) and not one.wait(0)
    deadline = time.monotonic() + 10
    while one._engine.waiting._questions and time.monotonic() < deadline:
        time.sleep(0.01)
    assert one._engine.waiting._questions == [] and threading.active_count() == threads
