"""Log records and progress on their way to the parent, on a pipe of their own. Runs in the child.

Never blocks a run: what the pipe doesn't take is kept up to a bound, then dropped and counted. A pipe apart from the
reports, because two threads writing to one corrupted it after three frames.

Every write is one chunk of at most PIPE_BUF bytes, which a non-blocking pipe takes whole or not at all; so threads and
forked copies of the worker can't tear each other's records.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock
from collections import deque

from procsched.wire import (
    CHUNK,
    CHUNK_FIRST,
    CHUNK_LAST,
    CHUNK_MAGIC,
    CHUNK_SIZE,
    SAY_DROPPED,
    SAY_PROGRESS,
    dumps,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from procsched.context import CurrentRun

__all__ = ["AfterImport", "Chatter"]

BACKLOG = 256 * 1024
_ROOM = CHUNK_SIZE - CHUNK.size


class Chatter:
    """The writing end. ``say`` may be called by any thread, a signal handler and a forked copy."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = RLock()
        self._waiting: deque[bytes] = deque()
        self._writing = False
        self._dropped = 0
        os.register_at_fork(after_in_child=self._forked)

    @property
    def backlog(self) -> bool:
        """Whether something waits for room in the pipe."""
        return bool(self._waiting)

    def fileno(self) -> int:
        """The pipe, to wait for room in it."""
        return self._fd

    def say(self, message: tuple[Any, ...]) -> None:
        """Send a tuple of atoms, whole or not at all."""
        chunks = _chunks(dumps(message, 5))
        with self._lock:
            if self._waiting and (len(self._waiting) + len(chunks)) * CHUNK_SIZE > BACKLOG:
                self._dropped += 1
                return
            self._waiting.extend(chunks)
            self.flush()

    def progress(self, run: CurrentRun, fraction: float, message: str) -> None:
        """The ``progress`` of a `CurrentRun`."""
        self.say((SAY_PROGRESS, run.ticket, run.job_id, run.number, fraction, message[:CHUNK_SIZE]))

    def flush(self) -> None:
        """Write what the pipe takes now."""
        with self._lock:
            if self._writing:  # a signal handler that logs, in the middle of the lines below
                return
            self._writing = True
            try:
                while self._waiting:
                    os.write(self._fd, self._waiting[0])
                    self._waiting.popleft()
                    if self._dropped and not self._waiting:
                        count, self._dropped = self._dropped, 0
                        self._waiting.extend(_chunks(dumps((SAY_DROPPED, count), 5)))
            except BlockingIOError:
                pass
            except OSError:  # a run closed it, or the parent has gone: nobody to tell
                self._waiting.clear()
            finally:
                self._writing = False

    def _forked(self) -> None:
        self._lock = RLock()  # another thread may have held it
        self._waiting.clear()  # the worker's own to send
        self._writing = False
        self._dropped = 0


def _chunks(data: bytes) -> list[bytes]:
    pieces = [data[start : start + _ROOM] for start in range(0, len(data), _ROOM)]
    pid = os.getpid()
    last = len(pieces) - 1
    return [
        CHUNK.pack(len(piece), CHUNK_MAGIC, (0 if i else CHUNK_FIRST) | (CHUNK_LAST if i == last else 0), pid) + piece
        for i, piece in enumerate(pieces)
    ]


class AfterImport:
    """Calls a function when a module is first imported, so that nobody pays for modules no run ever uses."""

    def __init__(self, actions: dict[str, Callable[[ModuleType], None]]) -> None:
        self._actions = actions

    def install(self) -> None:
        """From now on; for what is imported already, at once."""
        for name in list(self._actions):
            module = sys.modules.get(name)
            if module is not None:
                self._actions.pop(name)(module)
        if self._actions:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The import system's question; answered by the other finders."""
        action = self._actions.pop(name, None)
        if action is None:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                break
        else:
            return None
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is not None:

            def exec_module(module: ModuleType) -> None:
                del loader.exec_module  # type: ignore[union-attr]
                execute(module)
                action(module)

            loader.exec_module = exec_module  # type: ignore[union-attr, method-assign]
        if not self._actions and self in sys.meta_path:
            sys.meta_path.remove(self)
        return spec
