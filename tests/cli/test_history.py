"""``procsched run --history`` and ``procsched history``: tables, JSON, CSV, one run in full, a picture."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from procsched.cli.app import call
from procsched.observe.historyfile import HistoryFile

Fixture = Callable[..., Any]
TASKS = """
import logging, os

@job(FixedRate("1ms").times(3))
def steady(): pass

@job(After(0.05))
def broken():
    raise ValueError("no <such> luck")

@job(After(0.1))
def dies():
    logging.getLogger("app").warning("last words")
    os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history, made by the real command."""
    folder = tmp_path_factory.mktemp("recorded")
    tasks, path = folder / "tasks.py", folder / "runs.db"
    tasks.write_text("from procsched import *\n" + TASKS)
    command = [sys.executable, "-m", "procsched", "run", str(tasks), "--until-idle", "--history", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "dies" in done.stdout
    return path


def shown(capsys: Any, *arguments: object, status: int = 0) -> str:
    """What the command writes to stdout; or to stderr, if it fails."""
    assert call(["history", *map(str, arguments)]) == status
    out, err = capsys.readouterr()
    return str(err if status else out)


def test_a_table_of_the_latest(recorded: Path, capsys: Any) -> None:
    lines = shown(capsys, recorded).splitlines()
    assert len(lines) == 7 and lines[0].split()[:4] == ["ended", "job", "run", "outcome"]
    assert {tuple(line.split()[2:5]) for line in lines[2:]} == {
        *(("steady", f"#{n}", "succeeded") for n in (1, 2, 3)), ("broken", "#1", "failed"), ("dies", "#1", "crashed")
    }  # fmt: skip
    assert any("ValueError: no <such> luck" in line for line in lines) and any("SIGKILL" in line for line in lines)
    assert len(shown(capsys, recorded, "--last", 2).splitlines()) == 4


def test_filters(recorded: Path, capsys: Any) -> None:
    """By job, outcome, failures, time."""
    assert len(json.loads(shown(capsys, recorded, "--json", "--job", "steady", "--job", "dies"))) == 4
    outcomes = {run["outcome"] for run in json.loads(shown(capsys, recorded, "--json", "--failures"))}
    assert outcomes == {"failed", "crashed"}
    assert len(json.loads(shown(capsys, recorded, "--json", "--outcome", "crashed"))) == 1
    assert len(json.loads(shown(capsys, recorded, "--json", "--since", "1h"))) == 5
    assert json.loads(shown(capsys, recorded, "--json", "--until", "1h")) == []
    assert json.loads(shown(capsys, recorded, "--json", "--since", "2100-01-01")) == []
    assert shown(capsys, recorded, "--job", "nobody").strip() == "no runs"


def test_json_has_what_the_records_have(recorded: Path, capsys: Any) -> None:
    with HistoryFile(recorded) as file:
        records = [record.as_dict() for record in file.runs()]
    assert json.loads(shown(capsys, recorded, "--json")) == records


def test_csv_is_read_by_others(recorded: Path, capsys: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(shown(capsys, recorded, "--csv"))))
    assert sorted(row["job_id"] for row in rows) == ["broken", "dies", *["steady"] * 3]
    broken = next(row for row in rows if row["job_id"] == "broken")
    assert broken["error"] == "ValueError: no <such> luck" and float(broken["duration"]) > 0


def test_a_line_per_job(recorded: Path, capsys: Any) -> None:
    lines = shown(capsys, recorded, "--summary").splitlines()
    assert [line.split()[:3] for line in lines[2:]] == [["broken", "1", "1"], ["dies", "1", "1"], ["steady", "3", "0"]]
    sums = {each["job_id"]: each for each in json.loads(shown(capsys, recorded, "--summary", "--json"))}
    assert sums["steady"]["outcomes"] == {"succeeded": 3}
    rows = list(csv.DictReader(io.StringIO(shown(capsys, recorded, "--summary", "--csv"))))
    assert [row["crashed"] for row in rows] == ["0", "1", "0"]


def test_one_run_in_full(recorded: Path, capsys: Any) -> None:
    """With its traceback, or its last log records."""
    text = shown(capsys, recorded, "--run", "broken#1")
    assert text.startswith("broken #1 failed after") and "Traceback (most recent call last)" in text
    assert "app: last words" in shown(capsys, recorded, "--run", "dies#1")
    assert "no run dies#2" in shown(capsys, recorded, "--run", "dies#2", status=1)


def test_a_picture(recorded: Path, capsys: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    command = [sys.executable, "-m", "procsched", "history", str(recorded), "--plot", str(tmp_path / "a.png")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)  # it keeps files open
    assert done.stdout.startswith("5 runs in")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert "ends with .png" in shown(capsys, recorded, "--plot", tmp_path / "a.txt", status=2)
    assert not (tmp_path / "a.txt").exists()


def test_mistakes(recorded: Path, capsys: Any, tmp_path: Path) -> None:
    """One line each, and status 2."""
    for arguments, words in (
        ([tmp_path / "missing.db"], "missing.db: No such file"),
        ([__file__], "no history of procsched"),
        ([recorded, "--since", "yesterday"], "is no time"),
        ([recorded, "--run", "steady"], "is no run"),
    ):
        said = shown(capsys, *arguments, status=2)
        assert words in said and len(said.splitlines()) == 1


def test_run_says_at_once_where_it_cannot_write(start: Fixture, tmp_path: Path, write: Fixture) -> None:
    """Before anything is started."""
    tasks = write("@job(After(0))\ndef work(): print('started')")
    program = start("run", tasks, "--history", tmp_path / "no" / "runs.db")
    assert program.end() == 2 and program.stdout == ""
    assert "can't be written: No such file" in program.stderr and len(program.stderr.splitlines()) == 1


def test_a_reader_that_goes_away(recorded: Path) -> None:
    """``procsched history … | head`` is quiet."""
    command = f"{sys.executable} -m procsched history {recorded} --json | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "" and done.stdout == "[\n"
