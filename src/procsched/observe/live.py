"""Live: the terminal view, by textual (extra ``tui``). In the parent, in the main thread.

It asks the `Board` twice a second and draws what has changed; what a key does to a job, it does through the public
scheduler. It knows nothing of where its terminal comes from, nor of how the program ends: see `procsched.cli.screen`.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

from rich.markup import escape
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, RichLog, Static

from procsched.errors import ProcschedError
from procsched.observe import human

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from procsched.observe.board import Board, BoardView, JobView, WorkerView
    from procsched.scheduler import ProcessScheduler

__all__ = ["LiveApp"]

_EVERY = 0.5
_SHOWN = 300
"""Rows of the table of jobs; the filter finds the others."""
_LOG_LINES = 1000
_BLOCKS = "▁▂▃▄▅▆▇█"
_COLOURS = {
    "succeeded": "green", "failed": "red", "crashed": "red", "timed_out": "red", "aborted": "red", "skipped": "yellow",
    "cancelled": "yellow", "running": "cyan", "busy": "cyan", "paused": "yellow", "down": "red", "booting": "yellow",
    "leaving": "yellow",
}  # fmt: skip
_SORTS: dict[str, Callable[[JobView], Any]] = {
    "next": lambda job: (job.next_run is None, job.next_run.timestamp() if job.next_run else 0.0, job.id),
    "id": lambda job: job.id,
    "failures": lambda job: (-job.failures, job.id),
    "runs": lambda job: (-job.runs, job.id),
    "late": lambda job: (-(job.lateness_p99 or 0.0), job.id),
    "took": lambda job: (-(job.durations[-1] if job.durations else 0.0), job.id),
}
_HELP = """\
[b]Jobs[/b]     ↑ ↓ choose one · [b]space[/b] pause or resume · [b]r[/b] run it now · [b]c[/b] cancel it (asks first)
         [b]k[/b] or enter: the stack of its running run · [b]s[/b] sort · [b]/[/b] filter, escape ends that
[b]Tables[/b]   tab goes to the next one · [b]e[/b] the latest failures in full
[b]The end[/b]  [b]q[/b] or Ctrl-C: start nothing more, let runs finish; once more: end at once
"""


class LiveApp(App[None]):
    """Workers, jobs, what waits, and the log, until ``exit`` is called."""

    TITLE = "procsched"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: auto; padding: 0 1; background: $panel; }
    #workers { height: auto; max-height: 35%; }
    #jobs { height: auto; max-height: 60%; min-height: 4; }
    #waiting { height: auto; max-height: 5; padding: 0 1; color: $text-muted; }
    #log { height: 1fr; min-height: 3; border-top: solid $panel; overflow-x: hidden; scrollbar-size: 1 1; }
    #filter { display: none; height: 3; }
    Dialog { align: center middle; }
    Dialog > Vertical { width: 90%; max-width: 110; height: auto; max-height: 85%; padding: 1 2; background: $surface;
        border: round $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("space,p", "pause", "pause/resume", key_display="space"),
        Binding("r", "run_now", "run now"),
        Binding("c", "cancel_job", "cancel"),
        Binding("k", "stack", "stack"),
        Binding("e", "failures", "failures"),
        Binding("s", "sort", "sort"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("q,ctrl+c,ctrl+q", "stop", "quit", key_display="q", priority=True),
        Binding("escape", "leave_filter", show=False),
    ]

    def __init__(
        self,
        scheduler: ProcessScheduler,
        board: Board,
        title: str,
        stop: Callable[[], object],
        log_lines: Callable[[], Iterable[str]] = tuple,
        ended: threading.Event | None = None,
    ) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._board = board
        self._name = title
        self._stop = stop
        self._log_lines = log_lines
        """Takes the lines that have come since it was called last."""
        self._ended = ended if ended is not None else threading.Event()
        """Set when there is nothing more to show; whoever sets it calls ``exit``, if there is somebody to hear it."""
        self._sort = "next"
        self._filter = ""
        self._said = ""
        self._said_at = 0.0
        self.ending = ""
        """What is told of the end once that has begun; may be set from any thread."""
        self.ends_at: float | None = None
        """`time.monotonic` at which what still executes is ended."""
        self.view: BoardView | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield DataTable(id="workers", cursor_type="none", show_cursor=False)
        yield DataTable(id="jobs", cursor_type="row", zebra_stripes=True)
        yield Static(id="waiting")
        yield Input(id="filter", placeholder="part of a job's id")
        yield RichLog(id="log", max_lines=_LOG_LINES, wrap=False, markup=False)
        yield Footer()

    def on_mount(self) -> None:
        workers = self.query_one("#workers", DataTable)
        _add_columns(workers, ">worker >pid state run >for progress >CPU >memory")
        _add_columns(self._jobs, "job state >next last >runs >failed >late_p50 >p99 >took durations")
        self._jobs.focus()
        self.refresh_view()
        self.set_interval(_EVERY, self.refresh_view)

    @property
    def _jobs(self) -> DataTable[Any]:
        return self.query_one("#jobs", DataTable)

    def tell_of_the_end(self, sentence: str, seconds: float) -> None:
        """The end has begun; it may take so long. Any thread."""
        self.ends_at = time.monotonic() + seconds
        self.ending = sentence

    # -- drawing --------------------------------------------------------------------------------------------------

    def refresh_view(self) -> None:
        """Asks the board, and draws."""
        if self._ended.is_set():
            self.exit()
            return
        try:
            self.view = self._board.view()
        except ProcschedError:  # the scheduler has ended
            pass
        view = self.view
        if view is None:
            return
        self.query_one("#head", Static).update(self._head(view))
        workers = self.query_one("#workers", DataTable)
        workers.clear()
        for worker in view.workers:
            workers.add_row(*_worker_cells(worker))
        self._draw_jobs(view)
        self.query_one("#waiting", Static).update(_waiting_text(view))
        log = self.query_one("#log", RichLog)
        for line in self._log_lines():
            log.write(_coloured(line))

    def _head(self, view: BoardView) -> Text:
        stats, health = view.stats, view.health
        failures = stats.failed + stats.crashed + stats.timed_out + stats.aborted
        text = Text()
        text.append(f"{self._name}  ", "bold")
        if not health.ok:
            text.append("NOT WELL: the loop stands still or has ended  ", "bold red")
        text.append(f"up {human.seconds(view.uptime)}  ")
        text.append(f"{health.workers_up}/{len(view.workers)} workers  ", "" if health.workers_up else "red")
        text.append(f"{stats.executing} executing  {stats.ready} ready  ")
        text.append(f"{stats.ended} runs, {view.rate:.3g}/s  ")
        text.append(human.count(failures, "failure"), "red" if failures else "")
        text.append(f"  sorted by {self._sort}", "dim")
        if self._filter:
            text.append(f", only *{self._filter}*", "dim")
        if self.ending:
            left = "" if self.ends_at is None else f": {max(0.0, self.ends_at - time.monotonic()):.0f} s left"
            text.append(f"\n{self.ending}{left}", "bold yellow")
        elif self._said and time.monotonic() - self._said_at < 5:
            text.append(f"\n{self._said}", "cyan")
        return text

    def _draw_jobs(self, view: BoardView) -> None:
        table = self._jobs
        chosen, at, scroll = self.chosen, table.cursor_row, table.scroll_y
        jobs = sorted((job for job in view.jobs if self._filter in job.id.lower()), key=_SORTS[self._sort])
        table.clear()
        for job in jobs[:_SHOWN]:
            table.add_row(*_job_cells(job, view.at), key=job.id)
        shown = [job.id for job in jobs[:_SHOWN]]
        table.move_cursor(row=shown.index(chosen) if chosen in shown else min(at, max(0, len(shown) - 1)), scroll=False)
        table.scroll_to(y=scroll, animate=False)
        hidden = len(jobs) - len(shown) + view.more_jobs
        table.border_subtitle = f"and {hidden} more: / filters" if hidden else ""

    @property
    def chosen(self) -> str | None:
        """The id of the job that the cursor is on."""
        table = self._jobs
        if not table.row_count:
            return None
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value

    def say(self, text: str) -> None:
        """For a moment, in the head."""
        self._said, self._said_at = text, time.monotonic()
        self.refresh_view()

    # -- keys -----------------------------------------------------------------------------------------------------

    def _with_job(self, deed: Callable[[Any], str]) -> None:
        chosen = self.chosen
        if chosen is None:
            return
        try:
            self.say(deed(self._scheduler.get_job(chosen)))
        except (ProcschedError, RuntimeError) as error:
            self.say(f"{chosen}: {error}")

    def action_pause(self) -> None:
        def deed(job: Any) -> str:
            if job.state.value == "paused":
                job.resume()
                return f"{job.id} goes on"
            job.pause()
            return f"{job.id} is paused"

        self._with_job(deed)

    def action_run_now(self) -> None:
        def deed(job: Any) -> str:
            job.run_now()
            return f"{job.id} runs as soon as a worker is free"

        self._with_job(deed)

    def action_cancel_job(self) -> None:
        chosen = self.chosen
        if chosen is not None:
            question = f"Cancel [b]{escape(chosen)}[/b]? What executes finishes, and it never runs again.  [b]y[/b] / n"
            self.push_screen(Dialog(question, "y"), lambda yes: self._with_job(_cancel) if yes else None)

    def action_stack(self) -> None:
        chosen = self.chosen
        if chosen is None:
            return
        text = self._scheduler.stack(chosen) if chosen else ""
        self.push_screen(Dialog(escape(text) or f"{escape(chosen)} doesn't execute just now."))

    def on_data_table_row_selected(self) -> None:
        self.action_stack()

    def action_failures(self) -> None:
        from procsched.observe.log import error_text, run_line

        texts = [
            f"[b]{escape(run_line(record))}[/b]\n{escape(error_text(record, record.error))}"
            for record in (self.view.failures if self.view is not None else ())
            if record.error is not None
        ]
        self.push_screen(Dialog("\n\n".join(texts) or "Nothing has failed."))

    def action_sort(self) -> None:
        names = list(_SORTS)
        self._sort = names[(names.index(self._sort) + 1) % len(names)]
        self.refresh_view()

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.styles.display = "block"
        field.focus()

    def action_leave_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.value = ""
        field.styles.display = "none"
        self._jobs.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._filter = event.value.lower()
        self.refresh_view()

    def on_input_submitted(self) -> None:
        self.query_one("#filter", Input).styles.display = "none"
        self._jobs.focus()

    def action_help(self) -> None:
        self.push_screen(Dialog(_HELP))

    def action_stop(self) -> None:
        self._stop()


class Dialog(ModalScreen[bool]):
    """A text over the rest, until a key is pressed; ``yes`` is the key that means it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,n,enter", "no", show=False)]

    def __init__(self, text: str, yes: str = "") -> None:
        super().__init__()
        self._text = text
        self._yes = yes

    def compose(self) -> ComposeResult:
        with Vertical(), VerticalScroll():
            yield Static(self._text)

    def on_key(self, event: Any) -> None:
        if self._yes and event.key == self._yes:
            event.stop()
            self.dismiss(True)

    def action_no(self) -> None:
        self.dismiss(False)


def _cancel(job: Any) -> str:
    job.cancel()
    return f"{job.id} is cancelled"


# ---------------------------------------------------------------------------------------------------------------- cells


def _worker_cells(worker: WorkerView) -> list[Text]:
    share = "" if worker.cpu is None else f"{worker.cpu:.0%}"
    return [
        Text(f"{worker.slot}", justify="right"),
        Text("" if worker.pid is None else f"{worker.pid}", justify="right"),
        Text(worker.state, _COLOURS.get(worker.state, "dim")),
        Text(_cut(worker.run, 32)),
        Text("" if worker.elapsed is None else human.seconds(worker.elapsed), justify="right"),
        _bar(worker.fraction, worker.message),
        Text(share, justify="right"),
        Text("" if worker.memory is None else human.size(worker.memory), justify="right"),
    ]


def _bar(fraction: float | None, message: str) -> Text:
    if fraction is None:
        return Text("")
    full = round(max(0.0, min(1.0, fraction)) * 12)
    return Text.assemble(("━" * full, "green"), ("━" * (12 - full), "dim"), f" {fraction:4.0%} {_cut(message, 24)}")


def _job_cells(job: JobView, now: float) -> list[Text]:
    following = ""
    if job.next_run is not None:
        ahead = job.next_run.timestamp() - now
        following = f"in {_coarse(ahead)}" if ahead >= 0.5 else "now"
    outcome = job.last_outcome.replace("_", " ")
    return [
        Text(_cut(job.id, 32), "bold"),
        Text(job.state, _COLOURS.get(job.state, "dim")),
        Text(following, justify="right"),
        Text(outcome, _COLOURS.get(job.last_outcome, "")),
        Text(f"{job.runs}", justify="right"),
        Text(f"{job.failures}", "red" if job.failures else "dim", justify="right"),
        Text("" if job.lateness_p50 is None else human.seconds(job.lateness_p50), justify="right"),
        Text("" if job.lateness_p99 is None else human.seconds(job.lateness_p99), justify="right"),
        Text(human.seconds(job.durations[-1]) if job.durations else "", justify="right"),
        Text(_sparkline(job.durations[-20:]), "cyan"),
    ]


def _coarse(seconds: float) -> str:
    """A countdown that doesn't flicker: whole seconds."""
    return f"{seconds:.0f} s" if seconds < 100 else human.seconds(round(seconds))


def _sparkline(values: tuple[float, ...]) -> str:
    """Between the least and the most of them; a row of equals is flat."""
    if not values:
        return ""
    least, most = min(values), max(values)
    if most - least < 0.05 * most:
        return _BLOCKS[2] * len(values)
    return "".join(_BLOCKS[min(7, int((value - least) / (most - least) * 8))] for value in values)


def _waiting_text(view: BoardView) -> Text:
    if not view.waiting:
        return Text("nothing waits for a worker", "dim")
    first = view.waiting[0]
    text = Text(f"{view.stats.ready} ready: ", "yellow")
    text.append(", ".join(f"{_cut(run.run, 24)} for {human.seconds(run.seconds)}" for run in view.waiting[:6]))
    text.append(" …" if len(view.waiting) > 6 else "")
    text.append(f"\n{first.why}")
    return text


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _add_columns(table: DataTable[Any], names: str) -> None:
    """With ``>`` for those that are flush right."""
    for name in names.split():
        table.add_column(Text(name.lstrip(">").replace("_", " "), justify="right" if name[0] == ">" else "left"))


def _coloured(line: str) -> Text:
    """A line of the log, or of what a run printed."""
    if "\x1b" in line:
        return Text.from_ansi(line)
    colour = ""
    if any(word in line for word in ("  failed  ", "  crashed  ", "  timed out", "error:", "Error:")):
        colour = "red"
    elif "warning:" in line:
        colour = "yellow"
    return Text(line, colour)
