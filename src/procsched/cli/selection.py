"""Schedulers that take in the jobs of a task file without starting any. In the parent.

``setup(scheduler)`` of a task file may make jobs too, so what the file holds is known only after it was called on a
scheduler; and nothing may start before it is known that the ids which the user named exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from procsched.cli.fingerprint import fingerprint
from procsched.cli.loading import check_ids
from procsched.core.schedules import After, Schedule
from procsched.scheduler import ProcessScheduler
from procsched.testing import ManualScheduler

if TYPE_CHECKING:
    from procsched.jobs import Job

__all__ = ["Catalogue", "HeldScheduler", "NotedScheduler", "Plan"]

_NEVER = After("36500d")


@dataclass(frozen=True, slots=True)
class Plan:
    """A job as its file asks for it."""

    job: Job
    fn: Callable[..., object]
    when: Schedule | datetime
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    options: Mapping[str, Any]
    """As `schedule` was given them, by keyword."""

    @property
    def fingerprint(self) -> tuple[Any, ...]:
        """Equal for plans that do the same."""
        return fingerprint(self.fn, self.when, self.options)


class Catalogue(ManualScheduler):
    """Notes every job and runs none: time stands still in it."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.plans: dict[str, Plan] = {}

    def schedule(self, fn: Callable[..., Any], when: Schedule | datetime, **options: Any) -> Job:
        job = super().schedule(fn, when, **options)
        arguments, keywords = tuple(options.get("args") or ()), dict(options.get("kwargs") or {})
        self.plans[job.id] = Plan(job, fn, when, arguments, keywords, options)
        return job


class NotedScheduler(ProcessScheduler):
    """Remembers what was asked for, to be compared with what a changed task file asks for."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.fingerprints: dict[str, tuple[Any, ...]] = {}

    def schedule(self, fn: Callable[..., Any], when: Schedule | datetime, **options: Any) -> Job:
        job = super().schedule(fn, when, **options)
        self.fingerprints[job.id] = fingerprint(fn, when, options)
        return job


class HeldScheduler(ProcessScheduler):
    """Takes in all jobs, keeps those that were asked for, and holds them until `release`."""

    def __init__(self, *, only: Collection[str], **arguments: Any) -> None:
        super().__init__(**arguments)
        self._only = frozenset(only)
        self._held: list[tuple[Job, Schedule | datetime]] = []
        self._seen: list[str] = []

    def schedule(self, fn: Callable[..., Any], when: Schedule | datetime, **options: Any) -> Job:
        job = super().schedule(fn, _NEVER, **options)
        self._seen.append(job.id)
        if job.id in self._only:
            self._held.append((job, when))
        else:
            job.cancel()
        return job

    def check(self) -> None:
        """Raise `CommandFailed` when one of the ids doesn't exist."""
        check_ids(self._only, self._seen)

    def release(self) -> None:
        """Let them go, each by its own schedule from now on."""
        for job, when in self._held:
            job.reschedule(when)
        self._held.clear()
