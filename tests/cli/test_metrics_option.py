"""``procsched run --metrics``: where it may stand, what it says, and what ends before anything has begun."""

from __future__ import annotations

import re
import socket
import urllib.request
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner

from procsched.cli import options

Fixture = Callable[..., Any]


@click.command(cls=options.CommandWithAddresses)
@options.TASKS
@click.option("--workers")
@click.option("--metrics", cls=options.AddressOption, is_flag=False, flag_value="here:1")
def command(tasks: str, workers: str | None, metrics: str | None) -> None:
    click.echo(f"{tasks} {workers} {metrics}")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("t.py", "t.py None None"),
        ("--metrics t.py", "t.py None here:1"),
        ("t.py --metrics", "t.py None here:1"),
        ("--metrics --workers 2 t.py", "t.py 2 here:1"),
        ("--metrics there:2 t.py", "t.py None there:2"),
        ("--metrics=there:2 t.py", "t.py None there:2"),
        ("--metrics 0 t.py", "t.py None 0"),
        ("t.py --metrics [::1]:2", "t.py None [::1]:2"),
        ("--metrics some.module", "some.module None here:1"),
        ("--metrics -- t.py", "t.py None here:1"),
        ("--workers 2 -- --metrics", "--metrics 2 None"),
    ],
)
def test_its_value_may_be_left_out(words: str, meant: str) -> None:
    """Before the task file, too."""
    result = CliRunner().invoke(command, words.split())
    assert result.output.strip() == meant


def test_metrics_are_served_while_it_runs(start: Fixture, write: Fixture, latch: Any) -> None:
    """On any free port, which is told; and no longer."""
    path = write(f"@job(After(0))\ndef work(): {latch.code}")
    program = start("run", path, "--metrics", "127.0.0.1:0", "--until-idle", "--workers", 1)
    latch.wait()
    found = re.search(r"metrics at (http://127\.0\.0\.1:(\d+)/metrics)$", program.stderr, re.MULTILINE)
    assert found is not None, program.stderr
    with urllib.request.urlopen(found[1], timeout=30) as response:
        assert b'procsched_workers{state="up"} 1.0' in response.read()
    latch.open()
    assert program.end() == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(found[2])), timeout=30)


def test_a_port_in_use_ends_it_before_it_begins(run: Fixture, write: Fixture) -> None:
    """Status 2 and one line; no worker was started."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        program = run("run", write("@job(After(0))\ndef work(): ..."), "--metrics", address, status=2)
    assert program.stderr == f"procsched: --metrics {address}: address already in use\n"
    assert program.stdout == ""


@pytest.mark.parametrize("address", ["nonsense:port", ":9464", "99999", "no-such-host.invalid:80"])
def test_a_bad_address_ends_it_before_it_begins(run: Fixture, write: Fixture, address: str) -> None:
    program = run("run", write("@job(After(0))\ndef work(): ..."), "--metrics", address, status=2)
    assert re.fullmatch(r"procsched: --metrics [^\n]+\n", program.stderr), program.stderr


def test_others_may_read_only_if_they_are_meant_to(run: Fixture, write: Fixture) -> None:
    """Away from this machine's own address, it says so."""
    path = write("@job(After(0))\ndef work(): ...")
    program = run("run", path, "--metrics", "0.0.0.0:0", "--until-idle", "--workers", 1)
    assert re.search(r"whoever reaches http://0\.0\.0\.0:\d+ can read", program.stderr)
