"""As a service: what systemd is told, and what a person gets who asks with SIGUSR1."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from procsched import ProcessScheduler
from procsched.cli.service import Service

Fixture = Callable[..., Any]


class Manager:
    """Takes what a service manager would."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(30)
        self.heard: list[str] = []

    def until(self, word: str) -> str:
        """The message that has it."""
        while True:
            text = self.socket.recv(4096).decode()
            self.heard += text.split("\n")
            if word in text:
                return text


@pytest.fixture(params=["file", "abstract"])
def manager(request: Any, tmp_path: Path) -> Iterator[tuple[Manager, str]]:
    address = str(tmp_path / "notify") if request.param == "file" else f"@procsched-test-{os.getpid()}"
    made = Manager(address)
    yield made, address
    made.socket.close()


def test_ready_watchdog_stopping(start: Fixture, write: Fixture, latch: Any, manager: Any, monkeypatch: Any) -> None:
    """In this order; tasks don't inherit the address."""
    made, address = manager
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    body = f"    import os\n    assert 'NOTIFY_SOCKET' not in os.environ\n    {latch.code}"
    path = write(f"@job(After(0))\ndef work():\n{body}")
    program = start("run", path, "--workers", 1)
    assert "STATUS=1 job of" in made.until("READY=1")
    latch.wait()
    for _ in range(3):
        made.until("WATCHDOG=1")
    latch.open()
    program.wait_for("succeeded")
    program.signal(signal.SIGTERM)
    made.until("STOPPING=1")
    assert program.end() == 0


def test_a_loop_that_stands_still_starves_the_watchdog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And an idle one that sleeps for long doesn't."""
    address = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "40000")
    made = Manager(address)
    service = Service()
    with ProcessScheduler(1) as scheduler:
        scheduler.submit(abs, 1).result(30)
        service.watch(scheduler)
        for _ in range(5):
            made.until("WATCHDOG=1")
        stopped, go = threading.Event(), threading.Event()
        scheduler._engine.mailbox.post(lambda: (stopped.set(), go.wait(60)))
        assert stopped.wait(30)
        made.socket.settimeout(0.2)
        assert sum(1 for _ in iter(lambda: _heard_something(made.socket), False)) < 5  # what was on its way
        go.set()
        made.socket.settimeout(30)
        made.until("WATCHDOG=1")
    service.close()
    made.socket.close()


def _heard_something(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(4096))
    except TimeoutError:
        return False


@pytest.mark.parametrize("usec", ["", "0", "many"])
def test_without_a_manager_nothing_happens(usec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor with one that has gone away, or a watchdog meant for another process."""
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    service = Service()
    service.ready("x")
    service.stopping()
    service.close()
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/at/all")
    monkeypatch.setenv("WATCHDOG_USEC", "1000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    service = Service()
    assert service._every == 0
    service.ready("x")
    service.close()


def test_state_and_stacks_are_dumped_at_a_signal(start: Fixture, write: Fixture, latch: Any) -> None:
    """Into the log: workers with what they execute, what waits, jobs, our own threads; and it goes on."""
    path = write(f"@job(After(0))\ndef work(): {latch.code}\n@job(After(3600))\ndef later(): pass")
    program = start("run", path, "--workers", 1)
    latch.wait()
    program.signal(signal.SIGUSR1)
    program.wait_for("thread: MainThread")
    told = ("state, as asked for", "health: Health(ok=True", "job: later, scheduled", "current='work #1'", "in work")
    for words in told:
        program.wait_for(words)
    latch.open()
    program.wait_for("succeeded")
    program.signal(signal.SIGINT)
    assert program.end() == 0
