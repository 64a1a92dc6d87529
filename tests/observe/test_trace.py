"""The trace: an array that can be read at any moment, bounded, with what ran where and what came late."""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

import procsched
from procsched import FixedRate, ProcessScheduler, Retry
from procsched.observe import trace as module
from procsched.observe.trace import prepare, tracing
from procsched.observe.tracefile import read_trace
from procsched.observe.tracepage import page_of


def fail() -> None:
    """With a text that would like to be markup."""
    raise ValueError("</script><img src=x onerror=alert(1)>\u2028&amp;")


def die() -> None:
    """With its worker."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


def test_what_ran_is_there(path: Path, caplog: Any) -> None:
    """On the lane of its worker, with outcome, error and lateness; lost workers and failed attempts too."""
    gate = threading.Event()
    with ProcessScheduler(1) as scheduler, tracing(scheduler, path):
        scheduler.schedule(abs, FixedRate("1ms").times(5), args=(1,), id="quick").wait(30)
        tried = scheduler.schedule(fail, FixedRate("1h").times(1), id="</script>", retry=Retry(2, backoff="1ms"))
        tried.wait(30)
        assert scheduler.submit(die).exception(30) is not None
        gate.set()
        scheduler.shutdown()
    events = json.loads(path.read_bytes())
    assert {event["ph"] for event in events} >= {"M", "X", "i", "C"}
    trace = read_trace(path)
    assert [run.number for run in trace.runs if run.job_id == "quick"] == [1, 2, 3, 4, 5]
    attempts = [run for run in trace.runs if run.job_id == "</script>"]
    assert [(run.attempt, run.outcome) for run in attempts] == [(1, "failed"), (2, "failed")]
    assert all("onerror" in run.error and run.worker == 0 for run in attempts)
    assert [run.outcome for run in trace.runs if run.job_id == "die"] == ["crashed"]
    kinds = [name for _at, _slot, name, _about in trace.marks]
    assert {"SchedulerStarted", "WorkerLost", "RunRetrying", "SchedulerStopped"} <= set(kinds)
    assert trace.workers[0].startswith("worker 0 (pid ") and trace.counts
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def told() -> None:
    """Half of it is done."""
    procsched.current_run().progress(0.5)


def test_progress_is_a_counter(path: Path) -> None:
    """Of its job; it isn't taken for the number of runs."""
    with ProcessScheduler(1) as scheduler, tracing(scheduler, path):
        seen = threading.Event()
        scheduler.subscribe(lambda event: seen.set(), procsched.RunProgress)
        scheduler.schedule(told, FixedRate("1h").times(1), id="job").wait(30)
        assert seen.wait(30)
        scheduler.shutdown()
    counters = [event for event in json.loads(path.read_bytes()) if event["ph"] == "C"]
    assert {"progress of job", "runs"} == {event["name"] for event in counters}
    assert [event["args"] for event in counters if event["name"] != "runs"] == [{"fraction": 0.5}]
    assert all(executing >= 0 for _at, executing, _ready in read_trace(path).counts)


def test_a_late_run_is_led_to_from_where_it_was_due(path: Path) -> None:
    """A bar of waiting that ends where the run begins, and an arrow between them."""
    with ProcessScheduler(1) as scheduler, tracing(scheduler, path):
        scheduler.submit(abs, 1).result(30)  # the worker's boot makes it late
        scheduler.shutdown()
    events = json.loads(path.read_bytes())
    (run,) = [e for e in events if e["ph"] == "X" and e.get("cat") == "succeeded"]
    (waiting,) = [e for e in events if e["ph"] == "X" and e.get("cat") == "waiting"]
    begin, end = [next(e for e in events if e["ph"] == kind) for kind in "sf"]
    assert abs(waiting["ts"] + waiting["dur"] - run["ts"]) < 0.01
    assert (begin["ts"], begin["tid"], begin["id"]) == (waiting["ts"], waiting["tid"], end["id"])
    assert (end["ts"], end["tid"]) == (run["ts"], run["tid"])


def test_it_is_whole_after_each_write(path: Path) -> None:
    """While it grows, and turns over: the two files together are bounded."""
    file = module._File(path, 4096)
    written = 0
    for _ in range(40):
        texts = [json.dumps({"name": "x" * 50, "number": written + n}) for n in range(5)]
        if file.fitting(texts) < len(texts):
            file.turn_over()
        file.append(texts)
        written += 5
        assert json.loads(path.read_bytes())[-1]["number"] == written - 1
        older = path.with_name("trace.json.1")
        both = path.stat().st_size + (older.stat().st_size if older.exists() else 0)
        assert both <= 4096
    file.close()
    both = [json.loads((path.parent / name).read_bytes()) for name in ("trace.json.1", "trace.json")]
    numbers = [event["number"] for events in both for event in events]
    assert numbers == list(range(written - len(numbers), written))


def test_a_write_that_fails_leaves_nothing_behind(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it reached the disk: the next write is in its place."""
    file = module._File(path, 1 << 20)
    file.append(['{"number":1}'])
    original = os.pwrite

    def full(fd: int, data: bytes, at: int) -> int:
        original(fd, data[: len(data) // 2], at)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space"):
        file.append(['{"number":2,"much":"%s"}' % ("x" * 500)])
    monkeypatch.setattr(os, "pwrite", original)
    file.append(['{"number":3}'])
    file.close()
    assert json.loads(path.read_bytes()) == [{"number": 1}, {"number": 3}]


def test_a_trace_that_was_cut_short_is_read_to_the_cut(path: Path) -> None:
    with ProcessScheduler(1) as scheduler, tracing(scheduler, path):
        scheduler.schedule(abs, FixedRate("1ms").times(50), args=(1,), id="quick").wait(30)
        scheduler.shutdown()
    data = path.read_bytes()
    whole = len(read_trace(path).runs)
    path.write_bytes(data[: len(data) * 2 // 3])
    assert 0 < len(read_trace(path).runs) < whole


def test_a_trace_that_has_just_been_begun_is_read(path: Path) -> None:
    """One that is empty, and one that goes on in a new file."""
    prepare(path)
    assert read_trace(path).runs == []
    with ProcessScheduler(1) as scheduler, tracing(scheduler, path):
        scheduler.submit(abs, 1).result(30)
        scheduler.shutdown()
    whole = read_trace(path)
    prepare(path)
    path.unlink()  # as if it had been killed right there
    assert read_trace(path).runs == whole.runs
    prepare(path)
    assert len(whole.runs) == 1 and read_trace(path).runs == whole.runs and read_trace(path).begun == whole.begun


def test_it_survives_the_death_of_its_program(path: Path) -> None:
    """Killed under load: what is there can be read, and the next program puts it aside."""
    source = """
        import sys
        from procsched import *
        from procsched.observe.trace import tracing
        scheduler = ProcessScheduler(2)
        with tracing(scheduler, sys.argv[1], size="256KiB"):
            for number in range(20):
                scheduler.schedule(abs, FixedRate("1ms"), args=(1,), id=f"job{number}")
            scheduler.wait()
    """
    env = {**os.environ, "PYTHONPATH": str(Path(procsched.__file__).parents[1])}
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", textwrap.dedent(source), str(path)], env=env) as program:
            while not path.exists() or path.stat().st_size < 30_000:
                assert program.poll() is None
            program.kill()
        assert read_trace(path).runs
        size = path.stat().st_size if path.exists() else 0
        prepare(path)
        assert path.stat().st_size < 10
        if size > 10:  # else it had just turned over when it was killed, and there is nothing to put aside
            assert path.with_name("trace.json.1").stat().st_size == size
    assert path.with_name("trace.json.1").stat().st_size <= 128 << 10


def test_what_is_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    """A text, another program's JSON, a folder, senseless sizes."""
    text, other = tmp_path / "text", tmp_path / "other.json"
    text.write_text("for my eyes only")
    other.write_text('[{"name": "x"}]')
    for path in (text, other):
        before = path.read_text()
        with pytest.raises(ValueError, match="no trace"):
            prepare(path)
        with pytest.raises(ValueError, match="no trace"):
            read_trace(path)
        assert path.read_text() == before
    with pytest.raises(OSError, match="can't be written"):
        prepare(tmp_path)
    for size in (0, "1KiB", "much", -1):
        with pytest.raises((TypeError, ValueError)):
            prepare(tmp_path / "new.json", size=size)
    assert not (tmp_path / "new.json").exists()


def test_texts_of_runs_are_no_markup(path: Path, caplog: Any) -> None:
    """Not in the page either: neither the id of a job nor what it raised can end the script or begin an element."""
    caplog.set_level(logging.CRITICAL)
    with ProcessScheduler(1) as scheduler, tracing(scheduler, path):
        for name in ("</script><script>alert(1)</script>", "<!--", "]]>", "\u2029"):
            scheduler.schedule(fail, FixedRate("1h").times(1), id=name).wait(30)
        scheduler.shutdown()
    page = page_of(read_trace(path))
    data = page.split('type="application/json" id="data">')[1].split("</script>")[0]
    assert "<" not in data and ">" not in data and len(json.loads(data)["jobs"]) == 4
    assert page.count("<script") == page.count("</script>") == 3
    assert "http://" not in page and "https://" not in page and "/*data*/" not in page and "timeline.js*/" not in page


def test_many_short_runs_are_drawn_as_one(path: Path) -> None:
    """Nobody could tell them apart, and nobody could read the file; but what failed or came late is drawn by itself."""
    tracer = module._Tracer.__new__(module._Tracer)

    def line(number: int, start: int, late: int = 0, name: str = "a") -> tuple[Any, ...]:
        return (name, number, 1, start, start, start + 1000, start - late, start - late, 0, 0, 0, 0, 1, None, "")

    runs: list[tuple[Any, ...]] = [line(n, n * 2000) for n in range(1000)]
    runs[500] = ("a", 500, 1, 1, 0, 1, 2, 0, 1, 0, 0, 0, 1, "failed", None, None, 0, 0, "")
    runs[700:710] = [line(n, n * 2000, late=5_000_000) for n in range(700, 710)]
    runs[800] = line(800, 800 * 2000, name="b")
    merged = tracer._merged(runs)
    assert [run[1] for run in merged] == [0, 500, 501, 700, 710, 800, 801]
    assert (merged[0][4], merged[0][5]) == (0, 499 * 2000 + 1000)
