"""What the exit status of the command line means, and the errors that carry one. Pure; in the parent."""

from __future__ import annotations

import enum

__all__ = ["CommandFailed", "Status"]


class Status(enum.IntEnum):
    """Exit status. A second SIGINT or SIGTERM gives 130 or 143, as a shell would say it."""

    CLEAN = 0
    """The end that was asked for, also when runs failed on the way."""
    FOUND = 1
    """Runs had to be aborted after ``--grace``; ``check`` found something; ``once`` failed."""
    USAGE = 2
    """Wrong arguments, a task file that can't be loaded, an unknown id."""
    UNUSABLE = 3
    """No worker can be started, or the scheduler's loop died."""
    UNREAD = 141
    """A run printed, and nobody reads stdout any more: what a shell says of a program that SIGPIPE ended."""


class CommandFailed(Exception):
    """Ends a command with a message for people, and a status."""

    def __init__(self, message: str, status: Status = Status.USAGE, detail: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.detail = detail
        """Shown before the message: a traceback of the user's own code."""
