"""A Ctrl-C at a place of our choice: before a given bytecode of the code below a folder."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["interrupted"]


def interrupted(deed: Callable[[], object], step: int, folder: str) -> bool:
    """Does it with a KeyboardInterrupt before bytecode number ``step`` below ``folder``; False when it has fewer."""
    left = step

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(folder):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    gc.disable()  # or the interrupt may hit the finalizer of something that an earlier test left
    sys.settrace(trace)
    try:
        deed()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
        gc.enable()
    return False
