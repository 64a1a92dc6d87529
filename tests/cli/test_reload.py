"""SIGHUP and ``run --reload``: a changed task file takes effect, job by job, or not at all."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Fixture = Callable[..., Any]

HEAD = "from procsched import *\nimport os, helper\n"


@pytest.fixture
def jobs(write: Fixture) -> Callable[..., Path]:
    """``jobs(text, helper="VALUE = 1")``: the task file, and a module beside it."""

    def put(text: str, helper: str = "VALUE = 1") -> Path:
        write(helper, "helper.py", head="")
        return Path(write(text, head=HEAD))

    return put


STEADY = """
@job(FixedRate("30ms"))
def steady(): print("steady", helper.VALUE, flush=True)
"""


def test_what_has_changed_takes_effect(start: Fixture, jobs: Fixture) -> None:
    """New code, a changed schedule, a job more, one less; workers that had the old code are replaced."""
    program = start("run", jobs(STEADY + '@job(After(3600))\ndef gone(): pass\n'), "--workers", 2)
    program.wait_for("steady 1", 3)
    jobs("""
        @job(FixedRate("30ms"))
        def steady(): print("changed", helper.VALUE, flush=True)

        @job(After(0))
        def more(): print("one more", flush=True)
    """)
    program.signal(signal.SIGHUP)
    program.wait_for("reloaded: 1 changed, 1 added, 1 removed, 0 unchanged")
    program.wait_for("changed 1", 3)
    program.wait_for("one more")
    told = program.stdout.split("\n")
    first = told.index("changed 1")
    assert "steady 1" not in told[first + 40 :]
    program.signal(signal.SIGINT)
    assert program.end() == 0 and "Traceback" not in program.stderr


def test_what_is_unchanged_keeps_its_phase_and_has_new_helpers(start: Fixture, jobs: Fixture) -> None:
    """Also if it only stands on another line now; its numbers go on."""
    program = start("run", jobs(STEADY), "--workers", 1)
    program.wait_for("steady 1", 3)
    jobs("# a line more\n\n" + STEADY, helper="VALUE = 2")
    program.signal(signal.SIGHUP)
    program.wait_for("reloaded: 0 changed, 0 added, 0 removed, 1 unchanged")
    program.wait_for("steady 2", 3)
    program.signal(signal.SIGINT)
    assert program.end() == 0
    runs = [int(line.split("#")[1].split()[0]) for line in program.stderr.splitlines() if "  steady " in line]
    assert runs == list(range(1, len(runs) + 1))


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("this is no Python", "can't be parsed"),
        ("raise ZeroDivisionError('at the top')", "at the top"),
        ("def setup(scheduler): raise KeyError('in setup')", "in setup"),
        ('@job(After(0), id="x")\ndef a(): pass\n@job(After(0), id="x")\ndef b(): pass', "twice"),
        ("@job(After(0), args=[open(__file__)])\ndef a(f): pass", "can't be sent"),
        ("", "defines no job"),
    ],
)
def test_a_broken_file_changes_nothing(start: Fixture, jobs: Fixture, broken: str, words: str) -> None:
    """It says why, goes on, and takes a mended one."""
    program = start("run", jobs(STEADY), "--workers", 1)
    program.wait_for("steady 1")
    jobs(broken, helper="VALUE = 3")
    program.signal(signal.SIGHUP)
    program.wait_for("wasn't reloaded, and nothing is changed")
    program.wait_for(words)
    seen = program.stdout.count("steady 1")
    program.wait_for("steady 1", seen + 3)
    jobs(STEADY, helper="VALUE = 4")
    program.signal(signal.SIGHUP)
    program.wait_for("steady 4", 2)
    program.signal(signal.SIGINT)
    assert program.end() == 0 and "steady 3" not in program.stdout


def test_workers_that_start_have_the_code_that_was_accepted(start: Fixture, jobs: Fixture, tmp_path: Path) -> None:
    """Also while the file on the disk, or a module beside it, is broken, or newer."""
    text = STEADY + """
@job(FixedRate("20ms"))
def dies():
    if os.path.exists("die"):
        os.remove("die")
        os.kill(os.getpid(), 9)
"""
    program = start("run", jobs(text), "--workers", 1, cwd=tmp_path)
    program.wait_for("steady 1")
    jobs("this is no Python", helper="neither is this")
    (tmp_path / "die").touch()
    program.wait_for("worker 0 is back")
    seen = program.stdout.count("steady 1")
    program.wait_for("steady 1", seen + 3)
    program.signal(signal.SIGHUP)
    program.wait_for("wasn't reloaded")
    (tmp_path / "die").touch()
    program.wait_for("worker 0 is back", 2)
    seen = program.stdout.count("steady 1")
    program.wait_for("steady 1", seen + 3)
    program.signal(signal.SIGINT)
    assert program.end() == 0


def test_what_executes_may_finish(start: Fixture, jobs: Fixture, latch: Any) -> None:
    """With its old code, on its old worker."""
    program = start("run", jobs(f"@job(After(0))\ndef long(): {latch.code}"), "--workers", 1)
    latch.wait()
    jobs("@job(After(0))\ndef other(): print('the other one', flush=True)")
    program.signal(signal.SIGHUP)
    program.wait_for("reloaded: 0 changed, 1 added, 1 removed, 0 unchanged")
    latch.open()
    program.wait_for("the other one")
    program.signal(signal.SIGINT)
    assert program.end() == 0
    lines = program.stderr.splitlines()
    assert any("long" in line and "succeeded" in line for line in lines)


def test_jobs_of_setup_are_compared_too(start: Fixture, jobs: Fixture) -> None:
    text = """
        def say(word): print("said", word, flush=True)

        def setup(scheduler):
            for word in {words}:
                scheduler.schedule(say, FixedRate("40ms"), args=[word], id=word)
    """
    program = start("run", jobs(text.format(words=["a", "b"])), "--workers", 1)
    program.wait_for("said b", 2)
    jobs(text.format(words=["b", "c"]))
    program.signal(signal.SIGHUP)
    program.wait_for("reloaded: 0 changed, 1 added, 1 removed, 1 unchanged")
    program.wait_for("said c", 2)
    program.signal(signal.SIGINT)
    assert program.end() == 0


def test_a_file_that_is_saved_is_loaded_again(start: Fixture, jobs: Fixture, tmp_path: Path) -> None:
    """Also by an editor that writes another file and renames it; and a module beside it."""
    pytest.importorskip("watchfiles")
    path = jobs(STEADY)
    program = start("run", path, "--workers", 1, "--reload")
    program.wait_for("steady 1")
    new = path.with_name("tasks.py.new")
    new.write_text(HEAD + STEADY.replace('"steady"', '"renamed"'))
    new.rename(path)
    program.wait_for("renamed 1")
    path.with_name("helper.py").write_text("VALUE = 5")
    program.wait_for("renamed 5")
    program.signal(signal.SIGINT)
    assert program.end() == 0


def test_with_only_it_says_that_it_does_not(start: Fixture, jobs: Fixture) -> None:
    program = start("run", jobs(STEADY), "--workers", 1, "--only", "steady")
    program.wait_for("steady 1")
    program.signal(signal.SIGHUP)
    program.wait_for("with --only nothing is loaded again")
    program.signal(signal.SIGINT)
    assert program.end() == 0
