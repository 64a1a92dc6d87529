"""A worker comes up fast, with little, in the parent's surroundings; or says why it couldn't."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from procsched.pool import process, tenant
from procsched.pool.api import Died, Up


def surroundings() -> dict[str, Any]:
    return {
        "cwd": os.getcwd(),
        "argv": sys.argv,
        "path": sys.path,
        "stdin": os.readlink("/proc/self/fd/0"),
        "leads its group": os.getpgrp() == os.getpid(),
        "main": [name for name in vars(sys.modules["__main__"]) if not name.startswith("__")],
        "extra": os.environ.get("EXTRA"),
        "line buffered": sys.stdout.line_buffering,  # type: ignore[union-attr]
    }


def open_files() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2:
                found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            pass
    return found


def parent() -> int:
    return os.getppid()


def test_it_imports_next_to_nothing(driver: Any) -> None:
    """The imports of a stock worker are most of its boot."""
    loaded = driver.open().value(driver.expression("lambda: list(__import__('sys').modules)"))
    heavy = {"logging", "concurrent.futures", "cloudpickle", "loky", "psutil", "multiprocessing", "subprocess"}
    heavy |= {"socket", "pickle", "re", "typing", "dataclasses", "enum", "threading"}
    bare = subprocess.run([sys.executable, "-c", "import sys;print(*sys.modules)"], capture_output=True, text=True)
    before = bare.stdout.split()
    assert not (heavy & set(loaded)) - set(before)


def test_it_finds_the_surroundings_of_the_parent(driver: Any) -> None:
    """Directory, arguments and path as in the parent, no input, its own process group, an empty __main__."""
    there = driver.open(env={"EXTRA": "1"}).value(surroundings)
    assert there["cwd"] == os.getcwd()
    assert there["argv"] == sys.argv
    assert there["path"] == [os.path.abspath(entry) if entry == "" else entry for entry in sys.path]
    assert there["stdin"] == os.devnull
    assert there["leads its group"]
    assert there["main"] == []
    assert there["extra"] == "1"
    assert there["line buffered"]
    assert "EXTRA" not in os.environ


def test_it_holds_none_of_the_parents_files(driver: Any, tmp_path: Path) -> None:
    """Sockets and files of the program stay with the program."""
    with open(tmp_path / "secret", "w") as file:
        os.set_inheritable(file.fileno(), True)
        assert str(tmp_path / "secret") not in driver.open().value(open_files)


def test_the_initializer_runs_before_up(driver: Any) -> None:
    """What it sets is there for the first run, and is part of the base state."""
    driver.open(initializer=cloudpickle.dumps((os.putenv, ("INITIALIZED", "yes"))))
    assert driver.value(driver.expression("lambda: __import__('os').popen('echo $INITIALIZED').read()")) == "yes\n"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ((int, ("not a number",)), "ValueError: invalid literal"),
        ((sys.exit, (3,)), "SystemExit: 3"),
        ((os._exit, (7,)), "exit code 7"),
        ((os.abort, ()), "SIGABRT"),
    ],
)
def test_a_failed_boot_says_why(driver: Any, call: Any, said: str, capfd: Any) -> None:
    """An initializer that raises, exits, or dies."""
    driver.open(up=False, initializer=cloudpickle.dumps(call))
    died = driver.until(Died)
    assert not died.started
    assert said in died.boot_error
    driver.nothing(Up)


def test_killed_while_it_boots(driver: Any) -> None:
    """At any moment: queued for the starter, being started, importing."""
    import time

    driver.open(workers=6, up=False, initializer=cloudpickle.dumps((time.sleep, (60,))))
    for slot in range(6):
        driver.pool.kill(slot)
        driver.events += driver.pool.poll(0.01)
    for slot in range(6):
        died = driver.until(Died, slot=slot)
        assert not died.started


def test_a_process_that_cannot_be_started(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system refuses: an event, not an exception, and no process id."""

    def refuse(*args: Any) -> Any:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(tenant, "launch", refuse)
    driver.open(up=False)
    died = driver.until(Died)
    assert (died.pid, died.started) == (0, False)
    assert "could not be started" in died.boot_error


def test_no_descriptor_left_for_the_pidfd(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that was started already isn't left behind."""
    assert process._has_pidfd()

    pids: list[int] = []

    def refuse(pid: int) -> int:
        pids.append(pid)
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(process, "open_pidfd", refuse)
    died = driver.open(up=False).until(Died)
    assert (died.pid, died.started) == (0, False)
    with pytest.raises(ChildProcessError):
        os.waitpid(pids[0], os.WNOHANG)


@pytest.mark.parametrize("lack", ["loky's internals", "pidfd", "memfd"])
def test_the_fallbacks(driver: Any, monkeypatch: pytest.MonkeyPatch, lack: str) -> None:
    """Where something is missing it still runs, and a death is still seen."""
    if lack == "loky's internals":
        monkeypatch.setattr(process, "fork_exec", None)
    elif lack == "pidfd":
        monkeypatch.setattr(process, "_pidfd_works", False)
    elif lack == "memfd":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    driver.open()
    assert driver.value(parent) == os.getpid()
    assert len(driver.value(driver.expression("lambda: b'x' * 3_000_000"))) == 3_000_000
    os.kill(driver.pids[0], signal.SIGKILL)
    assert driver.until(Died).signal == "SIGKILL"


def test_a_death_behind_a_forked_copy_without_pidfds(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A grandchild holds the sentinel open; the worker's status tells."""
    monkeypatch.setattr(process, "_pidfd_works", False)
    driver.open()
    driver.value(driver.expression("lambda: __import__('os').system('setsid sleep 30 &')"))
    os.kill(driver.pids[0], signal.SIGKILL)
    assert driver.until(Died).signal == "SIGKILL"


def test_a_spare_takes_over_at_once(driver: Any) -> None:
    """Up follows the spawn without a boot; a new spare follows it."""
    driver.open(spares=1)
    driver.eventually(lambda: driver.pool.poll(0.01) or [t for t in driver.pool._spares if t.stage.value == "up"])
    for _ in range(2):
        spare = driver.eventually(
            lambda: driver.pool.poll(0.01) or [t.handle.pid for t in driver.pool._spares if t.stage.value == "up"]
        )[0]
        driver.pool.kill(0)
        driver.until(Died)
        driver.pool.spawn(0)
        assert driver.until(Up).pid == spare
        assert driver.value(driver.expression("__import__('os').getpid")) == spare


def test_a_spare_that_dies_is_replaced_with_a_pause(driver: Any) -> None:
    """No event, and no heat."""
    driver.open(spares=1)
    [spare] = driver.eventually(
        lambda: driver.pool.poll(0.01) or [t.handle.pid for t in driver.pool._spares if t.stage.value == "up"]
    )
    os.kill(spare, signal.SIGKILL)
    driver.gone(spare)
    driver.nothing(Died, 0.1)
    driver.eventually(lambda: driver.pool.poll(0.01) or not len(driver.pool._spares))
    assert driver.pool._spares.pausing
