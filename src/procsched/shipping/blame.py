"""Names the part of a call that can't be pickled, and what to do instead. Runs in the caller's thread, afterwards.

The part is found by trying: each argument alone, then the parts of the one that fails, and so on downwards. The number
of trials is bounded, nothing is kept of what they pickle, and large buffers aren't copied.
"""

from __future__ import annotations

import functools
import pickle
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

from procsched.errors import NotShippable
from procsched.shipping.callables import describe
from procsched.shipping.pickling import WorkerPickler

_MAX_TRIALS = 500
_MAX_DEPTH = 8

_INSIDE = "make it inside the function, or once per worker in the initializer"
_HINTS = {
    **dict.fromkeys(("socket", "Connection", "Cursor"), f"A connection belongs to this process: {_INSIDE}."),
    **dict.fromkeys(
        ("TextIOWrapper", "BufferedReader", "BufferedWriter", "BufferedRandom", "FileIO"),
        "Pass the path and open the file inside the function.",
    ),
    **dict.fromkeys(
        ("generator", "async_generator"), "Pass a list of its values, or make the generator inside the function."
    ),
    "coroutine": "Pass the values that it needs, and run it inside the function with asyncio.run(…).",
    **dict.fromkeys(
        ("lock", "Lock", "RLock", "Semaphore", "Condition", "Event", "Barrier"),
        f"A lock here locks nobody in another process: {_INSIDE}, or leave it out.",
    ),
    "Thread": f"A thread belongs to this process: {_INSIDE}.",
    **dict.fromkeys(("Queue", "SimpleQueue"), "A queue here isn't seen by another process: return the values instead."),
    "Future": "Pass its result() instead.",
    **dict.fromkeys(("frame", "traceback"), "Pass a text made with the traceback module instead."),
}
_DEFAULT_HINT = "Pass plain data from which the function can make it again, or give its class a __reduce__ method."
_DEEP_HINT = "Flatten it, or send it as text or bytes."
_HUGE_HINT = "Send less, or let the function read it from a file."


def not_shippable(args: tuple[Any, ...], kwargs: Mapping[str, Any], error: Exception) -> NotShippable:
    """The error to raise after pickling the arguments of a call of `fn` failed with `error`."""
    search = _Search()
    for position, value in enumerate(args, 1):
        if (failure := search.failure(value)) is not None:
            return search.report(f"argument {position}", value, failure)
    for name, value in kwargs.items():
        if (failure := search.failure(value)) is not None:
            return search.report(f"keyword argument '{name}'", value, failure)
    return _error("the arguments", None, error)


def function_not_shippable(fn: object, error: Exception) -> NotShippable:
    """The error to raise after pickling the function itself failed with `error`."""
    search = _Search()
    return search.report("the function itself", fn, search.failure(fn) or error)


class _Sink:
    """A file that forgets."""

    def write(self, data: Any) -> int:
        return len(data)


class _Search:
    def __init__(self) -> None:
        self.trials = 0

    def failure(self, value: object) -> Exception | None:
        """What pickling `value` alone raises."""
        self.trials += 1
        try:
            WorkerPickler(_Sink(), buffer_callback=lambda buffer: None).dump(value)
        except Exception as error:
            return error
        return None

    def report(self, where: str, value: Any, failure: Exception) -> NotShippable:
        """Go down from `value`, which fails, as long as one of its parts fails by itself."""
        seen = {id(value)}
        for _ in range(_MAX_DEPTH):
            if _is_too_deep(failure):
                break
            for step, part in _parts(value):
                if self.trials > _MAX_TRIALS:
                    break
                if id(part) in seen or type(part) in _ATOMS:
                    continue
                if (deeper := self.failure(part)) is not None:
                    seen.add(id(part))
                    where, value, failure = f"{where}, {step}", part, deeper
                    break
            else:
                break
        return _error(where + _of_type(value), value, failure)


def _error(where: str, value: Any, failure: Exception) -> NotShippable:
    text = f"{where} can't be sent to a worker process: {_reason(failure)} {_hint(value, failure)}"
    return NotShippable(text.rstrip())


_ATOMS = frozenset({int, float, complex, str, bytes, bool, type(None)})


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What `value` consists of as far as pickle is concerned, each with the words that lead to it."""
    kind = type(value)
    if isinstance(value, dict):
        for key, part in list(value.items()):
            yield f"key {_short(key)}", part
        for key in list(value):
            yield f"the key {_short(key)} itself", key
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(list(value)):
            yield f"item {index}", part
    elif isinstance(value, (set, frozenset)):
        for part in list(value):
            yield "an element", part
    elif kind is types.FunctionType:
        yield from _parts_of_function(value)
    elif kind is types.MethodType:
        yield "its object", value.__self__
        yield f"its function {describe(value.__func__)}", value.__func__
    elif isinstance(value, functools.partial):
        yield f"its function {describe(value.func)}", value.func
        for index, part in enumerate(value.args, 1):
            yield f"argument {index} of the partial", part
        for name, part in value.keywords.items():
            yield f"keyword argument '{name}' of the partial", part
    elif not _is_foreign(kind) and not any(_is_foreign(base) and base.__qualname__ in _HINTS for base in kind.__mro__):
        yield from _attributes(value)


def _parts_of_function(fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False):
        try:
            yield f"its variable '{name}'", cell.cell_contents
        except ValueError:
            continue
    codes = [fn.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        for name in code.co_names:
            if name in fn.__globals__:
                yield f"the global '{name}' that it uses", fn.__globals__[name]
    for index, part in enumerate(fn.__defaults__ or (), 1):
        yield f"its default value {index}", part
    for name, part in (fn.__kwdefaults__ or {}).items():
        yield f"the default of '{name}'", part
    for name, part in fn.__dict__.items():
        yield f"its attribute '{name}'", part


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, type):
        for name, part in list(vars(value).items()):
            if name not in ("__dict__", "__weakref__"):
                yield f"its attribute '{name}'", part
        return
    if hasattr(type(value), "__dataclass_fields__"):  # one with slots has a generated __getstate__
        yield from ((f"attribute '{name}'", getattr(value, name, None)) for name in value.__dataclass_fields__)
        return
    if any(name in vars(base) for base in type(value).__mro__[:-1] for name in _OWN_WAYS):
        return  # it doesn't travel attribute by attribute
    for name, part in list(getattr(value, "__dict__", {}).items()):
        yield f"attribute '{name}'", part
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                yield f"attribute '{name}'", getattr(value, name)


_OWN_WAYS = ("__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")


def _is_foreign(kind: type) -> bool:
    """The insides of a Thread or a scheduler are nobody's business but ours or the standard library's."""
    root = str(kind.__module__).partition(".")[0]
    return root == "procsched" or root in sys.stdlib_module_names


def _of_type(value: Any) -> str:
    named = isinstance(value, (type, types.FunctionType, types.MethodType))
    return f" ({describe(value)})" if named else f" (of type {type(value).__qualname__})"


def _short(key: object) -> str:
    if type(key) not in _ATOMS:
        return f"of type {type(key).__qualname__}"
    text = repr(key)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _is_too_deep(failure: BaseException) -> bool:
    return isinstance(failure, RecursionError) or isinstance(failure.__cause__, RecursionError)


def _reason(failure: Exception) -> str:
    if _is_too_deep(failure):
        return "it is nested too deeply (RecursionError)."
    text = str(failure).strip() or "no reason given"
    if type(failure) not in (TypeError, pickle.PicklingError, AttributeError):
        text = f"{type(failure).__name__}: {text}"
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _hint(value: Any, failure: Exception) -> str:
    if _is_too_deep(failure):
        return _DEEP_HINT
    if isinstance(failure, MemoryError):
        return _HUGE_HINT
    for kind in type(value).__mro__:
        if str(kind.__module__).startswith("procsched."):
            return ""  # what of ours can't travel says by itself what to do instead
        if kind.__qualname__ in _HINTS:
            return _HINTS[kind.__qualname__]
    return _DEFAULT_HINT
