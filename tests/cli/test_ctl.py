"""``run --control`` and ``procsched ctl``: a private socket, for the same user alone, out of the scheduler's way."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from procsched import FixedRate, ProcessScheduler
from procsched.cli.app import call
from procsched.control import place
from procsched.control.server import ControlServer

Fixture = Callable[..., Any]

TASKS = """
@job(FixedRate("1h", initial_delay="1h"))
def backup(): print("backed up", flush=True)

@job(After(0))
def long(): {latch}
"""


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's sockets are: nobody else's in these tests."""
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def said(capsys: Any) -> Callable[..., str]:
    """``said("pause", "backup", status=0)``: what ctl writes."""

    def say(*words: object, status: int = 0) -> str:
        got = call(["ctl", *map(str, words)])
        out, err = capsys.readouterr()
        assert got == status, (got, out, err)
        return str(err if status else out)

    return say


def test_what_can_be_asked_for(start: Fixture, write: Fixture, latch: Any, runtime: Path, said: Any) -> None:
    """Jobs, state, stacks; pause, resume, run now, cancel; then the socket is gone."""
    program = start("run", write(TASKS.format(latch=latch.code)), "--control", "--workers", 2)
    latch.wait()
    (path,) = (runtime / "procsched").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    rows = [line.split()[:2] for line in said("list").splitlines()[2:]]
    assert rows == [["backup", "scheduled"], ["long", "running"]]
    jobs = {job["id"]: job for job in json.loads(said("list", "--json"))}
    assert jobs["long"]["executing"] == 1 and jobs["backup"]["next_run_time"]
    status = json.loads(said("status", "--json"))
    assert status["pid"] == program.process.pid and status["health"]["ok"] and status["stats"]["executing"] == 1
    assert "long #1" in said("status") and "well" in said("status")
    assert "most recent call first" in said("stack", "long")
    assert "doesn't execute" in said("stack", "backup", status=1)
    said("pause", "backup")
    assert json.loads(said("list", "--json"))[0]["state"] == "paused"
    said("resume", "backup")
    said("trigger", "backup")
    program.wait_for("backed up")
    said("cancel", "backup")
    assert [job["id"] for job in json.loads(said("list", "--json"))] == ["long"]
    assert "did you mean long?" in said("pause", "lonk", status=1)
    latch.open()
    program.signal(2)
    assert program.end() == 0 and list((runtime / "procsched").iterdir()) == []


def test_nobody_there(runtime: Path, said: Any, tmp_path: Path) -> None:
    """One line, and status 2; what a dead one has left is removed."""
    assert "--control" in said("list", status=2)
    folder = place.private_folder(make=True)
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(folder / "1234.sock"))
    left.close()
    assert "--control" in said("list", status=2) and list(folder.iterdir()) == []
    assert "No such file" in said("--socket", tmp_path / "none.sock", "list", status=2)


def test_several_have_to_be_told_apart(runtime: Path, said: Any, tmp_path: Path) -> None:
    folder = place.private_folder(make=True)
    with ProcessScheduler(1) as one, ControlServer(one, str(folder / "a.sock"), {}), ControlServer(
        one, str(folder / "b.sock"), {}
    ):
        listed = said("status", status=2)
        assert "--socket" in listed and "a.sock" in listed and "b.sock" in listed
        assert "well" in said("--socket", folder / "a.sock", "status")


def test_a_folder_that_is_not_ours_alone_is_not_trusted(runtime: Path, said: Any, tmp_path: Path) -> None:
    """Open to others, or a link to somewhere else."""
    folder = runtime / "procsched"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    assert "isn't a folder of yours alone" in said("list", status=2)
    with pytest.raises(PermissionError):
        place.private_folder(make=True)
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        place.private_folder(make=True)


def test_what_is_in_the_way_is_left_alone(tmp_path: Path) -> None:
    """A file, somebody else's socket in use; a path that is too long. A socket that nobody uses is replaced."""
    with ProcessScheduler(1) as one:
        (tmp_path / "file").write_text("mine")
        with pytest.raises(OSError, match="is no socket"):
            ControlServer(one, str(tmp_path / "file"), {})
        with pytest.raises(OSError, match="100 bytes at most"):
            ControlServer(one, str(tmp_path / ("x" * 120)), {})
        path = str(tmp_path / "s.sock")
        with ControlServer(one, path, {}), pytest.raises(OSError, match="listens"):
            ControlServer(one, path, {})
        left = socket.socket(socket.AF_UNIX)
        left.bind(path)
        left.close()
        with ControlServer(one, path, {}):
            assert place.answers(path)
        assert not os.path.exists(path) and (tmp_path / "file").read_text() == "mine"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ControlServer]:
    with ProcessScheduler(1) as scheduler, ControlServer(scheduler, str(tmp_path / "s.sock"), {}) as serving:
        scheduler.schedule(abs, FixedRate("1h"), args=(1,), id="job")
        yield serving


def sent(server: ControlServer, data: bytes, *, close: bool = False) -> bytes:
    """What comes back."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(server.path)
        try:
            connection.sendall(data)
            if close:
                connection.shutdown(socket.SHUT_WR)
            return connection.recv(1 << 20)
        except ConnectionError:
            return b""


def test_garbage_is_not_answered_and_does_no_harm(server: ControlServer) -> None:
    """Half a question, no JSON, too much of it, another version, unknown words; the next one is served."""
    assert sent(server, b'{"v": 1, "do"', close=True) == b""
    assert sent(server, b"\x00\xff\n") == b""
    assert sent(server, b"x" * 200_000 + b"\n") == b""
    for question, words in (
        (b"[]\n", "speaks version 1"),
        (b'{"v": 2, "do": "list"}\n', "speaks version 1"),
        (b'{"v": 1, "do": "dance"}\n', "there is no 'dance'"),
        (b'{"v": 1, "do": "pause"}\n', "which job"),
        (b'{"v": 1, "do": "pause", "id": ["job"]}\n', "which job"),
    ):
        answer = json.loads(sent(server, question))
        assert not answer["ok"] and words in answer["error"]
    assert json.loads(sent(server, b'{"v": 1, "do": "list"}\n'))["answer"][0]["id"] == "job"


def test_who_says_nothing_does_not_hold_the_others(server: ControlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor the end."""
    monkeypatch.setattr("procsched.control.server.PATIENCE", 0.2)
    silent = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    for connection in silent:
        connection.connect(server.path)
    assert json.loads(sent(server, b'{"v": 1, "do": "list"}\n'))["ok"]
    for connection in silent:
        connection.close()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs to become another user")
def test_another_user_gets_nothing(tmp_path: Path) -> None:
    """Not even where the file's mode would let him."""
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    source = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(20)
try:
    connection.connect(sys.argv[1])
    connection.sendall(b'{"v": 1, "do": "list"}\\n')
    print("answer", connection.recv(1000))
except ConnectionError:
    print("answer b''")
except OSError as error:
    print(type(error).__name__)
"""
    with ProcessScheduler(1) as scheduler, ControlServer(scheduler, str(tmp_path / "s.sock"), {}) as server:
        for mode, expected in ((0o600, "PermissionError"), (0o666, "answer b''")):
            os.chmod(server.path, mode)
            command = [sys.executable, "-c", source, server.path]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
            assert done.stdout.strip() == expected


def test_it_works_while_the_loop_stands_still(tmp_path: Path) -> None:
    """That is when one wants to know: status says that it isn't well, and doesn't wait for ever."""
    with ProcessScheduler(1) as scheduler, ControlServer(scheduler, str(tmp_path / "s.sock"), {}) as server:
        scheduler.submit(abs, 1).result(30)
        go = threading.Event()
        scheduler._engine.mailbox.post(lambda: go.wait(60))
        begun = time.monotonic()
        assert json.loads(sent(server, b'{"v": 1, "do": "status"}\n'))["answer"]["pid"] == os.getpid()
        assert time.monotonic() - begun < 30
        go.set()


def test_it_is_documented() -> None:
    """Every command of ctl stands in the page about it."""
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    for name in ("list", "status", "pause", "resume", "trigger", "cancel", "stack"):
        assert f"`{name}" in text
