"""What holds for every test: it leaves no child process, no thread, no descriptor and no file behind.

Ends may take a moment (a worker is being reaped, a thread returns), so each check waits for the state it wants, up to a
bound, and fails with a list of what is still there.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

BOUND = 10.0  # seconds

# Processes and descriptors of the standard library's and loky's own resource trackers: one per interpreter, started on
# first use of a named semaphore, and gone with the interpreter.
TRACKER = "resource_tracker"


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long and how hard the tests in ``chaos/`` go at it. Here, since pytest asks before it reads that folder."""
    group = parser.getgroup("chaos", "tests/chaos: the defaults take about a minute in all")
    group.addoption("--chaos-seconds", type=float, default=4.0, help="seconds of torment per pool size")
    group.addoption("--chaos-workers", default="1,2", help="sizes of pools to torment, such as 1,2,8,64")
    group.addoption("--chaos-seed", type=int, default=None, help="repeat the choices of an earlier run")
    group.addoption("--chaos-deaths", type=int, default=15, help="random moments at which the parent is killed")
    group.addoption("--chaos-faults", type=int, default=100, help="faults injected per scenario, spread over its steps")
    group.addoption("--chaos-runs", type=int, default=20_000, help="runs of the soak; 1000000 for the long one")


@pytest.fixture(scope="session")
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of our own for temporary files, so that those of other programs aren't taken for ours."""
    folder = tmp_path_factory.mktemp("temporary")
    old, old_variable = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    yield folder
    tempfile.tempdir = old
    if old_variable is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = old_variable


@pytest.fixture(autouse=True)
def leaves_nothing(temporary_folder: Path) -> Iterator[None]:
    """The check around every test."""
    before = {kind: look() for kind, look in _looks(temporary_folder).items()}
    yield
    for kind, look in _looks(temporary_folder).items():
        left = _settled(lambda look=look, kind=kind: look().keys() - before[kind].keys())
        if left:
            there = look()
            pytest.fail(f"left behind, {kind}: {[there.get(key, key) for key in sorted(left, key=str)]}")


def _settled(left: Callable[[], set[object]]) -> set[object]:
    remaining = left()
    deadline = time.monotonic() + BOUND
    collected = False
    while remaining and time.monotonic() < deadline:
        if not collected:
            gc.collect()
            collected = True
        time.sleep(0.01)
        remaining = left()
    return remaining


def _looks(temporary_folder: Path) -> dict[str, Callable[[], dict[object, object]]]:
    return {
        "processes": _processes,
        "threads": lambda: {thread.ident: thread for thread in threading.enumerate()},
        "descriptors": _descriptors,
        "temporary files": lambda: {path: path for path in temporary_folder.iterdir()},
        "named memory": _named_memory,
    }


def _processes() -> dict[object, object]:
    """Children of any generation, zombies too."""
    if not sys.platform.startswith("linux"):
        import psutil

        return {child.pid: child.name() for child in psutil.Process().children(recursive=True)}
    found: dict[object, object] = {}
    waiting = [os.getpid()]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            try:
                children = [int(word) for word in task.read_text().split()]
                found |= {pid: line for pid in children if TRACKER not in (line := _command_line(pid))}
            except OSError:  # it ends at this very moment
                continue
            waiting += children
    return found


def _command_line(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return f"{pid}: {words or 'a zombie'}"


def _descriptors() -> dict[object, object]:
    trackers = _tracker_descriptors()
    found: dict[object, object] = {}
    for name in os.listdir("/proc/self/fd" if sys.platform.startswith("linux") else "/dev/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the one that listdir had open
            continue
        if int(name) not in trackers and target != "/dev/urandom":
            found[name, target] = f"{name} -> {target}"
    return found


def _tracker_descriptors() -> set[int | None]:
    names = ("multiprocessing.resource_tracker", "loky.backend.resource_tracker")
    return {sys.modules[name]._resource_tracker._fd for name in names if name in sys.modules}


def _named_memory() -> dict[object, object]:
    try:
        return {path: path for path in Path("/dev/shm").iterdir() if str(os.getpid()) in path.name}
    except OSError:
        return {}
