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
import traceback
from typing import TYPE_CHECKING, Any

from procsched.pool.process import open_pidfd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from procsched.pool.process import ProcessHandle

__all__ = ["MARKER", "Reaper", "end_marked"]

MARKER = "PROCSCHED_WORKER"
_PASSES = 4  # what is being forked while we look is found by the next look


class Reaper:
    """Jobs in order, in a thread that starts with the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def kill(self, handle: ProcessHandle, marker: str) -> None:
        """The worker and its descendants."""
        self.post(lambda: _end_tree(handle, marker))

    def sweep(self, marker: str) -> None:
        """What a dead worker left behind outside of its group."""
        self.post(lambda: end_marked([marker]))

    def post(self, job: Callable[[], None]) -> None:
        """Do it in the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"{self._name}-reaper", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def stop(self, timeout: float) -> None:
        """After what was asked for before."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(timeout)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                traceback.print_exc()


def _end_tree(handle: ProcessHandle, marker: str) -> None:
    # The tree first: once the worker is dead, its children have another parent.
    descendants: list[Any] = []
    try:
        import psutil

        descendants = psutil.Process(handle.pid).children(recursive=True) if handle.signal(0) else []
    except Exception:  # gone meanwhile, or no /proc: the other nets remain
        pass
    handle.kill_group()
    for process in descendants:
        try:
            process.kill()  # looks at its start time first: not a stranger with the same number
        except Exception:
            pass
    end_marked([marker])


def end_marked(markers: Iterable[str]) -> None:
    """SIGKILL for every process whose environment carries one of these markers."""
    wanted = [f"{MARKER}={marker}".encode() for marker in markers]
    for _ in range(_PASSES):
        found = [pid for pid in _process_ids() if _carries(pid, wanted)]
        for pid in found:
            _kill_marked(pid, wanted)
        if not found:
            return


def _kill_marked(pid: int, wanted: list[bytes]) -> None:
    try:
        pidfd = open_pidfd(pid)
    except (OSError, AttributeError):
        pidfd = -1
    try:
        if pidfd >= 0 and hasattr(signal, "pidfd_send_signal"):
            if _carries(pid, wanted):  # still: the number wasn't given to somebody else meanwhile
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


def _carries(pid: int, wanted: list[bytes]) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            variables = environ.read()
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return False
        try:
            import psutil

            variables = f"{MARKER}={psutil.Process(pid).environ().get(MARKER)}".encode()
        except Exception:
            return False
    except OSError:  # somebody else's, or gone
        return False
    return any([text in variables for text in wanted])
