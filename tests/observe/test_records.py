"""Records are plain values: frozen, comparable, and JSON on demand."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Callable

import pytest

from procsched import Outcome, RunError, RunRecord, Waited

Make = Callable[..., RunRecord]


def test_a_record_cannot_be_changed(record: Make) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        record().duration = 3  # type: ignore[misc]


def test_a_record_becomes_json(record: Make) -> None:
    """Every field of it, and nothing that json can't write."""
    error = RunError("WorkerCrashed", "gone", "", None, "SIGKILL", ("a", "b"), True)
    full = record(outcome=Outcome.CRASHED, error=error, waited=Waited(0.1, 0.2), held_by="max_instances")
    back = json.loads(json.dumps(full.as_dict()))
    assert back.keys() == {field.name for field in dataclasses.fields(RunRecord)}
    assert back["outcome"] == "crashed"
    assert back["planned"] == "2026-03-01T12:00:00+00:00"
    assert back["error"]["logs"] == ["a", "b"]
    assert back["error"].keys() == {field.name for field in dataclasses.fields(RunError)}
    assert back["waited"] == {"loop": 0.1, "worker": 0.2}


def test_a_run_that_never_started_becomes_json_too(record: Make) -> None:
    never = record(outcome=Outcome.SKIPPED, started=None, worker=None, pid=None, duration=0.0)
    assert json.loads(json.dumps(never.as_dict()))["started"] is None


def test_a_record_travels(record: Make) -> None:
    """Equal after pickling: history may be kept elsewhere."""
    assert pickle.loads(pickle.dumps(record())) == record()
