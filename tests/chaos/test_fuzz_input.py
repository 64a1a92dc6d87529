"""What people type and what files hold: an error with a message, status 2, never a hang or a traceback of ours."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import procsched
from procsched import At, Cron, Daily, FixedRate, taskfile
from procsched.cli.app import call

quick = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
durations = st.text(max_size=12) | st.text(alphabet="0123456789.eE+-_ nsumhd", max_size=12) | st.floats().map(str)
crons = st.text(max_size=20) | st.lists(
    st.text(alphabet="0123456789*/-,LW#?montue", min_size=1, max_size=6), min_size=4, max_size=7
).map(" ".join)
FOLDER = str(Path(procsched.__file__).parent)


@pytest.fixture(autouse=True, scope="module")
def nothing_is_kept() -> Iterator[None]:
    """Of modules that the task files leave."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if "tasks" in name.partition(".")[0] and not name.startswith("procsched"):
            del sys.modules[name]
    taskfile._sources.clear()


@quick
@given(durations)
@example("9" * 5000)
@example("1e400")
@example("٣s")
def test_durations(text: str) -> None:
    """Nanoseconds, or a ValueError that quotes it."""
    try:
        FixedRate(text)
    except ValueError as error:
        assert str(error)


@quick
@given(crons)
@example("0 0 30 2 *")
@example("* * * * * * * *")
@example("0-59/0 * * * *")
@example("\0 * * * *")
def test_cron_text(text: str) -> None:
    """A schedule that answers, or a ValueError."""
    try:
        schedule = Cron(text)
    except ValueError:
        return
    schedule.first(1_800_000_000_000_000_000)


@quick
@given(st.text(max_size=10) | st.text(alphabet="0123456789:", max_size=9), st.none() | st.text(max_size=10))
@example("02:00", "../../etc/passwd")
@example("02:00", "/etc/passwd")
@example("02:00", "\0")
def test_daily_text(text: str, timezone: str | None) -> None:
    """Times and the names of zones, which are looked for in files."""
    try:
        Daily(text, timezone=timezone)
    except ValueError:
        pass


@pytest.mark.parametrize("value", [None, 5, 5.0, "tomorrow", b"x", [], object()])
def test_what_is_no_datetime(value: Any) -> None:
    """A TypeError or a ValueError at the door."""
    with pytest.raises((TypeError, ValueError)):
        At(value)


words = st.sampled_from(["run", "list", "check", "once", "--json", "--next", "--workers", "--for", "--grace", "--only"])
anything = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10)


@quick
@given(st.lists(words | anything | st.integers().map(str), max_size=6))
def test_the_command_line(tmp_path: Path, capsys: Any, arguments: list[str]) -> None:
    """No file of that name is there: status 2 and a line, or the help that was asked for."""
    status = call([*arguments, "--no-such-option"])
    said = capsys.readouterr()
    assert status in (0, 2), (status, said)
    assert said.err or said.out
    assert "Traceback" not in said.err


def run(path: object, tmp_path: Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """``procsched list`` on it; it ends within 20 s."""
    return subprocess.run(
        [sys.executable, "-m", "procsched", "list", path],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(FOLDER).parent)},
        capture_output=True,
        timeout=20,
        check=False,
        **options,
    )


FILES: dict[str, bytes] = {
    "nothing": b"",
    "random bytes": bytes(range(256)) * 4,
    "a NUL": b"x = 1\0\n",
    "a byte order mark of UTF-16": "x = 1\n".encode("utf-16"),
    "UTF-8 that isn't": b"x = '\xff\xfe'\n",
    "an encoding that there isn't": b"# -*- coding: klingon -*-\n",
    "a wrong encoding": b"# -*- coding: ascii -*-\nx = '\xc3\xa4'\n",
    "no end of a text": b"x = '''",
    "brackets without end": b"(" * 100_000,
    "deep recursion": b"f = lambda: f()\nf()\n",
    "a long line": b"x = " + b"1+" * 50_000 + b"1\n",
    "a bytecode file": b"\xa7\r\r\n" + bytes(100),
    "a megabyte of text": b"# x\n" * 262_144,
}


@pytest.mark.parametrize("what", FILES)
def test_task_files(what: str, tmp_path: Path, capsys: Any) -> None:
    """Status 2, a message that names the file, and no frame of ours."""
    path = tmp_path / "tasks.py"
    path.write_bytes(FILES[what])
    status = call(["list", str(path)])
    said = capsys.readouterr().err
    assert status == 2, said
    assert "tasks" in said
    assert FOLDER not in said


def test_a_byte_order_mark_and_carriage_returns(tmp_path: Path, capsys: Any) -> None:
    """What an editor of another system writes is a task file as any other."""
    path = tmp_path / "dos_tasks.py"
    text = "from procsched import After, job\r\n@job(After(5))\r\ndef wörk(): ...\r\n"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert call(["list", str(path)]) == 0
    assert "wörk" in capsys.readouterr().out


@pytest.mark.parametrize(
    "kind", ["folder", "fifo", "socket", "device", "endless", "dangling", "loop", "unreadable name"]
)
def test_what_is_no_file(kind: str, tmp_path: Path) -> None:
    """Status 2 at once: a pipe that nobody writes to isn't waited for, and /dev/zero isn't read to its end."""
    path = tmp_path / "tasks.py"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    elif kind in ("device", "endless"):
        path.symlink_to("/dev/null" if kind == "device" else "/dev/zero")
    elif kind in ("dangling", "loop"):
        path.symlink_to("nowhere.py" if kind == "dangling" else "tasks.py")
    else:
        path = tmp_path / os.fsdecode(b"\xff\xfe.py")
        path.write_bytes(b"x = 1\n")
    ended = run(os.fsencode(path), tmp_path)
    assert ended.returncode == 2, ended
    assert ended.stderr and b"Traceback" not in ended.stderr
    assert FOLDER.encode() not in ended.stderr
