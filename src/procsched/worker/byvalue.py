"""Pickling by value what has no importable home: cloudpickle with one exception. Runs in the child.

A lambda, a class made in a run, or anything of ``__main__`` travels with its code. An open text file doesn't:
cloudpickle would quietly send its content instead, and the run would look like a success.
"""

from __future__ import annotations

import io
from typing import Any

import cloudpickle

__all__ = ["dumps_by_value"]


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, io.TextIOWrapper):
            raise TypeError(f"cannot pickle '{type(obj).__name__}' object")
        return super().reducer_override(obj)


def dumps_by_value(value: object, protocol: int = 5, buffer_callback: Any = None) -> bytes:
    """As ``pickle.dumps``."""
    file = io.BytesIO()
    _Pickler(file, protocol, buffer_callback).dump(value)
    return file.getvalue()
