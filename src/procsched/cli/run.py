"""``procsched run``: the jobs of a task file, until somebody or something ends it. In the parent.

    load → start → wait for: a signal · --for · nothing left (--until-idle) · the death of the loop ·
                             a run that printed to a pipe without a reader → stop → table

The main thread only ever waits for one event, `_Session.wake`; who sets it says why in a field of its own.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

import click

from procsched import sources
from procsched.cli import loading, logs, options
from procsched.cli.anew import Reloader, watching
from procsched.cli.dump import dump
from procsched.cli.lines import LineFormatter
from procsched.cli.output import complain, is_unread, say
from procsched.cli.selection import NotedScheduler
from procsched.cli.service import Service
from procsched.cli.signals import StopSignals
from procsched.cli.status import CommandFailed, Status
from procsched.cli.summary import Summary
from procsched.cli.views import DASHBOARD_ADDRESS, METRICS_ADDRESS, chosen
from procsched.observe import human
from procsched.observe.extras import MissingExtra, need

if TYPE_CHECKING:
    from collections.abc import Callable

    from procsched.cli.screen import Screen
    from procsched.events import RunEnded
    from procsched.scheduler import ProcessScheduler

__all__ = ["run"]

_log = logging.getLogger("procsched.cli")

_LOOK_AGAIN = 5.0  # seconds; only when every job has ended, and nobody would tell of the end of the loop
_KILL_TIME = 1.0  # seconds that a second signal gives the kill; what it misses, the kernel does when we are gone


@click.command(cls=options.CommandWithAddresses)
@options.TASKS
@click.option("--workers", type=options.WORKERS, metavar="N", help="Worker processes. Default: one per usable core.")
@click.option("--for", "for_", type=options.duration, metavar="TIME", help="End after this time, such as 60s or 1h30m.")
@click.option("--until-idle", is_flag=True, help="End when no job is left.")
@click.option(
    "--grace",
    type=options.duration,
    default="30s",
    show_default=True,
    metavar="TIME",
    help="How long executing runs may take to finish at the end.",
)
@click.option("--only", multiple=True, metavar="ID", help="Run this job alone. May be given several times.")
@click.option("--log-level", type=click.Choice(logs.LEVELS, case_sensitive=False), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(logs.FORMATS), default="text", show_default=True)
@click.option("--prefix-output", is_flag=True, help="Begin each line that a run prints with the id of its job.")
@click.option(
    "--single-instance",
    type=click.Path(dir_okay=False),
    metavar="PATH",
    help="Refuse to start while another scheduler holds this lock file.",
)
@click.option(
    "--metrics",
    cls=options.AddressOption,
    is_flag=False,
    flag_value=METRICS_ADDRESS,
    metavar="[HOST:PORT]",
    help=f"Serve /metrics for Prometheus, and /healthz. Without an address: {METRICS_ADDRESS}.",
)
@click.option("--live", is_flag=True, help="Show on the terminal what goes on, and take keys.")
@click.option("--history", type=click.Path(), metavar="FILE", help="Write every run into this SQLite file.")
@click.option(
    "--history-keep", default="30d", show_default=True, metavar="TIME", help="Delete from it what ended longer ago."
)
@click.option(
    "--history-max",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="And the oldest beyond so many runs.",
)
@click.option("--trace", type=click.Path(), metavar="FILE", help="Write a timeline for Perfetto and `procsched trace`.")
@click.option("--trace-size", default="64MiB", show_default=True, metavar="SIZE", help="Of FILE and FILE.1 together.")
@click.option(
    "--dashboard",
    cls=options.AddressOption,
    is_flag=False,
    flag_value=DASHBOARD_ADDRESS,
    metavar="[HOST:PORT]",
    help=f"Serve a page that shows what goes on. Without an address: {DASHBOARD_ADDRESS}.",
)
@click.option("--dashboard-read-only", is_flag=True, help="Nothing can be done there.")
@click.option(
    "--dashboard-token", envvar="PROCSCHED_DASHBOARD_TOKEN", metavar="SECRET", help="Instead of a new one each time."
)
@click.option("--reload", is_flag=True, help="Load the file again whenever it, or a module beside it, is saved.")
@click.option("--control", is_flag=True, help="Let `procsched ctl` talk to it, over a socket in a folder of your own.")
@click.option("--control-socket", type=click.Path(), metavar="PATH", help="The same, over a socket at this path.")
def run(
    tasks: str,
    workers: int | None,
    for_: float | None,
    until_idle: bool,
    grace: float,
    only: tuple[str, ...],
    log_level: str,
    log_format: str,
    prefix_output: bool,
    single_instance: str | None,
    live: bool,
    metrics: str | None,
    history: str | None,
    history_keep: str,
    history_max: int,
    trace: str | None,
    trace_size: str,
    reload: bool,
    control: bool,
    control_socket: str | None,
    dashboard: str | None,
    dashboard_token: str | None,
    dashboard_read_only: bool,
) -> Status:
    """Run the jobs of TASKS.PY until Ctrl-C.

    The first Ctrl-C (or SIGTERM) starts nothing new and lets executing runs finish, the second one ends them at once.
    The log goes to stderr; stdout belongs to what the runs print, and gets a table at the end.

    Exit status: 0 after a clean end, 1 when runs had to be aborted, 2 for a task file that can't be loaded, 3 when no
    worker can be started; 130 or 143 after a second signal; 141 when a run printed and nobody reads stdout any more.
    """
    formatter = logs.configure(log_level, log_format)
    with StopSignals() as signals:
        sources.note()
        task_file = loading.load(tasks)
        if task_file.setup is None:  # else there may be more jobs, and it takes a scheduler to know
            loading.check_ids(only, [definition.id for definition in task_file.jobs])
        service = Service()
        if reload:
            _need_watchfiles()
        openers = chosen(
            metrics=metrics,
            history=history,
            history_keep=history_keep,
            history_max=history_max,
            trace=trace,
            trace_size=trace_size,
            control="" if control and control_socket is None else control_socket,
            tasks=tasks,
            dashboard=dashboard,
            dashboard_token=dashboard_token,
            dashboard_read_only=dashboard_read_only,
        )
        with _screen(live, until_idle and log_format == "text") as screen:
            scheduler = _start(workers, only, single_instance, prefix_output)
            session = _Session(scheduler, signals, grace)
            with ExitStack() as views:
                try:
                    scheduler._engine.settings.sources = sources.noted()  # more is noted as it is imported
                    for opener in openers:
                        views.enter_context(opener(scheduler))
                    session.summary.expect(d.id for d in task_file.jobs if not only or d.id in only)
                    if isinstance(formatter, LineFormatter):
                        formatter.make_room(list(session.summary.jobs))
                    session.load(tasks)
                    load_again = _reloader(scheduler, tasks)
                    if reload:
                        views.enter_context(watching(tasks, load_again))
                    signals.arm(
                        session.on_first_signal,
                        session.on_second_signal,
                        {signal.SIGUSR1: lambda: dump(scheduler), signal.SIGHUP: load_again},
                    )
                except BaseException:
                    scheduler.shutdown(wait=True, cancel_futures=True, timeout=0)
                    raise
                session.announce(tasks)
                session.enter_service(service, tasks)
                def work(tell: Callable[[str, float], None]) -> Status:
                    session.wait(for_, until_idle)
                    session.tell_of_the_end(tell)
                    return session.stop()

                if screen is not None:
                    session.before_exit = screen.rescue
                if screen is None:
                    status = work(lambda sentence, seconds: None)
                elif live:
                    title = os.path.basename(tasks)
                    status = screen.live(scheduler, title, lambda: os.kill(os.getpid(), signal.SIGINT), work)
                else:
                    status = screen.bars(scheduler, work)
    session.report(as_table=log_format == "text")
    return status


def _start(
    workers: int | None, only: tuple[str, ...], single_instance: str | None, prefix_output: bool
) -> ProcessScheduler:
    from procsched.cli.selection import HeldScheduler
    from procsched.worker.prefix import VARIABLE

    asked: dict[str, Any] = {"workers": workers, "single_instance": single_instance}
    if prefix_output:
        asked["env"] = {VARIABLE: "1"}
    if only:
        return loading.open_scheduler(HeldScheduler, only=only, **asked)
    return loading.open_scheduler(NotedScheduler, **asked)


def _need_watchfiles() -> None:
    try:
        need("watchfiles", "reload", "--reload")
    except MissingExtra as error:
        raise CommandFailed(str(error)) from error


def _reloader(scheduler: ProcessScheduler, tasks: str) -> Callable[[], None]:
    """What SIGHUP, or a change of the file, asks for."""
    if isinstance(scheduler, NotedScheduler):
        return Reloader(scheduler, tasks).ask
    return lambda: _log.warning("with --only nothing is loaded again")


def _screen(live: bool, bars: bool) -> AbstractContextManager[Screen | None]:
    """The terminal, if the live view was asked for, or bars can be shown."""
    if not live and not bars:
        return nullcontext()
    from procsched.cli.screen import Screen

    if not Screen.is_possible():
        if live:
            _log.warning("--live needs a terminal; here are plain lines instead")
        return nullcontext()
    try:
        need("textual" if live else "rich", "tui", "--live")
    except MissingExtra as error:
        if live:
            raise CommandFailed(str(error)) from error
        return nullcontext()
    return Screen.taken()


class _Session:
    """One scheduler from its start to its end."""

    def __init__(self, scheduler: ProcessScheduler, signals: StopSignals, grace: float) -> None:
        from procsched.events import RunEnded, SchedulerStopped

        self.summary = Summary()
        self.wake = threading.Event()
        self.before_exit: Callable[[], object] = lambda: None
        """Called before an end that leaves no time for anything else."""
        self._scheduler = scheduler
        self._signals = signals
        self._grace = grace
        self._over = threading.Event()
        self._idle = False
        self._unread = False
        self._death: BaseException | None = None
        self._service: Service | None = None
        self._watcher = threading.Thread(target=self._watch, name="procsched watch", daemon=True)
        scheduler.subscribe(self.summary, RunEnded)
        scheduler.subscribe(self._on_ended, RunEnded)
        scheduler.subscribe(self._on_stopped, SchedulerStopped)

    # ---- the end, as others announce it

    def on_first_signal(self) -> None:
        self.wake.set()

    def on_second_signal(self, number: int) -> None:
        """End everything, now; in the thread that reads signals, whatever the others are doing."""
        kill = threading.Thread(
            target=self._scheduler.shutdown, kwargs={"wait": True, "cancel_futures": True, "timeout": 0}, daemon=True
        )
        kill.start()
        kill.join(_KILL_TIME)
        self.before_exit()
        os._exit(128 + number)

    def _on_ended(self, event: RunEnded) -> None:
        # Runs write to stdout themselves, and in Python a pipe without a reader is an error there, not a signal. What
        # the signal does to other programs, this does: `procsched run … | head` ends with the first line too many.
        error = event.record.error
        if error is not None and error.type == "BrokenPipeError" and is_unread():
            self._unread = True
            self.wake.set()

    def _on_stopped(self, event: object) -> None:
        self._over.set()
        self.wake.set()

    def _watch(self) -> None:
        try:
            self._scheduler.wait()
            self._idle = True
        except BaseException as error:  # whatever it is, it must end the program, not this thread alone
            self._death = error
        self.wake.set()

    # ---- the stages, in the main thread

    def load(self, tasks: str) -> None:
        from procsched.cli.selection import HeldScheduler

        scheduler = self._scheduler
        loading.fill(scheduler, tasks)
        if isinstance(scheduler, HeldScheduler):
            scheduler.check()
            with loading.telling_authors(tasks):
                scheduler.release()

    def announce(self, tasks: str) -> None:
        jobs = human.count(len(self._scheduler.get_jobs()), "job")
        _log.info("%s of %s; Ctrl-C ends it", jobs, tasks)

    def wait(self, seconds: float | None, until_idle: bool) -> None:
        """Until there is a reason to stop."""
        end = None if seconds is None else time.monotonic() + seconds
        self._watcher.start()
        while self._signals.first is None and self._alive() and not (self._idle and until_idle) and not self._unread:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return
            patience = left if not self._idle else min(_LOOK_AGAIN, left if left is not None else _LOOK_AGAIN)
            self.wake.wait(patience)
            self.wake.clear()

    def enter_service(self, service: Service, tasks: str) -> None:
        """Tell the service manager, when there is one, how it goes."""
        from procsched.events import WorkerStarted

        jobs = human.count(len(self._scheduler.get_jobs()), "job")

        def up(event: object = None) -> None:
            leave()
            service.ready(f"{jobs} of {tasks}")

        leave = self._scheduler.subscribe(up, WorkerStarted)
        if self._scheduler.health().workers_up or not self._scheduler._engine.started:
            up()
        service.watch(self._scheduler)
        self._service = service

    def tell_of_the_end(self, tell: Callable[[str, float], None]) -> None:
        """If there is something to wait for."""
        if self._executing():
            again = "q again ends" if self._signals.first else "a signal ends"
            tell(f"stopping: nothing new starts, runs may finish; {again} them at once", self._grace)

    def stop(self) -> Status:
        """Let executing runs finish within the grace time, and end the rest."""
        if not self._alive():
            return self._dead()
        if self._service is not None:
            self._service.stopping()
        executing = self._executing()
        if executing:
            self._scheduler.shutdown(wait=False, cancel_futures=True, timeout=self._grace)  # first do, then say
            again = "; the same signal again ends them at once" if self._signals.first else ""
            _log.info(
                "stopping%s: nothing new starts, %s may take %g s to finish%s",
                self._cause(),
                ", ".join(executing),
                self._grace,
                again,
            )
        else:
            _log.info("stopping%s", self._cause())
        self._scheduler.shutdown(wait=True, cancel_futures=True, timeout=self._grace)
        self._over.wait(2.0)  # the last events are on their way
        self._watcher.join(2.0)
        if self._death is not None:
            return self._dead()
        if self._scheduler.stats().aborted:
            return Status.FOUND
        return Status.UNREAD if self._unread else Status.CLEAN

    def _dead(self) -> Status:
        self._watcher.join(1.0)  # it knows why, in a moment
        why = f": {str(self._death).splitlines()[0]}" if str(self._death or "") else ""
        complain(f"procsched: the scheduler has ended by itself{why}")
        self._scheduler.shutdown(wait=True, cancel_futures=True, timeout=0)
        return Status.UNUSABLE

    def report(self, *, as_table: bool) -> None:
        """The last words: how each job did."""
        if as_table:
            if self.summary.jobs:
                say("\n" + "\n".join(self.summary.lines()))
            return
        for job_id, job in self.summary.jobs.items():
            _log.info("summary of %s", job_id, extra={"job": job_id, "summary": job.as_dict()})

    def _alive(self) -> bool:
        return self._death is None and not self._over.is_set() and self._scheduler.health().ok

    def _executing(self) -> list[str]:
        return [worker.current for worker in self._scheduler.workers() if worker.current]

    def _cause(self) -> str:
        if self._signals.first:
            return f" ({self._signals.first.name})"
        return " (nobody reads stdout any more)" if self._unread else ""
