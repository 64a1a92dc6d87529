"""The thread that ends workers with all their descendants. Runs in the parent, apart from the loop.

Three nets, because each has holes: the process group (left by setsid), the tree of parents (cut when one between has
ended), and a variable in the environment that only this worker's descendants carry (lost when they are started with
an environment of their own).
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

from procsched.pool.process import open_pidfd

if TYPE_CHECKING:
    from collections.abc import Callable

    from procsched.pool.process import ProcessHandle

__all__ = ["MARKER", "Reaper"]

MARKER = "PROCSCHED_WORKER"
LOOKS = 6
PAUSE = 0.01
TRIES = 5
"""Looks per sweep, seconds between them: what is being forked or executed in one look is found by the next."""


class Reaper:
    """Kills at once, one after the other; sweeps for marked processes in between.

    The thread is there from the start: at interpreter exit, when it is needed most, Python 3.12 lets none be made.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._looks: dict[str, int] = {}  # marker -> looks left; the thread's own
        self._thread = threading.Thread(target=self._work, name=f"{name}-reaper", daemon=True)
        self._thread.start()

    def kill(self, handle: ProcessHandle, marker: str) -> None:
        """The worker and its descendants."""

        def job() -> None:
            try:
                _end_tree(handle)
            finally:  # in need of memory the tree may not be found, but the worker itself is to end
                handle.kill_group()
            self._looks[marker] = LOOKS

        self.post(job)

    def sweep(self, marker: str) -> None:
        """What a dead worker left behind outside of its group."""
        self.post(lambda: self._looks.update({marker: LOOKS}))

    def post(self, job: Callable[[], None]) -> None:
        """Do it in the thread."""
        self._jobs.put(job)

    def stop(self, timeout: float) -> None:
        """After what was asked for before, sweeps included."""
        self._jobs.put(None)
        self._thread.join(timeout)

    def _work(self) -> None:
        stopping = False
        while not (stopping and not self._looks):
            try:
                # The first look comes at once, but after the kills that wait already.
                fresh = LOOKS in self._looks.values()
                job = self._jobs.get(timeout=(0 if fresh else PAUSE) if self._looks else None)
            except queue.Empty:
                job = self._sweep
            except MemoryError:
                continue
            if job is None:
                stopping = True
                continue
            for _ in range(TRIES):
                try:
                    job()
                    break
                except Exception as error:  # no memory, no descriptor: a kill that is forgotten is a run that hangs
                    failed = error
                    time.sleep(PAUSE)
            else:
                self._looks.clear()
                traceback.print_exception(failed)

    def _sweep(self) -> None:
        """One look for all markers."""
        wanted = {marker: f"{MARKER}={marker}".encode() for marker in self._looks}
        found: set[str] = set()
        unsure = False
        for pid in _process_ids():
            variables = _variables(pid)
            if variables is None:
                unsure = True
                continue
            if MARKER.encode() not in variables:
                continue
            for marker, text in wanted.items():
                if text in variables:
                    found.add(marker)
                    _kill_marked(pid, text)
        for marker in wanted:
            self._looks[marker] -= 1
            if not self._looks[marker] or not (unsure or marker in found):
                del self._looks[marker]


def _end_tree(handle: ProcessHandle) -> None:
    # The tree first: once the worker is dead, its children have another parent.
    descendants: list[Any] = []
    try:
        import psutil

        descendants = psutil.Process(handle.pid).children(recursive=True) if handle.signal(0) else []
    except Exception:  # gone meanwhile, or no /proc: the other nets remain
        pass
    if not handle.signal(0):  # buried meanwhile: what was found might be a stranger's
        return
    handle.kill_group()
    for process in descendants:
        try:
            process.kill()  # looks at its start time first: not a stranger with the same number
        except Exception:
            pass


def _kill_marked(pid: int, text: bytes) -> None:
    try:
        pidfd = open_pidfd(pid)
    except (OSError, AttributeError):
        pidfd = -1
    try:
        if pidfd >= 0 and hasattr(signal, "pidfd_send_signal"):
            if text in (_variables(pid) or b""):  # still: the number wasn't given to somebody else meanwhile
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
    finally:
        if pidfd >= 0:
            os.close(pidfd)


def _process_ids() -> list[int]:
    own = os.getpid()
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own]
    except OSError:
        import psutil

        return [pid for pid in psutil.pids() if pid != own]


def _variables(pid: int) -> bytes | None:
    """Its environment; None when it can't be told now: in the middle of an exec there is none for a moment."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            variables = environ.read()
        if variables:
            return variables
        os.readlink(f"/proc/{pid}/exe")  # an error for kernel threads and corpses
        return None
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return b""
    except OSError:  # somebody else's, or gone
        return b""
    try:
        import psutil

        return f"{MARKER}={psutil.Process(pid).environ().get(MARKER)}".encode()
    except Exception:
        return b""
