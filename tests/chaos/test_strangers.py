"""Another user of the machine looks for a way in, while a scheduler works: there is none, and little to see.

The stranger is a process that begins as root and lays that down for good, before it tries anything.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from programs import NOBODY, Program

from procsched.pool.tenant import STACK_SIGNAL

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]

SECRET = "sesame-4711"

WORKING = """
    import numpy
    secret = sys.stdin.readline().strip()
    def wait(secret, array):
        import time
        print("begun", flush=True)
        time.sleep(60)
    s = ProcessScheduler(workers=2, spare_workers=1, single_instance=sys.argv[1], env={"KEY": secret})
    value = s.submit(lambda: secret.encode() + bytes(5_000_000)).result(30)
    s.submit(wait, secret, numpy.zeros(5_000_000))
    sys.stdin.read()
"""

STRANGER = """
    import ctypes, json
    libc = ctypes.CDLL(None, use_errno=True)
    pids, path, user, signals = json.loads(sys.argv[1])
    if user:
        os.setgroups([]), os.setgid(user), os.setuid(user)
    assert os.getuid() == os.geteuid() == user
    entered, seen = [], ""

    def attempt(name, deed):
        try:
            deed()
        except OSError:
            pass
        else:
            entered.append(name)

    def call(number, *arguments):
        if libc.syscall(number, *arguments) < 0:
            raise OSError(ctypes.get_errno(), "refused")

    def trace(pid):
        if libc.ptrace(16, pid, None, None) < 0:  # PTRACE_ATTACH
            raise OSError(ctypes.get_errno(), "refused")

    for pid in pids:
        for name in ("environ", "mem", "maps", "fd", "cwd", "stack", "auxv"):
            target = f"/proc/{pid}/{name}"
            attempt(target, lambda: os.listdir(target) if name == "fd" else os.open(target, os.O_RDONLY))
        for number in range(1100):
            attempt(f"descriptor {number} of {pid}", lambda: os.open(f"/proc/{pid}/fd/{number}", os.O_RDONLY))
        for signum in signals:
            attempt(f"signal {signum} to {pid}", lambda: os.kill(pid, signum))
        attempt(f"group of {pid}", lambda: os.killpg(pid, signals[-1]))
        attempt(f"trace of {pid}", lambda: trace(pid))
        pidfd = os.pidfd_open(pid)
        for number in (3, 10, 900, 901, 905):
            attempt(f"pidfd_getfd {number} of {pid}", lambda: call(438, pidfd, number, 0))
        for name in ("cmdline", "status", "stat", "comm"):
            seen += open(f"/proc/{pid}/{name}", errors="replace").read()
    for mode in (os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC):
        attempt(f"lock file {mode}", lambda: os.open(path, mode))
    print(json.dumps([entered, seen]))
"""


@pytest.fixture
def working(tmp_path: Path) -> Iterator[Program]:
    """A scheduler with a busy worker, an idle one and a spare; everybody may look into its folder."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.name.startswith("pytest-"):
            folder.chmod(0o755)
    with Program(WORKING, tmp_path / "lock") as program:
        assert program.process.stdin is not None
        program.process.stdin.write(f"{SECRET}\n")
        program.process.stdin.flush()
        assert program.line() == "begun"
        yield program


def tree(program: Program) -> list[int]:
    parent = psutil.Process(program.pid)
    return [parent.pid, *(child.pid for child in parent.children(recursive=True))]


def try_everything(pids: list[int], lock: Path, user: int, signals: list[int]) -> tuple[list[str], str]:
    """(what let the stranger in, what it could read about the processes)."""
    with Program(STRANGER, json.dumps([pids, str(lock), user, signals])) as stranger:
        entered, seen = json.loads(stranger.end()[0])
    return entered, seen


def test_a_stranger_gets_in_nowhere(working: Program, tmp_path: Path) -> None:
    """No descriptor, no memory, no environment, no signal, no lock; and no secret in what `ps` shows."""
    pids = tree(working)
    assert len(pids) >= 3
    signals = [0, signal.SIGTERM, signal.SIGUSR1, STACK_SIGNAL, signal.SIGKILL]
    entered, seen = try_everything(pids, tmp_path / "lock", NOBODY, signals)
    assert entered == []
    assert SECRET not in seen
    assert working.process.poll() is None
    assert set(tree(working)) >= set(pids)


def test_the_stranger_is_no_fool(working: Program, tmp_path: Path) -> None:
    """The attempts are real ones: they let root in."""
    pid = working.pid
    entered, _ = try_everything([pid], tmp_path / "lock", 0, [0])
    assert {f"/proc/{pid}/environ", f"/proc/{pid}/mem", f"/proc/{pid}/fd"} <= set(entered)
    assert {f"descriptor 3 of {pid}", f"trace of {pid}", f"signal 0 to {pid}"} <= set(entered)
    assert "lock file 2" in entered


def test_no_port_and_no_name(working: Program, tmp_path: Path) -> None:
    """No listening socket, none with an address; no file with a name, in whatever folder, but the lock's."""
    named: list[Any] = []
    for pid in tree(working):
        process = psutil.Process(pid)
        connections = getattr(process, "net_connections", None) or process.connections  # psutil 6 renamed it
        named += [*connections("inet"), *(c for c in connections("unix") if c.laddr or c.raddr)]
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(fd)
            if target.startswith("/") and not target.startswith(("/dev/null", "/dev/urandom", "/memfd:", "/proc/")):
                named.append(target)
    assert set(named) <= {str(tmp_path / "lock")}
