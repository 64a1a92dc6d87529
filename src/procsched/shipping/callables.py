"""What is no piece of work: what isn't callable, coroutine and generator functions. Runs in the caller's thread.

Calling a coroutine or generator function executes nothing: it makes an object that somebody has to drive, and nobody in
a worker does. Such a run would count as a success without having happened, so it is refused at the door. What only the
call itself can show (a wrapper that hands a coroutine through) is left to the worker, which looks at the result.
"""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Iterator
from enum import Enum

# A wrapper around a coroutine function is believed to drive it when its code names anything like asyncio.run,
# run_until_complete, async_to_sync, send…; one that names nothing of the kind can only hand the coroutine on.
_DRIVES_COROUTINES = ("run", "sync", "loop", "send", "wait", "result", "drive", "exec")
_CONSUMES = frozenset({"join", "extend", "update", "reduce", "deque", "array", "fromiter", "consume", "collect"})
_MAX_LAYERS = 100  # partials of partials and wrappers of wrappers; a longer chain is a loop


def refuse_what_never_runs(fn: object) -> None:
    """Raise `TypeError` when calling `fn` wouldn't execute it."""
    if not callable(fn):
        raise TypeError(f"the function must be a callable, not {_an(fn)}{_hint(fn)}")
    wrappers: list[types.FunctionType] = []
    for layer in _layers(fn):
        if (kind := _kind(layer)) is not None:
            if not any(_drives(wrapper, kind) for wrapper in wrappers):
                raise TypeError(
                    f"{describe(fn)} is {kind.value}: calling it runs nothing, so it can't be a task. {_INSTEAD[kind]}"
                )
            return
        if isinstance(layer, types.FunctionType):
            wrappers.append(layer)


def describe(fn: object) -> str:
    """How messages call `fn`: its qualified name, or what it is."""
    name = _text(fn, "__qualname__")
    if name:
        return f"'{name}'"
    if isinstance(fn, functools.partial):
        return f"a partial of {describe(fn.func)}"
    return _an(fn)


def short_name(fn: object) -> str:
    """The name of `fn` for people: the last part of its qualified name, of a callable instance its class."""
    for _ in range(_MAX_LAYERS):
        if not isinstance(fn, functools.partial):
            break
        fn = fn.func
    return _text(fn, "__name__") or type(fn).__name__


def _text(fn: object, attribute: str) -> str:
    try:
        text = getattr(fn, attribute, "")
    except Exception:  # a proxy for what isn't there
        return ""
    return text if type(text) is str else ""


class _Kind(Enum):
    COROUTINE = "a coroutine function"
    ASYNC_GENERATOR = "an async generator function"
    GENERATOR = "a generator function"


_INSTEAD = {
    _Kind.COROUTINE: "Wrap it in a plain function that calls asyncio.run(…).",
    _Kind.ASYNC_GENERATOR: "Wrap it in a plain function that drives it with asyncio.run(…).",
    _Kind.GENERATOR: "Wrap it in a plain function that consumes it, for instance with list(…).",
}


def _kind(fn: object) -> _Kind | None:
    if inspect.iscoroutinefunction(fn):
        return _Kind.COROUTINE
    if inspect.isasyncgenfunction(fn):
        return _Kind.ASYNC_GENERATOR
    return _Kind.GENERATOR if inspect.isgeneratorfunction(fn) else None


def _layers(fn: object) -> Iterator[object]:
    """`fn` and what it stands in front of, outermost first."""
    for _ in range(_MAX_LAYERS):
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, (types.MethodType, staticmethod, classmethod)):
            fn = fn.__func__
        elif isinstance(fn, type):
            return  # calling a class makes an instance, whatever its __call__ is
        else:
            yield fn
            if isinstance(fn, (types.FunctionType, _LruCache)):
                fn = getattr(fn, "__wrapped__", None)
            else:
                fn = getattr(type(fn), "__call__")  # noqa: B004, B009  (that of the class is what gets called)
            if fn is None or isinstance(fn, types.WrapperDescriptorType):
                return


_LruCache = type(functools.lru_cache(maxsize=1)(len))


def _drives(wrapper: types.FunctionType, kind: _Kind) -> bool:
    """Whether `wrapper` looks as if it drove what it gets, instead of handing it on. In doubt, yes."""
    names = set(_names(wrapper.__code__))
    if kind is not _Kind.GENERATOR:
        return any(part in name.lower() for name in names for part in _DRIVES_COROUTINES)
    if any(step.opname in ("GET_ITER", "FOR_ITER") for step in dis.get_instructions(wrapper.__code__)):
        return True
    builtins = wrapper.__globals__.get("__builtins__", {})
    known = builtins if isinstance(builtins, dict) else vars(builtins)
    return any(name in _CONSUMES or callable(known.get(name)) for name in names)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _an(thing: object) -> str:
    name = type(thing).__name__
    if thing is None:
        return "None"
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name} object"


def _hint(thing: object) -> str:
    if isinstance(thing, (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)):
        return ": pass the function itself, without calling it (and a plain one, not a coroutine or generator function)"
    if isinstance(thing, classmethod):
        return ": take it from its class, as in MyClass.method"
    return ": pass the function itself, without calling it"
