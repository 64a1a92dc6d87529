"""The oracle sees lies: a true story passes, and every way to change it is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from oracle import Case, End, Start, Told, judge, read_testimony

MS = 1_000_000
TEXT = """\
S call 1 1 100000000 77
E call 1 1 110000000 77 SUCCEEDED
S failing 2 1 200000000 77
E failing 2 1 210000000 77 FAILED
S dying 3 1 300000000 77
E dying 3 1 310000000 77 SIGSEGV
S job 1 1 400000000 78
S job 1 2 450000000 79
E job 1 2 460000000 79 SUCCEEDED
S slow 1 1 500000000 79
"""


def story() -> Case:
    """Calls that succeed, fail and crash, one that is cancelled, a job whose worker is killed, one that times out."""
    case = Case()
    read_testimony(TEXT, case)
    case.told = [
        Told(None, 1, 0, 1, "SUCCEEDED", 100 * MS, 111 * MS, 77),
        Told(None, 2, 0, 1, "FAILED", 200 * MS, 211 * MS, 77),
        Told(None, 3, 0, 1, "CRASHED", 300 * MS, 312 * MS, 77, "SIGSEGV"),
        Told(None, 4, 0, 1, "CANCELLED", 0, 312 * MS, 0),
        Told("job", 1, 5, 1, "CRASHED", 400 * MS, 430 * MS, 78, "SIGKILL", final=False),
        Told("job", 1, 5, 2, "SUCCEEDED", 450 * MS, 461 * MS, 79),
        Told("slow", 1, 6, 1, "TIMED_OUT", 500 * MS, 801 * MS, 79, "SIGKILL"),
    ]
    case.killed = {78}
    case.cancels = [("job", 470 * MS)]
    case.prevented = {"never"}
    case.timeouts = {"slow": 300 * MS}
    case.ids = {"job": ("id", 1), "slow": ("id", 1)}
    case.answers = {
        "call": ("value", ("call", 1, 1)),
        "failing": ("error", "ValueError"),
        "dying": ("error", "WorkerCrashed"),
        "never": ("cancelled", None),
    }
    case.counts = {"SUCCEEDED": 2, "FAILED": 1, "CRASHED": 1, "TIMED_OUT": 1, "CANCELLED": 1}
    return case


def told(place: int, **fields: object) -> Callable[[Case], None]:
    """A lie of the scheduler's."""

    def lie(case: Case) -> None:
        case.told[place] = case.told[place]._replace(**fields)  # type: ignore[arg-type]

    return lie


def wrote(text: str) -> Callable[[Case], None]:
    """One more line of the side channel."""
    return lambda case: read_testimony(text, case)


LIES: dict[str, tuple[Callable[[Case], object], str]] = {
    "a run is lost": (lambda case: case.told.pop(0), "nobody told"),
    "an attempt is lost": (lambda case: case.told.pop(4), "nobody told"),
    "a run never ends": (told(5, final=False), "never ended"),
    "it ends twice": (lambda case: case.told.append(case.told[5]), "2 times"),
    "it is executed twice": (wrote("S call 1 1 120000000 78"), "started 2 times"),
    "it returns twice": (wrote("E call 1 1 120000000 77 SUCCEEDED"), "ended 2 times"),
    "it wasn't told at all": (wrote("S ghost 9 1 120000000 77"), "nobody told"),
    "a failure is a success": (told(1, outcome="SUCCEEDED"), "wasn't that"),
    "a success is a failure": (told(0, outcome="FAILED"), "wasn't that"),
    "a success is a crash": (told(0, outcome="CRASHED", signal="SIGKILL"), "no reason to crash"),
    "another signal": (told(2, signal="SIGABRT"), "no reason to crash"),
    "nobody killed it": (lambda case: case.killed.clear(), "no reason to crash"),
    "it didn't run": (told(3, outcome="SUCCEEDED", started=1), "no line"),
    "a success without an end": (lambda case: case.ends.pop(0), "never got to its end"),
    "it ran, as it says": (told(5, outcome="SKIPPED"), "has started"),
    "another worker": (told(0, pid=78), "executed by"),
    "too late a start": (told(0, started=105 * MS), "began"),
    "too early an end": (told(0, finished=105 * MS), "ended 5.0 ms later"),
    "too early a limit": (told(6, finished=700 * MS), "more time"),
    "a limit without one": (lambda case: case.timeouts.clear(), "more time"),
    "aborted without a reason": (told(6, outcome="ABORTED"), "had time"),
    "a start after its cancel": (lambda case: case.cancels.append(("job", 440 * MS)), "after its cancel"),
    "a cancelled call ran": (lambda case: case.prevented.add("call"), "prevented it"),
    "two at once": (told(4, finished=455 * MS), "2 runs of id"),
    "two at once, of two generations": (
        wrote("S slow 2 1 455000000 81\nE slow 2 1 456000000 81 FAILED"),
        "2 runs of id",
    ),
    "somebody else's value": (lambda case: case.answers.update(call=("value", ("failing", 2, 1))), "somebody else"),
    "a value of a failure": (lambda case: case.answers.update(failing=("value", ("failing", 2, 1))), "has a value"),
    "an error of a success": (lambda case: case.answers.update(call=("error", "ValueError")), "it SUCCEEDED"),
    "another error": (lambda case: case.answers.update(dying=("error", "ValueError")), "it CRASHED"),
    "a Future that waits for ever": (lambda case: case.answers.update(call=("error", "nothing, ever")), "it SUCCEEDED"),
    "cancelled, but it ran": (lambda case: case.answers.update(call=("cancelled", None)), "but it ran"),
    "another sum": (lambda case: case.counts.update(CRASHED=2), "stats count"),
}


def test_the_truth_passes() -> None:
    """No complaint about what is right."""
    assert judge(story()) == []


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_seen(lie: str) -> None:
    """And it is told what is wrong."""
    case = story()
    change, words = LIES[lie]
    change(case)
    complaints = judge(case)
    assert any(words in complaint for complaint in complaints), complaints


def test_a_line_written_late_by_a_stopped_worker() -> None:
    """The claim was before the cancel, the line after it: that is no lie."""
    case = story()
    case.cancels.append(("job", 440 * MS))
    case.told[5] = case.told[5]._replace(started=435 * MS)
    assert judge(case) == []


def test_a_worker_killed_before_its_first_line() -> None:
    """A crash that leaves no trace is believed when somebody killed that worker."""
    case = story()
    case.starts = [line for line in case.starts if line[1] != Start(400 * MS, 78)]
    assert judge(case) == []
    case.killed = set()
    assert judge(case)


def test_a_value_that_nobody_wanted() -> None:
    """What can't be sent is a failure of a call, and of a job's run only if somebody waited."""
    case = story()
    case.ends[-1] = (("job", 1, 2), End(460 * MS, 79, "UNSENDABLE"))
    assert judge(case) == []
    case = replace(story())
    case.ends[0] = (("call", 1, 1), End(110 * MS, 77, "UNSENDABLE"))
    assert judge(case)
