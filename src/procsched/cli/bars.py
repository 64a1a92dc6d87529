"""Bars: how far the executing runs are, under the lines of the log, by rich (extra ``tui``). In the parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from procsched.observe import human

if TYPE_CHECKING:
    from collections.abc import Iterable

    from procsched.observe.board import BoardView

__all__ = ["Bars"]

_MOST = 12
"""Bars at once; more workers than that have only the last line."""


class Bars:
    """A bar a run, and a line about all of them; what is printed goes above."""

    def __init__(self, terminal: TextIO) -> None:
        self._console = Console(file=terminal, highlight=False, soft_wrap=True)
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(24), TaskProgressColumn(), TimeElapsedColumn(),
            TextColumn("{task.fields[message]}", style="dim"),
            console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self._tasks: dict[str, TaskID] = {}
        self._all = self._progress.add_task("", total=None, message="")
        self._ending = ""

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tell_of_the_end(self, sentence: str, seconds: float) -> None:
        """In the last line from now on."""
        self._ending = sentence

    def show(self, lines: Iterable[str], view: BoardView | None) -> None:
        """The new lines, and the bars as they are now."""
        for line in lines:
            self._console.print(Text.from_ansi(line))
        if view is None:
            return
        busy = {worker.run: worker for worker in view.workers[:_MOST] if worker.run}
        for run in [run for run in self._tasks if run not in busy]:
            self._progress.remove_task(self._tasks.pop(run))
        for run, worker in busy.items():
            if run not in self._tasks:
                if worker.elapsed is None or worker.elapsed < 0.3:
                    continue  # a bar that is gone at once is only a flicker
                self._tasks[run] = self._progress.add_task(run, total=None, message="")
            total = None if worker.fraction is None else 1.0
            self._progress.update(
                self._tasks[run], total=total, completed=worker.fraction or 0.0, message=worker.message[:40]
            )
        stats = view.stats
        failures = stats.failed + stats.crashed + stats.timed_out + stats.aborted
        left = stats.executing + stats.ready + stats.scheduled
        done = human.count(stats.ended, "run")
        if failures:
            done += f", [red]{human.count(failures, 'failure')}[/red]"
        self._progress.update(self._all, description=done, message=self._ending or f"{left} more, as far as is known")
