"""Counts the runs of each job, for the last table. In the parent; called by the delivery thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from procsched.cli import table
from procsched.core.model import Outcome
from procsched.observe import human

if TYPE_CHECKING:
    from collections.abc import Iterable

    from procsched.events import RunEnded
    from procsched.records import RunRecord

__all__ = ["JobSummary", "Summary"]

_MOST_ROWS = 60  # thousands of submitted runs, each under an id of its own, would bury the jobs


@dataclass(slots=True)
class JobSummary:
    """The runs of one id. Durations and lateness are seconds, of the runs that started."""

    runs: int = 0
    failed: int = 0
    skipped: int = 0
    total_duration: float = 0.0
    max_duration: float = 0.0
    total_lateness: float = 0.0
    max_lateness: float = 0.0

    def count(self, record: RunRecord) -> None:
        if record.outcome is Outcome.SKIPPED:
            self.skipped += 1
        if not record.outcome.started:
            return
        self.runs += 1
        self.failed += record.outcome is not Outcome.SUCCEEDED
        self.total_duration += record.duration
        self.max_duration = max(self.max_duration, record.duration)
        self.total_lateness += record.lateness
        self.max_lateness = max(self.max_lateness, record.lateness)

    def as_dict(self) -> dict[str, Any]:
        """A dict that `json` can write."""
        runs = self.runs
        return {
            "runs": runs,
            "failed": self.failed,
            "skipped": self.skipped,
            "mean_duration": self.total_duration / runs if runs else None,
            "max_duration": self.max_duration if runs else None,
            "mean_lateness": self.total_lateness / runs if runs else None,
            "max_lateness": self.max_lateness if runs else None,
        }


class Summary:
    """All jobs, in the order in which they were first heard of."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobSummary] = {}

    def expect(self, job_ids: Iterable[str]) -> None:
        """Give these a row, even if they never run."""
        for job_id in job_ids:
            self.jobs.setdefault(job_id, JobSummary())

    def __call__(self, event: RunEnded) -> None:
        self.jobs.setdefault(event.record.job_id, JobSummary()).count(event.record)

    def lines(self) -> list[str]:
        """The table."""
        skips = any(job.skipped for job in self.jobs.values())
        head = ["job", "runs", "failed", *(["skipped"] if skips else []), "mean", "max", "mean late", "max late"]
        rows = []
        for job_id, job in list(self.jobs.items())[:_MOST_ROWS]:
            numbers = [str(job.runs), str(job.failed), *([str(job.skipped)] if skips else [])]
            values = [job.total_duration, job.max_duration, job.total_lateness, job.max_lateness]
            if job.runs:
                values[0], values[2] = values[0] / job.runs, values[2] / job.runs
            rows.append([job_id, *numbers, *(human.seconds(value) if job.runs else "-" for value in values)])
        lines = table.render(head, rows, right="l" + "r" * (len(head) - 1))
        if len(self.jobs) > _MOST_ROWS:
            rest = list(self.jobs.values())[_MOST_ROWS:]
            runs, failed = sum(job.runs for job in rest), sum(job.failed for job in rest)
            lines.append(f"and {len(rest)} more: {human.count(runs, 'run')}, {failed} failed")
        return lines
