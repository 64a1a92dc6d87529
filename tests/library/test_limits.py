"""Workers: how they are set up, replaced and shared out."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from procsched import AlreadyRunning, ProcessScheduler, WorkerLost, WorkerReplaced

Stage = Any
Make = Callable[..., ProcessScheduler]

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def environment(*names: str) -> list[str | None]:
    return [os.environ.get(name) for name in names]


@pytest.mark.case("B98")
def test_recycling_after_so_many_runs(make: Make) -> None:
    """Between runs; it is no failure, no loss, and nothing gets lost or repeated."""
    scheduler = make(workers=1, max_tasks_per_child=3)
    told: list[Any] = []
    scheduler.subscribe(told.append, WorkerLost, WorkerReplaced)
    pids = [scheduler.submit(os.getpid).result(30) for _ in range(9)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 3]
    scheduler.shutdown()
    assert {type(event) for event in told} == {WorkerReplaced} and told[0].old_pid == pids[0]
    assert scheduler.stats().succeeded == 9


@pytest.mark.case("B99")
def test_recycling_while_work_waits(make: Make) -> None:
    """Also when everything is submitted at once, in batches."""
    scheduler = make(workers=2, max_tasks_per_child=5)
    pids = list(scheduler.map(lambda _: os.getpid(), range(40)))
    assert max(pids.count(pid) for pid in pids) <= 5


@pytest.mark.case("B98")
def test_recycling_by_memory(make: Make) -> None:
    """A worker above the limit after a run is replaced."""

    def hoard(size: int) -> int:
        import builtins

        builtins.hoarded = bytearray(os.urandom(size))  # type: ignore[attr-defined]
        return os.getpid()

    scheduler = make(workers=1, max_memory_per_child="100MiB")
    first = [scheduler.submit(os.getpid).result(30) for _ in range(3)]
    big = scheduler.submit(hoard, 150 << 20).result(30)
    after = scheduler.submit(os.getpid).result(30)
    assert set(first) == {big} and after != big and scheduler.stats().crashed == 0


def test_a_memory_limit_below_a_fresh_worker(make: Make, caplog: Any) -> None:
    """One warning and at most one replacement a minute."""
    scheduler = make(workers=2, max_memory_per_child="1MiB")
    pids = set()
    for _ in range(10):
        scheduler.submit(sum, range(2_000_000)).result(30)
        pids.add(scheduler.submit(os.getpid).result(30))
    pids |= {scheduler.submit(os.getpid).result(30) for _ in range(20)}
    scheduler.shutdown()
    assert len(pids) <= 3
    assert sum("max_memory_per_child" in record.getMessage() for record in caplog.records) == 1


def test_the_initializer_runs_in_every_worker_first(make: Make, tmp_path: Path) -> None:
    """Replacements too, before their first run, with its arguments."""

    def start(path: str, value: int) -> None:
        import builtins

        builtins.prepared = value  # type: ignore[attr-defined]
        with open(path, "a") as file:
            file.write(f"{os.getpid()}\n")

    def look() -> tuple[int, int]:
        import builtins

        return os.getpid(), builtins.prepared  # type: ignore[attr-defined]

    path = tmp_path / "pids"
    scheduler = make(workers=1, initializer=start, initargs=(str(path), 7), max_tasks_per_child=1)
    seen = [scheduler.submit(look).result(30) for _ in range(3)]
    assert [value for _, value in seen] == [7, 7, 7] and len({pid for pid, _ in seen}) == 3
    scheduler.shutdown()
    started = path.read_text().split()
    assert len(started) == len(set(started)) and {str(pid) for pid, _ in seen} <= set(started)


def test_env_reaches_workers_only(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is added to the parent's own, and wins there."""
    monkeypatch.setenv("PROCSCHED_TEST_A", "parent")
    monkeypatch.setenv("PROCSCHED_TEST_B", "parent")
    scheduler = make(workers=1, env={"PROCSCHED_TEST_B": "env", "PROCSCHED_TEST_C": "env"})
    names = [f"PROCSCHED_TEST_{letter}" for letter in "ABC"]
    assert scheduler.submit(environment, *names).result(30) == ["parent", "env", "env"]
    assert environment(*names) == ["parent", "parent", None]


@pytest.mark.parametrize(
    ("arguments", "expected"), [({"threads_per_worker": 3}, "3"), ({}, None), ({"env": {THREADS[0]: "9"}}, None)]
)
@pytest.mark.case("B111")
def test_threads_are_shared_out(
    make: Make, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], expected: str | None
) -> None:
    """Each worker's share of the cores by default; what the user has set wins."""
    import loky

    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    scheduler = make(workers=2, **arguments)
    share = expected or str(max(1, loky.cpu_count() // 2))
    first = arguments.get("env", {}).get(THREADS[0], share)
    assert scheduler.submit(environment, *THREADS).result(30) == [first, "7", share, share]


@pytest.mark.case("B119")
def test_a_single_instance(make: Make, tmp_path: Path) -> None:
    """A second one on the path is refused until the first has ended; workers don't inherit the lock."""
    path = tmp_path / "lock"
    first = make(workers=1, single_instance=path)
    pid = first.submit(os.getpid).result(30)
    with pytest.raises(AlreadyRunning, match=str(os.getpid())):
        ProcessScheduler(workers=1, single_instance=str(path))
    assert not any(os.readlink(f"/proc/{pid}/fd/{fd}") == str(path) for fd in os.listdir(f"/proc/{pid}/fd"))
    make(workers=1, single_instance=tmp_path / "other")
    first.shutdown()
    make(workers=1, single_instance=path)


@pytest.mark.case("B119")
def test_a_lock_dies_with_its_holder(make: Make, tmp_path: Path) -> None:
    """The system lets go of it, however the holder ends."""
    path = tmp_path / "lock"
    source = (
        "import sys; from procsched import *; s = ProcessScheduler(workers=1, single_instance=sys.argv[1]);"
        "s.submit(int).result(); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", source, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdin is not None
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(AlreadyRunning):
            ProcessScheduler(workers=1, single_instance=path)
        holder.kill()
        holder.wait()
        make(workers=1, single_instance=path)


def test_a_lock_that_cant_be_made(tmp_path: Path) -> None:
    """An OSError, at once."""
    with pytest.raises(OSError, match="nowhere"):
        ProcessScheduler(single_instance=tmp_path / "nowhere" / "lock")


def test_priorities_among_what_waits(one: ProcessScheduler, stage: Stage, tmp_path: Path) -> None:
    """With PRIORITY, the more important goes first, whenever it came."""
    from procsched import After, Priority, ReadyOrder

    scheduler = ProcessScheduler(workers=1, ready_order=ReadyOrder.PRIORITY)
    with scheduler:
        scheduler.submit(stage.hold, *stage.at)
        stage.entered()
        jobs = [
            scheduler.schedule(time.monotonic, After(0), priority=priority)
            for priority in (Priority.LOW, Priority.MEDIUM, Priority.HIGH, -5, 50)
        ]
        futures = [job.next_future() for job in jobs]
        stage.open()
        times = [future.result(30) for future in futures]
    assert sorted(range(5), key=times.__getitem__) == [3, 2, 1, 0, 4]
