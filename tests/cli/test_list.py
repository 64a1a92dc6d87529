"""``procsched list``: what would run when, without running it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

Fixture = Callable[..., Any]

TASKS = """
from datetime import UTC, datetime

@job(Daily("02:00", timezone="Europe/Paris"))
def nightly(): ...

@job(FixedRate("10m", initial_delay="5m"))
def often(): ...

@job(At(datetime(2999, 1, 1, tzinfo=UTC)))
def far(): ...

@job(FixedDelay("1s").times(2), id="twice")
def twice(): print("ran")

def setup(scheduler): scheduler.schedule(print, After("1h"), id="made")
"""


def test_a_table_with_the_next_one_first(run: Fixture, write: Fixture) -> None:
    program = run("list", write(TASKS))
    rows = [line.split() for line in program.stdout.splitlines()]
    assert rows[0] == ["job", "next", "run", "in", "schedule"]
    assert rows[2][0] == "twice"
    assert rows[-1][0] == "far"
    assert "Daily(" in program.stdout
    assert "ran" not in program.stdout
    assert program.stderr == ""


def test_json_has_id_and_next_run_time(run: Fixture, write: Fixture) -> None:
    """ISO 8601 with an offset."""
    objects = {job["id"]: job for job in json.loads(run("list", write(TASKS), "--json").stdout)}
    assert objects.keys() == {"nightly", "often", "far", "twice", "made"}
    assert datetime.fromisoformat(objects["far"]["next_run_time"]) == datetime(2999, 1, 1, tzinfo=UTC)
    ahead = datetime.fromisoformat(objects["often"]["next_run_time"]) - datetime.now(UTC)
    assert timedelta(minutes=4) < ahead < timedelta(minutes=5)


def test_several_runs_ahead(run: Fixture, write: Fixture) -> None:
    """On each schedule's own terms, within its bounds."""
    objects = {job["id"]: job for job in json.loads(run("list", write(TASKS), "--json", "--next", 3).stdout)}
    often = [datetime.fromisoformat(time) for time in objects["often"]["next_run_times"]]
    assert [later - earlier for earlier, later in pairwise(often)] == [timedelta(minutes=10)] * 2
    assert len(objects["nightly"]["next_run_times"]) == 3
    assert len(objects["twice"]["next_run_times"]) == 2
    assert len(objects["far"]["next_run_times"]) == 1


def test_a_job_that_setup_paused(run: Fixture, write: Fixture) -> None:
    path = write("""
        def setup(scheduler): scheduler.schedule(print, FixedRate("1h"), id="made").pause()
    """)
    (job,) = json.loads(run("list", path, "--json").stdout)
    assert job["state"] == "paused"
