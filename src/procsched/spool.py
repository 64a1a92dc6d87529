"""Payloads too large for a queue, in anonymous memory files. Runs anywhere; imports next to nothing.

::

      writer                         kernel                    reader
    store(parts) ── write() ──►  memory file, no name
    pass_file(socket, fd) ─────►  descriptor in flight ──►  take_file(socket)
                                 the same pages        ◄──  view(): private mapping, writable without a copy

No name, so there is nothing to clean up after a SIGKILL; ``write()`` and not a shared mapping, because a full /dev/shm
answers a write with ENOSPC, but a touch of a mapping with SIGBUS.
"""

from __future__ import annotations

import os
from _struct import pack, unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Protocol

    class Passage(Protocol):
        """What ``socket.socket`` and the leaner ``_socket.socket`` have in common."""

        def sendmsg(self, buffers: Iterable[bytes], ancdata: Iterable[tuple[int, int, bytes]], /) -> int: ...
        def recvmsg(
            self, size: int, ancsize: int, flags: int, /
        ) -> tuple[bytes, list[tuple[int, int, bytes]], int, object]: ...


__all__ = ["Spooled", "anonymous_file", "pass_file", "read_all", "take_file", "write_all"]

IN_MEMORY_LIMIT = 1 << 20
"""Up to here the parent keeps the parts in memory: a descriptor per scheduled job would be the scarcer good."""
MOST_FILES = 256
_CHUNK = 1 << 30  # Linux moves at most 2 GiB - 4 KiB per call
_CLOEXEC, _SEALABLE = getattr(os, "MFD_CLOEXEC", 1), getattr(os, "MFD_ALLOW_SEALING", 2)

_files: set[int] = set()  # descriptors held by Spooled objects; add and discard are atomic, so __del__ needs no lock
_budget = 0


def _file_budget() -> int:
    """How many spool files this process may keep open: 256, or an eighth of its descriptor limit."""
    global _budget
    if not _budget:
        try:
            import resource

            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        except (ImportError, OSError):
            soft = 256
        _budget = MOST_FILES if soft < 0 else max(4, min(MOST_FILES, soft // 8))
    return _budget


def anonymous_file(name: str = "procsched") -> int:
    """A descriptor (3 or above) of a new file without a name, closed on exec."""
    create = getattr(os, "memfd_create", None)
    if create is not None:
        try:
            fd = int(create(name, _CLOEXEC | _SEALABLE))
            return fd if fd > 2 else above_standard(fd)
        except OSError as error:
            import errno

            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise
    import tempfile  # an old kernel, macOS, or forbidden by seccomp

    with tempfile.TemporaryFile(buffering=0) as file:
        return above_standard(os.dup(file.fileno()))


def above_standard(fd: int) -> int:
    """The same open file under a number above 2.

    A daemon that closed its standard streams would get them back from us as pipes, and print into them.
    """
    if fd > 2:
        return fd
    import fcntl

    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def write_all(fd: int, parts: Iterable[bytes | bytearray | memoryview]) -> int:
    """Write everything to a blocking descriptor; the number of bytes."""
    total = 0
    for part in parts:
        view = memoryview(part)
        if view.nbytes != len(view):
            view = view.cast("B")
        done = 0
        while done < len(view):
            done += os.write(fd, view[done : done + _CHUNK])
        total += done
    return total


def read_all(fd: int, size: int) -> bytearray:
    """The first ``size`` bytes of a file, wherever its offset stands (it is shared with other processes)."""
    content = bytearray(size)
    view = memoryview(content)
    done = 0
    while done < size:
        count = os.preadv(fd, [view[done : done + _CHUNK]], done)
        if not count:
            raise EOFError(f"a spool file is shorter than announced: {done} of {size} bytes")
        done += count
    return content


def pass_file(passage: Passage, fd: int) -> None:
    """Hand a descriptor to the other process: one byte with one descriptor, so that reads can't merge two."""
    import _socket

    passage.sendmsg([b"\0"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, pack("i", fd))])


def take_file(passage: Passage) -> int:
    """The next descriptor from the other process. `EOFError` when it has none, `BlockingIOError` as usual."""
    import _socket

    flags = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
    data, ancillary, _, _ = passage.recvmsg(1, _socket.CMSG_LEN(4), flags)
    for level, kind, content in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS and len(content) >= 4:
            fd = int(unpack("i", content[:4])[0])
            if not flags:
                os.set_inheritable(fd, False)
            return above_standard(fd)
    raise EOFError("no descriptor came" if data else "the other end is closed")


class Spooled:
    """A large payload: in a memory file, or, where that would waste descriptors, in this process's memory.

    Immutable: ``view()`` gives each caller private pages. Law: it owns one descriptor at most, and none after `close`.
    """

    __slots__ = ("__weakref__", "_content", "_fd", "size")

    def __init__(self, size: int, fd: int = -1, content: bytes | None = None) -> None:
        self.size = size
        self._fd = fd
        self._content = content
        if fd >= 0:
            _files.add(fd)

    @classmethod
    def store(cls, parts: Sequence[bytes | bytearray | memoryview], *, in_memory: bool | None = None) -> Spooled:
        """A snapshot of the parts that `wire.encode` returned. `OSError` when there is no room; nothing is leaked.

        ``in_memory``: True or False decides; None is the parent's rule (small, or too many files open).
        """
        size = sum(memoryview(part).nbytes for part in parts)
        if in_memory is None:
            in_memory = size <= IN_MEMORY_LIMIT or len(_files) >= _file_budget()
        if in_memory:
            return cls(size, content=b"".join(parts))
        return cls(size, _filled(parts, size))

    @classmethod
    def adopt(cls, fd: int, size: int) -> Spooled:
        """Take over a descriptor that another process sent.

        Its content, and the file is let go, beyond the budget, or where the sender could still cut it short: mapped
        beyond its end it would be a SIGBUS for whoever looks.
        """
        lasting = _seal(fd)
        if os.fstat(fd).st_size < size:
            os.close(fd)
            raise EOFError(f"a spool file is shorter than announced ({size} bytes)")
        if lasting and len(_files) < _file_budget():
            return cls(size, fd)
        try:
            return cls(size, content=bytes(read_all(fd, size)))
        finally:
            os.close(fd)

    def lend(self) -> int:
        """A new descriptor of a file with the content, for `pass_file`; the caller closes it."""
        if self._fd >= 0:
            return os.dup(self._fd)
        if self._content is None:
            raise ValueError("this payload is closed")
        return _filled([self._content], self.size)

    def fileno(self) -> int:
        """The descriptor of the content, made now if it was in memory; stays this object's own."""
        if self._fd < 0:
            self._fd = self.lend()
            _files.add(self._fd)
        return self._fd

    def view(self) -> memoryview:
        """The content, writable, private to the caller; freed when the last object built on it dies."""
        if self._fd >= 0:
            if self.size <= IN_MEMORY_LIMIT:  # below this a copy costs less than the page faults of a mapping
                return memoryview(read_all(self._fd, self.size))
            from procsched.mapping import map_private

            return map_private(self._fd, self.size)
        if self._content is None:
            raise ValueError("this payload is closed")
        return memoryview(bytearray(self._content))

    def close(self) -> None:
        """Give it up; idempotent, safe from any thread and at interpreter exit."""
        fd, self._fd, self._content = self._fd, -1, None
        if fd >= 0:
            _files.discard(fd)
            os.close(fd)

    def __del__(self) -> None:
        try:
            self.close()
        except (AttributeError, OSError, TypeError):  # half-made, or the interpreter is going
            pass

    def __repr__(self) -> str:
        where = f"fd {self._fd}" if self._fd >= 0 else "closed" if self._content is None else "in memory"
        return f"<Spooled {self.size} bytes, {where}>"


def _seal(fd: int) -> bool:
    """Have the kernel refuse to shorten the file, from now on; whether it does."""
    import fcntl

    try:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    except (AttributeError, OSError):  # not a memory file, or one that its maker has closed to us
        return False
    return True


def _filled(parts: Iterable[bytes | bytearray | memoryview], size: int) -> int:
    fd = anonymous_file()
    try:
        write_all(fd, parts)
    except OSError as error:
        os.close(fd)
        raise OSError(error.errno, f"no room for a payload of {size} bytes: {os.strerror(error.errno or 0)}") from None
    except BaseException:
        os.close(fd)
        raise
    return fd
