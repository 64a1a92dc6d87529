"""Encoding and decoding are ordinary failures of a run, never of the machinery."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from procsched import spool
from procsched.core.model import Outcome
from procsched.errors import RemoteError
from procsched.pool.api import Died, Ended
from procsched.spool import Spooled
from procsched.wire import failure


class Demanding(Exception):
    """Pickles, and can't be unpickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


class Unsendable(Exception):
    """Holds what no pickle takes."""

    def __init__(self) -> None:
        super().__init__("holds a generator")
        self.generator = (i for i in ())  # type: ignore[var-annotated]


class Mute(Exception):
    """Its text can't be had."""

    def __str__(self) -> str:
        raise ValueError("no")


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


class NoRoom:
    """Pickling it runs out of memory."""

    def __reduce__(self) -> Any:
        raise MemoryError("no room")


class Forks:
    """Pickling it forks, and the copy comes back."""

    def __reduce__(self) -> Any:
        import os

        os.fork()
        return (int, (5,))


VALUES: dict[str, Callable[[], Any]] = {
    "lock": lambda: threading.Lock(),
    "generator": lambda: (i for i in ()),
    "open file": lambda: {"inside": [open("/dev/null")]},  # noqa: SIM115
    "deep": lambda: nested(50_000),
    "no room": lambda: NoRoom(),
    "lambda": lambda: lambda: 42,
    "forks": lambda: Forks(),
}

ERRORS: dict[str, Callable[[], BaseException]] = {
    "demanding": lambda: Demanding("one", "two"),
    "unsendable": lambda: Unsendable(),
    "mute": lambda: Mute(),
    "deep": lambda: ValueError(nested(50_000)),
    "key": lambda: KeyError("key"),
    "long": lambda: ValueError("x" * 100_000),
    "exit 0": lambda: SystemExit(0),
    "exit text": lambda: SystemExit("text"),
    "interrupt": lambda: KeyboardInterrupt(),
    "generator exit": lambda: GeneratorExit(),
    "memory": lambda: MemoryError(),
}


def raising(name: str) -> Callable[[], None]:
    make = ERRORS[name]

    def run() -> None:
        raise make()

    return run


@pytest.mark.parametrize("size", [0, 100, 16_000, 17_000, 70_000, 1 << 20, 5_000_000])
def test_bytes_of_any_size_both_ways(driver: Any, size: int) -> None:
    """Inline, spooled in memory, spooled in a file."""
    driver.open()
    assert driver.value(driver.expression(f"lambda: bytes({size})")) == bytes(size)


@pytest.mark.case("B26")
def test_300_megabytes(driver: Any) -> None:
    """The loop sees a descriptor pass."""
    ended = driver.open().run(driver.expression("lambda: bytes(300_000_000)"))
    assert ended.size > 300_000_000
    assert len(driver.pool.decode(Outcome.SUCCEEDED, ended.body)) == 300_000_000


def test_arrays_arrive_writable_and_private(driver: Any) -> None:
    """A copy on write for each; no descriptor stays for them."""
    numpy = pytest.importorskip("numpy")
    driver.open()
    ended = driver.run(driver.expression("lambda: __import__('numpy').arange(1_000_000)"))
    before = len(os.listdir("/proc/self/fd"))
    first = driver.pool.decode(Outcome.SUCCEEDED, ended.body)
    second = driver.pool.decode(Outcome.SUCCEEDED, ended.body)
    first[:] = 0
    assert second.sum() == numpy.arange(1_000_000).sum()
    assert len(os.listdir("/proc/self/fd")) == before
    ended.body.close()
    assert second[-1] == 999_999


def test_the_budget_of_open_results(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it results wait in memory."""
    monkeypatch.setattr(spool, "_budget", 4)
    driver.open()
    function = driver.expression("lambda: b'x' * 100_000")
    bodies = [driver.run(function).body for _ in range(8)]
    assert sum(body._fd >= 0 for body in bodies) == 4
    assert {len(driver.pool.decode(Outcome.SUCCEEDED, body)) for body in bodies} == {100_000}


def test_a_spooled_payload_lets_go(driver: Any) -> None:
    """Collected with its last reference."""
    body = Spooled.store([b"x" * 3_000_000])
    fd = body._fd
    assert fd >= 0
    del body
    gc.collect()
    with pytest.raises(OSError):
        os.fstat(fd)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("lock", "TypeError"),
        ("open file", "TypeError"),
        ("deep", "RecursionError"),
        ("no room", "MemoryError"),
    ],
)
@pytest.mark.case("B19", "B24")
def test_a_value_that_cannot_be_sent_fails_the_run(driver: Any, name: str, reason: str) -> None:
    """With the reason and the type; the same worker goes on."""
    driver.open()
    ended = driver.run(VALUES[name])
    assert not ended.success
    told = failure(ended.body)
    assert reason in told.type_name
    assert "the result cannot be sent" in told.message
    assert "cannot be sent" in str(driver.pool.decode(Outcome.FAILED, ended.body))
    assert driver.value(driver.expression("lambda: 1")) == 1


def test_a_value_without_an_importable_home_travels(driver: Any) -> None:
    """A lambda, an instance of a class of the run."""
    assert driver.open().value(VALUES["lambda"])() == 42


def test_pickling_that_forks_is_reported_once(driver: Any) -> None:
    """The copy has no say."""
    driver.open()
    assert driver.value(VALUES["forks"]) == 5
    assert driver.value(driver.expression("lambda: 1")) == 1
    driver.nothing(Ended)


def test_an_exception_keeps_its_type(driver: Any) -> None:
    """And carries the worker's traceback as its cause, which begins in the user's code."""
    error = driver.open().error(raising("key"))
    assert type(error) is KeyError
    assert error.args == ("key",)
    assert isinstance(error.__cause__, RemoteError)
    assert "in run" in error.__cause__.traceback
    assert "runner.py" not in error.__cause__.traceback


@pytest.mark.parametrize(
    ("error", "name", "text"),
    [
        ("demanding", "Demanding", "one"),
        ("unsendable", "Unsendable", "holds a generator"),
        ("mute", "Mute", "__str__ raised ValueError"),
        ("deep", "ValueError", "RecursionError"),
    ],
)
@pytest.mark.case("B17")
def test_an_exception_that_cannot_travel(driver: Any, error: str, name: str, text: str) -> None:
    """Arrives as plain text: its type name, message, traceback."""
    driver.open()
    ended = driver.run(raising(error))
    told = failure(ended.body)
    assert told.type_name.endswith(name)
    assert text in told.message + told.traceback
    arrived = driver.pool.decode(Outcome.FAILED, ended.body)
    assert isinstance(arrived, (RemoteError, Mute))
    assert driver.value(driver.expression("lambda: 1")) == 1


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        ("exit 0", "SystemExit", "0"),
        ("exit text", "SystemExit", "text"),
        ("interrupt", "KeyboardInterrupt", ""),
        ("generator exit", "GeneratorExit", ""),
        ("memory", "MemoryError", ""),
    ],
)
@pytest.mark.case("B07")
def test_every_base_exception_is_a_failed_run(driver: Any, error: str, kind: str, message: str) -> None:
    """The worker lives on."""
    ended = driver.open().run(raising(error))
    told = failure(ended.body)
    assert (ended.success, told.type_name, told.message) == (False, kind, message)
    driver.nothing(Died)


def test_a_long_message_travels(driver: Any) -> None:
    """By the spool."""
    ended = driver.open().run(raising("long"))
    assert failure(ended.body).message == "x" * 100_000
    assert len(str(driver.pool.decode(Outcome.FAILED, ended.body))) == 100_000


@pytest.mark.case("B103")
def test_a_failed_run_leaves_no_memory(driver: Any) -> None:
    """The exception's frames are let go."""

    def fail() -> None:
        data = bytearray(100_000_000)
        raise ValueError(len(data))

    driver.open()
    resident = driver.expression("lambda: int(open('/proc/self/statm').read().split()[1]) * 4096")
    for _ in range(3):
        driver.run(fail)
        assert driver.value(resident) < 90_000_000


def test_arguments_and_value_are_let_go(driver: Any) -> None:
    """By the next run nothing of the last one is referenced."""
    driver.open()
    resident = driver.expression("lambda: int(open('/proc/self/statm').read().split()[1]) * 4096")
    driver.run(driver.expression("lambda: bytes(100_000_000)"))
    assert driver.value(resident) < 90_000_000


def test_what_decoding_does_is_charged_to_the_run(driver: Any) -> None:
    """A payload that raises, and one that kills."""
    driver.open()
    function = driver.expression("no_such_name")
    assert isinstance(driver.error(function), NameError)
    deadly = driver.expression("__import__('os')._exit(9)")
    tickets = [driver.start(deadly), driver.start(deadly)]
    died = driver.until(Died)
    assert died.exitcode == 9
    assert died.unclaimed == tickets[1:]


@pytest.mark.parametrize("body", [b"", b"\x80\x05garbage", b"\x80\x05K\x01.", None, 5])
def test_an_unreadable_failure_is_told_as_such(body: Any) -> None:
    """`failure` never raises."""
    assert failure(body).type_name == "Unreadable"


def test_a_failure_runs_no_code_in_the_parent() -> None:
    """Not even what a pickle would call."""
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return os._exit, (1,)

    assert failure(pickle.dumps((Evil(), "", "", None))).type_name == "Unreadable"
