"""The history: what was recorded comes back as it was, whatever happens to the program or to the file."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import procsched
from procsched import FixedRate, Outcome, ProcessScheduler, RunEnded, RunRecord
from procsched.observe import history
from procsched.observe.history import prepare, recording
from procsched.observe.historyfile import HistoryFile, create


def fail() -> None:
    """With a cause."""
    try:
        {}["key"]
    except KeyError as error:
        raise ValueError("as expected – ünïcödé") from error


def crash() -> None:
    """After it has said something."""
    logging.getLogger("app").warning("the last words")
    os.kill(os.getpid(), signal.SIGKILL)


def all_of(path: Path, **filters: Any) -> list[RunRecord]:
    with HistoryFile(path) as file:
        return list(file.runs(**filters))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def test_records_come_back_as_they_were(path: Path, caplog: Any) -> None:
    """Successes, failures, crashes, timeouts and cancelled runs, with all that is known of them, in their order."""
    told: list[RunRecord] = []
    with ProcessScheduler(2) as scheduler, recording(scheduler, path):
        scheduler.subscribe(lambda event: told.append(event.record), RunEnded)
        assert scheduler.submit(abs, -1).result(30) == 1
        for function in (fail, crash):
            assert scheduler.submit(function).exception(30) is not None
        job = scheduler.schedule(abs, FixedRate("1ms").times(20), args=(-2,), id="job")
        job.wait(30)
        scheduler.submit_after("1h", abs, 1).cancel()
        scheduler.shutdown()
    assert len(told) == 24
    assert all_of(path) == told
    assert {record.outcome for record in told} == {
        Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CRASHED, Outcome.CANCELLED
    }  # fmt: skip
    crashed = all_of(path, outcomes=["crashed"])[0]
    assert crashed.error is not None and crashed.error.logs == ("app: the last words",)


def test_it_is_for_this_user_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        create(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    """A text, a foreign database, a newer history, a folder, a place that isn't there: said, and nothing is changed."""
    text, foreign, newer = tmp_path / "text", tmp_path / "foreign.db", tmp_path / "newer.db"
    text.write_text("for my eyes only, and long enough not to be taken for an empty file " * 20)
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE mine (a)")
    create(newer)
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("PRAGMA user_version = 99")
    for path, words in ((text, "no history"), (foreign, "no history"), (newer, "newer procsched")):
        before = path.read_bytes()
        with pytest.raises(ValueError, match=words):
            prepare(path)
        with pytest.raises(ValueError, match=words):
            HistoryFile(path)
        assert path.read_bytes() == before
    with pytest.raises(OSError, match="can't be written: Is a directory"):
        prepare(tmp_path)
    with pytest.raises(OSError, match="can't be written: No such file"):
        prepare(tmp_path / "nowhere" / "runs.db")
    with pytest.raises(FileNotFoundError):
        HistoryFile(tmp_path / "missing.db")


@pytest.mark.parametrize(("keep", "most"), [(0, 10), (-1, 10), ("x", 10), ("1d", 0), ("1d", True)])
def test_senseless_limits(path: Path, keep: Any, most: Any) -> None:
    with pytest.raises(ValueError):
        prepare(path, keep=keep, most=most)
    assert not path.exists()


def line(number: int, finished: int) -> tuple[Any, ...]:
    """As the ledger has it."""
    times = (finished - 2, finished - 1, finished, 1, 1)
    return ("job", number, 1, 1, *times, 0, 0, 0, 1, "succeeded", None, None, 1, 0, "")


def test_what_is_old_or_too_much_is_deleted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By age, and by number, also when there is more of it than one transaction takes."""
    monkeypatch.setattr(history, "_TIDY_AT_ONCE", 7)
    now = 1_800_000_000_000_000_000
    monkeypatch.setattr(history.time, "time_ns", lambda: now)
    create(path)
    store = history._Store(path, "test", keep=100, most=1000)
    store.write([line(number, now - 200 + number) for number in range(150)])
    store.close()
    assert [record.number for record in all_of(path)] == list(range(100, 150))
    store = history._Store(path, "test", keep=10_000, most=20)
    store.write([line(number, now + number) for number in range(150, 155)])
    store.close()
    assert [record.number for record in all_of(path)] == list(range(135, 155))


def test_a_file_that_was_taken_away_is_made_anew(path: Path) -> None:
    """As by somebody who begins a new one each month; the old one keeps what it had."""
    store = history._Store(path, "test", keep=1 << 62, most=1000)
    store.write([line(1, 1000)])
    moved = path.with_name("old.db")
    path.rename(moved)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).rename(moved.with_name(moved.name + suffix))
    store.write([line(2, 2000)])
    store.close()
    assert [record.number for record in all_of(path)] == [2]
    assert [record.number for record in all_of(moved)] == [1]


def test_several_write_into_one_file(path: Path) -> None:
    """Two schedulers at once, a reader beside them."""
    with ProcessScheduler(1) as one, ProcessScheduler(1) as two, recording(one, path), recording(two, path):
        when = FixedRate("1ms").times(200)
        jobs = [each.schedule(abs, when, args=(1,), id=name) for each, name in ((one, "a"), (two, "b"))]
        while any(job.state is procsched.JobState.SCHEDULED for job in jobs):
            all_of(path)
        for job in jobs:
            job.wait(30)
        one.shutdown()
        two.shutdown()
    for name in "ab":
        assert [record.number for record in all_of(path, jobs=[name])] == list(range(1, 201))


def test_a_file_that_is_locked_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """Somebody holds it for longer than a writer waits: nothing is lost, and the scheduler doesn't wait at all."""
    monkeypatch.setattr("procsched.observe.historyfile._BUSY", 0.01)
    failed = threading.Event()
    original = logging.getLogger("procsched.scheduler").error
    monkeypatch.setattr(
        logging.getLogger("procsched.scheduler"), "error", lambda *args: (original(*args), failed.set())
    )
    with ProcessScheduler(1) as scheduler, recording(scheduler, path):
        with closing(sqlite3.connect(path)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            assert [scheduler.submit(abs, -n).result(30) for n in range(20)] == list(range(20))
            assert failed.wait(30)
            holder.rollback()
        scheduler.shutdown()
    assert "database is locked" in caplog.text
    assert len(all_of(path)) == 20


def test_it_survives_the_death_of_its_program(path: Path) -> None:
    """Killed under load: the file is whole, no run is in it twice, and the next program goes on with it."""
    source = """
        import sys
        from procsched import *
        from procsched.observe.history import recording
        scheduler = ProcessScheduler(2)
        with recording(scheduler, sys.argv[1]):
            for number in range(20):
                scheduler.schedule(abs, FixedRate("1us", missed=Missed.CATCH_UP), args=(1,), id=f"job{number}")
            print("there", flush=True)
            scheduler.wait()
    """
    env = {**os.environ, "PYTHONPATH": str(Path(procsched.__file__).parents[1])}
    for _ in range(3):
        command = [sys.executable, "-c", textwrap.dedent(source), str(path)]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None and program.stdout.readline() == "there\n"
            with closing(sqlite3.connect(path, timeout=30)) as connection:
                (before,) = connection.execute("SELECT coalesce(max(id), 0) FROM runs").fetchone()
                while connection.execute("SELECT coalesce(max(id), 0) FROM runs").fetchone()[0] <= before:
                    pass
            program.kill()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            doubles = "SELECT 1 FROM runs GROUP BY session, job_id, number HAVING count(*) > 1"
            assert connection.execute(doubles).fetchall() == []
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (3,)


def test_it_can_be_searched(path: Path) -> None:
    """By job, by the function of calls, by outcome, time, number; the latest; and summed up."""
    store = history._Store(path, "test", keep=1 << 62, most=1000)
    second = 1_000_000_000
    lines = [line(number, number * second) for number in range(1, 11)]
    call = ("work-7", 7, 0, *line(7, 20 * second)[3:])
    named = ("work-1", 1, 5, *line(1, 21 * second)[3:])
    failed = (*line(11, 30 * second)[:13], "failed", '["raw"]', *line(11, 0)[15:])
    store.write([*lines, call, named])
    store._connection.execute(  # type: ignore[union-attr]
        f"INSERT INTO runs VALUES (99, 1, {', '.join('?' * 19)})", (*failed[:14], None, *failed[15:])
    )
    store._connection.commit()  # type: ignore[union-attr]
    store.close()
    with HistoryFile(path) as file:
        assert [run.number for run in file.runs(jobs=["job"], since=4, until=6)] == [4, 5, 6]
        assert [run.number for run in file.runs(last=3, jobs=["job"])] == [9, 10, 11]
        assert [run.job_id for run in file.runs(jobs=["work"])] == ["work-7"]
        assert [run.job_id for run in file.runs(jobs=["work-1"])] == ["work-1"]
        assert [run.number for run in file.runs(outcomes=["failed"])] == [11]
        assert [run.number for run in file.runs(jobs=["job"], number=3)] == [3]
        sums = {each.job_id: each for each in file.jobs()}
        assert list(sums) == ["job", "work", "work-1"]
        assert (sums["job"].runs, sums["job"].failures, sums["job"].duration_p50) == (11, 1, 1e-9)
        assert sums["job"].outcomes == {"succeeded": 10, "failed": 1} and sums["job"].last_finished == 30
