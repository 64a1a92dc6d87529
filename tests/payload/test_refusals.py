"""What is no piece of work is refused with a plain TypeError, in the caller's thread."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import Any

import pytest

from procsched.errors import NotShippable
from procsched.shipping.payload import ship


async def coroutine() -> int:
    return 1


def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


class Service:
    async def work(self) -> None: ...

    async def __call__(self) -> None: ...

    @classmethod
    async def make(cls) -> None: ...

    @staticmethod
    async def static() -> None: ...

    def items(self) -> Any:
        yield 1


def passing_on(fn: Any) -> Any:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


def running(fn: Any) -> Any:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return asyncio.run(fn(*args, **kwargs))

    return wrapper


def collecting(fn: Any) -> Any:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return list(fn(*args, **kwargs))

    return wrapper


@pytest.mark.parametrize("thing", [None, 3, "text", [], object(), classmethod(generator)])
def test_what_is_not_callable_is_refused(thing: Any) -> None:
    """Something that can't be called is a TypeError that says so."""
    with pytest.raises(TypeError, match="must be a callable") as caught:
        ship(thing, (), {})
    assert not isinstance(caught.value, NotShippable)


def test_the_result_of_a_call_is_told_from_the_function() -> None:
    """Who passes f() instead of f gets told."""
    called = coroutine()
    with pytest.raises(TypeError, match="without calling it"):
        ship(called, (), {})  # type: ignore[arg-type]
    called.close()


@pytest.mark.parametrize(
    ("fn", "kind"),
    [
        (coroutine, "a coroutine function"),
        (generator, "a generator function"),
        (async_generator, "an async generator function"),
        (functools.partial(coroutine), "a coroutine function"),
        (functools.partial(functools.partial(generator)), "a generator function"),
        (functools.partial(Service().work), "a coroutine function"),
        (passing_on(coroutine), "a coroutine function"),
        (passing_on(passing_on(coroutine)), "a coroutine function"),
        (functools.partial(passing_on(generator)), "a generator function"),
        (passing_on(async_generator), "an async generator function"),
        (functools.lru_cache(coroutine), "a coroutine function"),
        (contextlib.contextmanager(generator), "a generator function"),
        (Service().work, "a coroutine function"),
        (Service().items, "a generator function"),
        (Service(), "a coroutine function"),
        (Service.make, "a coroutine function"),
        (Service.static, "a coroutine function"),
        (staticmethod(coroutine), "a coroutine function"),
        (staticmethod(passing_on(generator)), "a generator function"),
        (lambda: (yield), "a generator function"),
    ],
)
@pytest.mark.case("B36")
def test_what_runs_nothing_when_called_is_refused(fn: Any, kind: str) -> None:
    """Coroutine and generator functions are refused, whatever stands in front of them."""
    with pytest.raises(TypeError, match=f"is {kind}") as caught:
        ship(fn, (), {})
    assert not isinstance(caught.value, NotShippable)


@pytest.mark.parametrize(
    "fn",
    [running(coroutine), collecting(generator), passing_on(running(coroutine)), passing_on(len), functools.cache(len)],
)
def test_a_wrapper_that_drives_it_is_a_piece_of_work(fn: Any) -> None:
    """A plain function around a coroutine function that runs it to the end is accepted."""
    assert ship(fn, (), {}).function.name


def test_a_class_is_called_for_an_instance() -> None:
    """A class with an async __call__ is fine: calling the class only makes an instance."""
    assert ship(Service, (), {}).function.by_reference


def test_a_chain_of_wrappers_that_bites_its_tail_ends() -> None:
    """A function that is its own __wrapped__ doesn't hang the check."""
    fn = passing_on(len)
    fn.__wrapped__ = fn
    assert ship(fn, (), {}).function.name == "len"
