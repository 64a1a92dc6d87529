"""RestartBudget: crashes pace, failed boots give up."""

from __future__ import annotations

import pytest

from procsched.core.restarts import GIVE_UP, RestartBudget

SECOND = 1_000_000_000


def test_a_crash_is_replaced_at_once() -> None:
    budget = RestartBudget(4)
    budget.came_up()
    assert budget.crashed(10 * SECOND) == 10 * SECOND


def test_crashes_without_end_are_paced_and_never_give_up() -> None:
    """A job that kills its worker on every run costs a few boots a second, for as long as it likes."""
    budget = RestartBudget(4)
    budget.came_up()
    now, starts = 0, 0
    while now < 60 * SECOND:
        now = budget.crashed(now)
        assert now != GIVE_UP
        now += SECOND // 100  # the next worker dies 10 ms after its start
        starts += 1
    assert starts <= 9 + 60 * 5 + 5


def test_a_pause_between_crashes_fills_the_budget_again() -> None:
    budget = RestartBudget(1)
    budget.came_up()
    now = 0
    for _ in range(50):
        now = budget.crashed(now)
    later = now + 60 * SECOND
    assert budget.crashed(later) == later


def failures_until_the_end(
    budget: RestartBudget, *, others_up: bool = False, longest: int = 300, boot: float = 0.1
) -> float | None:
    """Seconds from the first failed boot to giving up, each boot failing after ``boot``; None: it goes on."""
    now = 0
    while now < longest * SECOND:
        at = budget.boot_failed(now, others_up=others_up)
        if at == GIVE_UP:
            return now / SECOND
        assert at > now
        now = at + round(boot * SECOND)
    return None


@pytest.mark.parametrize("boot", [0, 0.001, 0.03, 0.1, 0.5, 1, 3])
def test_a_pool_that_never_came_up_gives_up_within_about_ten_seconds(boot: float) -> None:
    """However quickly its workers fail, or slowly."""
    ended = failures_until_the_end(RestartBudget(4), boot=boot)
    assert ended is not None and 5 < ended < 12


def test_a_pool_that_worked_before_is_given_a_minute() -> None:
    budget = RestartBudget(4)
    budget.came_up()
    ended = failures_until_the_end(budget)
    assert ended is not None and 55 < ended < 120


def test_while_others_are_up_failed_boots_only_wait() -> None:
    budget = RestartBudget(4)
    budget.came_up()
    assert failures_until_the_end(budget, others_up=True) is None


def test_slots_that_fail_together_are_one_failure() -> None:
    """Eight workers that can't boot at the same moment don't multiply the pause."""
    alone, together = RestartBudget(8), RestartBudget(8)
    pause = alone.boot_failed(0, others_up=False)
    assert [together.boot_failed(0, others_up=False) for _ in range(8)] == [pause] * 8


def test_one_that_comes_up_clears_the_account() -> None:
    budget = RestartBudget(2)
    first = budget.boot_failed(0, others_up=False)
    budget.boot_failed(first, others_up=False)
    budget.came_up()
    assert budget.boot_failed(100 * SECOND, others_up=False) == 100 * SECOND + first
