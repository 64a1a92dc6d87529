"""Ask a running worker for its Python stack. Runs in the parent, in any thread but the loop's.

By a signal to faulthandler, which needs no GIL there: it also works on a run that holds it.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from procsched.pool.tenant import STACK_SIGNAL
from procsched.wire import STACK_OFFSET

if TYPE_CHECKING:
    from procsched.pool.tenant import Tenant

__all__ = ["dump"]

PATIENCE = 0.2
_LOOK = 0.003
_one_at_a_time = threading.Lock()


def dump(tenant: Tenant) -> str:
    """The text, "" when none came in time (a stopped worker, a dead one)."""
    board = tenant.borrow_board()
    if board < 0:
        return ""
    try:
        with _one_at_a_time:
            return _dump(tenant, board)
    except OSError:
        return ""
    finally:
        os.close(board)


def _dump(tenant: Tenant, board: int) -> str:
    before = max(os.fstat(board).st_size, STACK_OFFSET)
    if tenant.handle is None or not tenant.handle.signal(STACK_SIGNAL):
        return ""
    until = time.monotonic() + PATIENCE
    size = before
    while True:
        time.sleep(_LOOK)
        now = os.fstat(board).st_size
        if now > before and now == size:  # it has stopped growing: the dump is written in pieces, in microseconds
            break
        size = now
        if time.monotonic() > until:
            break
    if size <= before:
        return ""
    return os.pread(board, size - before, before).decode("utf-8", "replace")
