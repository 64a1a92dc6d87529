"""A worker's first milliseconds: tie its life to the parent's, then become `loop.serve`. Runs in the child.

Started as ``python -c <COMMAND> <descriptor of the boot file>`` by `pool.process`, or, where loky's internals look
different, as the target of a stock LokyProcess. What is not imported here is most of what makes a boot fast.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
from _thread import get_ident, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from signal import (
        SIG_BLOCK,
        SIG_DFL,
        SIG_IGN,
        SIG_SETMASK,
        SIGCHLD,
        SIGINT,
        SIGKILL,
        SIGTERM,
        SIGTTIN,
        SIGTTOU,
        getsignal,
        pthread_sigmask,
        signal,
    )
    from typing import Any
else:  # the C module: `signal` makes enums of all these numbers, and costs a tenth of the boot
    from _signal import (
        SIG_BLOCK,
        SIG_DFL,
        SIG_IGN,
        SIG_SETMASK,
        SIGCHLD,
        SIGINT,
        SIGKILL,
        SIGTERM,
        SIGTTIN,
        SIGTTOU,
        getsignal,
        pthread_sigmask,
        signal,
    )

__all__ = ["COMMAND", "main", "main_of_stock_process"]

COMMAND = (
    "import marshal,sys;f=open(int(sys.argv[1]),'rb');f.seek(0);b=marshal.load(f);f.close();"
    "sys.path[:]=b['path'];from procsched.worker.entry import main;main(b)"
)
"""Sets the parent's sys.path before it imports anything of ours: `marshal` and `open` are built in."""

_F_SETSIG = getattr(fcntl, "F_SETSIG", 10)  # the constant is missing in older Pythons, the kernel has it
_OUT_OF_THE_WAY = (900, 200, 3)
# Own descriptors live high, yet below the 1024 of select(): a run that closes everything and opens a file gets low
# numbers, so that a report hits EBADF (a clean crash of that run) and never somebody's file.


def main(boot: dict[str, Any]) -> None:
    """Never returns."""
    try:
        os.setpgid(0, 0)
    except PermissionError:  # a session leader is its own group already
        pass
    descriptors = {name: _move_away(fd) for name, fd in boot["descriptors"].items()}
    _tie_to_parent(descriptors["lifeline"], boot["parent"])
    _settle_signals()
    _settle_streams()
    sys.argv[:] = boot["argv"]
    try:
        os.chdir(boot["cwd"])
    except OSError:  # it was removed; the parent stands in nothing as well
        pass
    # The parent's __main__ isn't re-run, and this file's names don't answer for it either.
    sys.modules["__main__"] = type(sys)("__main__")
    try:
        if boot["sources"]:
            from procsched.sources import use

            use(boot["sources"])
        from procsched.worker.loop import serve

        serve(boot, descriptors)
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    except BaseException:
        # Not a run's error (those are reported) but ours, or a descriptor that a run closed. It ends as a crash; the
        # text goes to the stderr we share with the parent.
        try:
            sys.excepthook(*sys.exc_info())
        except BaseException:
            pass
    finally:
        os._exit(70)


def main_of_stock_process(boot: dict[str, Any], descriptors: dict[str, Any]) -> None:
    """The fallback's entry: the descriptors have been renumbered on their way through loky's pickling."""
    boot["descriptors"] = {name: descriptor.detach() for name, descriptor in descriptors.items()}
    main(boot)


def _move_away(fd: int) -> int:
    for lowest in _OUT_OF_THE_WAY:
        try:
            moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
        except OSError:  # beyond this process's limit of descriptors
            continue
        os.close(fd)
        return moved
    os.set_inheritable(fd, False)
    return fd


def _tie_to_parent(lifeline: int, parent: int) -> None:
    """When the parent's end of the lifeline closes, the kernel kills this process group.

    No thread could do it while a run holds the GIL or the worker is stopped. PR_SET_PDEATHSIG would leave the programs
    that a run started.
    """
    try:
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpid())
        fcntl.fcntl(lifeline, _F_SETSIG, int(SIGKILL))
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    except (AttributeError, OSError):  # not Linux: the thread below does what it can
        pass
    if os.getppid() != parent:  # it died before the lines above took effect
        os._exit(1)
    start_new_thread(_watch, (lifeline, parent))


def _watch(lifeline: int, parent: int) -> None:
    """The second line: a forked copy of the parent may hold its end of the lifeline, a run may have closed ours.

    While poll() waits it holds the open files themselves, so that a run closing their numbers doesn't blind it.
    """
    poller = select.poll()
    poller.register(lifeline, select.POLLHUP)
    interval = 1000
    try:
        poller.register(os.pidfd_open(parent), select.POLLIN)
        interval = -1
    except (AttributeError, OSError):
        pass
    while True:
        for fd, event in poller.poll(interval):
            if event & select.POLLNVAL:
                poller.unregister(fd)
                interval = 1000
            else:
                os.killpg(0, SIGKILL)
        if os.getppid() != parent:
            os.killpg(0, SIGKILL)


def _nothing(signum: int, frame: object) -> None:
    """The parent decides when to stop. Not SIG_IGN, which whatever a run starts would inherit."""


def _settle_signals() -> None:
    signal(SIGINT, _nothing)
    signal(SIGTERM, _nothing)
    # Out of the terminal's foreground, a read of it or an stty would stop us for ever; so they get an error.
    signal(SIGTTIN, SIG_IGN)
    signal(SIGTTOU, SIG_IGN)
    if getsignal(SIGCHLD) == SIG_IGN:  # a parent that doesn't care for its children; a run's subprocess does
        signal(SIGCHLD, SIG_DFL)
    # Inherited from the parent's starting thread, which holds both back: a Ctrl-C that came during the boot meets the
    # handlers above, and neither ends this process nor prints a traceback.
    pthread_sigmask(SIG_SETMASK, ())
    os.register_at_fork(before=_hold_signals, after_in_parent=_release_signals, after_in_child=_forked)


_masks: dict[int, object] = {}  # by thread; each is there only during a fork


def _hold_signals() -> None:
    # A SIGTERM between the fork and the lines of _forked would meet our no-op handler, and multiprocessing, which sent
    # it to end its pool, would wait for ever. Blocked, it waits for SIG_DFL.
    _masks[get_ident()] = pthread_sigmask(SIG_BLOCK, (SIGINT, SIGTERM))


def _release_signals() -> None:
    pthread_sigmask(SIG_SETMASK, _masks.pop(get_ident(), ()))  # type: ignore[arg-type]


def _forked() -> None:
    """A process that a run forked: multiprocessing's terminate() must work on it."""
    for signum in (SIGINT, SIGTERM):
        if getsignal(signum) is _nothing:
            signal(signum, SIG_DFL)
    _release_signals()


def _settle_streams() -> None:
    """stdin is empty; stdout and stderr are the parent's, by the line."""
    empty = os.open(os.devnull, os.O_RDWR)
    os.dup2(empty, 0)
    for fd in (1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.dup2(empty, fd)
    if empty > 2:
        os.close(empty)
    # Streams are None where the parent had none; a run's print must not fail for that.
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115  (they stay open)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        try:
            # write_through is PYTHONUNBUFFERED's, and would write a line and its end apart: torn lines among workers
            stream.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
        except (AttributeError, ValueError, OSError):
            pass
