"""``procsched check``: every job to a real worker and back, without running any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Fixture = Callable[..., Any]


def test_all_is_well(run: Fixture, write: Fixture) -> None:
    """Functions, arguments, lambdas, jobs of setup(): all arrive, none is called."""
    path = write("""
        from dataclasses import dataclass

        @dataclass
        class Point:
            x: int

        @job(After(0), args=(Point(1),))
        def work(point): print("ran")

        def setup(scheduler):
            for n in range(2):
                scheduler.schedule(lambda n=n: print("ran", n), FixedRate("1ms"), id=f"made-{n}")
    """)
    program = run("check", path)
    assert [line.split()[:2] for line in program.stdout.splitlines()[:3]] == [
        ["ok", "work"],
        ["ok", "made-0"],
        ["ok", "made-1"],
    ]
    assert "3 of 3 jobs can run" in program.stdout
    assert "ran" not in program.stdout.replace("can run", "")


def test_what_cannot_be_sent(run: Fixture, write: Fixture) -> None:
    """The other jobs are looked at all the same."""
    path = write("""
        import threading

        @job(FixedRate("1s"), args=(threading.Lock(),))
        def locked(lock): ...

        @job(FixedRate("1s"))
        def good(): ...
    """)
    program = run("check", path, status=1)
    assert "wrong  locked  " in program.stdout
    assert "lock" in program.stdout.splitlines()[0]
    assert "ok     good" in program.stdout
    assert "1 of 2 jobs can run" in program.stdout


def test_what_cannot_be_read_in_a_worker(run: Fixture, write: Fixture) -> None:
    path = write("""
        class Fragile:
            def __reduce__(self): return int, ("no number",)

        @job(FixedRate("1s"), args=(Fragile(),))
        def work(fragile): ...
    """)
    program = run("check", path, status=1)
    assert "can't be read in a worker" in program.stdout
    assert "no number" in program.stdout


def test_a_schedule_without_a_run(run: Fixture, write: Fixture) -> None:
    path = write("""
        from datetime import UTC, datetime

        @job(Daily("02:00").until(datetime(2001, 1, 1, tzinfo=UTC)))
        def late(): ...
    """)
    assert "has no run left" in run("check", path, status=1).stdout


def test_a_file_that_no_worker_can_load(run: Fixture, write: Fixture) -> None:
    """That is a finding about the file, as long as other workers can be started."""
    path = write("""
        from procsched import context
        if context.in_worker(): raise ImportError("only the parent has this")

        @job(FixedRate("1s"))
        def work(): ...
    """)
    program = run("check", path, status=1)
    assert "only the parent has this" in program.stdout + program.stderr


def test_arguments_that_do_not_fit(run: Fixture, write: Fixture) -> None:
    """A function that wants what its job doesn't give would fail in every run."""
    path = write("""
        @job(FixedRate("1s"))
        def work(point): ...
    """)
    program = run("check", path, status=1)
    assert "wrong  work  it can't be called with its arguments: missing a required argument: 'point'" in program.stdout
