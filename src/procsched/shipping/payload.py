"""Turns a call into bytes, once: `ship`. Runs in the caller's thread, so that what can't travel raises at the call.

A function travels by name where a worker finds the same one under it (a few bytes, decoded once per worker), and else
by value. Arguments are a snapshot: what is done to them afterwards changes nothing.
"""

from __future__ import annotations

import functools
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from procsched import wire
from procsched.shipping.callables import refuse_what_never_runs, short_name
from procsched.shipping.homes import Home, Way, home_of
from procsched.spool import Spooled
from procsched.wire import Function

_PROTOCOL = 5
_MAX_KNOWN = 4096
_MAX_PLAIN = 16  # items of a container that is looked through on the fast way; more are worth cloudpickle's 10 µs
_MAX_PLAIN_DEPTH = 3


@dataclass(slots=True)
class Payload:
    """A call as it travels: the function, and the pickled ``(args, kwargs)``, empty when there are none."""

    function: Function
    args: bytes | Spooled


def ship(fn: Callable[..., object], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Payload:
    """Pickle a call of `fn`.

    Raises `TypeError` for what isn't a piece of work (not callable, a coroutine or generator function), `NotShippable`
    for what can't be pickled, `OSError` when there is no room for something large.
    """
    function = ship_function(fn)
    if args or kwargs:
        return Payload(function, ship_arguments(args, kwargs))
    if function.plain is None:
        function.plain = Payload(function, b"")
    return function.plain  # type: ignore[no-any-return]


def ship_function(fn: Callable[..., object]) -> Function:
    """Pickle `fn` alone. The same function gets the same key as long as it gives the same bytes."""
    known = _known.get(id(fn))
    if known is not None and known.ref() is fn:
        try:
            look = known.look
            if known.snapshot.holds() if look is None else look(_modules.get(known.module)) is fn:
                return known.function
        except AttributeError:
            pass  # no longer found under its name, or by value without a snapshot
    else:
        known = None
    refuse_what_never_runs(fn)
    by_name = _by_name(fn)
    if by_name is not None:
        body, home, module, qualname = by_name
        function = Function(body, True, short_name(fn), source=home.source)
        _remember(fn, _Remembered(function, module, attrgetter(qualname), None))
        return function
    return _by_value(fn, known)


def _by_value(fn: Callable[..., object], known: _Remembered | None) -> Function:
    snapshot = None
    if type(fn) is types.FunctionType:
        from procsched.shipping.snapshots import snapshot as take

        snapshot = take(fn)  # first: what another thread changes meanwhile must make it stale
    body = _encode(fn, lambda error: _blame().function_not_shippable(fn, error))
    if known is not None and known.look is None and known.function.body == body:
        known.snapshot = snapshot
        function = known.function  # so that workers needn't be sent it again
    else:
        function = Function(body, False, short_name(fn))
        if isinstance(body, bytes):
            _remember(fn, _Remembered(function, "", None, snapshot))
    return function


def ship_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes | Spooled:
    """Pickle ``(args, kwargs)``. Raises as `ship` does."""
    for value in args:
        if type(value) not in _ATOMS and not _is_plain(value):
            break
    else:
        if type(args) is tuple and (not kwargs or _is_plain(kwargs)):
            data = pickle.dumps((args, kwargs), _PROTOCOL)
            if len(data) < wire.INLINE_LIMIT:
                return data
    for name in kwargs:
        if not isinstance(name, str):
            raise TypeError(f"names of keyword arguments must be str, not {type(name).__qualname__}")
    call = (tuple(args), dict(kwargs))
    return _encode(call, lambda error: _blame().not_shippable(*call, error))


# -- functions that were seen before ---------------------------------------------------------------------------------


class _Remembered:
    """A function that was shipped, without keeping it alive.

    By name: `look` finds it in `module`. By value: `snapshot`, if there is one, tells whether it is still the same.
    """

    __slots__ = ("function", "look", "module", "ref", "snapshot")

    def __init__(self, function: Function, module: str, look: attrgetter[Any] | None, snapshot: Any) -> None:
        self.ref: Callable[[], object] = _nothing
        self.function = function
        self.module = module
        self.look = look
        self.snapshot = snapshot


def _nothing() -> None: ...


_modules = sys.modules
# By id, since __hash__ and __eq__ of a class may be user code; `ref` tells whether the id still means the same object.
_known: dict[int, _Remembered] = {}


def _remember(fn: object, known: _Remembered) -> None:
    key = id(fn)

    def forget(ref: weakref.ref[Any]) -> None:
        known = _known.get(key)
        if known is not None and known.ref is ref:
            _known.pop(key, None)

    try:
        known.ref = weakref.ref(fn, forget)
    except TypeError:
        if type(fn) is not types.MethodDescriptorType or known.look is None:
            return
        known.ref = lambda: fn  # a method of a built-in type, as str.upper: lives for ever anyway
    _known[key] = known
    while len(_known) > _MAX_KNOWN:
        try:
            _known.pop(next(iter(_known)), None)
        except (StopIteration, RuntimeError):  # another thread was faster
            break


# -- by name or by value ---------------------------------------------------------------------------------------------

_NAMED = (types.FunctionType, types.BuiltinFunctionType, type(functools.lru_cache(maxsize=1)(len)))
_ATOMS = frozenset({int, float, complex, str, bytes, bool, type(None)})


def _by_name(fn: Any) -> tuple[bytes, Home, str, str] | None:
    """The pickle of `fn` by name, its home, module and qualified name; None when only its value will do."""
    module, qualname = _name_of(fn)
    if module is None or qualname is None or "<" in qualname or not _is_found(fn, module, qualname):
        return None
    home = home_of(module)
    if home.way is Way.VALUE or home.way is Way.NATIVE or (home.way is Way.GROWN and type(fn) is types.FunctionType):
        return None
    try:
        if "cloudpickle" in _modules and _pickling().is_wanted_by_value(module):
            return None
        if home.way is Way.SEARCH:
            return _pickling().dumps(fn), home, module, qualname
        if isinstance(fn, (type, *_NAMED, types.MethodDescriptorType)) or type(fn.__reduce_ex__(_PROTOCOL)) is str:
            return pickle.dumps(fn, _PROTOCOL), home, module, qualname
    except Exception:
        pass  # tried again by value, which says what is wrong
    return None


def _name_of(fn: Any) -> tuple[str | None, str | None]:
    owner = fn.__objclass__ if type(fn) is types.MethodDescriptorType else fn
    try:
        module, qualname = getattr(owner, "__module__", None), getattr(fn, "__qualname__", None)
    except Exception:  # a proxy for what isn't there
        return None, None
    if type(module) is not str or type(qualname) is not str or (owner is not fn and module != "builtins"):
        return None, None
    return module, qualname


def _is_found(fn: object, module: str, qualname: str) -> bool:
    try:
        return attrgetter(qualname)(_modules.get(module)) is fn
    except AttributeError:
        return False


def _is_plain(value: Any, depth: int = _MAX_PLAIN_DEPTH) -> bool:
    """Whether plain pickle does: a small container of nothing but numbers and text."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if depth == 0 or kind not in _CONTAINERS or len(value) > _MAX_PLAIN:
        return False
    if kind is dict:
        return all(type(key) is str for key in value) and all(_is_plain(part, depth - 1) for part in value.values())
    return all(_is_plain(part, depth - 1) for part in value)


_CONTAINERS = frozenset({list, tuple, dict, set, frozenset})


class _Unpicklable(Exception):
    """Carries what pickling raised past `wire.encode`, whose own errors are about room and not about the object."""


def _encode(obj: object, blame: Callable[[Exception], Exception]) -> bytes | Spooled:
    def dumps(obj: object, **how: Any) -> bytes:
        try:
            return _pickling().dumps(obj, **how)  # type: ignore[no-any-return]
        except Exception as error:
            raise _Unpicklable from error

    try:
        data = wire.encode(obj, dumps)
        return data if isinstance(data, bytes) else Spooled.store(data)
    except _Unpicklable as failed:
        error = failed.__cause__
        assert isinstance(error, Exception)
    raise blame(error) from error


# Imported at first need: cloudpickle takes longer to import than all of procsched.
def _pickling() -> Any:
    from procsched.shipping import pickling

    return pickling


def _blame() -> Any:
    from procsched.shipping import blame

    return blame
