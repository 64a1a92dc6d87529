"""The pickler for everything that isn't plain data: cloudpickle, told where workers find modules. Caller's thread.

cloudpickle sends a function or class by name as soon as its module is in ``sys.modules``. `homes.home_of` knows
better, so its verdict comes first here. cloudpickle's registry of by-value modules isn't touched for that: it belongs
to the whole program, whose other threads may be pickling too. A module that the user registered there is honoured.
"""

from __future__ import annotations

import copyreg
import functools
import io
import pickle
import sys
import types
import typing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as _internals

from procsched.shipping import refetch
from procsched.shipping.homes import Home, Way, home_of

_FROM_ELSEWHERE = (Way.SEARCH, Way.TASK_FILE)
_NOT_SHIPPED_OF_MODULES = {"__builtins__", "__spec__", "__loader__", "__cached__"}


def dumps(
    obj: object,
    protocol: int = 5,
    buffer_callback: Callable[[pickle.PickleBuffer], object] | None = None,
) -> bytes:
    """Pickle `obj` so that a worker can load it, wherever its functions and classes come from."""
    with io.BytesIO() as file:
        WorkerPickler(file, protocol, buffer_callback).dump(obj)
        return file.getvalue()


def is_named(obj: Any, module: str, qualname: str) -> bool:
    """Whether `obj` is what one gets by looking for `qualname` in the loaded module."""
    found: Any = sys.modules.get(module)
    try:
        for part in qualname.split("."):
            found = getattr(found, part)
    except AttributeError:
        return False
    return found is obj


def refetched(obj: Any, home: Home) -> tuple[Any, ...] | None:
    """How a worker finds `obj` (a function, class or module) again, where its bare name doesn't do. None: it does."""
    if isinstance(obj, types.ModuleType):
        module, qualname = obj.__name__, ""
    else:
        module, qualname = obj.__module__, _qualname(obj)
        if not is_named(obj, module, qualname):
            return None
    if home.source is not None:
        return refetch.from_task_file, (*home.source, qualname)
    if home.search:
        return refetch.from_search, (home.search, module, qualname)
    return None


class WorkerPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle's pickler with another opinion about what a worker can import."""

    def __init__(self, file: Any, protocol: int = 5, buffer_callback: Any = None) -> None:
        if copyreg.dispatch_table != _seen_copyreg:
            _merge_tables()
        super().__init__(file, protocol, buffer_callback=buffer_callback)

    def reducer_override(self, obj: Any) -> Any:
        """Asked for every object that isn't a plain number, text or container."""
        kind: Any = type(obj)
        is_function = kind is types.FunctionType
        if not is_function and not issubclass(kind, type):
            if kind.__reduce__ is object.__reduce__ and kind.__reduce_ex__ is object.__reduce_ex__:
                return NotImplemented  # goes on to `dispatch_table`, then to __reduce_ex__
            return self._reduced_by_its_class(obj, kind)
        module = getattr(obj, "__module__", None)
        if type(module) is str and module != "builtins" and module in sys.modules:
            home = home_of(module)
            if home.way is Way.VALUE or (home.way is Way.GROWN and is_function):
                return self._by_value(obj, is_function)
            if home.way is Way.NATIVE:
                raise pickle.PicklingError(_native(obj, module))
            if home.way in _FROM_ELSEWHERE and not is_wanted_by_value(module):
                return refetched(obj, home) or self._by_value(obj, is_function)
        return super().reducer_override(obj)

    def _reduced_by_its_class(self, obj: Any, kind: type) -> Any:
        """A __reduce__ may give a mere name, of a module that a worker can't import."""
        module = getattr(kind, "__module__", None)
        if type(module) is not str or kind in self.dispatch_table or home_of(module).way is not Way.VALUE:
            return NotImplemented
        reduced = obj.__reduce_ex__(self.proto)
        if type(reduced) is str:
            raise pickle.PicklingError(f"it goes by its name, '{reduced}', which a worker can't import from {module}")
        return reduced

    def _by_value(self, obj: Any, is_function: bool) -> Any:
        return self._dynamic_function_reduce(obj) if is_function else _internals._dynamic_class_reduce(obj)


def is_wanted_by_value(module: str) -> bool:
    """Whether the user told cloudpickle so (`cloudpickle.register_pickle_by_value`), for it or a package above it."""
    registered = cloudpickle.list_registry_pickle_by_value()
    while registered and module:
        if module in registered:
            return True
        module = module.rpartition(".")[0]
    return False


def _native(obj: Any, module: str) -> str:
    return f"{_qualname(obj)} is part of the compiled module {module}, which isn't on sys.path, where workers look"


def _reduce_code(code: types.CodeType) -> tuple[Any, ...]:
    # cloudpickle blanks the file name, to get the same bytes in every process; a traceback that names the user's file
    # and line is worth more here.
    make, args = _internals._code_reduce(code)
    return make, tuple(code.co_filename if arg == "<dynamic-code>" and type(arg) is str else arg for arg in args)


def _reduce_module(module: types.ModuleType) -> Any:
    name = module.__name__
    home = home_of(name)
    if sys.modules.get(name) is module and not is_wanted_by_value(name):
        if home.way in _FROM_ELSEWHERE:
            return refetched(module, home)
        if home.way is not Way.VALUE or name == "__main__":
            return _internals.subimport, (name,)
    # As state and not as an argument: two modules that import each other are a cycle.
    state = {key: value for key, value in vars(module).items() if key not in _NOT_SHIPPED_OF_MODULES}
    return refetch.empty_module, (name,), state


def _reduce_named(obj: Any) -> Any:
    """Objects that pickle would only ever send by name: as they ask for where that works, else made again."""
    module = getattr(obj, "__module__", None)
    if type(module) is str and module in sys.modules:
        home = home_of(module)
        if home.way is Way.NATIVE:
            raise pickle.PicklingError(_native(obj, module))
        if home.way in _FROM_ELSEWHERE:
            found = refetched(obj, home)
            if found is not None:
                return found
        elif home.way is not Way.VALUE and is_named(obj, module, _qualname(obj)):
            return obj.__reduce__()
    make = _made_again.get(type(obj))
    return obj.__reduce__() if make is None else make(obj)


def _qualname(obj: Any) -> str:
    return str(getattr(obj, "__qualname__", None) or obj.__name__)


def _cache_made_again(cached: Any) -> Any:
    how = cached.cache_parameters()  # the worker's cache starts empty
    return refetch.cached, (cached.__wrapped__, how["maxsize"], how["typed"])


# `def f(x: UserId)` in a script takes its annotations along into the worker, where __main__.UserId doesn't exist.
_made_again: dict[type, Callable[[Any], Any]] = {
    type(functools.lru_cache(maxsize=1)(len)): _cache_made_again,
    typing.NewType: lambda new: (typing.NewType, (new.__name__, new.__supertype__)),
    typing.TypeVar: lambda var: (_internals._make_typevar, _internals._decompose_typevar(var)),
    typing.ParamSpec: lambda spec: (typing.ParamSpec, (spec.__name__,)),
    typing.TypeVarTuple: lambda var: (typing.TypeVarTuple, (var.__name__,)),
}
if sys.version_info >= (3, 12):
    _made_again[typing.TypeAliasType] = lambda alias: (
        functools.partial(typing.TypeAliasType, alias.__name__, alias.__value__, type_params=alias.__type_params__),
        (),
    )


def _reduce_text_file(file: io.TextIOWrapper) -> Any:
    # cloudpickle would read the whole file and send a copy of its text.
    for name in ("stdout", "stderr"):
        if file is getattr(sys, name):
            return getattr, (sys, name)
    raise pickle.PicklingError("cannot pickle an open file")


def _reduce_connection(connection: object) -> Any:
    # Its descriptor's number would travel, and in the worker close whatever has that number there.
    raise pickle.PicklingError(f"cannot pickle '{type(connection).__name__}' object: it is open in this process")


_own_table: dict[type, Callable[[Any], Any]] = {
    types.CodeType: _reduce_code,
    types.ModuleType: _reduce_module,
    types.BuiltinFunctionType: _reduce_named,
    **dict.fromkeys(_made_again, _reduce_named),
}
_refused: dict[type, Callable[[Any], Any]] = {io.TextIOWrapper: _reduce_text_file, Connection: _reduce_connection}
_seen_copyreg: dict[type, Any] = {}


def _merge_tables() -> None:
    """One plain dict, which pickle's C code looks into directly, instead of cloudpickle's ChainMap (2 µs an object)."""
    seen = dict(copyreg.dispatch_table)
    refused = {kind: refuse for kind, refuse in _refused.items() if kind not in seen}
    WorkerPickler.dispatch_table = {**seen, **cloudpickle.Pickler._dispatch_table, **_own_table, **refused}
    _seen_copyreg.clear()
    _seen_copyreg.update(seen)


_merge_tables()
