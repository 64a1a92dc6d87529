"""How much memory this process uses and has used. Runs in the child; Linux's files first, psutil elsewhere."""

from __future__ import annotations

import os
import sys
from resource import RUSAGE_SELF, getrusage

__all__ = ["PeakMemory", "unique_memory"]

_UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
_SLACK = 4 << 20


class PeakMemory:
    """The most this process has held, in bytes.

    ``getrusage`` is one cheap call, but Linux carries its number over an exec from the memory of the forking process:
    a worker of a large parent would seem large. Up to that inherited number the kernel's high-water mark tells.
    """

    def __init__(self) -> None:
        counted, own = _counted(), _high_water()
        self.inherited = counted if own and counted > own + _SLACK else 0

    def now(self) -> int:
        """Bytes."""
        counted = _counted()
        return counted if counted > self.inherited else _high_water() or counted


def unique_memory(limit: int) -> int:
    """Bytes that would be free if this process ended (USS); where the resident size is below ``limit``, that one.

    The resident size is no smaller and a hundred times cheaper to get.
    """
    try:
        with open("/proc/self/statm", "rb") as statm:
            resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        if resident <= limit:
            return resident
        total = 0
        with open("/proc/self/smaps_rollup", "rb") as rollup:
            for line in rollup:
                if line.startswith((b"Private_Clean:", b"Private_Dirty:")):
                    total += int(line.split()[1]) * 1024
        return total
    except (OSError, ValueError, IndexError):
        import psutil

        return int(psutil.Process().memory_full_info().uss)


def _counted() -> int:
    return getrusage(RUSAGE_SELF).ru_maxrss * _UNIT


def _high_water() -> int:
    """VmHWM of /proc/self/status; 0 where there is none."""
    try:
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 0
