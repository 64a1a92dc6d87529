"""Place: where the sockets of running schedulers are, and who may use them. Anywhere.

They lie in a folder that belongs to the user alone, so that nobody else can make one there first, or put a link in its
place. Who connects is asked for by the kernel as well.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import tempfile
from pathlib import Path

__all__ = ["answers", "living_sockets", "peer_of", "private_folder", "socket_of"]

_LONGEST = 100
"""Bytes of a path that a socket's address takes on every system; the least is 104, with the end."""


def private_folder(*, make: bool) -> Path:
    """The folder of this user: in ``$XDG_RUNTIME_DIR``, else in the folder for temporary files.

    Raises:
        OSError: It can't be made, or isn't this user's alone.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    user = os.geteuid()
    folder = Path(runtime, "procsched") if runtime else Path(tempfile.gettempdir(), f"procsched-{user}")
    if make:
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            pass
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return folder
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o077:
        raise PermissionError(f"{folder} isn't a folder of yours alone (mode 700); nothing in it is trusted")
    return folder


def socket_of(pid: int, folder: Path) -> Path:
    """Of the scheduler in this process."""
    return folder / f"{pid}.sock"


def check_length(path: str | os.PathLike[str]) -> None:
    """Raises `OSError` for a path that is too long for a socket."""
    if len(os.fsencode(path)) > _LONGEST:
        raise OSError(f"the path of a socket has {_LONGEST} bytes at most: {os.fspath(path)}")


def answers(path: str | os.PathLike[str]) -> bool:
    """Whether somebody listens there."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True


def living_sockets() -> list[Path]:
    """Of this user's schedulers; what dead ones have left is removed. Raises `OSError` as `private_folder`."""
    folder = private_folder(make=False)
    found = []
    for path in sorted(folder.glob("*.sock")) if folder.is_dir() else []:
        if answers(path):
            found.append(path)
        else:
            path.unlink(missing_ok=True)
    return found


def peer_of(connection: socket.socket) -> int:
    """The user id of who has connected, as the kernel knows it. Raises `OSError`."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is not None:
        _pid, user, _group = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, 12))
        return int(user)
    # macOS and the BSDs: LOCAL_PEERCRED at SOL_LOCAL gives a struct xucred, which begins with version and user
    return int(struct.unpack_from("=II", connection.getsockopt(0, 1, 76))[1])
