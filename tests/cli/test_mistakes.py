"""Wrong arguments and wrong task files: exit status 2, a message that helps, and no traceback of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import procsched

Fixture = Callable[..., Any]

COMMANDS = {"run": [], "list": [], "check": [], "once": ["work"]}
every_command = pytest.mark.parametrize("command", COMMANDS)


def said(program: Any) -> str:
    """What it said, which has none of our own frames in it."""
    text: str = program.stdout + program.stderr
    assert str(Path(procsched.__file__).parent) not in text
    return text


@every_command
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("def broken(:\n", ["can't be parsed", "line 2", "^"]),
        ("1 / 0\n", ["raised ZeroDivisionError", 'tasks.py", line 2']),
        ("x = 1\n", ["defines no job"]),
        ("@job(After(0))\ndef work(): ...\n@job(After(1))\ndef work(): ...\n", ["'work' twice", "tasks.py:"]),
        ("@job(After(0))\nasync def work(): ...\n", ["async function", "tasks.py"]),
        ("@job(5)\ndef work(): ...\n", ["wants a schedule, not 5"]),
        ("@job(FixedRate(0))\ndef work(): ...\n", ["tasks.py"]),
        ("@job(Daily('25:00'))\ndef work(): ...\n", ["25:00"]),
        ("@job(Cron('every day'))\ndef work(): ...\n", ["every day"]),
        ("@job(Daily('02:00', timezone='Europe/Pari'))\ndef work(): ...\n", ["Europe/Pari"]),
        ("@job(After(0), max_instances=0)\ndef work(): ...\n", ["tasks.py", "max_instances"]),
        ("def setup(scheduler): {}['a']\n", ["setup", "KeyError", 'tasks.py", line']),
    ],
)
def test_a_task_file_that_cannot_be_used(
    run: Fixture, write: Fixture, command: str, content: str, words: list[str]
) -> None:
    program = run(command, write(content), *COMMANDS[command], status=2)
    text = said(program)
    assert all(word in text for word in words), text


@every_command
def test_a_missing_file(run: Fixture, command: str) -> None:
    assert "there is no file nothing.py" in said(run(command, "nothing.py", *COMMANDS[command], status=2))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], "Missing argument"),
        (["run", "tasks.py", "--workers", "0"], "--workers"),
        (["run", "tasks.py", "--workers", "many"], "--workers"),
        (["run", "tasks.py", "--for", "5x"], "5x"),
        (["run", "tasks.py", "--for", "nan"], "nan"),
        (["run", "tasks.py", "--grace", "-1s"], "--grace"),
        (["run", "tasks.py", "--log-level", "loud"], "--log-level"),
        (["run", "tasks.py", "--fro", "5s"], "--for"),
        (["list", "tasks.py", "--next", "0"], "--next"),
        (["once", "tasks.py"], "Missing argument"),
        (["walk", "tasks.py"], "No such command"),
    ],
)
def test_wrong_usage(run: Fixture, write: Fixture, arguments: list[str], words: str) -> None:
    write("@job(After(0))\ndef work(): ...")
    assert words in said(run(*arguments, status=2))


def test_what_cannot_be_sent_starts_nothing(run: Fixture, write: Fixture) -> None:
    """All jobs or none."""
    path = write("""
        @job(After(0))
        def first(): print("ran")

        @job(After(0), args=(open(__file__),))
        def second(file): ...
    """)
    program = run("run", path, status=2)
    assert "ran" not in program.stdout
    assert "second" in said(program)


def test_the_version(run: Fixture) -> None:
    assert procsched.__version__ in run("--version").stdout


@pytest.mark.parametrize("command", [[], ["run"], ["list"], ["check"], ["once"]])
def test_help_is_there(run: Fixture, command: list[str]) -> None:
    assert "Usage: procsched" in run(*command, "--help").stdout
