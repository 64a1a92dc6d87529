"""SIGINT and SIGTERM: the first asks for an orderly end, the second one ends at once; and others. In the parent.

A handler may run between any two bytecodes of the main thread, so it must not take a lock; and the main thread may be
stuck in a write to a terminal that nobody reads. So the handlers of a running scheduler do nothing. The interpreter
itself writes the number of each signal to a pipe (`signal.set_wakeup_fd`), and a thread of its own reads that:

    kernel ─signal→ interpreter ─byte→ pipe → thread "procsched signals" ─1st→ on_first() · 2nd→ on_second(number)

Handlers are set for both signals, so they work for process 1 of a container too, which has no default ones.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interrupted", "StopSignals"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """A signal came before there was anything to end in an orderly way.

    No `SystemExit`: a task file that raises that has made a mistake, which is told to its author.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


def _nothing(number: int, frame: FrameType | None) -> None:
    """The pipe has the number already."""


class StopSignals:
    """A context manager for the main thread. Until `arm` is called, a signal raises `Interrupted` there."""

    def __init__(self) -> None:
        self.first: signal.Signals | None = None
        """The signal that asked for an end, if one did."""
        self._armed = False
        self._others: dict[int, Callable[[], None]] = {}
        self._old_others: dict[int, Any] = {}
        self._on_first: Callable[[], None] = lambda: None
        self._on_second: Callable[[int], None] = lambda number: None

    def arm(
        self, on_first: Callable[[], None], on_second: Callable[[int], None], others: dict[int, Callable[[], None]]
    ) -> None:
        """From now on signals call these, in the thread that reads them; ``others`` by their numbers."""
        self._on_first, self._on_second, self._others = on_first, on_second, others
        for other in others:
            self._old_others[other] = signal.signal(other, _nothing)
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        # In this order no signal is lost: one whose handler still raises ends the program before the thread can start
        # to read, one whose handler doesn't has left its number in the pipe.
        self._old_fd = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        self._armed = True
        self._thread = threading.Thread(target=self._read, name="procsched signals", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        self._old_handlers: list[Any] = [signal.signal(number, self._handle) for number in _SIGNALS]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in zip(_SIGNALS, self._old_handlers, strict=True):
            signal.signal(number, handler)
        for other, handler in self._old_others.items():
            signal.signal(other, handler)
        if self._armed:
            signal.set_wakeup_fd(self._old_fd)
            os.close(self._write_end)
            self._thread.join()
            os.close(self._read_end)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._armed:
            raise Interrupted(number)

    def _read(self) -> None:
        while data := os.read(self._read_end, 64):
            for number in data:
                if number in self._others:
                    self._others[number]()
                if number not in _SIGNALS:
                    continue
                if self.first is None:
                    self.first = signal.Signals(number)
                    self._on_first()
                else:
                    self._on_second(number)
