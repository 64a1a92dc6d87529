"""The nouns: what jobs and runs are, and the words for how they end. Pure; runs anywhere.

Times are ``int`` nanoseconds, in one of two timebases: monotonic, or wall (since the Unix epoch).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from procsched.core.retry import Retry
    from procsched.core.schedules import Schedule

__all__ = [
    "ALONE",
    "Estimate",
    "JobOptions",
    "JobRow",
    "JobState",
    "Missed",
    "NOWHERE",
    "Now",
    "Outcome",
    "Place",
    "Priority",
    "ReadyOrder",
    "Run",
    "Timebase",
]


class Now(NamedTuple):
    """One reading of both clocks, in nanoseconds."""

    mono: int
    wall: int


class Timebase(enum.Enum):
    """In which time a schedule lives."""

    MONOTONIC = "monotonic"
    """Steady: no step of the wall clock moves it, and suspended time doesn't count."""
    WALL = "wall"
    """The calendar: nanoseconds since the Unix epoch."""


class Outcome(enum.Enum):
    """How a run ended. Every run ends exactly once."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """It raised, called `sys.exit`, or its value couldn't be sent."""
    CRASHED = "crashed"
    """Its worker died."""
    TIMED_OUT = "timed_out"
    ABORTED = "aborted"
    """Ended by a shutdown whose time had run out."""
    SKIPPED = "skipped"
    """Never started: it couldn't within its ``misfire_grace_time``."""
    CANCELLED = "cancelled"
    """Never started: cancelled, or dropped by a shutdown."""

    @property
    def started(self) -> bool:
        """Whether a run with this outcome had been executing."""
        return self not in (Outcome.SKIPPED, Outcome.CANCELLED)


class JobState(enum.Enum):
    """Where a job is in its life."""

    SCHEDULED = "scheduled"
    PAUSED = "paused"
    FINISHED = "finished"
    """No slot is left, and the last run has ended."""
    CANCELLED = "cancelled"


class Missed(enum.Enum):
    """What to do when several slots of a job are due and unserved.

    Due at 0, period 10, and the first run lasts until 35:
    """

    CATCH_UP = "catch_up"
    """Every slot, one after the other: ``0 … 35: 10, 20, 30, 40``."""
    COALESCE = "coalesce"
    """Once, for the latest: ``0 … 35: 30 (late, at once), 40``."""
    SKIP = "skip"
    """Not at all what came due meanwhile: ``0 … 35: 40``."""


class ReadyOrder(enum.Enum):
    """Who goes first among due runs that wait for a worker."""

    DUE = "due"
    """When it became due, then priority, then submission."""
    PRIORITY = "priority"
    """Priority, then planned time, then submission."""


class Priority(enum.IntEnum):
    """The smaller runs first, as with ``nice``. Any int will do."""

    HIGH = 1
    MEDIUM = 2
    LOW = 3


class Place(enum.IntEnum):
    """Where a run, or the next slot of a job, is. A live one is in exactly one of these places."""

    POSTED = 0
    """A call for now that has come: it waits in the order of arrival, without an entry."""
    TIMER = 1
    """In a timer heap, not yet due."""
    READY = 2
    """In the ready queue: due, waiting for a worker."""
    HELD = 3
    """Due, waiting on its row for a hand of `max_instances`."""
    OFFERED = 4
    """Handed to a worker that hasn't claimed it, as far as we know: it can still be taken back."""
    EXECUTING = 5
    """Claimed by a worker."""
    BACKOFF = 6
    """Between two attempts: in the timer heap, without a worker, but counted as executing."""
    DONE = 7
    """Ended; for a slot: there is none (yet)."""


NOWHERE = Place.DONE

ALONE = 1 << 60
"""Cost of a run that must not share an offer."""


class JobOptions(NamedTuple):
    """What `schedule` was told about a job beside its schedule. Durations in ns."""

    priority: int = Priority.MEDIUM
    max_instances: int = 1
    retry: Retry | None = None
    pause_after_failures: int | None = None
    timeout: int | None = None
    warn_after: int | None = None
    misfire_grace: int | None = None
    tags: frozenset[str] = frozenset()


_PLAIN = JobOptions()[1:7]


class JobRow:
    """A job as the timetable knows it: one row of the generation table, with the entry of its next slot."""

    __slots__ = (
        "__weakref__",
        "arrival",
        "busy_since",
        "busy_until",
        "cost",
        "due",
        "entry",
        "epoch",
        "executing",
        "extra",
        "failures",
        "generation",
        "hands",
        "held",
        "id",
        "in_wall",
        "live",
        "made",
        "missed",
        "notes",
        "noticed",
        "number",
        "options",
        "over",
        "pace",
        "payload",
        "place",
        "plain",
        "planned",
        "planning",
        "resumed",
        "schedule",
        "state",
        "was_held",
    )

    def __init__(self, id: str, schedule: Schedule, payload: Any, options: JobOptions) -> None:
        self.id = id
        self.schedule = schedule
        self.payload = payload
        self.options = options
        self.plain = options[1:7] == _PLAIN
        """No retries, limits, or runs side by side: what most jobs are, and their runs take a short way."""
        self.pace = -1
        """Period (ns) of a job whose every slot needs no thought; 0: they do; -1: nobody has looked yet."""
        self.notes: Any = None
        """The outer rings' own notes about the job; the core never looks at them."""
        self.state = JobState.SCHEDULED
        self.generation = 0
        self.number = 0
        """Of the latest run."""
        self.made = 0
        """Runs of the schedule so far, for ``times(n)``."""
        self.missed = 0
        self.failures = 0
        """In a row."""
        self.hands = 0
        """Runs handed over or in back-off: what ``max_instances`` bounds."""
        self.executing = 0
        """Runs known to be claimed, or in back-off."""
        self.planned = 0
        """The next slot, or while there is none the last one, in the schedule's timebase."""
        self.planning = False
        """Whether a slot run is under way whose end plans the next slot."""
        self.over = False
        """Whether its schedule has no further slot."""
        self.place = NOWHERE
        """Of the next slot."""
        self.entry = 0
        """Sequence number of the one valid heap entry; 0: none."""
        self.arrival = 0
        """Its key in the ready queue, kept for coming back under it."""
        self.in_wall = False
        self.due = 0
        """Monotonic instant at which the slot became due (the first unserved one)."""
        self.noticed = 0
        """Monotonic instant at which the loop saw that."""
        self.epoch = 0
        """Of the calendar: which setting of the wall clock the slot was planned under."""
        self.resumed: int | None = None
        self.busy_since: int | None = None
        """Monotonic instant at which its own runs last took up all of `max_instances`."""
        self.busy_until = 0
        """And at which a hand was free again."""
        self.was_held = False
        """The slot that is due waited for a hand of `max_instances`."""
        self.cost = ALONE
        """Expected duration of a run in ns, or more where a run is heavy in other ways; `ALONE` while unknown."""
        self.live: list[Run] = _NO_RUNS
        """Runs that haven't ended."""
        self.held: list[Run] = _NO_RUNS
        self.extra: Run | None = None
        """The one extra run that is queued."""

    @property
    def priority(self) -> int:
        return self.options.priority

    def __repr__(self) -> str:
        return f"<JobRow {self.id!r} generation {self.generation} {self.state.value}>"


class Estimate(Protocol):
    """What calls of one function will probably cost, learned from those that have ended; shared by all of them."""

    cost: int


class Run:
    """One execution of a job's function, or of a submitted call, over all its attempts."""

    __slots__ = (
        "arrival",
        "attempt",
        "cost",
        "counted",
        "due",
        "entry",
        "estimate",
        "expected",
        "followers",
        "future",
        "generation",
        "in_wall",
        "last",
        "notes",
        "noticed",
        "number",
        "payload",
        "place",
        "planned",
        "planned_wall",
        "priority",
        "row",
        "slot",
        "start",
        "started",
        "ticket",
        "was_held",
    )

    def __init__(self, row: JobRow | None, payload: Any, priority: int, due: int, planned_wall: int) -> None:
        self.row = row
        """None: a submitted call."""
        self.payload = payload
        self.priority = priority
        self.due = due
        """Monotonic instant at which its first unserved slot became due: its place in the queue."""
        self.expected = due
        """Monotonic instant at which it should start: lateness counts from here."""
        self.planned_wall = planned_wall
        self.planned: int | None = None
        """Its slot in the schedule's timebase; None for calls for now and extra runs."""
        self.noticed = due
        self.number = 0
        self.generation = row.generation if row is not None else 0
        self.attempt = 1
        self.place = Place.POSTED
        self.entry = 0
        self.arrival = 0
        self.in_wall = False
        self.counted = False
        """Whether it counts in its row's `hands`."""
        self.started = False
        """Whether an attempt of it is known to have been claimed."""
        self.was_held = False
        """It waited for a hand of `max_instances`."""
        self.cost = ALONE
        self.estimate: Estimate | None = None
        """Of a call: where its cost will be looked up when it is handed over."""
        self.ticket = 0
        self.slot = -1
        self.start = 0
        """Monotonic instant of the claim of this attempt; 0 while unknown."""
        self.future: Any = None
        """That of the call, or of the extra run; cancelling it cancels the run."""
        self.followers: list[Any] = _NO_FUTURES
        """Futures of those who only look on."""
        self.notes: Any = None
        self.last: Any = None
        """The outer rings' own notes about the run, and about its last attempt."""

    def __repr__(self) -> str:
        name = self.row.id if self.row is not None else "call"
        return f"<Run {name} #{self.number} attempt {self.attempt} {self.place.name}>"


_NO_FUTURES: list[Any] = []
_NO_RUNS: list[Run] = []
"""What an idle row's `live` and `held` are: one shared empty list, never changed, to keep a million rows small."""
