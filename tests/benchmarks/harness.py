"""What all benchmarks share: fresh interpreters, sides in turn, medians, tables. Runs in the driver, and as each child.

``driver ──python harness.py module:function '{"count": 60000}'──► child``, which prints its figures as a line of JSON.

Every round of every side has an interpreter of its own, so that no side pays for the heap, the threads or the
processes that another one has left. The sides take turns (A B A B …), since a machine that is busy now may be idle a
minute later; a ratio is that of neighbours in one round, and the median over the rounds is shown.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import statistics
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import psutil

__all__ = [
    "Failed",
    "Plan",
    "Side",
    "Table",
    "Unable",
    "apart",
    "end_with_descendants",
    "figure",
    "in_turn",
    "medians",
    "progress",
    "quantile",
    "ratio",
    "start_apart",
    "together",
]

ANSWER = "answer: "
BOUND = 400.0
"""Seconds that a child may take before it counts as hanging."""
GRACE = 15.0
"""Seconds that it may take to end once it has answered."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much to measure. ``quick`` is a smoke test: its figures mean nothing."""

    quick: bool = False
    rounds: int = 3
    seconds: float | None = None
    """For how long to watch what is idle; None: as each subject likes."""

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclasses.dataclass(frozen=True)
class Side:
    """One of those that are compared: a function of a subject's module, and its arguments."""

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)


class Unable(Exception):
    """In a child: this side can't do that, which is a finding and no mistake."""


@dataclasses.dataclass(frozen=True)
class Failed:
    """Stands for the figures of a side that couldn't be measured."""

    reason: str
    missing: bool = False
    """A package isn't installed: no fault of anybody."""


@dataclasses.dataclass
class Table:
    """Rows of text under a header; `note` is what must be known to read them."""

    header: Sequence[str]
    rows: list[Sequence[str]] = dataclasses.field(default_factory=list)
    note: str = ""
    broken: list[str] = dataclasses.field(default_factory=list)
    """What is not as procsched promises, or couldn't be measured of procsched: the driver fails with it."""

    def add(self, *cells: str) -> None:
        self.rows.append(cells)

    def fail(self, name: str, failed: Failed) -> None:
        """A row for a side without figures."""
        self.add(name, *([failed.reason] + [""] * (len(self.header) - 2)))
        if name.startswith("procsched"):
            self.broken.append(f"{name}: {failed.reason}")

    def markdown(self) -> str:
        lines = [list(self.header), ["---", *["---:"] * (len(self.header) - 1)], *map(list, self.rows)]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"{table}\n\n{self.note}\n" if self.note else f"{table}\n"


def apart(function: Callable[..., Any], arguments: dict[str, Any] | None = None, bound: float = BOUND) -> Any:
    """Call it in a fresh interpreter; `Failed` when that is impossible."""
    return _answer(start_apart(function, arguments), bound)


def together(sides: Iterable[Side]) -> dict[str, Any]:
    """All at the same time, for what takes long and does nothing. By name of the side, its figures or `Failed`."""
    children = {side.name: start_apart(side.function, side.arguments) for side in sides}
    progress(f"at once: {', '.join(children)}")
    return {name: _answer(child, BOUND) for name, child in children.items()}


def _answer(child: subprocess.Popen[str], bound: float) -> Any:
    timer = threading.Timer(bound, end_with_descendants, [child])
    timer.start()
    try:
        assert child.stdout is not None
        line = next((line for line in child.stdout if line.startswith(ANSWER)), None)
        late = not timer.is_alive()
        try:
            child.wait(GRACE if line else 0.5)
        except subprocess.TimeoutExpired:  # some peers hang in their own end
            end_with_descendants(child)
    except BaseException:
        end_with_descendants(child)
        raise
    finally:
        timer.cancel()
        child.stdout.close()  # type: ignore[union-attr]
    if line is None:
        return Failed(f"hangs (over {bound:.0f} s)" if late else f"died with status {child.returncode}")
    answer = json.loads(line.removeprefix(ANSWER))
    return Failed(**answer["failed"]) if "failed" in answer else answer["figures"]


def start_apart(
    function: Callable[..., Any], arguments: dict[str, Any] | None = None, **environment: str
) -> subprocess.Popen[str]:
    """Begin that call. Its standard error is ours."""
    name = f"{function.__module__}:{function.__qualname__}"
    env = {**os.environ, **environment}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # or every boot compiles every module anew
    command = [sys.executable, __file__, name, json.dumps(arguments or {})]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=env)


def end_with_descendants(child: subprocess.Popen[str]) -> None:
    """Kill it, and the workers that it would leave behind."""
    try:
        family = [psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    child.wait()


def in_turn(sides: Iterable[Side], rounds: int) -> dict[str, list[Any] | Failed]:
    """By name of the side, its figures of every round."""
    found: dict[str, list[Any] | Failed] = {side.name: [] for side in sides}
    for number in range(rounds):
        for side in sides:
            values = found[side.name]
            if isinstance(values, Failed):
                continue  # it would fail again
            progress(f"round {number + 1} of {rounds}: {side.name}")
            answer = apart(side.function, side.arguments)
            if isinstance(answer, Failed):
                found[side.name] = answer
            else:
                values.append(answer)
    return found


def medians(values: list[dict[str, float]]) -> dict[str, float]:
    """Of every figure, over the rounds."""
    return {key: statistics.median(value[key] for value in values) for key in values[0]}


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios of neighbours."""
    return statistics.median(our / max(their, 1e-12) for our, their in zip(ours, theirs, strict=True))


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that isn't exceeded by that share of them."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-len(ordered) * share // 1) - 1))]


def figure(value: float) -> str:
    """Three digits that matter, thousands apart."""
    if abs(value) >= 100:
        digits = max(0, len(str(int(abs(value)))) - 3)
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def progress(text: str) -> None:
    """For whoever waits."""
    print(f"  {text}", file=sys.stderr, flush=True)


def _child(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    module, _, function = name.partition(":")
    try:
        return {"figures": getattr(importlib.import_module(module), function)(**arguments)}
    except ModuleNotFoundError as error:
        return {"failed": {"reason": f"{error.name} isn't installed", "missing": True}}
    except Exception as error:
        if type(error).__name__ == "Unable":  # of another copy of this module: here it is __main__
            return {"failed": {"reason": str(error)}}
        traceback.print_exc()
        return {"failed": {"reason": f"{type(error).__name__}: {str(error)[:80]}"}}


if __name__ == "__main__":
    answer = _child(sys.argv[1], json.loads(sys.argv[2]))
    print(ANSWER + json.dumps(answer), flush=True)
