"""InstanceLock: one scheduler at a time on a path (``single_instance``). Runs in the parent.

An operating system's lock, not a file with a process id in it: it is free the moment its holder is gone, however that
went. Workers don't inherit it, and a forked copy of the parent lets go of it.
"""

from __future__ import annotations

import os

from procsched.errors import AlreadyRunning

__all__ = ["InstanceLock"]


class InstanceLock:
    """Held from construction until `release`.

    Raises:
        AlreadyRunning: Somebody else holds it.
        OSError: The file can't be opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        import fcntl

        self.path = os.fspath(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd: int | None = os.open(self.path, flags, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
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
