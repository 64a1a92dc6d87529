"""Roster: what a slot holds, when it is free, and what a death leaves."""

from __future__ import annotations

import pytest

from procsched.core.model import Place, Run
from procsched.core.roster import Roster, SlotState


def run(ticket: int) -> Run:
    made = Run(None, None, 2, 0, 0)
    made.ticket = ticket
    made.place = Place.OFFERED
    return made


@pytest.fixture
def roster() -> Roster:
    made = Roster(2)
    for index in range(2):
        made.booting(index, 0)
        made.up(index, 100 + index)
    return made


def test_a_slot_is_free_when_it_is_up_and_empty(roster: Roster) -> None:
    assert [slot.index for slot in roster.free_slots()] == [0, 1]
    roster.offered(roster[0], [run(1)], 5)
    assert [slot.index for slot in roster.free_slots()] == [1]
    roster[0].reported(1, 9)
    assert [slot.index for slot in roster.free_slots()] == [0, 1]
    assert (roster[0].runs_done, roster[0].progress) == (1, 9)


def test_a_slot_that_owes_an_acknowledgement_is_not_free(roster: Roster) -> None:
    """Its worker may still hold the old orders."""
    runs = [run(1), run(2), run(3)]
    roster.offered(roster[0], runs, 0)
    assert roster.withdrawn(roster[0], [2, 3]) == runs[1:]
    roster[0].reported(1, 1)
    assert not roster[0].free
    roster.acknowledged(roster[0])
    assert roster[0].free
    roster.check_valid()


def test_nothing_withdrawn_owes_nothing(roster: Roster) -> None:
    roster.offered(roster[0], [run(1)], 0)
    assert roster.withdrawn(roster[0], []) == []
    assert roster[0].owes == 0


def test_a_death_divides_what_never_started_from_what_was_lost(roster: Roster) -> None:
    runs = [run(1), run(2), run(3)]
    roster.offered(roster[0], runs, 0)
    back, lost = roster.died(roster[0], [2, 3])
    assert (back, lost) == (runs[1:], runs[:1])
    assert roster[0].state is SlotState.DOWN and not roster[0].runs
    roster.check_valid()


def test_an_armed_run_is_forgotten_when_it_is_taken_back(roster: Roster) -> None:
    roster.offered(roster[0], [run(7)], 0, armed=True)
    assert roster[0].armed == 7
    roster.withdrawn(roster[0], [7])
    assert roster[0].armed == 0
    roster.check_valid()


def test_check_valid_sees_a_run_in_two_slots(roster: Roster) -> None:
    """The law that it is there for."""
    twice = run(1)
    roster.offered(roster[0], [twice], 0)
    roster[1].runs[1] = twice
    with pytest.raises(AssertionError):
        roster.check_valid()
