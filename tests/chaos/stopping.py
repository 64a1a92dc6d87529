"""A program that is stopped: a scheduler in one of several states, and one of several ways to ask. Run as a script.

``stopping.py STATE WAY`` says "there" once it is in its state; then it asks for the end, or waits for a signal. It says
"over" after the ``with`` block, and so doesn't where it ends without one.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from typing import Any

from procsched import FixedDelay, FixedRate, ProcessScheduler, Retry, RunEnded, RunStarted

__all__ = ["SIGNALLED", "STATES", "WAYS"]

STATES = (
    "fresh", "booting", "idle", "executing", "holding the GIL", "stopped", "dying", "in back-off", "paused", "armed",
    "loaded", "stopping",
)  # fmt: skip
"""What it is doing when it is asked to end."""
WAYS = (
    "main", "thread", "subscriber", "callback", "exit", "SIGINT", "SIGINT twice", "SIGTERM", "SIGINT to all",
    "a full pipe", "process 1",
)  # fmt: skip
"""How it is asked. The signals come from outside."""
SIGNALLED = tuple(way for way in WAYS if way.startswith("SIG"))
PATIENCE = 0.5
"""Seconds that executing runs get from `shutdown`."""


def sleep_on() -> None:
    """Until it is ended."""
    time.sleep(1000)


def hold_the_gil() -> None:
    """No thread of the worker can do anything."""
    import ctypes

    ctypes.PyDLL(None).sleep(1000)


def stop_itself() -> None:
    """The whole process, as a debugger or a cgroup's freezer would."""
    os.kill(os.getpid(), signal.SIGSTOP)


def die() -> None:
    """Its worker is replaced."""
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    """It is tried again in an hour."""
    raise ValueError("as expected")


def flood() -> None:
    """More than a pipe holds, to a reader who doesn't read."""
    print("x" * 1_000_000)


LONG = {"executing": sleep_on, "holding the GIL": hold_the_gil, "stopped": stop_itself, "stopping": sleep_on}


def bring_about(state: str, scheduler: ProcessScheduler) -> None:
    """Returns in that state."""
    seen, ended = threading.Semaphore(0), threading.Semaphore(0)
    scheduler.subscribe(lambda _event: seen.release(), RunStarted)
    scheduler.subscribe(lambda _event: ended.release(), RunEnded)
    if state == "fresh":
        return
    if state == "booting":
        scheduler.submit(abs, 1)
        return
    if state in LONG:
        scheduler.schedule(LONG[state], FixedRate("1h"))
        assert seen.acquire(timeout=30)
        if state == "stopping":
            threading.Thread(target=scheduler.shutdown, kwargs={"timeout": 3600}, daemon=True).start()
            while "shut down" not in repr(scheduler):
                time.sleep(0.001)
        return
    scheduler.submit(abs, 1).result()
    if state == "dying":
        scheduler.schedule(die, FixedDelay("1ms"))
        assert ended.acquire(timeout=30) and ended.acquire(timeout=30)
    elif state == "in back-off":
        scheduler.schedule(fail, FixedRate("1h"), retry=Retry(3, backoff="1h"))
        assert seen.acquire(timeout=30)
        while scheduler.stats().scheduled == 0:
            time.sleep(0.001)
    elif state == "paused":
        scheduler.schedule(abs, FixedRate("1ms"), args=(1,)).pause()
    elif state == "armed":
        scheduler.schedule(abs, FixedRate("2ms"), args=(1,))
        assert ended.acquire(timeout=30) and ended.acquire(timeout=30)
    elif state == "loaded":
        for _ in range(20_000):
            scheduler.submit(abs, 1)


def say(word: str, where: int = 1) -> None:
    """To whoever asked for this."""
    os.write(where, f"{word}\n".encode())


def ask(way: str, scheduler: ProcessScheduler) -> None:
    """For the end; or waits for it to be asked from outside."""

    def end(_: Any = None) -> None:
        scheduler.shutdown(timeout=PATIENCE, cancel_futures=True)

    if way == "thread":
        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
    elif way == "subscriber":
        told = threading.Event()
        scheduler.subscribe(lambda event: (end(), told.set()))
        try:
            scheduler.schedule(abs, FixedRate("1h", initial_delay="1h"), args=(1,))  # it says so, unless it is stopping
        except RuntimeError:
            end()
        else:
            told.wait()
    elif way == "callback":
        try:
            scheduler.submit_after("1h", abs, 1).add_done_callback(end)
        except RuntimeError:
            end()
        scheduler.shutdown(wait=False, cancel_futures=True)
    elif way in SIGNALLED:
        try:
            say("there")
            while True:
                time.sleep(0.01)
        except KeyboardInterrupt:
            if way != "SIGINT twice":  # there the second one is to end what the first one waits for
                end()
            raise
    else:
        end()


def main(state: str, way: str) -> None:
    """From the first line to the last."""
    for name in ("procsched.run", "procsched.worker"):  # what is told of failed runs and lost workers is no complaint
        logging.getLogger(name).setLevel(logging.CRITICAL)
    workers: dict[str, Any] = {"initializer": time.sleep, "initargs": (2,)} if state == "booting" else {}
    scheduler = ProcessScheduler(2, **workers)
    try:
        if way == "exit":
            bring_about(state, scheduler)
            say("there")
            return
        with scheduler:
            bring_about(state, scheduler)
            if way == "a full pipe" and state != "stopping":
                scheduler.schedule(flood, FixedRate("1h"))
                time.sleep(0.1)
            if way not in SIGNALLED:
                say("there", 2 if way == "a full pipe" else 1)
            ask(way, scheduler)
        say("over", 2 if way == "a full pipe" else 1)
    except KeyboardInterrupt:
        sys.exit(7)


if __name__ == "__main__":
    main(*sys.argv[1:])
