"""Faults by number: the n-th call that a thread of ours makes raises instead of being made. In the parent.

A call is the moment at which memory runs out, and every system call is one. Counted are the calls made by procsched's
own code, in threads whose name ends with a given role, by `sys.setprofile`: it sees calls of Python functions and of C
functions, and what it raises is raised by the call.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

import procsched

__all__ = ["ALLOCATE_NOTHING", "Injector", "chosen"]

FOLDER = str(Path(procsched.__file__).parent)
ALLOCATE_NOTHING = {
    "release",
    "acquire",
    "locked",
    "len",
    "isinstance",
    "type",
    "id",
    "get_ident",
    "hasattr",
    "__exit__",
    "__enter__",
}
"""C functions that need no memory and don't fail."""
Site = tuple[str, int, str]


class Injector:
    """Counts calls, and lets one of them fail. Without a step it only counts: ``sites`` are then all there are.

    ``role`` None: the calling thread; else threads that are started meanwhile, by the end of their name.
    """

    def __init__(
        self, role: str | None = None, step: int = 0, error: Callable[[], BaseException] = MemoryError
    ) -> None:
        self.role = role
        self.step = step
        self.error = error
        self.count = 0
        self.paused = False
        self.sites: dict[Site, int] = {}
        """Where calls are made, with the number of the first one there."""
        self.hit: Site | None = None

    def __enter__(self) -> Self:
        if self.role is None:
            sys.setprofile(self._look)
        else:
            threading.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        threading.setprofile(None)  # type: ignore[arg-type]
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call":
            caller, callee = frame, getattr(arg, "__name__", "?")
            if callee in ALLOCATE_NOTHING:
                return
        elif event == "call" and frame.f_back is not None:
            caller, callee = frame.f_back, frame.f_code.co_name
            if callee in ("__exit__", "close"):  # if closing fails, nothing can be said about what stays open
                return
        else:
            return
        file = caller.f_code.co_filename
        if self.paused or self.hit is not None or not file.startswith(FOLDER):
            return
        if self.role is not None and not threading.current_thread().name.endswith(self.role):
            return
        self.count += 1
        site = (file[len(FOLDER) + 1 :], caller.f_lineno, callee)
        self.sites.setdefault(site, self.count)
        if self.count == self.step:
            self.hit = site
            raise self.error()


def chosen(sites: dict[Site, int], most: int, offset: int) -> list[int]:
    """The first call of each site, or every so many of them."""
    steps = sorted(sites.values())
    stride = -(-len(steps) // most) if most else 1
    return steps[offset % stride :: stride]
