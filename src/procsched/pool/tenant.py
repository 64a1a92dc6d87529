"""One worker as the parent sees it, from the starter to the burial. Runs in the parent.

::

    STARTING ──► BOOTING ──► UP ──► RETIRING
        │           │         │         │
        └───────────┴─────────┴─────────┴──► BURIED      (kill, crash, exit: from anywhere)

A tenant has a slot, or none yet (a spare). After STARTING, which belongs to the starter's thread, the loop's thread
alone touches it.
"""

from __future__ import annotations

import enum
import os
import secrets
import signal
from typing import TYPE_CHECKING, Any

from procsched.pool.api import Died
from procsched.pool.channel import Channel
from procsched.pool.ends import Ends
from procsched.pool.listener import Ear
from procsched.pool.process import ProcessHandle, launch
from procsched.pool.reaper import MARKER
from procsched.pool.reports import BrokenReports, Reports
from procsched.spool import Spooled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from procsched.pool.api import PoolSettings
    from procsched.pool.oom import OomCounter

__all__ = ["STACK_SIGNAL", "Stage", "Tenant"]

STACK_SIGNAL = int(getattr(signal, "SIGRTMAX", signal.SIGUSR2 + 7)) - 7
"""Asks for a stack dump; a real-time signal, which tasks leave alone."""


class Stage(enum.Enum):
    """Where in its life a tenant is."""

    STARTING = "starting"
    BOOTING = "booting"
    UP = "up"
    RETIRING = "retiring"
    BURIED = "buried"


class Tenant:
    """Law: it is buried once, and only then is its process reaped and are its descriptors closed."""

    def __init__(self, slot: int, settings: PoolSettings) -> None:
        self.slot = slot
        self.name = f"{settings.name}-worker"
        self.marker = f"{os.getpid()}-{secrets.token_hex(8)}"
        self.stage = Stage.STARTING
        self.killed = False
        self.error = ""
        self.outbox = self.waiting_on = -1
        self.handle: ProcessHandle | None = None
        self._settings = settings
        self._ends: Ends | None = None

    def launch(self) -> None:
        """Open the ends, start the process. In the starter's thread; what goes wrong is in ``error``."""
        if self.killed:
            self.error = "it was ended before it was started"
            return
        try:
            from loky.backend import get_context

            ends = Ends(get_context("loky"))
        except Exception as error:
            self.error = f"its pipes could not be opened: {type(error).__name__}: {error}"
            return
        try:
            self.handle = launch(self.name, ends, _boot(self._settings), self._environment(self._settings.env))
        except Exception as error:
            self.error = f"its process could not be started: {type(error).__name__}: {error}"
            ends.close_childs()
            ends.close()
            return
        ends.close_childs()
        self._ends = ends

    def settle(self) -> bool:
        """In the loop's thread after the launch: whether there is a process."""
        if self.handle is None or self._ends is None:
            return False
        self.stage = Stage.BOOTING
        self.channel = Channel(self._ends)
        self.reports = Reports(self._ends)
        self.outbox = self._ends.outbox
        self.ear = Ear(self._ends.chatter, self.slot)
        self._ends.chatter = -1  # the listener's thread closes it
        return True

    def move_in(self, slot: int) -> None:
        """A spare gets a slot."""
        self.slot = slot
        if self.stage is not Stage.STARTING:
            self.ear.slot = slot

    def borrow_board(self) -> int:
        """A descriptor of the board's file for another thread; -1 when it is gone."""
        ends = self._ends
        fd = ends.board if ends is not None else -1
        if fd < 0:
            return -1
        try:
            copy = os.dup(fd)
        except OSError:
            return -1
        if ends is None or ends.board != fd:  # closed, and perhaps reused, in between
            os.close(copy)
            return -1
        return copy

    def bury(self, events: list[Any], oom: OomCounter) -> Died | None:
        """Account and close. None when it isn't dead yet (only where there is no pidfd): call again."""
        handle, ends = self.handle, self._ends
        if handle is None or ends is None:
            self.stage = Stage.BURIED
            return Died(self.slot, 0, False, False, None, None, [], "", [], 0, False, self.error)
        handle.kill_group()  # before reaping: the corpse keeps the number
        try:
            self.reports.drain(self.slot, events)
        except BrokenReports:
            pass
        end = handle.reap()
        if end is None:
            return None
        unclaimed = self.channel.take_back()
        stack = ends.crash_text()
        hello = self.stage in (Stage.UP, Stage.RETIRING) or self.reports.hello
        logs = self.ear.finish(self.reports.last_ticket)
        struck = end.signal == "SIGKILL" and not self.killed and oom.rose()
        died = Died(
            self.slot,
            handle.pid,
            hello,
            self.stage is Stage.RETIRING and not self.killed,
            end.exitcode,
            end.signal,
            unclaimed,
            stack,
            logs,
            max(end.max_rss if end.max_rss > self.reports.inherited_rss else 0, self.reports.max_rss),
            struck,
            "" if hello else self._boot_error(end.exitcode, end.signal),
        )
        self.stage = Stage.BURIED
        self.channel.close()
        ends.close()
        handle.close()
        return died

    def abandon(self) -> None:
        """Close without a burial: a process that even SIGKILL doesn't end. The kernel tries again by the lifeline."""
        if self.stage is Stage.BURIED:
            return
        if self._ends is not None:  # the starter has let go of it; perhaps it was never settled
            for name, close in (("channel", Channel.close), ("ear", Ear.abandon)):
                if (part := getattr(self, name, None)) is not None:
                    close(part)
            self._ends.close()
        if self.handle is not None:
            self.handle.kill_group()
            self.handle.reap()
            self.handle.close()
        self.stage = Stage.BURIED

    def check_valid(self) -> None:
        """The law, as far as it can be seen from here."""
        if self.stage is Stage.BURIED and self._ends is not None:
            assert self._ends.inbox == self._ends.lifeline == -1
        if self.stage in (Stage.UP, Stage.RETIRING):
            assert self.handle is not None
            self.channel.check_valid()

    def _boot_error(self, exitcode: int | None, signal_name: str | None) -> str:
        if self.reports.boot_error:
            return self.reports.boot_error
        how = signal_name or (f"exit code {exitcode}" if exitcode is not None else "an unknown exit status")
        return f"the worker process ended with {how} before it was ready"

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        return {**env, MARKER: self.marker}


def drop_bodies(events: list[Any]) -> None:
    """Close the files of results nobody will read."""
    for event in events:
        body = getattr(event, "body", None)
        if isinstance(body, Spooled):
            body.close()


def _boot(settings: PoolSettings) -> dict[str, Any]:
    return {
        "initializer": None if settings.initializer is None else bytes(settings.initializer),
        "task_files": [(str(module), str(path)) for module, path in settings.task_files],
        "sources": dict(settings.sources),
        "log_levels": {str(name): int(level) for name, level in settings.log_levels.items()},
        "max_memory": None if settings.max_memory is None else int(settings.max_memory),
        "stack_signal": STACK_SIGNAL,
    }
