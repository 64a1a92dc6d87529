"""Whether a function that went by value would give the same bytes again. Runs in the caller's thread.

A script submits the same small function of its own thousands of times, and cloudpickle takes 30 µs for it each time.
For a function whose surroundings are plain (numbers, texts, modules, other such functions) a look at the identity of
each of them tells in a microsecond that nothing was changed. Anything mutable around it makes a function ineligible.
"""

from __future__ import annotations

import sys
import types
import weakref
from typing import Any

from cloudpickle import cloudpickle as _internals

from procsched.shipping.homes import Way, home_of
from procsched.shipping.pickling import is_named, is_wanted_by_value

_IMMUTABLE = frozenset({int, float, complex, str, bytes, bool, type(None)})
_MAX_LENGTH = 1024  # of texts, which are kept until the function dies
_MAX_FUNCTIONS = 16
_MISSING = object()
_BY_NAME = (Way.NAME, Way.SEARCH, Way.TASK_FILE)


class _Ineligible(Exception):
    """Something mutable, or too much of it."""


class _Surroundings:
    """What one function looks at, as it was: plain values as such, the rest by weak reference."""

    __slots__ = ("cells", "code", "defaults", "fn", "named", "values")

    def __init__(self, fn: types.FunctionType) -> None:
        self.fn = weakref.ref(fn)
        self.code = fn.__code__
        self.defaults = fn.__defaults__
        self.cells: list[object] = []
        self.values: list[tuple[str, object]] = []
        self.named: list[tuple[str, weakref.ref[Any]]] = []

    def hold(self) -> bool:
        fn = self.fn()
        if fn is None or fn.__code__ is not self.code or fn.__defaults__ is not self.defaults:
            return False
        if fn.__kwdefaults__ or fn.__dict__:
            return False
        look = fn.__globals__.get
        for name, value in self.values:
            if look(name, _MISSING) is not value:
                return False
        for name, ref in self.named:
            found = look(name)
            if found is None or found is not ref():
                return False
        try:
            return not self.cells or all(
                cell.cell_contents is value for cell, value in zip(fn.__closure__ or (), self.cells, strict=True)
            )
        except ValueError:  # a cell was emptied
            return False


class Snapshot:
    """The surroundings of a function and of the functions that it takes along. Keeps none of them alive."""

    __slots__ = ("_all", "_modules")

    def __init__(self, fn: types.FunctionType) -> None:
        self._all: list[_Surroundings] = []
        # A package that is looked at may get further submodules, and cloudpickle sends those that the code mentions.
        self._modules = 0
        waiting, seen = [fn], {id(fn)}
        for function in waiting:
            if len(waiting) > _MAX_FUNCTIONS:
                raise _Ineligible
            for part in self._take(function):
                if id(part) not in seen:
                    seen.add(id(part))
                    waiting.append(part)

    def holds(self) -> bool:
        """Whether nothing has been rebound since."""
        if self._modules and self._modules != len(sys.modules):
            return False
        for around in self._all:  # noqa: SIM110  (all() would cost more than the usual single look)
            if not around.hold():
                return False
        return True

    def _take(self, fn: types.FunctionType) -> list[types.FunctionType]:
        """Note the surroundings of `fn`; the functions in them that go by value, too."""
        if fn.__kwdefaults__ or fn.__dict__ or not all(map(_is_immutable, fn.__defaults__ or ())):
            raise _Ineligible
        around = _Surroundings(fn)
        taken = []
        try:
            around.cells = [cell.cell_contents for cell in fn.__closure__ or ()]
        except ValueError:
            raise _Ineligible from None
        if not all(map(_is_immutable, around.cells)):
            raise _Ineligible
        for name in _internals._extract_code_globals(fn.__code__):
            value = fn.__globals__.get(name, _MISSING)
            if value is _MISSING or _is_immutable(value):
                around.values.append((name, value))
                continue
            if type(value) is types.ModuleType and _is_shared(value, value.__name__, ""):
                if hasattr(value, "__path__"):
                    self._modules = len(sys.modules)
            elif not _is_shared(value, getattr(value, "__module__", None), getattr(value, "__qualname__", None)):
                if type(value) is not types.FunctionType:
                    raise _Ineligible
                taken.append(value)
            around.named.append((name, weakref.ref(value)))
        self._all.append(around)
        return taken


def snapshot(fn: object) -> Snapshot | None:
    """The snapshot of an eligible function."""
    if type(fn) is not types.FunctionType:
        return None
    try:
        return Snapshot(fn)
    except (_Ineligible, TypeError):
        return None


def _is_immutable(value: Any) -> bool:
    kind = type(value)
    if kind is tuple:
        return len(value) <= 64 and all(map(_is_immutable, value))
    return kind in _IMMUTABLE and (kind not in (str, bytes) or len(value) <= _MAX_LENGTH)


def _is_shared(value: object, module: object, qualname: object) -> bool:
    """Whether it goes by name: nothing of it is in the bytes."""
    if not isinstance(value, (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)):
        return False
    if type(module) is not str or type(qualname) is not str or home_of(module).way not in _BY_NAME:
        return False
    if is_wanted_by_value(module):
        return False
    return sys.modules.get(module) is value if not qualname else is_named(value, module, qualname)
