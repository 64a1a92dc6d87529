"""``procsched run --trace`` and ``procsched trace``: a table, a page, a picture."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from procsched.cli.app import call

TASKS = """
from procsched import *

@job(FixedRate("1ms").times(3))
def steady(): pass

@job(After(0.05), id="<b>bold</b>")
def broken():
    raise ValueError("no <such> luck")
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace, made by the real command."""
    folder = tmp_path_factory.mktemp("traced")
    tasks, path = folder / "tasks.py", folder / "trace.json"
    tasks.write_text(TASKS)
    command = [sys.executable, "-m", "procsched", "run", str(tasks), "--until-idle", "--trace", str(path)]
    subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return path


def test_a_table(traced: Path, capsys: Any) -> None:
    assert call(["trace", str(traced)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("4 runs, 1 failure, 0 workers lost in ")
    assert any(line.startswith("worker ") and line.endswith("%") for line in lines)


def test_a_page(traced: Path, capsys: Any, tmp_path: Path) -> None:
    assert call(["trace", str(traced), "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.startswith("<!doctype html>") and "class Timeline" in page and "<b>bold" not in page
    assert len(page) < 60_000


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
def test_the_page_in_a_browser(traced: Path, capsys: Any, tmp_path: Path) -> None:
    """Its script runs, and shows the facts; the id of a job stays text."""
    page = tmp_path / "page.html"
    assert call(["trace", str(traced), "--html", str(page)]) == 0
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
    command = ["chromium", *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert "<b>4</b> runs" in dom and '<b class="bad">1</b> failure' in dom
    assert "&lt;b&gt;bold&lt;/b&gt;" in dom and "<b>bold" not in dom


def test_a_picture(traced: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    command = [sys.executable, "-m", "procsched", "trace", str(traced), "--png", str(tmp_path / "a.png")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("4 runs in") and (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_mistakes(traced: Path, capsys: Any, tmp_path: Path) -> None:
    """One line each, and status 2."""
    for arguments, words in (
        ([tmp_path / "missing.json"], "missing.json: No such file"),
        ([__file__], "is no trace of procsched"),
        ([traced, "--html", tmp_path / "no" / "page.html"], "can't be written: No such file"),
    ):
        assert call(["trace", *map(str, arguments)]) == 2
        said = capsys.readouterr().err
        assert words in said and len(said.splitlines()) == 1


def test_run_says_at_once_what_cannot_be(start: Any, tmp_path: Path, write: Any) -> None:
    """Before anything is started."""
    tasks = write("@job(After(0))\ndef work(): print('started')")
    for options, words in (
        (["--trace", str(tmp_path / "no" / "t.json")], "can't be written: No such file"),
        (["--trace", str(tmp_path / "t.json"), "--trace-size", "much"], "much"),
    ):
        program = start("run", tasks, *options)
        assert program.end() == 2 and program.stdout == ""
        assert words in program.stderr and len(program.stderr.splitlines()) == 1
