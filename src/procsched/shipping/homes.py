"""Where a worker finds a module that is loaded here: its home. Runs in the caller's thread.

That a module is in ``sys.modules`` says nothing about a worker: it may have been loaded by path, made by hand, or
reloaded since the workers imported it. So the question is put to the finders that a fresh interpreter has, and their
answer must be the very file that is loaded here.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
import types
import weakref
from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple


class Way(Enum):
    """How functions and classes of a module travel."""

    NAME = "by name: every worker can import it"
    SEARCH = "by name, together with sys.path, which has changed since workers may have been started"
    TASK_FILE = "by name, after the task file was loaded"
    VALUE = "by value: a worker couldn't import it, or would get something else"
    GROWN = "made by importable code while it ran: functions by value, classes by name"
    NATIVE = "not at all: a compiled module that a worker couldn't import"


class Home(NamedTuple):
    """The home of one module. `source` is (module name, path) of a task file, `search` a whole sys.path."""

    way: Way
    source: tuple[str, str] | None = None
    search: tuple[str, ...] = ()


BY_VALUE = Home(Way.VALUE)
BY_NAME = Home(Way.NAME)

# What every worker searches in any case. This file is imported before the first worker is started, so anything that is
# added to sys.path later may be missing there, and is sent along.
_search_at_start = frozenset(entry for entry in sys.path if os.path.isabs(entry))

_MAIN = ("__main__", "__mp_main__")
_STDLIB = os.path.dirname(os.__file__) + os.sep
_COMPILED = tuple(importlib.machinery.EXTENSION_SUFFIXES)


class _Known(NamedTuple):
    spec: weakref.ref[Any] | None
    search: list[str]
    home: Home


_homes: dict[str, _Known] = {}
_replaced: set[str] = set()  # modules of which the workers may have an older state than we


def home_of(name: str) -> Home:
    """The home of the module called `name`, as it is loaded here."""
    if name in _MAIN:
        return BY_VALUE
    module = sys.modules.get(name)
    if module is None:
        return BY_VALUE
    spec = getattr(module, "__spec__", None)
    known = _homes.get(name)
    if known is not None and (known.spec() if known.spec else None) is spec:
        if known.search == sys.path:
            return known.home
    elif known is not None and known.home.way in (Way.NAME, Way.SEARCH) and not _is_stdlib(name):
        # A reload gives a module a new spec, while the workers keep what they have imported.
        _replaced.add(name)
    source = _task_file(name)
    if source is not None:  # not remembered: it may be loaded again, from elsewhere
        return Home(Way.TASK_FILE, source)
    search = list(sys.path)
    home = BY_VALUE if name in _replaced else _look(name, module)
    _homes[name] = _Known(_weak(spec), search, home)
    return home


def forget(names: Iterable[str]) -> None:
    """These modules are loaded anew, here and in all workers: what was found out about them holds no longer."""
    for name in names:
        _homes.pop(name, None)
        _replaced.discard(name)


def _weak(spec: object) -> weakref.ref[Any] | None:
    try:
        return None if spec is None else weakref.ref(spec)
    except TypeError:
        return None


def _task_file(name: str) -> tuple[str, str] | None:
    taskfile = sys.modules.get("procsched.taskfile")  # not imported: then no task file was loaded either
    return None if taskfile is None else taskfile.source_of(name)


def _look(name: str, module: Any) -> Home:
    file = getattr(module, "__file__", None)
    # Not asked for its spec: some of it stands in sys.modules under an alias (3.13's collections.abc).
    if _is_stdlib(name) and (file is None or _is_stdlib_file(file)):
        return BY_NAME
    spec = _spec_in_a_fresh_interpreter(name)
    if spec is not None and _is_same(spec, module, file):
        if _is_stdlib(name) or _was_searched_at_start(name):
            return BY_NAME
        return Home(Way.SEARCH, search=tuple(os.path.abspath(entry) for entry in sys.path))
    if type(file) is str and file.endswith(_COMPILED):
        return Home(Way.NATIVE)
    root = name.partition(".")[0]
    if spec is None and file is None and root != name and home_of(root).way in (Way.NAME, Way.SEARCH):
        return Home(Way.GROWN)
    return BY_VALUE


def _spec_in_a_fresh_interpreter(name: str) -> importlib.machinery.ModuleSpec | None:
    path = None
    parent = name.rpartition(".")[0]
    if parent:
        if home_of(parent).way not in (Way.NAME, Way.SEARCH):
            return None
        path = list(getattr(sys.modules[parent], "__path__", ()))
    finders: list[Any] = [importlib.machinery.BuiltinImporter, importlib.machinery.FrozenImporter]
    finders.append(importlib.machinery.PathFinder)
    # Installed in "editable" mode, a package has its own finder, which site starts from a .pth file in workers, too.
    # Any other finder was put there by the program, and workers don't have it.
    finders += [finder for finder in sys.meta_path if "editable" in _module_of(finder)]
    for finder in finders:
        try:
            spec = finder.find_spec(name, path)
        except (ImportError, OSError, ValueError, AttributeError, TypeError):
            continue
        if spec is not None:
            return spec  # type: ignore[no-any-return]
    return None


def _module_of(finder: object) -> str:
    kind = finder if isinstance(finder, type) else type(finder)
    return str(getattr(kind, "__module__", ""))


def _is_same(spec: importlib.machinery.ModuleSpec, module: Any, file: object) -> bool:
    """Whether importing `spec` gives what is loaded here, as far as one can tell without importing it."""
    ours = getattr(getattr(module, "__spec__", None), "origin", None) or file
    if ours == spec.origin or file == spec.origin:
        return True
    if ours is None:  # made by hand; or something that the importable module put in its own place, as some do
        return type(module) is not types.ModuleType
    if not isinstance(ours, str) or not isinstance(spec.origin, str):
        return False
    return os.path.realpath(ours) == os.path.realpath(spec.origin)


def _is_stdlib(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names


def _is_stdlib_file(file: object) -> bool:
    return type(file) is str and file.startswith(_STDLIB) and "site-packages" not in file


def _was_searched_at_start(name: str) -> bool:
    """Whether the top-level package of `name` is found without what was added to sys.path later."""
    root = name.partition(".")[0]
    entries = [entry for entry in sys.path if entry in _search_at_start]
    spec = importlib.machinery.PathFinder.find_spec(root, entries)
    now = importlib.machinery.PathFinder.find_spec(root)
    if spec is None:
        return now is None  # found by an editable finder, or built in
    return now is None or (spec.origin == now.origin and _places(spec) == _places(now))


def _places(spec: importlib.machinery.ModuleSpec) -> list[str]:
    return list(spec.submodule_search_locations or ())
