"""Sends the log of the whole program to stderr, as lines for people or as JSON. In the parent.

To stderr, because stdout belongs to what the runs print.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime
from typing import Any

from procsched.cli.lines import LineFormatter
from procsched.cli.output import Paint
from procsched.events import RunEnded, RunRetrying

__all__ = ["FORMATS", "LEVELS", "JsonFormatter", "configure", "configure_for_one"]

LEVELS = ("debug", "info", "warning", "error", "critical")
FORMATS = ("text", "json")


def configure(level: str, form: str) -> logging.Formatter:
    """Make the root logger write to stderr, and nothing else; returns what formats its lines."""
    formatter = JsonFormatter() if form == "json" else LineFormatter(Paint(sys.stderr))
    handler = _StderrHandler()
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(True)
    return formatter


def configure_for_one() -> None:
    """For commands that show the outcome of runs themselves: what runs log, and what goes wrong around them."""
    configure("info", "text")
    logging.getLogger("procsched").setLevel(logging.WARNING)
    logging.getLogger("procsched.run").setLevel(logging.CRITICAL)


class JsonFormatter(logging.Formatter):
    """One object a line: what `logging` knows, who ran, and the whole record of a run that ended."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for key in ("job", "run", "worker", "pid"):
            if (value := getattr(record, key, None)) is not None:
                line[key] = value
        event = getattr(record, "event", None)
        if event is not None:
            line["event"] = type(event).__name__
        if isinstance(event, (RunEnded, RunRetrying)):
            line["outcome"] = event.record.outcome.value
            line["record"] = event.record.as_dict()
        if (summary := getattr(record, "summary", None)) is not None:
            line["summary"] = summary
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _StderrHandler(logging.StreamHandler[Any]):
    """A reader of stderr that went away is no reason to stop, or to say anything (there is nobody to say it to)."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], (BrokenPipeError, ValueError)):
            super().handleError(record)
