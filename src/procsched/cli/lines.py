"""How a log record becomes a line that a person enjoys. In the parent.

14:02:31  complexity   #12  succeeded    1.32 s   0.41 ms late  worker 1
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from procsched.core.model import Outcome
from procsched.events import RunEnded
from procsched.observe import human
from procsched.observe.log import error_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from procsched.cli.output import Paint
    from procsched.records import RunRecord

__all__ = ["LineFormatter"]

_WIDEST = 32  # a longer id pushes its own line to the right, not everybody's
_LATE = 1.0  # seconds from which the reason of a late start is worth its room; the record has it always


class LineFormatter(logging.Formatter):
    """Runs in columns, everything else as a sentence; a line with the date where a new day begins."""

    def __init__(self, paint: Paint) -> None:
        super().__init__()
        self._paint = paint
        self._width = 8
        self._day = ""

    def make_room(self, job_ids: list[str]) -> None:
        """Make the column of ids wide enough for these from the first line on."""
        self._width = min(_WIDEST, max([self._width, *map(len, job_ids)]))

    def format(self, record: logging.LogRecord) -> str:
        moment = time.localtime(record.created)
        clock = self._paint.dim(time.strftime("%H:%M:%S", moment))
        event = getattr(record, "event", None)
        text = f"{clock}  {self._run(event.record) if isinstance(event, RunEnded) else self._sentence(record)}"
        day = time.strftime("%A, %Y-%m-%d", moment)
        if day != self._day:
            text = f"{self._paint.dim(day)}\n{text}" if self._day else text
            self._day = day
        return text

    def _run(self, run: RunRecord) -> str:
        self.make_room([run.job_id])
        outcome = run.outcome.value.replace("_", " ").ljust(9)
        words = [
            f"{run.job_id.ljust(self._width)}  {f'#{run.number}'.ljust(5)}",
            self._colour(run.outcome)(outcome),
            (human.seconds(run.duration) if run.outcome.started else "").rjust(8),
            f"{human.seconds(run.lateness).rjust(8)} late",
        ]
        if run.worker is not None:
            words.append(f"worker {run.worker}")
        if run.error is not None and run.pid is not None:
            words.append(f"pid {run.pid}")
        if run.attempt > 1:
            words.append(f"attempt {run.attempt}")
        if run.held_by and run.lateness >= _LATE:
            words.append(f"({run.held_by})")
        if run.error is None:
            return "  ".join(words)
        why, newline, rest = error_text(run, run.error).partition("\n")
        return f"{'  '.join([*words, why])}{newline}{_indented(rest)}"

    def _sentence(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += f"\n{self.formatException(record.exc_info)}"
        first, newline, rest = text.partition("\n")
        if not record.name.startswith("procsched"):
            first = f"{record.name}: {first}"
            if (job := getattr(record, "job", None)) is not None:
                first += self._paint.dim(f"  ({job} #{getattr(record, 'run', '?')}, pid {record.process})")
        if record.levelno != logging.INFO:
            colour = self._paint.red if record.levelno >= logging.ERROR else self._paint.yellow
            first = f"{colour(record.levelname.lower())}: {first}"
        return f"{first}\n{_indented(rest)}" if newline else first

    def _colour(self, outcome: Outcome) -> Callable[[str], str]:
        if outcome is Outcome.SUCCEEDED:
            return self._paint.green
        return self._paint.yellow if outcome in (Outcome.SKIPPED, Outcome.CANCELLED) else self._paint.red


def _indented(text: str) -> str:
    return "\n".join(f"          {line}" for line in text.splitlines())
