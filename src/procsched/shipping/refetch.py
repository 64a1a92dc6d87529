"""What pickles call in a worker to find something again by its name. Runs in the child; imports next to nothing."""

from __future__ import annotations

import builtins
import functools
import importlib
import operator
import sys
import types
from collections.abc import Callable


def from_search(search: tuple[str, ...], module: str, qualname: str) -> object:
    """`qualname` of `module`, imported with the sys.path that the parent had."""
    have = set(search)
    if sys.path[: len(search)] != list(search):
        sys.path[:] = [*search, *(entry for entry in sys.path if entry not in have)]
    return _part(importlib.import_module(module), qualname)


def from_task_file(module: str, path: str, qualname: str) -> object:
    """`qualname` of the task file at `path`, which is loaded under the name `module` unless it already is."""
    from procsched.taskfile import import_source

    import_source(module, path)
    return _part(sys.modules[module], qualname)


def _part(module: object, qualname: str) -> object:
    return operator.attrgetter(qualname)(module) if qualname else module


def empty_module(name: str) -> types.ModuleType:
    """A module that travels by value, to be filled. It isn't registered: its name may mean something else here."""
    module = types.ModuleType(name)
    module.__dict__["__builtins__"] = builtins.__dict__
    return module


def cached(fn: Callable[..., object], maxsize: int | None, typed: bool) -> object:
    """A function under functools.lru_cache, with an empty cache."""
    return functools.lru_cache(maxsize, typed)(fn)
