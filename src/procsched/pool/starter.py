"""The thread that starts processes. Runs in the parent, apart from the loop: a start takes 1 to 40 ms."""

from __future__ import annotations

import queue
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from procsched.pool.tenant import Tenant

__all__ = ["Starter"]


class Starter:
    """One start at a time, in the order asked for. ``arrived`` is called in its thread, once for each asked for."""

    def __init__(self, name: str, arrived: Callable[[Tenant], None]) -> None:
        self._arrived = arrived
        self._asked: queue.SimpleQueue[Tenant | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"{name}-starter", daemon=True)
        self._thread.start()

    def start(self, tenant: Tenant) -> None:
        """Ask for it; returns at once."""
        self._asked.put(tenant)

    def stop(self, timeout: float) -> None:
        """After what was asked for before; those to be killed aren't started first."""
        self._asked.put(None)
        self._thread.join(timeout)

    def _work(self) -> None:
        # A fresh interpreter answers them with a traceback, or dies; so they wait until the worker has its handlers.
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        except BaseException:  # no memory: then they don't wait
            pass
        while True:
            try:
                tenant = self._asked.get()
            except MemoryError:
                continue
            if tenant is None:
                return
            try:
                tenant.launch()
            except BaseException as error:  # no memory: it has failed, and is told as such
                tenant.error = f"it could not be started: {type(error).__name__}: {error}"
            try:
                self._arrived(tenant)
            except BaseException:
                self._arrived(tenant)  # a tenant that never arrives is a slot without a worker, for ever
