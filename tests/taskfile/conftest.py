"""Loading a file changes ``sys.modules`` and ``sys.path``: here that is undone after each test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from procsched import taskfile


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    modules, path, sources = dict(sys.modules), list(sys.path), dict(taskfile._sources)
    yield
    for name in sys.modules.keys() - modules.keys():
        if not name.startswith("procsched"):
            del sys.modules[name]
    sys.path[:] = path
    taskfile._sources.clear()
    taskfile._sources.update(sources)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a Python file, under ``tmp_path``."""

    def write(text: str, name: str = "work_tasks.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        return path

    return write
