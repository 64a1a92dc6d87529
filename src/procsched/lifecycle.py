"""Lifecycle: what becomes of schedulers at interpreter exit, after a fork, and when nobody holds them. In the parent.

Forgetting to shut down is harmless: at exit submitted calls complete, as with `concurrent.futures`, and executing runs
of jobs get one second. A forked copy is inert: the threads that would do its work don't exist in it.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from procsched import futures
from procsched.errors import SchedulerClosed

if TYPE_CHECKING:
    from procsched.engine import Engine
    from procsched.instance import InstanceLock
    from procsched.scheduler import ProcessScheduler

__all__ = ["NO_POOL", "check_not_exiting", "watch"]

EXIT_GRACE = 1.0

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_locks: weakref.WeakSet[InstanceLock] = weakref.WeakSet()
_hooked = False
_exiting = False


def check_not_exiting() -> None:
    """Raises `SchedulerClosed` when the interpreter is on its way out: what starts now nobody would end."""
    if _exiting:
        raise SchedulerClosed("the interpreter is ending: no scheduler can be started any more")


def watch(scheduler: ProcessScheduler, engine: Engine, lock: InstanceLock | None) -> None:
    """Have this scheduler ended when the interpreter is, made inert in a forked copy, and let go when unreferenced."""
    global _hooked
    _engines.add(engine)
    if lock is not None:
        _locks.add(lock)
        engine.at_end(lock.release)
    weakref.finalize(scheduler, engine.abandon).atexit = False
    if not _hooked:
        _hooked = True
        # Before the interpreter joins its threads and takes new ones from nobody; where that hook is missing, after.
        getattr(threading, "_register_atexit", atexit.register)(_at_exit)
        os.register_at_fork(after_in_child=_after_fork)


def _at_exit() -> None:
    global _exiting
    _exiting = True
    engines = [engine for engine in _engines if engine.threaded]
    for engine in engines:
        engine.shutdown(wait=False, timeout=EXIT_GRACE, only_jobs=True)
    for engine in engines:
        if engine.inert is None:
            engine.await_end()


def _after_fork() -> None:
    futures.after_fork()
    for engine in _engines:
        engine.become_inert(f"this process is a forked copy of the one that made the scheduler {engine.name!r}")
    for lock in _locks:
        lock.forget()


class _NoPool:
    """Stands for the pool of a scheduler inside a worker."""

    def wake(self) -> None:
        """Nobody sleeps."""

    def __getattr__(self, name: str) -> Any:
        raise SchedulerClosed("a scheduler inside a worker has no workers")


NO_POOL: Any = _NoPool()
