"""The lock file of ``single_instance``: private, and nothing that lies at its path is harmed or followed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from programs import NOBODY, Program

from procsched import AlreadyRunning
from procsched.instance import InstanceLock

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


def test_it_is_private(tmp_path: Path) -> None:
    """Nobody else may open it, and so nobody else can hold it."""
    old = os.umask(0)
    try:
        lock = InstanceLock(tmp_path / "lock")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o600
    lock.release()


def test_what_was_left_by_a_holder_is_taken_over(tmp_path: Path) -> None:
    """A killed holder leaves its process id."""
    path = tmp_path / "lock"
    path.write_text("4194304\n")
    lock = InstanceLock(path)
    assert path.read_text() == f"{os.getpid()}\n"
    with pytest.raises(AlreadyRunning, match=str(os.getpid())):
        InstanceLock(path)
    lock.release()
    assert path.read_text() == ""


@pytest.mark.parametrize("content", ["@job(After(0))\ndef work(): ...\n", "\0", "12 monkeys"])
def test_a_mistyped_path_costs_nobody_a_file(tmp_path: Path, content: str) -> None:
    """A file with a content is no lock file."""
    path = tmp_path / "tasks.py"
    path.write_text(content)
    with pytest.raises(OSError, match="content"):
        InstanceLock(path)
    assert path.read_text() == content


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Neither to a file that is there, nor to one that would be made."""
    (tmp_path / "precious").write_text("")
    for name, target in (("link", "precious"), ("dangling", "nowhere")):
        (tmp_path / name).symlink_to(tmp_path / target)
        with pytest.raises(OSError, match="symbolic"):
            InstanceLock(tmp_path / name)
    assert not (tmp_path / "nowhere").exists()


def test_a_second_name_is_refused(tmp_path: Path) -> None:
    """A hard link to somebody's file."""
    (tmp_path / "precious").write_text("")
    os.link(tmp_path / "precious", tmp_path / "lock")
    with pytest.raises(OSError, match="2 names"):
        InstanceLock(tmp_path / "lock")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """At once: a named pipe without a reader, a device."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/null"):
        with pytest.raises(OSError, match="regular"):
            InstanceLock(path)


@as_root
def test_what_another_user_made_before_us_is_refused(tmp_path: Path) -> None:
    """In a folder for everybody; who made the file could hold its lock for ever."""
    folder = tmp_path / "everybodys"
    folder.mkdir()
    folder.chmod(0o1777)
    path = folder / "lock"
    path.touch()
    os.chown(path, NOBODY, NOBODY)
    with pytest.raises(OSError, match=f"uid {NOBODY}"):
        InstanceLock(path)
    os.chown(folder, NOBODY, NOBODY)  # in a folder of theirs they are at home
    InstanceLock(path).release()


def test_it_takes_no_standard_stream_for_its_own() -> None:
    """A daemon without standard streams: what it prints doesn't end in the lock file."""
    source = """
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "lock")
            report = os.dup(1)
            os.closerange(0, 3)
            scheduler = ProcessScheduler(workers=1, single_instance=path)
            os.write(report, b"taken " + str([fd for fd in range(3) if os.path.exists(f"/proc/self/fd/{fd}")]).encode())
            scheduler.shutdown()
    """
    with Program(source) as program:
        assert program.end() == ("taken []", "")
