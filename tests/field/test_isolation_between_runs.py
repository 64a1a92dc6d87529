"""Isolation: a run starts from its worker's base state, and the program around us stays as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import procsched
from procsched import After, FixedDelay, ProcessScheduler

Make = Callable[..., ProcessScheduler]


def spoil() -> None:
    """By value: everything that one run could do to the next."""
    import os
    import signal
    import sys

    os.environ["SPOILED"] = "1"
    os.environ.pop("HOME", None)
    os.chdir("/")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 1000)
    sys.stdin.close()
    os.close(0)


def state() -> tuple[Any, ...]:
    import os
    import signal
    import sys

    return (
        "SPOILED" in os.environ,
        "HOME" in os.environ,
        os.getcwd(),
        str(signal.getsignal(signal.SIGTERM)) == str(signal.getsignal(signal.SIGINT)),
        signal.getsignal(signal.SIGUSR1),
        signal.getitimer(signal.ITIMER_REAL)[0],
        sys.stdin.read(),
        os.getpid(),
    )


@pytest.mark.case("B116")
def test_the_next_run_finds_the_base_state(one: ProcessScheduler, monkeypatch: Any) -> None:
    """Environment, directory, signal handlers, timers and input: as before, in the same worker, which still obeys."""
    monkeypatch.setenv("HOME", "/root")
    before = one.submit(state).result(30)
    one.submit(spoil).result(30)
    assert one.submit(state).result(30) == before


@pytest.mark.case("B117")
def test_a_run_may_use_processes_of_its_own(one: ProcessScheduler, eventually: Any) -> None:
    """multiprocessing, concurrent.futures, joblib's loky, subprocess; what it leaves ends with its worker."""

    def nested() -> tuple[Any, ...]:
        import concurrent.futures
        import multiprocessing
        import operator
        import subprocess

        import loky

        with multiprocessing.get_context("spawn").Pool(1) as pool:
            first = pool.map(operator.neg, [1])
        with concurrent.futures.ProcessPoolExecutor(1) as executor:
            second = executor.submit(operator.neg, 2).result()
        third = loky.get_reusable_executor(max_workers=1, timeout=1000).submit(operator.neg, 3).result()
        left = subprocess.Popen(["sleep", "600"]).pid
        return first, second, third, left

    *values, left = one.submit(nested).result(60)
    assert values == [[-1], -2, -3]
    one.shutdown()
    eventually(lambda: not Path(f"/proc/{left}").exists())


@pytest.mark.case("B118")
def test_workers_come_up_beside_busy_threads(make: Make) -> None:
    """Twenty threads that log without pause, so that some lock is always held: no replacement hangs in a copy of it."""
    import logging

    log, over = logging.getLogger("busy"), threading.Event()
    log.propagate = False
    handler = logging.StreamHandler(open(os.devnull, "w"))  # noqa: SIM115  (closed below)
    log.addHandler(handler)

    def talk() -> None:
        while not over.wait(0.0005):
            log.warning("x" * 1000)

    threads = [threading.Thread(target=talk) for _ in range(20)]
    for thread in threads:
        thread.start()
    try:
        scheduler = make(workers=1, max_tasks_per_child=1)
        assert len({scheduler.submit(os.getpid).result(30) for _ in range(15)}) == 15
    finally:
        over.set()
        for thread in threads:
            thread.join()
        log.removeHandler(handler)
        handler.stream.close()


@pytest.mark.case("B118")
def test_the_threaded_parent_is_never_forked(make: Make, monkeypatch: Any) -> None:
    """A worker's start runs none of the hooks that a fork would run."""
    forks: list[int] = []
    monkeypatch.setattr(os, "fork", lambda: forks.append(1) or 1 / 0)
    hooked: list[int] = []
    os.register_at_fork(before=lambda: hooked.append(1))
    scheduler = make(workers=2, max_tasks_per_child=1)
    assert len({scheduler.submit(os.getpid).result(30) for _ in range(4)}) == 4
    assert (forks, hooked) == ([], [])


@pytest.mark.case("B119")
def test_of_four_processes_one_executes(tmp_path: Path) -> None:
    """The others are refused with a message; when the holder is killed, the next one gets in."""
    source = """
import os, sys
from procsched import *
try:
    s = ProcessScheduler(workers=1, single_instance=sys.argv[1])
except AlreadyRunning as error:
    print("refused", error, flush=True)
else:
    s.schedule(int, FixedDelay("50ms")).next_future().result()
    print("runs", flush=True)
    sys.stdin.read()
"""
    variables = {**os.environ, "PYTHONPATH": str(Path(procsched.__file__).parents[1])}

    def begin() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", source, str(tmp_path / "lock")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=variables,
        )

    processes = [begin() for _ in range(4)]
    said = {process: (process.stdout and process.stdout.readline()) or "" for process in processes}
    [holder] = [process for process, line in said.items() if line == "runs\n"]
    assert sum(line.startswith("refused") and str(holder.pid) in line for line in said.values()) == 3
    holder.kill()
    holder.wait()
    processes.append(following := begin())
    assert following.stdout is not None and following.stdout.readline() == "runs\n"
    for process in processes:
        process.communicate("")
    assert following.returncode == 0


@pytest.mark.case("B121")
@pytest.mark.parametrize("lack", ["semaphores", "temporary files", "both"])
def test_without_semaphores_or_temporary_files(program: Any, lack: str) -> None:
    """Neither is needed: pipes and memory files do."""
    done = program(
        f"""
        import _multiprocessing, errno, tempfile
        if {lack!r} != "temporary files":
            class Refusing(_multiprocessing.SemLock):
                def __new__(cls, *_): raise OSError(errno.ENOSYS, "Function not implemented")
            _multiprocessing.SemLock = Refusing
            import multiprocessing
            try: multiprocessing.Lock()
            except OSError: pass
            else: sys.exit("it has semaphores")
        if {lack!r} != "semaphores":
            def nowhere(*_, **__): raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")
            tempfile.gettempdir = tempfile._get_default_tempdir = tempfile.mkdtemp = tempfile.mkstemp = nowhere
            os.environ["TMPDIR"] = "/nonexistent"
        with ProcessScheduler(workers=2) as s:
            job = s.schedule(abs, FixedDelay("1ms").times(3), args=(1,))
            print(len(s.submit(bytes, 5 << 20).result()), len(s.submit(bytes.lower, bytes(5 << 20)).result()))
            job.wait()
            os.kill(s.workers()[0].pid, 9)
            print(s.submit(abs, -1).result(), job.stats.succeeded)
        """
    )
    size = str(5 << 20)
    assert (done.returncode, done.stdout.split()) == (0, [size, size, "1", "3"]), done.stderr


@pytest.mark.case("B116")
def test_the_program_around_us_stays_as_it_was(make: Make) -> None:
    """Environment, directory, umask, handlers, limits of the parent: before, while and after a scheduler lives."""
    import resource

    def around() -> tuple[Any, ...]:
        mask = os.umask(0)
        os.umask(mask)
        handlers = [signal.getsignal(number) for number in sorted(signal.valid_signals())]
        return dict(os.environ), os.getcwd(), mask, handlers, resource.getrlimit(resource.RLIMIT_NOFILE), sys.path[:]

    before = around()
    scheduler = make(workers=1, env={"ONLY": "workers"}, threads_per_worker=1)
    scheduler.schedule(abs, FixedDelay("1ms").times(3), args=(1,))
    assert scheduler.schedule(abs, After(0), args=(1,)).wait(30) and around() == before
    scheduler.shutdown()
    assert around() == before
