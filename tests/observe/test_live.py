"""The live view: what it shows, and what its keys do, on a real scheduler."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from procsched import FixedRate, JobState, Outcome, ProcessScheduler
from procsched.figures import Health, SchedulerStats, WaitingRun
from procsched.observe.board import Board, BoardView, JobView, WorkerView

pytest.importorskip("textual")

from procsched.observe.live import LiveApp


def a_view(jobs: int = 3, *, ok: bool = True) -> BoardView:
    """Of a busy scheduler."""
    now = datetime.now(UTC)
    return BoardView(
        at=now.timestamp(),
        uptime=61.0,
        rate=12.3,
        health=Health(ok, 0.0, None, 1),
        stats=SchedulerStats(**(dict.fromkeys(SchedulerStats._fields, 0) | {"failed": 2, "ended": 70, "ready": 9})),
        workers=(
            WorkerView(0, 4711, "busy", "train #3", 2.5, 0.5, "epoch [b]5[/b]", 0.98, 50 << 20, 3),
            WorkerView(1, None, "down", "", None, None, "", None, None, 0),
        ),
        jobs=tuple(
            JobView(
                f"job[red]{n:04}", "scheduled", 0, now + timedelta(seconds=jobs - n),
                "failed" if n == 1 else "succeeded", n, int(n == 1), 0.001, 0.002, (0.1, 0.2, 0.05), "FixedRate('1s')",
            )
            for n in range(jobs)
        ),
        more_jobs=0,
        waiting=tuple(WaitingRun(f"wait #{n}", 1.5, "2 of 2 workers busy, 2 with train") for n in range(9)),
        failures=(),
    )  # fmt: skip


class FakeBoard:
    """Shows what it was given."""

    def __init__(self, view: BoardView) -> None:
        self.shown = view

    def view(self) -> BoardView:
        return self.shown


def played(app: LiveApp, play: Callable[[Any], Awaitable[None]], size: tuple[int, int] = (120, 40)) -> None:
    """What a person does, in the app."""

    async def playing() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await play(pilot)

    asyncio.run(playing())


def text_of(app: LiveApp) -> str:
    """What is on the screen."""
    lines = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in lines)


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 20)])
def test_what_it_shows(size: tuple[int, int]) -> None:
    """Also on small terminals; what is in brackets in an id or a message is text."""
    app = LiveApp(None, FakeBoard(a_view()), "tasks.py", lambda: None, lambda: ["a line", "\x1b[31mred\x1b[0m"])  # type: ignore[arg-type]

    async def play(pilot: Any) -> None:
        shown = text_of(app)
        assert "worker" in shown and "job[red]0000" in shown and "\x1b" not in shown
        if size[0] > 100:
            assert "tasks.py" in shown and "a line" in shown
            for words in ("2 failures", "train #3", "50%", "epoch [b]5[/b]", "98%", "9 ready", "2 with train"):
                assert words in shown, words

    played(app, play, size)


def test_a_scheduler_that_is_not_well_is_seen_at_once() -> None:
    app = LiveApp(None, FakeBoard(a_view(ok=False)), "tasks.py", lambda: None)  # type: ignore[arg-type]

    async def play(pilot: Any) -> None:
        assert "NOT WELL" in text_of(app)

    played(app, play)


def test_sort_and_filter_among_a_thousand() -> None:
    """The cursor stays on its job."""
    app = LiveApp(None, FakeBoard(a_view(1000)), "tasks.py", lambda: None)  # type: ignore[arg-type]

    async def play(pilot: Any) -> None:
        assert app.chosen == "job[red]0999"  # the next one
        await pilot.press("s")
        assert app._sort == "id" and app._jobs.get_row_at(0)[0].plain == "job[red]0000"
        assert app._jobs.row_count == 300
        await pilot.press("slash", *"0042", "enter")
        await pilot.pause()
        assert [app._jobs.get_row_at(n)[0].plain for n in range(app._jobs.row_count)] == ["job[red]0042"]
        assert app.chosen == "job[red]0042"
        await pilot.press("escape")
        await pilot.pause()
        assert app._jobs.row_count == 300

    played(app, play)


def test_keys_do_what_they_say() -> None:
    """Pause, resume, run now, cancel after a question, help, stop."""
    stopped = threading.Event()
    with ProcessScheduler(1) as scheduler:
        job = scheduler.schedule(abs, FixedRate("1h", initial_delay="1h"), args=(1,), id="job")
        app = LiveApp(scheduler, Board(scheduler), "tasks.py", stopped.set)

        async def play(pilot: Any) -> None:
            await pilot.press("space")
            assert job.state is JobState.PAUSED and "job is paused" in text_of(app)
            await pilot.press("p")
            assert job.state is JobState.SCHEDULED
            await pilot.press("r")
            await asyncio.to_thread(lambda: [None for _ in iter(lambda: job.last is None, False)])
            assert job.last is not None and job.last.outcome is Outcome.SUCCEEDED
            await pilot.press("question_mark")
            await pilot.pause()
            assert "Ctrl-C" in text_of(app)
            await pilot.press("escape")
            await pilot.press("k")
            await pilot.pause()
            assert "doesn't execute" in text_of(app)
            await pilot.press("escape")
            await pilot.press("c")
            await pilot.pause()
            assert "Cancel job?" in text_of(app)
            await pilot.press("n")
            await pilot.pause()
            assert job.state is JobState.SCHEDULED
            await pilot.press("c", "y")
            await pilot.pause()
            assert job.state is JobState.CANCELLED
            await pilot.press("q")
            assert stopped.is_set()

        played(app, play)
        scheduler.shutdown()


def test_it_ends_with_what_it_shows() -> None:
    """Also if that was over before it began."""
    ended = threading.Event()
    ended.set()
    app = LiveApp(None, FakeBoard(a_view()), "tasks.py", lambda: None, ended=ended)  # type: ignore[arg-type]

    async def play(pilot: Any) -> None:
        await pilot.pause(0.1)

    played(app, play)
    assert not app.is_running
