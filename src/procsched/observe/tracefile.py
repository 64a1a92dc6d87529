"""TraceFile: the runs in a trace, for tables and pictures. Anywhere.

Takes a file that is being written, or whose program was killed in the midst of it: an incomplete last event is the end.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

__all__ = ["TraceFile", "TracedRun", "read_trace"]

_FIRST_WAITING_LANE = 100_000


class TracedRun(NamedTuple):
    """A slice on a worker's lane. Times are seconds since the trace began."""

    job_id: str
    number: int
    worker: int
    start: float
    duration: float
    lateness: float
    outcome: str
    error: str
    held_by: str
    attempt: int


class TraceFile(NamedTuple):
    """What a trace has."""

    begun: float
    """Seconds since the Unix epoch."""
    scheduler: str
    workers: dict[int, str]
    """Names of the lanes, by slot."""
    runs: list[TracedRun]
    """By start."""
    marks: list[tuple[float, int, str, str]]
    """What happened beside runs: when, on which slot (-1: on none), what, and details as JSON."""
    counts: list[tuple[float, int, int]]
    """Twice a second: when, runs executing, runs ready."""


def read_trace(path: str | os.PathLike[str]) -> TraceFile:
    """The trace, with its older half ``path.1`` if that is of the same program.

    Raises:
        OSError: It can't be read.
        ValueError: It is no trace of procsched.
    """
    older = f"{os.fspath(path)}.1"
    # Without the one, but with the other, its program was killed while it turned over
    found = [] if os.path.exists(older) and not os.path.exists(path) else _events_in(path)
    begun = _base_of(found)
    if begun is None and found:
        raise ValueError(f"{os.fspath(path)} is no trace of procsched")
    if os.path.exists(older):
        try:
            before = _events_in(older)
        except ValueError:
            before = []
        if begun is None or _base_of(before) == begun:  # an empty one has just been begun: all there is is in the older
            found, begun = before + found, _base_of(before)
    return _trace_of(found, begun or 0)


def _events_in(path: str | os.PathLike[str]) -> list[Any]:
    with open(path, "rb") as file:
        data = file.read()
    if not data.lstrip().startswith(b"["):
        raise ValueError(f"{os.fspath(path)} is no trace of procsched")
    try:
        found = json.loads(data)
    except ValueError:
        found = []
        for line in data.splitlines()[1:]:  # one event a line
            try:
                found.append(json.loads(line.rstrip(b",")))
            except ValueError:
                break
    return [event for event in found if isinstance(event, dict)]


def _base_of(found: list[Any]) -> int | None:
    for event in found[:1]:
        args = event.get("args")
        if event.get("name") == "procsched" and isinstance(args, dict) and isinstance(args.get("base_ns"), int):
            return int(args["base_ns"])
    return None


def _trace_of(found: list[Any], base: int) -> TraceFile:
    runs, marks, counts, workers, scheduler = [], [], [], {}, ""
    for event in found:
        kind, args = event.get("ph"), event.get("args") or {}
        at, lane = float(event.get("ts", 0)) / 1e6, int(event.get("tid", 0))
        name = str(event.get("name", ""))
        if kind == "X" and 0 < lane < _FIRST_WAITING_LANE:
            runs.append(
                TracedRun(
                    name,
                    int(args.get("number", 0)),
                    lane - 1,
                    at,
                    float(event.get("dur", 0)) / 1e6,
                    float(args.get("late_us", 0)) / 1e6,
                    str(args.get("outcome", "")),
                    str(args.get("error", "")),
                    str(args.get("held_by", "")),
                    int(args.get("attempt", 1)),
                )
            )
        elif kind == "i":
            marks.append((at, lane - 1, name, json.dumps(args)))
        elif kind == "C" and name == "runs":
            counts.append((at, int(args.get("executing", 0)), int(args.get("ready", 0))))
        elif kind == "M" and name == "thread_name" and 0 < lane < _FIRST_WAITING_LANE:
            workers[lane - 1] = str(args.get("name", ""))
        elif kind == "M" and name == "procsched":
            scheduler = str(args.get("scheduler", ""))
    runs.sort(key=lambda run: run.start)
    for run in runs:
        workers.setdefault(run.worker, f"worker {run.worker}")
    return TraceFile(base / 1e9, scheduler, dict(sorted(workers.items())), runs, sorted(marks), sorted(counts))
