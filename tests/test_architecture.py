"""Imports point inward. The same table, in words, stands in docs/architecture.md."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import procsched

SOURCE = Path(procsched.__file__).parent
PURE = {
    "abc", "bisect", "calendar", "collections", "collections.abc",
    "contextlib", "copy", "cronsim", "dataclasses", "datetime",
    "decimal", "difflib",
    "enum", "fractions", "functools", "heapq", "itertools", "math", "numbers", "operator", "re", "typing", "weakref",
    "zoneinfo",
}  # fmt: skip
LIGHT = {
    "procsched.context", "procsched.spool", "procsched.wire", "procsched.mapping", "procsched.sources",
    "procsched.taskfile",
}  # fmt: skip


def modules() -> dict[str, Path]:
    names = {}
    for path in SOURCE.rglob("*.py"):
        parts = ("procsched", *path.relative_to(SOURCE).with_suffix("").parts)
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


MODULES = modules()


def imports(name: str, *, at_run_time: bool = True) -> Iterator[str]:
    """What a module imports, anywhere in it; without what it imports for its types only."""
    tree = ast.parse(MODULES[name].read_text("utf-8"))
    for node in tree.body:
        guarded = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for part in () if guarded and at_run_time else ast.walk(node):
            if isinstance(part, ast.Import):
                yield from (alias.name for alias in part.names)
            elif isinstance(part, ast.ImportFrom):
                assert part.level == 0, f"{name}: imports are written out"
                for alias in part.names:
                    whole = f"{part.module}.{alias.name}"
                    yield whole if whole in MODULES else str(part.module)


def inside(package: str) -> list[str]:
    return [name for name in MODULES if name == package or name.startswith(f"{package}.")]


@pytest.mark.parametrize("name", inside("procsched.core"))
def test_the_core_is_pure(name: str) -> None:
    """It imports itself and what has no effects: no thread, process, clock, log, randomness, file."""
    foreign = {used for used in imports(name) if used not in PURE | {"__future__"}}
    assert {used for used in foreign if not used.startswith("procsched.core")} == set()


@pytest.mark.parametrize("name", sorted(MODULES))
def test_only_the_pool_knows_loky(name: str) -> None:
    if not name.startswith("procsched.pool"):
        assert not [used for used in imports(name, at_run_time=False) if used.split(".")[0] == "loky"]


@pytest.mark.parametrize("name", sorted(MODULES))
def test_the_command_line_is_outermost(name: str) -> None:
    if not name.startswith(("procsched.cli", "procsched.__main__")):
        assert not [used for used in imports(name) if used.startswith("procsched.cli")]


@pytest.mark.parametrize("name", inside("procsched.worker"))
def test_a_worker_loads_nothing_of_the_parent(name: str) -> None:
    """Only its own side, what crosses, and (as a last resort) the pickler that the caller's side uses."""
    for used in imports(name):
        if used.startswith("procsched."):
            assert used in LIGHT or used.startswith(("procsched.worker", "procsched.shipping")), used


@pytest.mark.parametrize("name", [*inside("procsched.pool"), *inside("procsched.shipping")])
def test_the_inner_rings_know_nothing_of_the_loop(name: str) -> None:
    """Neither the pool nor the shipping side imports dispatcher, engine or the public face."""
    outer = tuple(f"procsched.{ring}" for ring in ("dispatcher", "engine", "scheduler", "offering", "observe"))
    assert not [used for used in imports(name) if used.startswith(outer)]


def test_no_two_classes_share_a_name() -> None:
    """One word per thing."""
    homes = defaultdict(list)
    for name, path in MODULES.items():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(name)
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}
