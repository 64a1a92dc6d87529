"""Feed: what the dashboard's pages are sent: how things stand, and the runs that ended since. In the parent.

One view for all readers, made at most twice a second, and none while nobody reads.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from procsched.events import RunEnded
from procsched.ledger import error_of, whole
from procsched.observe.board import Board

if TYPE_CHECKING:
    from procsched.scheduler import ProcessScheduler

__all__ = ["Feed"]

FRESH = 0.4
"""Seconds for which a view is good enough for the next reader."""
RUNS = 4000
"""Runs that are kept for the timeline."""
_MOST_COMING = 400
_COMING_EACH = 40
_HOUR = 3600.0


class Feed:
    """Watches a scheduler from now on, until `close`."""

    def __init__(self, scheduler: ProcessScheduler) -> None:
        self._scheduler = scheduler
        self._board = Board(scheduler)
        self._lines: deque[tuple[int, Any]] = deque(maxlen=RUNS)
        self._count = 0
        self._lock = threading.Lock()
        self._made_at = 0.0
        self._view: dict[str, Any] = {}
        self._leave = scheduler._engine.announcer.follow(self._take)

    def close(self) -> None:
        """Watches no longer."""
        self._leave()
        self._board.close()

    def _take(self, news: list[tuple[Any, ...]]) -> None:
        for item in news:
            if item[0] is RunEnded:
                self._count += 1
                self._lines.append((self._count, item[1]))

    def since(self, seen: int) -> dict[str, Any]:
        """How things stand, with the runs that ended after the ``seen``-th; as JSON can write it. Any thread."""
        with self._lock:
            if time.monotonic() - self._made_at > FRESH:
                self._view = self._look()
                self._made_at = time.monotonic()
            view = self._view
        lines = [line for line in [*self._lines] if line[0] > seen]
        runs = [run for number, line in lines if (run := _run_of(line)) is not None]
        return {**view, "seen": lines[-1][0] if lines else max(seen, 0), "runs": runs}

    def _look(self) -> dict[str, Any]:
        view = self._board.view()
        return {
            "at": view.at,
            "uptime": view.uptime,
            "rate": view.rate,
            "health": view.health._asdict(),
            "stats": view.stats._asdict(),
            "workers": [worker._asdict() for worker in view.workers],
            "jobs": [
                {
                    **job._asdict(),
                    "next_run": job.next_run.timestamp() if job.next_run is not None else None,
                }
                for job in view.jobs
            ],
            "more_jobs": view.more_jobs,
            "waiting": [run._asdict() for run in view.waiting],
            "failures": [record.as_dict() for record in view.failures],
            "coming": self._coming(view.at),
        }

    def _coming(self, now: float) -> list[tuple[float, str]]:
        """The runs of the next hour, the next one first; those of a fixed delay as if its runs took no time."""
        found: list[tuple[float, str]] = []
        for job in self._scheduler.get_jobs()[:_MOST_COMING]:
            following = job.next_run_time
            if following is None:
                continue
            slot: int | None = int(following.timestamp() * 1e9)
            for _ in range(_COMING_EACH):
                if slot is None or slot / 1e9 > now + _HOUR:
                    break
                found.append((slot / 1e9, job.id))
                try:
                    slot = job.schedule.next(slot, slot)
                except Exception:  # a schedule of the user's: it is told when its time comes
                    break
        return sorted(found)[:_MOST_COMING]


def _run_of(line: Any) -> list[Any] | None:
    """Slot, job, number, start, end (since the epoch), lateness [s], outcome, error, why it was late; if it started."""
    line = whole(line)
    if not line[5]:
        return None
    error = error_of(line[14]) if line[14] is not None else None
    name = line[0] if line[2] else line[0].removesuffix(f"-{line[1]}")
    why = f"{error.type}: {error.message[:200]}" if error is not None else ""
    return [line[11], name, line[1], line[5] / 1e9, line[6] / 1e9, line[7] / 1e9, line[13], why, line[18]]


