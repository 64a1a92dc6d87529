"""HistoryFile: the SQLite file of a history, as it is made and as it is read. Anywhere.

``runs`` has a row for each run that ended, in the order of the ends: the fields of `RunRecord`, instants (since the
Unix epoch; ``started`` 0: it never did) and durations in nanoseconds, ``error`` as JSON. ``sessions`` has a row for
each time that a scheduler began to write.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from procsched.ledger import record_of
from procsched.records import RunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from procsched.records import RunRecord

__all__ = ["COLUMNS", "HistoryFile", "JobHistory", "create", "open_to_write"]

COLUMNS = (
    "job_id", "number", "generation", "attempt", "planned", "started", "finished", "lateness", "duration", "cpu_time",
    "max_rss", "worker", "pid", "outcome", "error", "result_size", "waited_loop", "waited_worker", "held_by",
)  # fmt: skip
"""As in a line of the ledger, in its order."""

_APPLICATION = 0x70736368  # "psch", in the file's header
_VERSION = 1
_BUSY = 5.0
"""Seconds to wait for another program that writes into the same file."""
_TYPES = {"job_id": "TEXT NOT NULL", "outcome": "TEXT NOT NULL", "error": "TEXT", "held_by": "TEXT NOT NULL"}
_SCHEMA = f"""
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY, begun INTEGER NOT NULL, name TEXT NOT NULL, pid INTEGER NOT NULL, version TEXT NOT NULL
);
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session INTEGER NOT NULL REFERENCES sessions,
    {", ".join(f"{name} {_TYPES.get(name, 'INTEGER')}" for name in COLUMNS)}
);
CREATE INDEX runs_of_job ON runs (job_id, id);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
"""


def create(path: str | os.PathLike[str]) -> None:
    """Makes the file, for this user alone, unless it is there; looks whether it is a history that can be written.

    Raises:
        OSError: It can't be made or written.
        ValueError: It is something else, or the history of a newer procsched.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise OSError(f"the history {os.fspath(path)} can't be written: {error.strerror}") from None
    try:
        # As it is: what is somebody else's stays as it was, journal mode included
        with closing(sqlite3.connect(path, timeout=_BUSY, isolation_level=None)) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")  # of several that begin at once, one makes the tables
            is_new = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if is_new:
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
            else:
                _check(connection, path)
    except sqlite3.OperationalError as error:
        raise OSError(f"the history {os.fspath(path)} can't be written: {error}") from None
    except sqlite3.DatabaseError:
        raise ValueError(f"{os.fspath(path)} is no history of procsched; it is left as it is") from None


def open_to_write(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """A connection for one thread at a time."""
    connection = sqlite3.connect(path, timeout=_BUSY, check_same_thread=False, isolation_level="IMMEDIATE")
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")  # a power cut may cost the last batches, and nothing else
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, path: str | os.PathLike[str]) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION:
        raise ValueError(f"{os.fspath(path)} is a database, but no history of procsched; it is left as it is")
    if version > _VERSION:
        raise ValueError(
            f"the history {os.fspath(path)} is that of a newer procsched (format {version}; this one knows {_VERSION})"
        )


class JobHistory(NamedTuple):
    """Sums over the runs of one id; times in seconds, None where nothing started."""

    job_id: str
    runs: int
    """Those that ended, in whatever way."""
    outcomes: dict[str, int]
    failures: int
    """That failed, crashed, timed out or were aborted."""
    duration_p50: float | None
    duration_p99: float | None
    lateness_p50: float | None
    lateness_p99: float | None
    last_finished: float
    """Since the Unix epoch."""


class HistoryFile:
    """A history, to be read; also while a scheduler writes it.

    Raises:
        OSError: There is no such file, or it can't be read.
        ValueError: It is something else, or the history of a newer procsched.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        with open(path, "rb"):  # what the system says is clearer than what SQLite says
            pass
        uri = f"{Path(os.path.abspath(path)).as_uri()}?mode=ro"
        self._connection = sqlite3.connect(uri, uri=True, timeout=_BUSY)
        try:
            try:
                _check(self._connection, path)
            except sqlite3.OperationalError as error:
                raise OSError(f"the history {os.fspath(path)} can't be read: {error}") from None
            except sqlite3.DatabaseError:
                raise ValueError(f"{os.fspath(path)} is no history of procsched") from None
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        self._connection.close()

    def runs(
        self,
        *,
        jobs: Iterable[str] = (),
        outcomes: Iterable[str] = (),
        since: float | None = None,
        until: float | None = None,
        number: int | None = None,
        last: int | None = None,
    ) -> Iterator[RunRecord]:
        """Runs in the order of their ends. ``since`` and ``until`` are seconds since the epoch, and bound the end;
        ``last``: only so many, the latest. Calls are found by their ids and by their functions' names."""
        where, values = _where(jobs, outcomes, since, until, number)
        query = f"SELECT {', '.join(COLUMNS)} FROM runs {where} ORDER BY id"
        if last is not None:
            query = f"SELECT * FROM ({query.replace('SELECT', 'SELECT id,', 1)} DESC LIMIT ?) ORDER BY id"
            values.append(last)
        for row in self._connection.execute(query, values):
            yield _record_of(row if last is None else row[1:])

    def jobs(
        self,
        *,
        jobs: Iterable[str] = (),
        outcomes: Iterable[str] = (),
        since: float | None = None,
        until: float | None = None,
    ) -> list[JobHistory]:
        """Sums by id, in the order of the ids. Calls of one function are one."""
        where, values = _where(jobs, outcomes, since, until, None)
        name = f"CASE generation WHEN 0 THEN {_FUNCTION} ELSE job_id END"
        query = f"SELECT {name}, outcome, started, duration, lateness, finished FROM runs {where}"
        found: dict[str, _Sums] = {}
        for name, outcome, started, duration, lateness, finished in self._connection.execute(query, values):
            sums = found.get(name)
            if sums is None:
                sums = found[name] = _Sums()
            sums.add(outcome, started, duration, lateness, finished)
        return [found[name].result(name) for name in sorted(found)]


class _Sums:
    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.durations: list[int] = []
        self.latenesses: list[int] = []
        self.last = 0

    def add(self, outcome: str, started: int, duration: int, lateness: int, finished: int) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.last = max(self.last, finished)
        if started:
            self.durations.append(duration)
            self.latenesses.append(lateness)

    def result(self, name: str) -> JobHistory:
        self.durations.sort()
        self.latenesses.sort()
        counts = self.outcomes
        failures = sum(counts.get(outcome, 0) for outcome in ("failed", "crashed", "timed_out", "aborted"))
        return JobHistory(
            name,
            sum(counts.values()),
            counts,
            failures,
            _quantile(self.durations, 0.5),
            _quantile(self.durations, 0.99),
            _quantile(self.latenesses, 0.5),
            _quantile(self.latenesses, 0.99),
            self.last / 1e9,
        )


def _quantile(ordered: list[int], q: float) -> float | None:
    """The value below which a part ``q`` of them lies, by the nearest rank."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] / 1e9 if ordered else None


def _where(
    jobs: Iterable[str], outcomes: Iterable[str], since: float | None, until: float | None, number: int | None
) -> tuple[str, list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    if names := list(jobs):
        some = ", ".join("?" * len(names))
        conditions.append(f"(job_id IN ({some}) OR (generation = 0 AND {_FUNCTION} IN ({some})))")
        values += [*names, *names]
    if kinds := list(outcomes):
        conditions.append(f"outcome IN ({', '.join('?' * len(kinds))})")
        values += kinds
    for condition, bound in (("finished >= ?", since), ("finished <= ?", until)):
        if bound is not None:
            conditions.append(condition)
            values.append(int(bound * 1e9))
    if number is not None:
        conditions.append("number = ?")
        values.append(number)
    return (f"WHERE {' AND '.join(conditions)}" if conditions else ""), values


_FUNCTION = "substr(job_id, 1, length(job_id) - length(number) - 1)"
"""Calls, which have no generation, are known by their function and their number."""


def _record_of(row: tuple[Any, ...]) -> RunRecord:
    if row[14] is None:
        return record_of(row)
    told = json.loads(row[14])
    return record_of((*row[:14], RunError(**{**told, "logs": tuple(told["logs"])}), *row[15:]))
