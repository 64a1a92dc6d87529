"""``procsched once``: one run, its record, its status."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Fixture = Callable[..., Any]

TASKS = """
import os

@job(FixedRate("1h"), id="good", args=(20,))
def good(x):
    print("good ran")
    return x + 1

@job(FixedRate("1ms"))
def bad(): raise ValueError("no host")

@job(FixedRate("1ms"))
def deadly(): os._exit(7)

@job(Daily("02:00"), timeout="50ms")
def slow():
    while True: pass

@job(After(0), retry=Retry(3, backoff="1ms"))
def third_time():
    if current_run().attempt < 3: raise OSError("not yet")

def setup(scheduler): scheduler.schedule(print, After("1h"), args=("made ran",), id="made")
"""


def test_a_good_run(run: Fixture, write: Fixture) -> None:
    """It runs in a worker, alone, with its arguments."""
    program = run("once", write(TASKS), "good")
    assert "good ran" in program.stdout
    assert "good #1 succeeded in" in program.stdout
    assert program.stdout.count("ran") == 1


def test_a_job_of_setup(run: Fixture, write: Fixture) -> None:
    assert "made #1 succeeded" in run("once", write(TASKS), "made").stdout


def test_a_failing_run(run: Fixture, write: Fixture) -> None:
    """The traceback once, the exit status 1."""
    program = run("once", write(TASKS), "bad", status=1)
    assert "bad #1 failed after" in program.stdout
    assert (program.stdout + program.stderr).count("in bad") == 1


def test_a_crash(run: Fixture, write: Fixture) -> None:
    program = run("once", write(TASKS), "deadly", status=1)
    assert "deadly #1 crashed" in program.stdout
    assert "7" in program.stdout


def test_a_timeout(run: Fixture, write: Fixture) -> None:
    assert "slow #1 timed out" in run("once", write(TASKS), "slow", status=1).stdout


def test_its_retries_hold(run: Fixture, write: Fixture) -> None:
    assert "attempt 3" in run("once", write(TASKS), "third_time").stdout


def test_the_record_as_json(run: Fixture, write: Fixture) -> None:
    program = run("once", write(TASKS), "bad", "--json", status=1)
    record = json.loads(program.stdout)
    assert record["job_id"] == "bad"
    assert record["outcome"] == "failed"
    assert record["error"]["message"] == "no host"


def test_an_unknown_id(run: Fixture, write: Fixture) -> None:
    program = run("once", write(TASKS), "goood", status=2)
    assert "did you mean good?" in program.stderr
    assert "Traceback" not in program.stderr
