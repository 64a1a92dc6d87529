"""Chunks of a ``map``: several calls that travel as one. Runs on both sides."""

from __future__ import annotations

from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, TypeVar

    _T = TypeVar("_T")

__all__ = ["chunked", "run_chunk"]


def chunked(items: Iterable[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    """Lists of ``size`` items; the last one may be shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def run_chunk(fn: Callable[..., _T], chunk: list[tuple[Any, ...]]) -> list[_T]:
    """In a worker: the calls of one chunk."""
    return [fn(*args) for args in chunk]
