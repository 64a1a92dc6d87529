"""The parent is killed with SIGKILL: when is everything gone that it had started?

The driver kills a program of its own (`parent`), and looks for processes that carry its mark in their environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from pathlib import Path

import psutil
from harness import Plan, Table, end_with_descendants, progress, start_apart
from peers import EXECUTORS, WORKERS

TITLE = "The parent dies"
MARK = "PROCSCHED_BENCHMARK"
BOUND = 4.0
"""Seconds after which what is left is left."""
PATIENCE = 30.0
"""Seconds that a parent may take until its tasks run."""
TASKS = ("idle", "sleeping", "holding the GIL", "stopped", "with subprocesses")
BOOTS = (0.01, 0.03, 0.06, 0.12)
NAMES = ("procsched", "multiprocessing.Pool", "concurrent.futures", "loky", "pebble")


def hold(path: str, how: str) -> None:
    """In a worker: says that it is there, and stays."""
    if how == "with subprocesses":
        subprocess.Popen(["sleep", "60"])
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, b"x")
    os.close(fd)
    if how == "holding the GIL":
        sum(range(1 << 34))
    time.sleep(60)


def parent(name: str, how: str, path: str) -> None:
    """Comes to the moment at which the driver kills it."""
    if how == "booting":
        with EXECUTORS[name]():
            time.sleep(60)
    with EXECUTORS[name]() as executor:
        if how != "idle":
            calls = [executor.call(hold, path, how) for _ in range(WORKERS)]
            while not (os.path.exists(path) and os.path.getsize(path) >= len(calls)):
                time.sleep(0.01)
        time.sleep(0.1)
        if how == "stopped":
            for process in psutil.Process().children(recursive=True):
                process.suspend()
        print("ready", flush=True)
        time.sleep(60)


def killed(name: str, how: str, delay: float = 0.0) -> float | None:
    """Seconds until all is gone; None: not within the bound."""
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder:
        given = {"name": name, "how": how, "path": os.path.join(folder, "there")}
        child = start_apart(parent, given, **{MARK: mark})
        with child:
            assert child.stdout is not None
            if how == "booting":
                _until_children(child, delay)
            elif not _ready(child):
                end_with_descendants(child)
                raise RuntimeError("didn't come so far")
            begin = time.monotonic()
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            took: float | None = None
            while time.monotonic() - begin < BOUND:
                if not _marked(mark):
                    took = time.monotonic() - begin
                    break
                time.sleep(0.002)
            for pid in _marked(mark):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
    return took


def _ready(child: subprocess.Popen[str]) -> bool:
    """Whether it says so in good time."""
    timer = threading.Timer(PATIENCE, end_with_descendants, [child])
    timer.start()
    try:
        return child.stdout is not None and child.stdout.readline() == "ready\n"
    finally:
        timer.cancel()


def _until_children(child: subprocess.Popen[str], delay: float) -> None:
    """So many seconds after it has started its first process."""
    end = time.monotonic() + 10
    while time.monotonic() < end and not psutil.Process(child.pid).children():
        time.sleep(0.001)
    time.sleep(delay)


def _marked(mark: str) -> list[int]:
    """Processes that were started by that program, zombies aside."""
    found, wanted = [], f"{MARK}={mark}".encode()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if wanted in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
            except OSError:
                continue
    return found


def tables(plan: Plan) -> list[Table]:
    names = NAMES[:1] if plan.quick else NAMES
    table = Table(("the parent is killed while its workers are", *(f"{name}, ms" for name in names)))
    table.note = (
        "Worst of all rounds, to the end of the last process: workers, trackers and what tasks had started. "
        f"“stays” is more than {BOUND:g} s; the benchmark then ends it. Target: ≤ 1,000 ms."
    )
    ways = [(how, [0.0]) for how in (TASKS[1:3] if plan.quick else TASKS)]
    ways.append(("booting", list(BOOTS[:1] if plan.quick else BOOTS)))
    for how, delays in ways:
        cells = []
        for name in names:
            progress(f"{how}: {name}")
            try:
                took = [killed(name, how, delay) for delay in delays for _ in range(plan.rounds)]
            except RuntimeError as error:
                cells.append(str(error))
                continue
            worst = None if None in took else max(t for t in took if t is not None) * 1000
            cells.append("stays" if worst is None else f"{worst:.0f}")
            if name == "procsched" and worst is None:
                table.broken.append(f"processes outlive a parent whose workers are {how}")
        table.add(how, *cells)
    return [table]
