"""The handler that sends a worker's log records to the parent's loggers. Runs in the child, once logging is used.

A record is formatted here, message and exception text: its arguments may be anything and stay in the worker.
"""

from __future__ import annotations

import logging

from procsched import context
from procsched.wire import NO_TICKET, SAY_LOG
from procsched.worker.chatter import Chatter

__all__ = ["install"]

TEXT_LIMIT = 128 * 1024
"""A longer text could never pass the pipe's backlog; it is cut, and says so."""


class ShippingHandler(logging.Handler):
    """On the root logger of a worker."""

    def __init__(self, chatter: Chatter) -> None:
        super().__init__()
        self._chatter = chatter
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Send it; logging's own rules apply to one that can't be formatted."""
        try:
            text = self.format(record)
            if len(text) > TEXT_LIMIT:
                text = f"{text[:TEXT_LIMIT]}… ({len(text)} characters)"
            run = context.peek()
            ticket, job_id, number = (run.ticket, run.job_id, run.number) if run is not None else (NO_TICKET, "", 0)
            self._chatter.say(
                (
                    SAY_LOG,
                    ticket,
                    job_id,
                    number,
                    str(record.name),
                    int(record.levelno),
                    text,
                    float(record.created),
                    str(record.pathname),
                    int(record.lineno or 0),
                    str(record.funcName or ""),
                )
            )
        except Exception:
            self.handleError(record)


def install(chatter: Chatter, levels: dict[str, int]) -> None:
    """Give this process the levels of the parent's loggers, and the handler."""
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)
    logging.getLogger().addHandler(ShippingHandler(chatter))
