"""What runs print: whole lines, with the id of their job if that was asked for; and outcomes in the JSON log."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Fixture = Callable[..., Any]

TASKS = """
import sys, subprocess

@job(After(0))
def talks():
    print("one"); print("two\\nthree")
    print("without an end", end="")

@job(After(0))
def complains():
    sys.stderr.write("part "); sys.stderr.write("and part\\n")
    print("", end="")
    subprocess.run(["echo", "a child of its own"])

@job(After(0))
def quiet(): pass
"""


def test_each_line_has_its_job(start: Fixture, write: Fixture) -> None:
    """A line that was begun ends with its run; what a child writes by itself is its own."""
    program = start("run", write(TASKS), "--until-idle", "--workers", 2, "--prefix-output")
    assert program.end() == 0
    lines = program.stdout.splitlines()
    talked = [line for line in lines if line.startswith("talks | ")]
    assert talked == ["talks | one", "talks | two", "talks | three", "talks | without an end"]
    assert "a child of its own" in lines and "complains | part and part" in program.stderr.splitlines()
    assert not any("quiet | " in line for line in lines)


def test_lines_of_many_runs_stay_whole(start: Fixture, write: Fixture) -> None:
    """Printed in pieces by several workers at once."""
    program = start(
        "run",
        write("""
            import sys
            for name in "abcd":
                def work(name=name):
                    for number in range(200):
                        sys.stdout.write(name * 20); sys.stdout.write(name * 20 + "\\n")
                work.__qualname__ = work.__name__ = name
                job(After(0), id=name)(work)
        """),
        "--until-idle", "--workers", 3, "--prefix-output",
    )  # fmt: skip
    assert program.end() == 0
    lines = [line for line in program.stdout.splitlines() if " | " in line]
    assert sorted(lines) == sorted(f"{name} | {name * 40}" for name in "abcd" for _ in range(200))


def test_json_says_how_it_ended(start: Fixture, write: Fixture) -> None:
    """In a field of its own, beside job, run, and worker."""
    program = start("run", write("@job(After(0))\ndef bad(): 1 / 0"), "--until-idle", "--log-format", "json")
    assert program.end() == 0
    lines = [json.loads(line) for line in program.stderr.splitlines()]
    (ended,) = [line for line in lines if line.get("event") == "RunEnded"]
    assert (ended["job"], ended["run"], ended["outcome"]) == ("bad", 1, "failed")
    assert ended["worker"] == ended["record"]["worker"]
