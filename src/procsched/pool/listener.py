"""The thread that hears the workers' log records and progress. Runs in the parent, apart from the loop.

A flood of log records may cost this thread its time, and never the loop's.
"""

from __future__ import annotations

import os
import selectors
import threading
import time
import traceback
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from procsched.spool import above_standard
from procsched.wire import (
    CHUNK,
    CHUNK_FIRST,
    CHUNK_LAST,
    CHUNK_MAGIC,
    CHUNK_SIZE,
    NO_TICKET,
    SAY_DROPPED,
    SAY_LOG,
    SAY_PROGRESS,
    RemoteDropped,
    RemoteLog,
    RemoteProgress,
    plain_loads,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Ear", "Listener"]

LOGS_KEPT = 50
_READ = 1 << 16
_M = TypeVar("_M", RemoteLog, RemoteProgress, RemoteDropped)
_PAUSE = 0.01
_PARTS_LIMIT = 1 << 20  # of one message; a worker cuts its texts far below


class Ear:
    """The reading end of one worker's chatter. Its lock is held for one read and its parsing, never for a callback."""

    def __init__(self, fd: int, slot: int) -> None:
        self.slot = slot
        self.fd = fd
        self.done = False
        self._lock = threading.Lock()
        self._rest = b""
        self._parts: dict[int, list[bytes]] = {}
        self._heard: deque[Any] = deque()
        self._logs: deque[str] = deque(maxlen=LOGS_KEPT)
        self._logs_of = NO_TICKET

    def pump(self) -> bool:
        """One read; whether there may be more."""
        with self._lock:
            return self._pump()

    def finish(self, last_reported: int) -> list[str]:
        """The worker is dead: hear what it said last. The records of the run it died in, newest last."""
        with self._lock:
            for _ in range(16):
                if not self._pump():
                    break
            self.done = True
            # Records of a run that was reported afterwards aren't those of the one it died in.
            return list(self._logs) if self._logs_of != last_reported else []

    def abandon(self) -> None:
        """Without listening any more."""
        self.done = True
        self.close()

    def heard(self) -> list[Any]:
        """Take what has been heard since."""
        taken = []
        while self._heard:
            taken.append(self._heard.popleft())
        return taken

    def close(self) -> None:
        """By the listener's thread, which alone watches the descriptor."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def _pump(self) -> bool:
        if self.done or self.fd < 0:
            return False
        try:
            data = os.read(self.fd, _READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.done = True
            return False
        more = len(data) == _READ
        data = self._rest + data
        position = 0
        while len(data) - position >= CHUNK.size:
            length, magic, flags, pid = CHUNK.unpack_from(data, position)
            if magic != CHUNK_MAGIC or length > CHUNK_SIZE:
                self.done = True  # garbage: this pipe can't be understood any more; the worker itself is fine
                self._heard.append(RemoteDropped(self.slot, 1))
                return False
            following = position + CHUNK.size + length
            if following > len(data):
                break
            self._assemble(pid, flags, data[position + CHUNK.size : following])
            position = following
        self._rest = data[position:]
        return more

    def _assemble(self, pid: int, flags: int, piece: bytes) -> None:
        if flags & CHUNK_FIRST:
            parts = self._parts[pid] = [piece]
        else:
            found = self._parts.get(pid)
            if found is None:
                return
            parts = found
            parts.append(piece)
        if flags & CHUNK_LAST:
            del self._parts[pid]
            self._take(pid, b"".join(parts))
        elif len(parts) * CHUNK_SIZE > _PARTS_LIMIT or len(self._parts) > 1000:
            del self._parts[pid]

    def _take(self, pid: int, data: bytes) -> None:
        try:
            kind, *fields = plain_loads(data)
            if kind == SAY_LOG:
                ticket, *rest = fields
                record = _shaped(RemoteLog(self.slot, pid, *rest))
                if ticket != self._logs_of:
                    self._logs_of = ticket
                    self._logs.clear()
                self._logs.append(f"{record.logger}: {record.text}")
                self._heard.append(record)
            elif kind == SAY_PROGRESS:
                self._heard.append(_shaped(RemoteProgress(self.slot, *fields)))
            elif kind == SAY_DROPPED:
                self._heard.append(_shaped(RemoteDropped(self.slot, *fields)))
        except Exception:  # not what our side sends
            self._heard.append(RemoteDropped(self.slot, 1))


_SHAPES: dict[type, tuple[type, ...]] = {
    RemoteLog: (int, int, str, int, str, int, str, float, str, int, str),
    RemoteProgress: (int, int, str, int, float, str),
    RemoteDropped: (int, int),
}


def _shaped(message: _M) -> _M:
    """The message, if its fields are what whoever it is told to may count on; `TypeError` else."""
    if tuple(map(type, message)) != _SHAPES[type(message)]:
        raise TypeError(f"not what a worker says: {message!r:.200}")
    return message


class Listener:
    """Owns the thread and the descriptors of all ears. ``sink`` is called in the thread, one call at a time."""

    def __init__(self, name: str, sink: Callable[[Any], None]) -> None:
        self._sink = sink
        self._selector = selectors.DefaultSelector()
        self._mail: deque[Callable[[], None]] = deque()
        reader, writer = os.pipe()
        self._wake_read, self._wake_write = above_standard(reader), above_standard(writer)
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._stopping = self._stopped = False
        self._thread = threading.Thread(target=self._listen, name=f"{name}-listener", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # no thread left
            self._selector.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            raise

    def add(self, ear: Ear) -> None:
        """Listen to it."""
        self._post(lambda: self._watch(ear))

    def remove(self, ear: Ear) -> None:
        """Tell what it has heard, then close it. After ``finish``."""
        self._post(lambda: self._forget(ear))

    def stop(self, timeout: float) -> None:
        """Idempotent; the ears were removed before."""
        if self._stopped:
            return
        self._stopping = True
        self._post(lambda: None)
        self._thread.join(timeout)
        if not self._thread.is_alive():
            self._stopped = True
            self._selector.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _post(self, action: Callable[[], None]) -> None:
        self._mail.append(action)
        try:
            os.write(self._wake_write, b"x")
        except BlockingIOError:
            pass

    def _listen(self) -> None:
        while not (self._stopping and not self._mail):
            try:
                for key, _ in self._selector.select():
                    self._hear(key.data)
            except Exception:  # no memory: what wasn't read is there still; the pause keeps a lasting error from heat
                time.sleep(_PAUSE)

    def _hear(self, ear: Ear | None) -> None:
        if ear is None:
            self._read_mail()
            return
        ear.pump()
        if ear.done:
            self._unwatch(ear)
        self._tell(ear)

    def _read_mail(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            pass
        while self._mail:
            self._mail[0]()  # each may be done twice; an ear that is forgotten would stay open
            self._mail.popleft()

    def _watch(self, ear: Ear) -> None:
        if ear.fd >= 0 and not ear.done and ear.fd not in self._selector.get_map():
            self._selector.register(ear.fd, selectors.EVENT_READ, ear)

    def _unwatch(self, ear: Ear) -> None:
        try:
            self._selector.unregister(ear.fd)
        except (KeyError, ValueError, OSError):
            pass

    def _forget(self, ear: Ear) -> None:
        self._unwatch(ear)
        self._tell(ear)
        ear.close()

    def _tell(self, ear: Ear) -> None:
        for message in ear.heard():
            try:
                self._sink(message)
            except Exception:
                traceback.print_exc()
