"""What was handed over behind a run that turns out long doesn't wait for it."""

from __future__ import annotations

from typing import Any

from procsched import ProcessScheduler

Stage = Any


def act(hold: Any, entered: str, gate: str, long: bool) -> bool:
    """In a worker: nothing, or as long as the test likes."""
    if long:
        hold(entered, gate)
    return long


def test_the_rest_of_a_batch_is_run_elsewhere(two: ProcessScheduler, stage: Stage) -> None:
    """All calls but the long one end while it still executes; nothing else happens that would wake the loop."""
    for at in (2, 3, 5, 8, 13, 21):
        for future in [two.submit(act, stage.hold, *stage.at, False) for _ in range(300)]:  # it is known to be quick
            future.result(30)
        calls = [two.submit(act, stage.hold, *stage.at, n == at) for n in range(40)]
        stage.entered()
        long = calls.pop(at)
        assert not any(call.result(30) for call in calls)
        assert not long.done()
        stage.open()
        assert long.result(30)
