"""``procsched ctl``: talks to a running `procsched run --control`. A program of its own, beside the parent."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

import click

from procsched.cli import table
from procsched.cli.output import say
from procsched.cli.status import CommandFailed, Status
from procsched.control import place
from procsched.observe import human

__all__ = ["ctl"]

_PATIENCE = 15.0
"""Seconds: it serves one after the other."""


@click.group()
@click.option("--socket", "path", type=click.Path(), metavar="PATH", help="Of the one to talk to, if there are more.")
@click.pass_context
def ctl(context: click.Context, path: str | None) -> None:
    """Talk to a running `procsched run --control`."""
    context.obj = path


@ctl.command("list")
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
@click.pass_obj
def list_(path: str | None, as_json: bool) -> Status:
    """The jobs, as they are now."""
    jobs = _ask(path, "list")
    if as_json:
        say(json.dumps(jobs, indent=2))
        return Status.CLEAN
    rows = [
        [
            job["id"],
            job["state"],
            (job["next_run_time"] or "-").partition(".")[0].replace("T", " "),
            str(job["runs"]),
            str(job["failures"]),
            (job["last_outcome"] or "-").replace("_", " "),
            job["schedule"],
        ]
        for job in jobs
    ]
    head = ["job", "state", "next run", "runs", "failures", "last", "schedule"]
    say("\n".join(table.render(head, rows, right="lllrr")) if rows else "no jobs")
    return Status.CLEAN


@ctl.command()
@click.option("--json", "as_json", is_flag=True, help="Everything, as one object.")
@click.pass_obj
def status(path: str | None, as_json: bool) -> Status:
    """How it is. Exit status 1 when it isn't well."""
    found = _ask(path, "status")
    well = Status.CLEAN if found["health"]["ok"] else Status.FOUND
    if as_json:
        say(json.dumps(found, indent=2))
        return well
    stats, health = found["stats"], found["health"]
    failures = sum(stats[outcome] for outcome in ("failed", "crashed", "timed_out", "aborted"))
    how = "well" if health["ok"] else "NOT WELL, its loop stands still or has ended"
    ended = f"{human.count(stats['ended'], 'run')} ended, {human.count(failures, 'failure')}"
    lines = [
        f"{found.get('tasks', 'procsched')}, pid {found['pid']}, up {human.seconds(found['uptime'])}: {how}",
        f"{stats['executing']} executing, {stats['ready']} ready, {stats['scheduled']} scheduled; {ended}",
        "",
    ]
    rows = [
        [
            str(worker["slot"]),
            str(worker["pid"] or "-"),
            worker["state"],
            worker["run"] or "-",
            "-" if worker["elapsed"] is None else human.seconds(worker["elapsed"]),
            "-" if worker["fraction"] is None else f"{worker['fraction']:.0%} {worker['message']}".rstrip(),
            "-" if worker["memory"] is None else human.size(worker["memory"]),
        ]
        for worker in found["workers"]
    ]
    head = ["worker", "pid", "state", "run", "for", "progress", "memory"]
    say("\n".join([*lines, *table.render(head, rows, right="rrllrlr")]))
    return well


def _with_job(name: str, words: str) -> None:
    @ctl.command(name, help=words)
    @click.argument("job")
    @click.pass_obj
    def command(path: str | None, job: str) -> Status:
        say(str(_ask(path, name, id=job)).rstrip("\n"))
        return Status.CLEAN


_with_job("pause", "No slot of JOB starts until it is resumed; what executes finishes.")
_with_job("resume", "JOB goes on, with its next future slot.")
_with_job("trigger", "Run JOB now, beside its schedule.")
_with_job("cancel", "End JOB: what executes finishes, and it never runs again.")
_with_job("stack", "The Python stacks of the worker that executes JOB.")


def _ask(path: str | None, do: str, **fields: Any) -> Any:
    """The answer, or `CommandFailed`: status 2 when there is nobody to ask, 1 when it is refused."""
    chosen = _chosen(path)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PATIENCE)
            connection.connect(chosen)
            connection.sendall(json.dumps({"v": 1, "do": do, **fields}).encode() + b"\n")
            data = b""
            while not data.endswith(b"\n") and (piece := connection.recv(1 << 16)):
                data += piece
    except TimeoutError:
        raise CommandFailed(f"{chosen} doesn't answer within {_PATIENCE:g} s", Status.FOUND) from None
    except OSError as error:
        raise CommandFailed(f"{chosen}: {error.strerror or error}") from None
    try:
        answer = json.loads(data)
    except ValueError:
        raise CommandFailed(f"{chosen} didn't answer: perhaps it is another user's, or has just ended") from None
    if not answer.get("ok"):
        raise CommandFailed(str(answer.get("error")), Status.FOUND)
    return answer["answer"]


def _chosen(path: str | None) -> str:
    if path is not None:
        return path
    try:
        found = place.living_sockets()
    except OSError as error:
        raise CommandFailed(str(error)) from error
    if not found:
        raise CommandFailed("nothing is running that can be talked to; start it with: procsched run tasks.py --control")
    if len(found) > 1:
        listed = "\n".join(f"  --socket {name}" for name in found)
        raise CommandFailed(f"there are {len(found)} to talk to; say which:\n{listed}")
    return os.fspath(found[0])
