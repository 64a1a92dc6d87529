"""The benchmarks work: their figures are nobody's business here, and facts that aren't about speed hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import procsched

COMPARE = Path(__file__).parents[1] / "benchmarks" / "compare.py"
ENV = {**os.environ, "PYTHONPATH": str(Path(procsched.__file__).parents[1])}


def compare(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(COMPARE), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, env=ENV, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("subject", ["cancelling", "importing", "orphans", "views"])
def test_a_subject_is_measured(subject: str) -> None:
    """It prints its table, with procsched in it and where it comes from."""
    ended = compare("--quick", subject)
    assert ended.returncode == 0, ended.stderr
    rows = [line for line in ended.stdout.splitlines() if line.startswith("|")]
    assert len(rows) >= 3 and "procsched" in "".join(rows)
    assert f"compare.py {subject} --quick" in ended.stdout


def test_every_subject_has_its_place_on_the_page() -> None:
    """Or its figures couldn't be written there."""
    page = (COMPARE.parents[2] / "docs" / "performance.md").read_text()
    helpers = {"bare", "compare", "harness", "looked_at", "peers", "provenance"}
    files = {path.stem for path in COMPARE.parent.glob("*.py")} - helpers
    for subject in files | {"machine"}:
        assert page.count(f"<!-- measured: {subject} -->") == page.count(f"<!-- end of {subject} -->") == 1
    assert compare("--write", "--quick").returncode == 2  # figures that mean nothing


def test_an_unknown_subject_is_refused() -> None:
    """With the names of those that there are."""
    ended = compare("nonsense")
    assert ended.returncode == 2 and "nonsense" in ended.stderr
