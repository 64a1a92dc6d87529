"""Fingerprint: whether two jobs do the same at the same times, as far as their task file says. In the parent."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

__all__ = ["fingerprint"]


def fingerprint(fn: Callable[..., Any], when: object, options: Mapping[str, Any]) -> tuple[Any, ...]:
    """Equal if the function's code, the schedule, the arguments and the options are. What the function calls isn't
    looked at: all of that is new anyhow once workers have been replaced."""
    told = {key: value for key, value in options.items() if key not in ("id", "replace_existing")}
    return _of_function(fn), _shown(when), tuple((key, _shown(told[key])) for key in sorted(told))


def _shown(value: object) -> object:
    try:
        return repr(value)
    except Exception:  # something of the user's: never equal, so its job is scheduled anew
        return object()


def _of_function(fn: Any) -> object:
    inner = getattr(fn, "func", None)  # a partial
    if inner is not None:
        return _of_function(inner), _shown(getattr(fn, "args", None)), _shown(getattr(fn, "keywords", None))
    fn = getattr(fn, "__wrapped__", fn)
    code = getattr(fn, "__code__", None)
    if not isinstance(code, CodeType):
        return str(getattr(fn, "__qualname__", type(fn).__qualname__))
    cells = tuple(_shown(cell.cell_contents) for cell in fn.__closure__ or ())
    return fn.__qualname__, marshal.dumps(_placeless(code)), _shown(fn.__defaults__), _shown(fn.__kwdefaults__), cells


def _placeless(code: CodeType) -> CodeType:
    """Without the lines it stands on: a function that only moved hasn't changed."""
    constants = tuple(_placeless(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_consts=constants, co_firstlineno=1, co_linetable=b"", co_filename="")
