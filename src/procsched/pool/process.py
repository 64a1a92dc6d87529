"""One worker process: a LokyProcess with an entry of our own, its signals and its burial. Runs in the parent.

The stock entry imports the executor, logging, cloudpickle and psutil before its first line and starts two resource
trackers; ours runs `procsched.worker.entry` at once and starts none. Where loky's internals look different, the stock
LokyProcess does it, slower.
"""

from __future__ import annotations

import errno
import marshal
import multiprocessing.context
import multiprocessing.process
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from loky.backend.process import LokyProcess

from procsched.spool import above_standard, anonymous_file, write_all
from procsched.worker import entry

try:
    from loky.backend.fork_exec import fork_exec
    from loky.backend.popen_loky_posix import Popen
except ImportError:  # another loky: `launch` falls back to the stock process
    fork_exec = None
    Popen = object

if TYPE_CHECKING:
    from procsched.pool.ends import Ends

__all__ = ["Exit", "ProcessHandle", "launch", "open_pidfd"]

_PIDFD_OPEN = 434  # the same on all of Linux's architectures that matter; for builds without os.pidfd_open


class Exit(NamedTuple):
    """How a process ended."""

    exitcode: int | None
    signal: str | None
    max_rss: int


class WorkerProcess(LokyProcess):  # type: ignore[misc]
    """Never daemonic, not in multiprocessing's list of children: starting another process would reap it from there."""

    def __init__(self, name: str, boot: dict[str, Any], descriptors: dict[str, int], env: dict[str, str]) -> None:
        super().__init__(name=name, env=env)
        self.boot = boot
        self.descriptors = descriptors

    def start(self) -> None:
        """As the base class does it, without the list of children and the ban on children of daemonic processes."""
        self._check_closed()
        self._popen = _Launch(self)
        self._sentinel = self._popen.sentinel


class _Launch(Popen):  # type: ignore[misc]
    """Starts the child without forking the threaded parent's memory, passing on the named descriptors only."""

    def __init__(self, process: WorkerProcess) -> None:
        # The base class flushes stdout and stderr here, which can block; an exec inherits no buffer.
        self.returncode = None
        self._fds: list[int] = []
        self._launch(process)

    def _launch(self, process: WorkerProcess) -> None:
        boot_file = anonymous_file("procsched-boot")
        reader = writer = -1
        descriptors = dict(process.descriptors)
        try:
            if not _has_pidfd():
                reader, writer = map(above_standard, os.pipe())
                descriptors["sentinel"] = writer
            write_all(boot_file, [marshal.dumps({**process.boot, "descriptors": descriptors})])
            command = [sys.executable, *_interpreter_flags(), "-c", entry.COMMAND, str(boot_file), process.name]
            inherited = [boot_file, *descriptors.values()]
            if process.boot["tracker"] >= 0:
                inherited.append(process.boot["tracker"])
            self.pid = _fork_exec(command, inherited, process.env)
            self.sentinel, reader = reader, -1
            if self.sentinel < 0:
                self.sentinel = self._watched()
        finally:
            for fd in (boot_file, reader, writer):
                if fd >= 0:
                    os.close(fd)

    def _watched(self) -> int:
        try:
            return open_pidfd(self.pid)
        except BaseException:  # out of descriptors at the last moment: a worker nobody could bury
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            raise


def _fork_exec(command: list[str], inherited: list[int], env: dict[str, str]) -> int:
    for _ in range(5):
        try:
            return int(fork_exec(command, inherited, env=env))
        except RuntimeError:  # another thread changed os.environ while it was being copied
            continue
    return int(fork_exec(command, inherited, env=env))


def _interpreter_flags() -> list[str]:
    flags = getattr(subprocess, "_args_from_interpreter_flags", list)
    return list(flags())


class _Passed:
    """A descriptor on its way through loky's pickling of a stock process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __reduce__(self) -> tuple[Any, ...]:
        popen: Any = multiprocessing.context.get_spawning_popen()
        return _Passed, (popen.duplicate_for_child(self._fd),)

    def detach(self) -> int:
        """In the child: the number there."""
        return self._fd


class ProcessHandle:
    """A started process until its burial. Law: it is signalled by any thread only before it is reaped, under the lock.

    The dead process keeps its number, and that of its group, until then; afterwards they may be a stranger's.
    """

    def __init__(self, process: Any) -> None:
        self.process = process
        self.pid: int = process._popen.pid
        self._lock = threading.Lock()
        self._exit: Exit | None = None
        if isinstance(process, WorkerProcess):
            self.sentinel = int(process._popen.sentinel)
            self.exact = _has_pidfd()
        else:
            fd = open_pidfd(self.pid) if _has_pidfd() else -1
            self.exact = fd >= 0
            self.sentinel = fd if self.exact else os.dup(process.sentinel)

    def kill_group(self) -> None:
        """SIGKILL for the process and its group (which it may not have made yet)."""
        self.signal(signal.SIGKILL, group=True)

    def signal(self, signum: int, *, group: bool = False) -> bool:
        """Send a signal; False when it is reaped already."""
        with self._lock:
            if self._exit is not None:
                return False
            if group:
                try:
                    os.killpg(self.pid, signum)
                except (ProcessLookupError, PermissionError):
                    pass
            try:
                os.kill(self.pid, signum)
            except (ProcessLookupError, PermissionError):
                pass
            return True

    def exited(self) -> bool:
        """Whether it is dead and waits for its burial; looks, reaps nothing. For platforms without pidfds."""
        with self._lock:
            if self._exit is not None:
                return True
            try:
                if hasattr(os, "waitid"):
                    return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            except ChildProcessError:
                return True
            except OSError:
                return False
        import psutil

        try:
            return bool(psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return True

    def reap(self) -> Exit | None:
        """Take its status; None when it isn't dead yet. `wait4`, since Process.join doesn't tell the memory."""
        with self._lock:
            if self._exit is not None:
                return self._exit
            try:
                pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            except ChildProcessError:  # a SIGCHLD handler of the program, or SIG_IGN, took it
                self._exit = Exit(None, None, 0)
                return self._exit
            if not pid:
                return None
            code = os.waitstatus_to_exitcode(status)
            name = _signal_name(-code) if code < 0 else None
            unit = 1 if sys.platform == "darwin" else 1024
            self._exit = Exit(None if code < 0 else code, name, usage.ru_maxrss * unit)
        self.process._popen.returncode = code  # so that nothing of multiprocessing waits for it again
        return self._exit

    def close(self) -> None:
        """Its sentinel."""
        fd, self.sentinel = self.sentinel, -1
        if fd >= 0:
            os.close(fd)


def launch(name: str, ends: Ends, boot: dict[str, Any], env: dict[str, str]) -> ProcessHandle:
    """Start a worker on these ends. `OSError` when the system refuses. In the starter's thread: takes milliseconds."""
    boot = {
        **boot,
        "parent": os.getpid(),
        # str(): marshal takes no subclasses, and some programs put path objects there
        "path": [str(path) if path != "" else _directory() for path in sys.path],
        "argv": [str(word) for word in getattr(sys, "argv", [""])],
        "cwd": _directory(),
        "authkey": bytes(multiprocessing.process.current_process().authkey),
        "tracker": _running_tracker(),
    }
    if fork_exec is not None:
        process: Any = WorkerProcess(name, boot, ends.child, env)
        try:
            process.start()
            return ProcessHandle(process)
        except (AttributeError, TypeError):  # loky's internals look different
            pass
        except BaseException:
            _end_unheld(process)
            raise
    return ProcessHandle(_start_stock(name, boot, ends.child, env))


def _end_unheld(process: Any) -> None:
    """It was started, and what came then went wrong: nobody would bury it."""
    popen = getattr(process, "_popen", None)
    if popen is not None:
        os.kill(popen.pid, signal.SIGKILL)
        os.waitpid(popen.pid, 0)
        os.close(popen.sentinel)


def _start_stock(name: str, boot: dict[str, Any], descriptors: dict[str, int], env: dict[str, str]) -> Any:
    passed = {key: _Passed(fd) for key, fd in descriptors.items()}
    process = LokyProcess(
        target=entry.main_of_stock_process, args=({**boot, "tracker": -1}, passed), name=name, env=env
    )
    try:
        process.start()
    finally:
        for fd in descriptors.values():
            os.set_inheritable(fd, False)
    multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]
    return process


def open_pidfd(pid: int) -> int:
    """A descriptor that becomes readable when the process ends, whatever its descendants still hold."""
    if hasattr(os, "pidfd_open"):
        return above_standard(os.pidfd_open(pid))
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    fd = int(libc.syscall(_PIDFD_OPEN, pid, 0))
    if fd < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    os.set_inheritable(fd, False)
    return above_standard(fd)


_pidfd_works: bool | None = None


def _has_pidfd() -> bool:
    global _pidfd_works
    if _pidfd_works is None:
        if not sys.platform.startswith("linux"):
            _pidfd_works = False
        else:
            try:
                os.close(open_pidfd(os.getpid()))
                _pidfd_works = True
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                    raise
                _pidfd_works = False
    return _pidfd_works


def _running_tracker() -> int:
    """The parent's tracker of shared memory, if one is running: a worker shares it, or its own would unlink ours."""
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    fd = getattr(tracker, "_fd", None)
    if not isinstance(fd, int):
        return -1
    try:
        os.fstat(fd)
    except OSError:
        return -1
    return fd


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return os.sep


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
