"""JobTable: the generation table: the living job of each id, as a row, or packed while it rests. Pure.

A job that was scheduled for later, and hasn't been touched since, *rests*: the table keeps it as one tuple of atoms,
which is its entry in the timer heap at the same time. So a million jobs cost a third of what rows would, and the
garbage collector, which looks at neither tuples of atoms nor dicts of them, doesn't stop the loop for half a second
whenever it passes.

Law: while a job rests, its row would say what the tuple says, and any row there is of it (a handle may keep one) says
so. Whatever changes a job asks `get` for its row first, which ends the rest in one step.
"""

from __future__ import annotations

import weakref
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from procsched.core.model import NOWHERE, JobOptions, JobRow, JobState, Missed, Place, Timebase
from procsched.core.schedules import After, At, FixedDelay, FixedRate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from procsched.core.schedules import Schedule

    Resting = tuple[Any, ...]
    """``(due, priority, seq, id, planned, generation, number of its function, args, kind of schedule, *its fields)``"""

__all__ = ["JobTable", "default_options", "end"]

_MOST_DEFAULTS = 1000
_SMALL = 100
"""Bytes of arguments that lie in the entry itself."""

SEQ, ID, PLANNED, GENERATION, FUNCTION, ARGS, KIND, FIELDS = 2, 3, 4, 5, 6, 7, 8, 9

_KINDS: tuple[type[Schedule], ...] = (At, After, FixedRate, FixedDelay)
_NAMES = (
    ("instant", "when"),
    ("delay", "jitter"),
    ("period", "initial_delay", "jitter", "missed"),
    ("delay", "initial_delay", "jitter"),
)
_FIELDS: tuple[Callable[[Any], Any], ...] = tuple(attrgetter(*names) for names in _NAMES)
_RATE = 2
_KIND_OF = {kind: number for number, kind in enumerate(_KINDS)}


class _Held(weakref.ref[JobRow]):
    """A row that somebody holds, without holding it."""

    __slots__ = ("id",)
    id: str


class JobTable:
    """Jobs by id, in the order of scheduling; a replaced one keeps its place."""

    __slots__ = ("_args", "_functions", "_rows", "by_id", "epoch")

    def __init__(self) -> None:
        self.by_id: dict[str, JobRow | Resting] = {}
        self._rows: dict[str, _Held] = {}
        """Rows of resting jobs that somebody holds."""
        self._functions: dict[int, list[Any]] = {}
        """By identity: that number, the function, how many resting jobs have it, and the type of their payloads."""
        self._args: dict[int, bytes] = {}
        """Large arguments of resting jobs, by the sequence number of the entry."""
        self.epoch = 0
        """Of the calendar: goes up when the wall clock is set back far."""

    # -- rows -----------------------------------------------------------------------------------------------------

    def get(self, id: str) -> JobRow | None:
        """The row of the living job; it rests no longer."""
        found = self.by_id.get(id)
        if type(found) is tuple:
            row = self._row_of(found)
            self.by_id[id] = row
            self._rows.pop(id, None)
            self._let_go(found)
            return row
        return found  # type: ignore[return-value]

    def look(self, id: str) -> JobRow | None:
        """The row of the living job, only to be read: it may rest on."""
        found = self.by_id.get(id)
        return self._row_of(found) if type(found) is tuple else found  # type: ignore[return-value]

    def is_living(self, row: JobRow) -> bool:
        """Whether this row is that of the living job of its id."""
        found = self.by_id.get(row.id)
        return found is row or (type(found) is tuple and found[GENERATION] == row.generation)

    def awake(self, id: str) -> JobRow | None:
        """The row of the living job, unless it rests."""
        found = self.by_id.get(id)
        return None if type(found) is tuple else found  # type: ignore[return-value]

    def rows(self) -> list[JobRow]:
        """Those that don't rest."""
        return [row for row in self.by_id.values() if type(row) is not tuple]  # type: ignore[misc]

    def look_at_all(self) -> list[JobRow]:
        """All rows, only to be read."""
        return [row for row in map(self.look, list(self.by_id)) if row is not None]

    def __setitem__(self, id: str, row: JobRow) -> None:
        self.by_id[id] = row

    def __delitem__(self, id: str) -> None:
        del self.by_id[id]

    def pop(self, id: str) -> None:
        self.by_id.pop(id, None)

    def __contains__(self, id: object) -> bool:
        return id in self.by_id

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_id)

    # -- rest -----------------------------------------------------------------------------------------------------

    def can_rest(self, row: JobRow) -> bool:
        """Whether its id is free, and it is made of atoms, but for its function."""
        schedule = row.schedule
        return (
            type(schedule) in _KIND_OF
            and row.options is _DEFAULTS.get(row.options.priority)
            and row.id not in self.by_id
            and schedule.limit is None
            and schedule.last_at is None
            and schedule.starts_at is None
            and type(getattr(row.payload, "args", None)) is bytes
        )

    def packed(self, row: JobRow, seq: int, due: int) -> Resting:
        """The tuple of a row that can rest, and waits for ``due``."""
        kind = _KIND_OF[type(row.schedule)]
        fields = _FIELDS[kind](row.schedule)
        if kind == _RATE:
            fields = (*fields[:3], fields[3]._value_)
        number, args = self._number_of(row.payload), row.payload.args
        if len(args) > _SMALL:  # the entry outlives a job that is cancelled; what is large must not
            self._args[seq], args = args, None
        return (due, row.options.priority, seq, row.id, row.planned, row.generation, number, args, kind, *fields)

    def rest(self, row: JobRow, entry: Resting) -> None:
        """From now on the job of this id is that one, which rests."""
        self._remember(row)
        self.by_id[row.id] = entry

    def has_entry(self, id: str, entry: Resting) -> bool:
        """Whether this heap entry is the valid one of a job that rested when it was pushed."""
        found = self.by_id.get(id)
        return found is entry or (type(found) is JobRow and found.entry == entry[SEQ])

    def end_rest(self, id: str, generation: int | None = None) -> Resting | None:
        """Ends and removes the job if it rests, and is of this generation, or any; what it was."""
        found = self.by_id.get(id)
        if type(found) is not tuple or (generation is not None and found[GENERATION] != generation):
            return None
        del self.by_id[id]
        held = self._rows.pop(id, None)
        row = held() if held is not None else None
        if row is not None:
            end(row)
        self._let_go(found)
        return found

    def generation_of(self, entry: Resting) -> int:
        return entry[GENERATION]  # type: ignore[no-any-return]

    def timebase_of(self, entry: Resting) -> Timebase:
        """In which heap it lies."""
        return _KINDS[entry[KIND]].timebase

    def clear_resting(self) -> int:
        """Ends all jobs that rest; how many."""
        resting = [key for key, found in self.by_id.items() if type(found) is tuple]
        for key in resting:
            held = self._rows.pop(key, None)
            row = held() if held is not None else None
            if row is not None:
                end(row)
            del self.by_id[key]
        self._functions.clear()
        self._args.clear()
        return len(resting)

    def _row_of(self, entry: Resting) -> JobRow:
        held = self._rows.get(entry[ID])
        row = held() if held is not None else None
        if row is not None and row.generation == entry[GENERATION]:
            return row
        fields = dict(zip(_NAMES[entry[KIND]], entry[FIELDS:], strict=True))
        if entry[KIND] == _RATE:
            fields["missed"] = Missed(fields["missed"])
        schedule: Any = object.__new__(_KINDS[entry[KIND]])
        schedule._set(**fields)
        _number, function, _count, payload_type = self._functions[entry[FUNCTION]]
        args = entry[ARGS] if entry[ARGS] is not None else self._args[entry[SEQ]]
        row = JobRow(entry[ID], schedule, payload_type(function, args), default_options(entry[1]))
        row.generation = entry[GENERATION]
        row.planned = entry[PLANNED]
        row.place = Place.TIMER
        row.in_wall = schedule.timebase is Timebase.WALL
        row.entry = entry[SEQ]
        row.epoch = self.epoch
        self._remember(row)
        return row

    def _remember(self, row: JobRow) -> None:
        held = _Held(row, self._forget)
        held.id = row.id
        self._rows[row.id] = held

    def _forget(self, held: weakref.ref[JobRow]) -> None:
        """Nobody holds the row any more. In any thread, in the middle of anything: one step."""
        assert isinstance(held, _Held)
        if self._rows.get(held.id) is held:
            self._rows.pop(held.id, None)

    # -- functions, which aren't atoms ----------------------------------------------------------------------------

    def _number_of(self, payload: Any) -> int:
        function = payload.function
        kept = self._functions.get(id(function))
        if kept is None:
            kept = self._functions[id(function)] = [id(function), function, 0, type(payload)]
        kept[2] += 1
        return kept[0]  # type: ignore[no-any-return]  # the same int for all

    def _let_go(self, entry: Resting) -> None:
        if entry[ARGS] is None:
            self._args.pop(entry[SEQ], None)
        kept = self._functions[entry[FUNCTION]]
        kept[2] -= 1
        if not kept[2]:
            del self._functions[entry[FUNCTION]]


_DEFAULTS: dict[int, JobOptions] = {}


def default_options(priority: int) -> JobOptions:
    """Nothing but a priority: one object for all jobs."""
    options = _DEFAULTS.get(priority)
    if options is None:
        options = JobOptions(priority)
        if len(_DEFAULTS) < _MOST_DEFAULTS:
            _DEFAULTS[priority] = options
    return options


def end(row: JobRow) -> None:
    """The job ended while it rested."""
    row.state = JobState.CANCELLED
    row.place = NOWHERE
    row.entry = 0
    row.payload = None
