"""``procsched check``: would the jobs of a task file run? In the parent, with one real worker."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any

import click

from procsched import taskfile
from procsched.cli import loading, logs, options
from procsched.cli.output import Paint, say
from procsched.cli.signals import StopSignals
from procsched.cli.status import CommandFailed, Status
from procsched.core.model import JobState
from procsched.errors import NotShippable, PoolUnusable, RemoteError, WorkerCrashed

if TYPE_CHECKING:
    from procsched.cli.selection import Plan
    from procsched.scheduler import ProcessScheduler

__all__ = ["check"]

_PATIENCE = 120.0  # seconds until a worker that doesn't answer is given up


@click.command(short_help="Send every job of TASKS.PY to a real worker, and run none.")
@options.TASKS
def check(tasks: str) -> Status:
    """Load TASKS.PY and ship every job to a real worker and back, without running any.

    Exit status: 0 when all is well, 1 when something was found, 2 when the file can't even be loaded.
    """
    import sys

    from procsched.cli.selection import Catalogue
    from procsched.scheduler import ProcessScheduler

    logs.configure_for_one()
    paint = Paint(sys.stdout)
    with StopSignals():
        task_file = loading.load(tasks)
        catalogue = loading.open_scheduler(Catalogue)
        try:
            loading.fill(catalogue, tasks)
            over = {plan.job.id for plan in catalogue.plans.values() if _is_over(plan)}
        finally:
            catalogue.shutdown(wait=False, cancel_futures=True)
        found = 0
        scheduler = loading.open_scheduler(ProcessScheduler, workers=1)
        try:
            width = max(map(len, catalogue.plans), default=0)
            for plan in catalogue.plans.values():
                if plan.job.id in over:
                    fault = f"its schedule has no run left: {plan.when!r}"
                else:
                    fault = _fault(scheduler, plan, task_file.source)
                found += bool(fault)
                word = paint.red("wrong") if fault else paint.green("ok   ")
                say(f"{word}  {plan.job.id.ljust(width)}  {fault or repr(plan.when)}")
        except PoolUnusable as error:
            raise _blame(error, tasks) from error
        finally:
            scheduler.shutdown(wait=True, cancel_futures=True, timeout=0)
    jobs = len(catalogue.plans)
    say(f"{jobs - found} of {jobs} jobs can run")
    return Status.FOUND if found else Status.CLEAN


def _is_over(plan: Plan) -> bool:
    return plan.job.next_run_time is None and plan.job.state is not JobState.PAUSED


def _fault(scheduler: ProcessScheduler, plan: Plan, source: tuple[str, str] | None) -> str:
    """What is wrong with a job, or nothing."""
    try:
        inspect.signature(plan.fn).bind(*plan.args, **plan.kwargs)
    except TypeError as error:
        return f"it can't be called with its arguments: {error}"
    except ValueError:
        pass  # a function of C that doesn't tell
    try:
        scheduler.submit(_Arrival(source), plan.fn, plan.args, plan.kwargs).result(_PATIENCE)
    except PoolUnusable:
        raise
    except NotShippable as error:
        return str(error)
    except TimeoutError:
        return f"no answer from the worker within {_PATIENCE:.0f} s"
    except WorkerCrashed as error:
        return f"the worker died of it: {error}"
    except RemoteError as error:
        return f"it can't be read in a worker: {error.type_name}: {error.message}"
    except Exception as error:
        return f"it can't be read in a worker: {type(error).__name__}: {error}"
    return ""


class _Arrival:
    """Called in the worker: that function and arguments are there is all that it wants to know."""

    def __init__(self, source: tuple[str, str] | None) -> None:
        self.source = source

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.source is not None:  # before the arguments, among them the job's function, are read
            taskfile.import_source(*self.source)

    def __call__(self, fn: object, args: object, kwargs: object) -> None:
        if not callable(fn):
            raise TypeError(f"it arrived as {fn!r}, which can't be called")


def _blame(error: PoolUnusable, tasks: str) -> CommandFailed:
    """Is it the file that no worker can import, or can none be started at all?"""
    from procsched.scheduler import ProcessScheduler

    scheduler = loading.open_scheduler(ProcessScheduler, workers=1)
    try:
        scheduler.submit(os.getpid).result(_PATIENCE)
    except (PoolUnusable, TimeoutError):
        return CommandFailed(str(error), Status.UNUSABLE)
    finally:
        scheduler.shutdown(wait=True, cancel_futures=True, timeout=0)
    return CommandFailed(f"workers can't load {tasks}: {error}", Status.FOUND)
