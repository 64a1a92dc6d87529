"""What can't be shipped is named, with the reason and what to do instead."""

from __future__ import annotations

import functools
import io
import multiprocessing
import pickle
import socket
import sqlite3
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from procsched.errors import NotShippable
from procsched.shipping import payload as module
from procsched.shipping.payload import ship


class Holder:
    def __init__(self, content: Any) -> None:
        self.content = content

    def work(self) -> None: ...


@dataclass(slots=True)
class Slotted:
    content: Any


class Grim:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error


def work(*args: Any, **kwargs: Any) -> None: ...


def complaint(fn: Any, *args: Any, **kwargs: Any) -> str:
    """The message; the error is chained from the original one."""
    with pytest.raises(NotShippable) as caught:
        ship(fn, args, kwargs)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value.__cause__, Exception)
    return str(caught.value)


def opened() -> io.TextIOWrapper:
    return open(__file__, encoding="utf-8")


def opened_binary() -> io.BufferedReader:
    return open(__file__, "rb")


def generated() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("make", "kind", "hint"),
    [
        (socket.socket, "socket", "initializer"),
        (threading.Lock, "lock", "initializer"),
        (threading.RLock, "RLock", "initializer"),
        (threading.Thread, "Thread", "initializer"),
        (generated, "generator", "list of its values"),
        (opened, "TextIOWrapper", "path"),
        (opened_binary, "BufferedReader", "path"),
        (lambda: sqlite3.connect(":memory:"), "Connection", "initializer"),
        (lambda: multiprocessing.Pipe()[0], "Connection", "initializer"),
    ],
)
def test_what_belongs_to_this_process_is_named_wherever_it_hides(make: Any, kind: str, hint: str) -> None:
    """Sockets, locks, files, generators, threads, connections: which argument, where in it, why, and what instead."""
    thing = make()
    try:
        text = complaint(work, 1, thing)
        assert text.startswith(f"argument 2 (of type {kind}) can't be sent to a worker process: ")
        assert hint in text
        text = complaint(work, {"db": [0, {"conn": thing}]})
        assert text.startswith(f"argument 1, key 'db', item 1, key 'conn' (of type {kind}) can't be sent")
        assert complaint(work, lock=thing).startswith(f"keyword argument 'lock' (of type {kind}) can't")
        assert complaint(work, Holder(thing)).startswith(f"argument 1, attribute 'content' (of type {kind}) can't")
        assert complaint(work, Slotted(thing)).startswith(f"argument 1, attribute 'content' (of type {kind}) can't")
    finally:
        if hasattr(thing, "close"):
            thing.close()


def test_the_function_itself_is_named() -> None:
    """What a function takes along is part of it: closure, globals, defaults, a partial's, a method's object."""
    lock = threading.Lock()

    def closure() -> Any:
        return lock

    assert complaint(closure).startswith("the function itself, its variable 'lock' (of type lock) can't")
    assert complaint(functools.partial(work, 1, lock)).startswith(
        "the function itself, argument 2 of the partial (of type lock) can't"
    )
    assert complaint(functools.partial(work, key=lock)).startswith(
        "the function itself, keyword argument 'key' of the partial (of type lock) can't"
    )
    text = complaint(Holder(lock).work)
    assert text.startswith("the function itself, its object, attribute 'content' (of type lock)")
    namespace: dict[str, Any] = {"busy": lock, "__name__": "__main__"}
    exec("def g():\n    with busy: pass\ndef h(x=busy): pass\n", namespace)
    assert complaint(namespace["g"]).startswith("the function itself, the global 'busy' that it uses (of type lock)")
    assert complaint(namespace["h"]).startswith("the function itself, its default value 1 (of type lock)")
    assert complaint(lambda: namespace).startswith("the function itself, its variable 'namespace', key 'busy'")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TypeError("a scheduler stays in its process"), "a scheduler stays in its process."),
        (pickle.PicklingError("no way"), "no way."),
        (ValueError("bad value"), "ValueError: bad value."),
        (MemoryError(), "MemoryError: no reason given."),
        (RecursionError("x"), "nested too deeply"),
        (StopIteration(), "StopIteration: no reason given."),
        (OSError(28, "full"), "OSError: [Errno 28] full."),
        (Exception("custom!"), "Exception: custom!"),
    ],
)
def test_whatever_a_reduce_raises_is_the_reason(error: Exception, reason: str) -> None:
    """Every Exception out of pickling becomes NotShippable, and its text comes through."""
    text = complaint(work, [Grim(error)])
    assert text.startswith("argument 1")
    assert reason in text
    assert complaint(functools.partial(work, Grim(error))).startswith("the function itself")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_what_ends_the_program_passes(error: BaseException) -> None:
    """Ctrl-C and sys.exit during pickling aren't a property of the argument."""
    with pytest.raises(type(error)):
        ship(work, (Grim(error),), {})
    with pytest.raises(type(error)):
        ship(functools.partial(work, Grim(error)), (), {})
    assert ship(work, (1,), {}).args


def test_what_stays_here_of_ours_speaks_for_itself() -> None:
    """A scheduler or a Job raises with a reason of its own, to which nothing is added."""
    namespace: dict[str, Any] = {"__name__": "procsched.scheduler"}
    exec("class Ours:\n    def __reduce__(self): raise TypeError('it stays here; pass its id')", namespace)
    ours = namespace["Ours"]()
    assert complaint(work, {"job": ours}) == (
        "argument 1, key 'job' (of type Ours) can't be sent to a worker process: it stays here; pass its id."
    )


def test_a_subclass_of_a_thread_is_a_thread() -> None:
    """The search stops at what is known, instead of naming an inner part that the user has never heard of."""

    class Ticker(threading.Thread):
        pass

    text = complaint(work, Ticker())
    assert text.startswith("argument 1 (of type ") and "Ticker) can't" in text and "A thread belongs to" in text


def test_a_name_in_a_script_is_no_way_to_travel() -> None:
    """An object that pickles as its mere name in __main__ is refused here, not in the worker."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("class S:\n    def __reduce__(self): return 'MISSING'\nMISSING = S()", namespace)
    assert "it goes by its name, 'MISSING'" in complaint(work, [namespace["MISSING"]])


def test_something_nested_too_deeply_is_not_shippable() -> None:
    """50,000 lists inside each other: a clear error, and the next call works."""
    deep: list[Any] = []
    for _ in range(50_000):
        deep = [deep]
    text = complaint(work, 0, deep)
    assert text.startswith("argument 2 (of type list) can't be sent to a worker process: it is nested too deeply")
    assert ship(work, ([1],), {}).args


def test_a_cycle_around_the_culprit_ends() -> None:
    """The search goes into nothing twice."""
    ring: dict[str, Any] = {"lock": threading.Lock()}
    ring = {"self": ring, **ring}
    ring["self"]["up"] = ring
    assert "(of type lock)" in complaint(work, ring)


def test_the_search_is_bounded() -> None:
    """In a list of 100,000 fine things the argument is named at least."""
    assert complaint(work, [*range(100_000), *map(str, range(1000)), threading.Lock()]).startswith("argument 1")
    assert complaint(work, [*([[i] for i in range(5_000)]), threading.Lock()]).startswith("argument 1 (of type list)")


def test_a_failure_that_comes_once_still_raises() -> None:
    """An object that fails at first and pickles when looked at again: the call is refused all the same."""

    class Once:
        failed = False

        def __reduce__(self) -> Any:
            if not Once.failed:
                Once.failed = True
                raise ValueError("once")
            return int, ()

    text = complaint(work, Once())
    assert text.startswith("the arguments can't be sent to a worker process: ValueError: once.")


def test_no_room_for_something_large_is_no_fault_of_the_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the spool stays an OSError."""

    def full(parts: Any) -> Any:
        raise OSError(28, "no room")

    monkeypatch.setattr(module.Spooled, "store", full)
    with pytest.raises(OSError, match="no room"):
        ship(work, ("x" * 100_000,), {})
