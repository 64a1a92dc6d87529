"""A task file is whatever lies at that path: a message for its author, and status 2; no hang, no traceback of ours."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import procsched
from procsched import taskfile
from procsched.cli.app import call
from procsched.errors import TaskFileError

OURS = os.path.dirname(procsched.__file__)
GOOD = b"from procsched import *\n@job(After('1h'))\ndef work(): ...\n"


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of modules and paths that a loaded file leaves."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield
    for name in [name for name in sys.modules if name.startswith(("strange", "tasks_strange"))]:
        del sys.modules[name]
    taskfile._sources.clear()


def complaint(path: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """What the command line says of it, on one line or with the author's own traceback; the status is 2."""
    assert call(["list", str(path)]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.rstrip("\n").rpartition("\n")[2].startswith("procsched: ")
    assert OURS not in err.replace(str(path), "")
    return err


def test_a_named_pipe_is_not_waited_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nobody writes to it."""
    os.mkfifo(tmp_path / "strange.py")
    assert "isn't a file but" in complaint(tmp_path / "strange.py", capfd)


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/null", "/dev/tty", "loop"])
def test_a_link_to_something_else(tmp_path: Path, capfd: pytest.CaptureFixture[str], target: str) -> None:
    """An endless device, an empty one, a link to itself."""
    (tmp_path / "strange.py").symlink_to("strange.py" if target == "loop" else target)
    complaint(tmp_path / "strange.py", capfd)


@pytest.mark.parametrize("name", ["strange\nname.py", "strange\udcff.py", "strange\x1b[2J.py", "strange" * 60 + ".py"])
def test_a_name_that_is_hard_to_say(tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str) -> None:
    """Missing or broken, it is told."""
    path = tmp_path / name
    assert call(["list", str(path)]) == 2
    capfd.readouterr()
    if len(name) < 255:
        path.write_bytes(b"def broken(:\n")
        assert call(["list", str(path)]) == 2
        path.write_bytes(GOOD)
        assert call(["list", str(path)]) == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x00" * 10, "can't be parsed"),
        (b"x = 1\x00\n", "can't be parsed"),
        (b"\xff\xfe" + GOOD.decode().encode("utf-16-le"), "can't be parsed"),
        (b"# coding: nothing-of-the-kind\n" + GOOD, "can't be parsed"),
        (b"\xef\xbb\xbf# coding: latin-1\n" + GOOD, "can't be parsed"),
        (b"# coding: ascii\n# \xe4\n" + GOOD, "can't be parsed"),
        (b"(" * 10_000, "can't be parsed"),
        (b"x = " + b"-" * 200_000 + b"1\n", ""),
        (b"", "defines no job"),
        (b"\xef\xbb\xbf", "defines no job"),
        (b"raise KeyboardInterrupt\n", ""),
    ],
)
def test_contents_that_are_no_tasks(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes, words: str
) -> None:
    """The reason is in the message."""
    (tmp_path / "strange.py").write_bytes(content)
    if b"KeyboardInterrupt" in content:
        assert call(["list", str(tmp_path / "strange.py")]) == 130
    else:
        assert words in complaint(tmp_path / "strange.py", capfd)


@pytest.mark.parametrize(
    "content", [b"\xef\xbb\xbf" + GOOD, GOOD.replace(b"\n", b"\r\n"), b"# coding: latin-1\n# \xe4\n" + GOOD]
)
def test_contents_that_are(tmp_path: Path, content: bytes) -> None:
    """A byte order mark, another system's line ends, another encoding."""
    (tmp_path / "strange.py").write_bytes(content)
    assert [job.id for job in taskfile.load(tmp_path / "strange.py").jobs] == ["work"]


def test_a_very_large_file(tmp_path: Path) -> None:
    """Ten megabytes of it are read as fast as Python reads them."""
    (tmp_path / "strange.py").write_bytes(GOOD + b"# " + b"x" * 10_000_000)
    assert len(taskfile.load(tmp_path / "strange.py").jobs) == 1


pieces = st.binary(max_size=40) | st.sampled_from(
    [GOOD, b"\n", b"    ", b"@job(", b"FixedRate('1s')", b")\n", b"def f(): ...\n", b"raise ", b"setup = ", b"1/0\n"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.lists(pieces, max_size=8).map(b"".join))
@example(GOOD + GOOD)
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    """Jobs, or `TaskFileError`; executed is only what parses."""
    path = tmp_path / "strange.py"
    path.write_bytes(content)
    try:
        taskfile.load(path)
    except TaskFileError as error:
        assert str(path) in str(error)
        assert OURS not in error.user_traceback
    finally:
        sys.modules.pop("strange", None)
        taskfile._sources.clear()
