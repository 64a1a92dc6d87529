"""The values of `ProcessScheduler.map`: all calls made at once, values in their order. In callers' threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["all_or_none", "in_order"]

_T = TypeVar("_T")


def all_or_none(submit: Callable[..., Future[Any]], calls: Iterable[tuple[Any, ...]]) -> list[Future[Any]]:
    """The Futures of all calls; when one can't be made, none of those before it is left waiting."""
    futures: list[Future[Any]] = []
    try:
        for call in calls:
            futures.append(submit(*call))
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return futures


def in_order(futures: list[Future[_T]], end: float | None) -> Iterator[_T]:
    """Values in the order of the calls; each Future is let go as its value is given out."""

    def values() -> Iterator[_T]:
        futures.reverse()
        try:
            while futures:
                if end is None:
                    yield _take(futures.pop(), None)
                else:
                    yield _take(futures.pop(), end - time.monotonic())
        finally:
            for future in futures:
                future.cancel()

    return values()


def _take(future: Future[_T], timeout: float | None) -> _T:
    try:
        return future.result(timeout)
    finally:
        future.cancel()
        del future  # or an exception's traceback would keep it, and itself, alive
