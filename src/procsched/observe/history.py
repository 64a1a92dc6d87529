"""History: every RunRecord in an SQLite file. In the parent, in a thread of its own.

::

    the loop ─news─► events thread ─lines─► BackgroundWriter ─rows, twice a second─► FILE (WAL)  ◄── procsched history

The lines of the ledger are put aside as they are; what a row costs is paid by the writer's thread. A transaction is a
batch, so a file whose program was killed lacks its last half second, and is whole.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from procsched import __version__
from procsched.core.durations import duration_ns
from procsched.events import RunEnded
from procsched.ledger import error_of, whole
from procsched.observe.historyfile import COLUMNS, create, open_to_write
from procsched.observe.writer import BackgroundWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from procsched.core.durations import Duration
    from procsched.scheduler import ProcessScheduler

__all__ = ["KEEP", "MOST", "prepare", "recording"]

KEEP = "30d"
"""How long runs are kept."""
MOST = 1_000_000
"""Runs that are kept: about 250 MB."""
_MOST_WAITING = 200_000
"""Runs that wait to be written."""
_TIDY_EVERY = 60.0  # seconds
_TIDY_AT_ONCE = 20_000
"""Rows that are deleted in one transaction."""

_INSERT = f"INSERT INTO runs (session, {', '.join(COLUMNS)}) VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"


def prepare(
    path: str | os.PathLike[str], *, keep: Duration = KEEP, most: int = MOST
) -> Callable[[ProcessScheduler], AbstractContextManager[None]]:
    """For `run --history`: looks whether the file can be written, and makes it; see `recording`.

    Raises:
        OSError, ValueError: It can't be written; it is something else, or of a newer procsched; senseless limits.
    """
    kept = duration_ns(keep, "the time that history is kept")
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ValueError(f"the number of runs that history keeps must be a whole number above 0, not {most!r}")
    create(path)

    @contextmanager
    def opened(scheduler: ProcessScheduler) -> Iterator[None]:
        store = _Store(path, scheduler._engine.name, kept, most)
        writer = BackgroundWriter(f"the history {os.fspath(path)}", store.write, _MOST_WAITING)
        writer.start()
        leave = scheduler._engine.announcer.follow(
            lambda news: writer.note([item[1] for item in news if item[0] is RunEnded])
        )
        try:
            yield
        finally:
            leave()
            writer.stop()
            store.close()

    return opened


@contextmanager
def recording(
    scheduler: ProcessScheduler, path: str | os.PathLike[str], *, keep: Duration = KEEP, most: int = MOST
) -> Iterator[None]:
    """Write every run that ends within the ``with`` block into the SQLite file ``path``, which is made if need be.

    Put it around the scheduler's own block, or shut down within it, so that the last runs are in it. Several
    schedulers, and several programs, may write into one file.

    Args:
        keep: Runs that ended longer ago are deleted; seconds, timedelta or ``"30d"``.
        most: And the oldest beyond this number.

    Raises:
        OSError, ValueError: As `prepare`. Later errors are logged, once, and tried again: the scheduler goes on.
    """
    with prepare(path, keep=keep, most=most)(scheduler):
        yield


class _Store:
    """The file as the writer's thread has it."""

    def __init__(self, path: str | os.PathLike[str], name: str, keep: int, most: int) -> None:
        self._path = os.path.abspath(path)
        self._name = name
        self._keep = keep
        self._most = most
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._session = 0
        self._tidied = 0.0

    def write(self, lines: list[Any]) -> None:
        """One transaction. Raises `OSError` and `sqlite3.Error`; nothing of it is in the file then."""
        if self._connection is not None and self._identity != _identity_of(self._path):
            self.close()  # it was deleted, or moved away, to begin a new one
        if self._connection is None:
            self._open()
        assert self._connection is not None
        with self._connection:
            self._connection.executemany(_INSERT, [(self._session, *_row_of(line)) for line in lines])
        if time.monotonic() - self._tidied > _TIDY_EVERY:
            self._tidy()
            self._tidied = time.monotonic()

    def _open(self) -> None:
        create(self._path)
        connection = open_to_write(self._path)
        try:
            with connection:
                cursor = connection.execute(
                    "INSERT INTO sessions (begun, name, pid, version) VALUES (?, ?, ?, ?)",
                    (time.time_ns(), self._name, os.getpid(), __version__),
                )
        except BaseException:
            connection.close()
            raise
        self._session = cursor.lastrowid or 0
        self._connection, self._identity = connection, _identity_of(self._path)

    def _tidy(self) -> None:
        """Deletes what is too old or too much: rows are in the order of their ends, so from the front on."""
        connection = self._connection
        assert connection is not None
        oldest = time.time_ns() - self._keep
        while True:
            with connection:
                first, last = connection.execute("SELECT min(id), max(id) FROM runs").fetchone()
                if first is None:
                    return
                found = connection.execute("SELECT id FROM runs WHERE finished >= ? ORDER BY id LIMIT 1", (oldest,))
                young = found.fetchone()
                end = max(last - self._most + 1, young[0] if young is not None else last + 1)
                if end <= first:
                    return
                connection.execute("DELETE FROM runs WHERE id < ?", (min(end, first + _TIDY_AT_ONCE),))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                with closing(connection):
                    self._connection = connection
                    self._tidy()
                    connection.execute("PRAGMA optimize")
            except sqlite3.Error:
                pass  # what was written is there; it is tidied the next time
            finally:
                self._connection = None


def _identity_of(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _row_of(line: Any) -> tuple[Any, ...]:
    line = whole(line)
    if line[14] is None:
        return line  # type: ignore[no-any-return]
    error = error_of(line[14])
    return (*line[:14], json.dumps(error.as_dict()) if error is not None else None, *line[15:])
