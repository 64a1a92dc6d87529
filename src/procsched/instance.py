"""InstanceLock: one scheduler at a time on a path (``single_instance``). Runs in the parent.

An operating system's lock, not a file with a process id in it: it is free the moment its holder is gone, however that
went. Workers don't inherit it, and a forked copy of the parent lets go of it.
"""

from __future__ import annotations

import os
import stat

from procsched.errors import AlreadyRunning
from procsched.spool import above_standard

__all__ = ["InstanceLock"]

MOST_DIGITS = 32
"""More bytes than a process id has; of what is found in the file, no more is looked at."""


class InstanceLock:
    """Held from construction until `release`.

    Raises:
        AlreadyRunning: Somebody else holds it.
        OSError: The file can't be opened, or isn't one to lock: see `_check`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        import fcntl

        self.path = os.fspath(path)
        # O_NONBLOCK: a device or a named pipe that lies there must not keep us waiting
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._fd: int | None = above_standard(os.open(self.path, flags, 0o600))
        try:
            _check(self._fd, self.path)
        except OSError:
            self._close()
            raise
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, MOST_DIGITS, 0).decode("ascii", "replace").strip()
            self._close()
            raise AlreadyRunning(
                f"another scheduler{f' (process {holder})' if holder.isdigit() else ''} holds {self.path}; "
                f"stop it first, or give this one another single_instance path"
            ) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def release(self) -> None:
        """Let the next one in. The file stays: removing it would let two holders lock two files of one name."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
        self._close()

    def forget(self) -> None:
        """In a forked copy: close the descriptor, whose lock belongs to the parent too."""
        self._close()


def _check(fd: int, path: str) -> None:
    """What lies at the path must be a lock file of ours: it is going to be written to.

    A mistyped path would cost its owner a file. And whoever made the file can hold its lock: in a directory that
    everybody may write to, another user could keep us from running. (Who owns the directory could do that anyway.)
    """
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode):
        raise OSError(f"{path} can't be a lock file: it isn't a regular file")
    if about.st_nlink != 1:
        raise OSError(f"{path} can't be a lock file: it has {about.st_nlink} names")
    if about.st_uid not in (os.geteuid(), os.stat(os.path.dirname(path) or os.curdir).st_uid):
        raise OSError(f"{path} can't be a lock file: it belongs to another user (uid {about.st_uid})")
    if os.pread(fd, MOST_DIGITS, 0).strip(b"0123456789\n"):
        raise OSError(f"{path} can't be a lock file: it has a content that isn't the id of a process")
