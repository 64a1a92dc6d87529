"""The oracle: what runs wrote about themselves, held against what the scheduler told. In the parent; pure.

`Testimony` is the side channel, `Told` is one attempt as the scheduler's events had it, `Case` is everything known
about one ordeal. `judge` returns complaints, none of them when the scheduler told the truth, all of it, and once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Case", "End", "Start", "Told", "judge", "read_testimony"]

TOLERANCE = 1_000_000
"""ns. Records have microseconds, of the wall clock."""

Attempt = tuple[str, int, int]
"""(name, number, attempt). A name is given once, to one call or to one job that somebody scheduled."""


class Start(NamedTuple):
    """A line of a run that began."""

    at: int
    pid: int


class End(NamedTuple):
    """A line of a run that is about to end: "SUCCEEDED", "FAILED", "TIMED_OUT", or how it kills its worker."""

    at: int
    pid: int
    intent: str


class Told(NamedTuple):
    """What the scheduler told of an attempt."""

    name: str | None
    """None for a call: its number tells, once it wrote a line."""
    number: int
    generation: int
    attempt: int
    outcome: str
    started: int
    """Monotonic ns, 0 when it never started."""
    finished: int
    pid: int
    signal: str | None = None
    exitcode: int | None = None
    final: bool = True
    """False: there was to be another attempt."""


@dataclass
class Case:
    """One ordeal."""

    starts: list[tuple[Attempt, Start]] = field(default_factory=list)
    ends: list[tuple[Attempt, End]] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)
    """Workers that somebody else ended by SIGKILL."""
    cancels: list[tuple[str, int]] = field(default_factory=list)
    """(name, when its cancel or replacement had returned): nothing of that name starts later."""
    prevented: set[str] = field(default_factory=set)
    """Calls whose cancel() returned True: they never start."""
    timeouts: dict[str, int] = field(default_factory=dict)
    """By name, ns."""
    ids: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By name: job id and max_instances."""
    answers: dict[str, tuple[str, object]] = field(default_factory=dict)
    """By name of a call: ("value", value), ("error", name of its type), or ("cancelled", None)."""
    counts: dict[str, int] = field(default_factory=dict)
    """What ``stats()`` says, by outcome."""
    abort_from: int = 1 << 62
    """When the shutdown's time was over: nothing is aborted earlier."""


def read_testimony(text: str, case: Case) -> None:
    """The lines of the side channel."""
    for line in text.splitlines():
        kind, name, number, attempt, at, pid, *rest = line.split()
        who = (name, int(number), int(attempt))
        if kind == "S":
            case.starts.append((who, Start(int(at), int(pid))))
        else:
            case.ends.append((who, End(int(at), int(pid), rest[0])))


def judge(case: Case) -> list[str]:
    """What isn't as it should be."""
    return list(_judge(case))


def _judge(case: Case) -> Iterable[str]:
    for what, lines in (("started", case.starts), ("ended", case.ends)):
        for who, count in Counter(who for who, _ in lines).items():  # type: ignore[misc]
            if count > 1:
                yield f"{who} {what} {count} times"
    starts, ends = dict(case.starts), dict(case.ends)
    call_names = {number: name for name, number, _ in starts if name not in case.ids}
    told = [
        one if one.name is not None else one._replace(name=call_names.get(one.number, f"?{one.number}"))
        for one in case.told
    ]
    yield from _once(told)
    yield from _none_lost(starts, told)
    for one in told:
        yield from _true(one, starts, ends, case)
    yield from _cancels(starts, told, case)
    yield from _overlaps(starts, ends, told, case)
    yield from _answers(starts, ends, told, case)
    counted = Counter(one.outcome for one in told if one.final)
    for outcome, count in case.counts.items():
        if counted[outcome] != count:
            yield f"stats count {count} {outcome}, events {counted[outcome]}"


def _who(one: Told) -> Attempt:
    return (str(one.name), one.number, one.attempt)


def _once(told: list[Told]) -> Iterable[str]:
    finals = Counter((one.name, one.number, one.generation) for one in told if one.final)
    for run, count in finals.items():
        if count > 1:
            yield f"{run} was told to have ended {count} times"
    for run, count in Counter(_who(one) for one in told if not one.final).items():
        if count > 1:
            yield f"{run} was told to be repeated {count} times"


def _none_lost(starts: dict[Attempt, Start], told: list[Told]) -> Iterable[str]:
    known = {_who(one) for one in told}
    finals = {(one.name, one.number) for one in told if one.final}
    for who in starts:
        if who not in known:
            yield f"{who} started, and nobody told how it ended"
        if who[:2] not in finals:
            yield f"{who} started, and its run never ended"


def _true(one: Told, starts: dict[Attempt, Start], ends: dict[Attempt, End], case: Case) -> Iterable[str]:
    who = _who(one)
    start, end = starts.get(who), ends.get(who)
    if one.outcome in ("SKIPPED", "CANCELLED"):
        if start is not None or one.started:
            yield f"{one} has started"
        return
    was_killed = one.signal == "SIGKILL" and one.pid in case.killed
    if start is None:
        # killed in the microseconds between its claim and its first line, or before it could import anything
        if not (one.outcome == "CRASHED" and was_killed) and one.outcome not in ("TIMED_OUT", "ABORTED"):
            yield f"{one} left no line"
        return
    if start.pid != one.pid:
        yield f"{one} was executed by {start.pid}"
    if one.started > start.at + TOLERANCE:
        yield f"{one} began {(one.started - start.at) / 1e6} ms earlier"
    if end is not None and end.at > one.finished + TOLERANCE:
        yield f"{one} ended {(end.at - one.finished) / 1e6} ms later"
    intent = end.intent if end is not None else ""
    if one.outcome in ("SUCCEEDED", "FAILED"):
        unwanted = intent == "UNSENDABLE" and (one.outcome == "FAILED" or who[0] in case.ids)
        if one.outcome != intent and not unwanted:
            yield f"{one} wasn't that but {intent or 'never got to its end'}"
    elif one.outcome == "CRASHED":
        if not was_killed and (intent == "" or intent not in (one.signal, str(one.exitcode))):
            yield f"{one} had no reason to crash but {intent!r}"
    elif one.outcome == "TIMED_OUT":
        limit = case.timeouts.get(who[0])
        if limit is None or one.finished - one.started < limit - TOLERANCE:
            yield f"{one} had more time: {limit}"
    elif one.outcome == "ABORTED":
        if one.finished < case.abort_from - TOLERANCE:
            yield f"{one} was ended though the shutdown had time"
    else:
        yield f"{one} has an outcome that there isn't"


def _cancels(starts: dict[Attempt, Start], told: list[Told], case: Case) -> Iterable[str]:
    begun = {_who(one): one.started for one in told}
    latest: dict[str, list[tuple[int, Attempt]]] = defaultdict(list)
    for who, start in starts.items():
        latest[who[0]].append((start.at, who))
    for name, at in case.cancels:
        for started, who in latest.get(name, ()):
            # The claim counts, not the line: a worker that is stopped between the two writes it much later.
            if started > at and begun.get(who, started) > at + TOLERANCE:
                yield f"{who} started {(started - at) / 1e6} ms after its cancel() had returned"
    for name in case.prevented:
        if name in latest:
            yield f"{name} started, though its cancel() had prevented it"


def _overlaps(starts: dict[Attempt, Start], ends: dict[Attempt, End], told: list[Told], case: Case) -> Iterable[str]:
    finished = {_who(one): one.finished for one in told}
    spans: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for who, start in starts.items():
        if who[0] in case.ids:
            job_id, most = case.ids[who[0]]
            end = ends.get(who)
            until = end.at if end is not None else finished.get(who, start.at)
            spans[job_id] += [(start.at, 1, most), (max(until, start.at), -1, most)]
    for job_id, changes in spans.items():
        count = 0
        for at, step, most in sorted(changes):
            count += step
            if count > most:
                yield f"{count} runs of {job_id} at once at {at}"


_ERRORS = {"FAILED": None, "CRASHED": "WorkerCrashed", "TIMED_OUT": "RunTimedOut", "ABORTED": "RunAborted"}


def _answers(starts: dict[Attempt, Start], ends: dict[Attempt, End], told: list[Told], case: Case) -> Iterable[str]:
    outcomes = {str(one.name): one.outcome for one in told if one.final}
    started = {who[0] for who in starts}
    for name, (kind, answer) in case.answers.items():
        if kind == "cancelled":
            if name in started:
                yield f"the Future of {name} is cancelled, but it ran"
            continue
        outcome = outcomes.get(name, "CRASHED" if name not in started else "none")
        if kind == "value":
            if outcome != "SUCCEEDED":
                yield f"the Future of {name} has a value, but it {outcome}"
            who = answer[:3] if isinstance(answer, tuple) else answer
            if not (
                isinstance(who, tuple) and who[:1] == (name,) and ends.get(who, End(0, 0, "")).intent == "SUCCEEDED"
            ):
                yield f"the Future of {name} has the value of somebody else: {who}"
        elif outcome == "SUCCEEDED" or (_ERRORS.get(outcome) or answer) != answer:
            yield f"the Future of {name} has {answer}, but it {outcome}"
