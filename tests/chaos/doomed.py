"""A program that will be killed: a scheduler in one of several states. Run by test_parent_dies as a script.

``doomed.py STATE LOCK`` says "made" once there is a scheduler, "loaded" once it is in its state, and the process id of
its copy, if it makes one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from procsched import FixedRate, ProcessScheduler, RunStarted

__all__ = ["STATES"]

STATES = ("boot", "restart", "load", "gil", "stopped", "copy", "programs", "shutdown", "spares", "thread")
"""What it is doing when it is killed."""


def hold_the_gil() -> None:
    """A call that doesn't release it: no thread of the worker can do anything."""
    import ctypes

    ctypes.PyDLL(None).sleep(1000)


def die() -> None:
    """Its worker is replaced."""
    os.kill(os.getpid(), signal.SIGKILL)


def carry(burden: bytes) -> bytes:
    """Through the spool and back."""
    return burden


def start_programs() -> None:
    """A child, and a grandchild whose parent has gone."""
    import subprocess

    subprocess.Popen(["sleep", "1000"])
    subprocess.Popen(["sh", "-c", "sleep 1000 & sleep 0.01"]).wait()
    time.sleep(1000)


def ignore_everything() -> None:
    """Signals, and threads that never end."""
    import threading

    for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=time.sleep, args=(1000,)).start()
    time.sleep(1000)


WORK: dict[str, Any] = {
    "gil": hold_the_gil,
    "programs": start_programs,
    "thread": ignore_everything,
}


def main(state: str, lock: str) -> None:
    """Does its work until it is killed."""
    scheduler = ProcessScheduler(2, single_instance=lock, spare_workers=2 if state == "spares" else 0)
    print("made", flush=True)
    begun: list[object] = []
    scheduler.subscribe(begun.append, RunStarted)
    if state == "load":
        scheduler.schedule(carry, FixedRate("1ms"), args=(b"x" * 3_000_000,)).results()
        for _ in range(20_000):
            scheduler.submit(abs, 1)
    elif state == "restart":
        for _ in range(50):
            scheduler.submit(die)
    else:
        for _ in range(2):
            scheduler.submit(WORK.get(state, time.sleep), *(() if state in WORK else (1000,)))
    if state != "boot":
        while len(begun) < 2:
            time.sleep(0.001)
    if state == "stopped":
        for worker in scheduler.workers():
            os.kill(worker.pid or 0, signal.SIGSTOP)
    if state == "copy":
        copy = os.fork()
        if copy == 0:
            time.sleep(1000)
        print(copy, flush=True)
    print("loaded", flush=True)
    if state == "shutdown":
        scheduler.shutdown()
    while True:
        time.sleep(1000)


if __name__ == "__main__":
    main(*sys.argv[1:])
