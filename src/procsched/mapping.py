"""A private mapping of a file that keeps no descriptor. Runs anywhere; imported only for the first large payload.

`mmap.mmap` duplicates its descriptor for as long as the mapping lives, so that a program which collects a thousand
large results would run out of descriptors; from Python 3.13 on it can be told not to. Before that: libc itself.
"""

from __future__ import annotations

import mmap
import os
import sys
import weakref

__all__ = ["map_private"]


def map_private(fd: int, size: int) -> memoryview:
    """Writable without a copy, changes stay private; unmapped when the last object on it is gone."""
    if sys.version_info >= (3, 13):
        flags, protection = mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE
        return memoryview(mmap.mmap(fd, size, flags, protection, trackfd=False))
    try:
        return _map_through_libc(fd, size)
    except (ImportError, AttributeError):  # no ctypes in this build: a copy is correct too
        from procsched.spool import read_all

        return memoryview(read_all(fd, size))


def _map_through_libc(fd: int, size: int) -> memoryview:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    address = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, fd, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        error = ctypes.get_errno()
        raise OSError(error, f"can't map {size} bytes: {os.strerror(error)}")
    block = (ctypes.c_char * size).from_address(address)
    # The views hold the block, and the block's end unmaps. At interpreter exit objects may still look at the pages.
    weakref.finalize(block, libc.munmap, address, size).atexit = False
    return memoryview(block).cast("B")
