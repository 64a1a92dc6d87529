"""Views: what `run` can be told to show or write beside its work. In the parent.

Each is a module of `procsched.observe` with a function that checks what it was told before anything starts, and
returns an *opener*: called with the scheduler, before the first job is scheduled, it gives a context that lasts until
the scheduler has ended and its last events have been told.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from procsched.cli.status import CommandFailed
from procsched.observe.extras import MissingExtra

if TYPE_CHECKING:
    from procsched.scheduler import ProcessScheduler

_log = logging.getLogger("procsched.cli")

__all__ = ["DASHBOARD_ADDRESS", "METRICS_ADDRESS", "Opener", "chosen"]

DASHBOARD_ADDRESS = "127.0.0.1:8800"
METRICS_ADDRESS = "127.0.0.1:9464"
"""The port is the one that exporters of this kind have by custom."""

Opener = Callable[["ProcessScheduler"], AbstractContextManager[object]]


def chosen(
    *,
    metrics: str | None,
    history: str | None,
    history_keep: str,
    history_max: int,
    trace: str | None,
    trace_size: str,
    control: str | None,
    tasks: str,
    dashboard: str | None,
    dashboard_token: str | None,
    dashboard_read_only: bool,
) -> list[Opener]:
    """The openers of the views that were asked for, or `CommandFailed`: a missing package, a path that can't be."""
    openers: list[Opener] = []
    with _telling():
        if metrics is not None:
            from procsched.observe import metrics as view

            openers.append(view.prepare(metrics))
        if history is not None:
            from procsched.observe.history import prepare

            openers.append(prepare(history, keep=history_keep, most=history_max))
        if trace is not None:
            from procsched.observe import trace as tracer

            openers.append(tracer.prepare(trace, size=trace_size))
        if dashboard is not None:
            from procsched.web import serve

            title = os.path.basename(tasks)
            openers.append(
                serve.prepare(dashboard, token=dashboard_token, read_only=dashboard_read_only, title=title)
            )
        if control is not None:
            openers.append(lambda scheduler: _controlled(scheduler, control, tasks))
    return openers


@contextmanager
def _controlled(scheduler: ProcessScheduler, path: str, tasks: str) -> Iterator[None]:
    from procsched.control.server import ControlServer

    with _telling():
        server = ControlServer(scheduler, path or None, {"tasks": tasks})
    with server:
        _log.info("procsched ctl --socket %s talks to it", server.path)
        yield


@contextmanager
def _telling() -> Iterator[None]:
    try:
        yield
    except (MissingExtra, OSError, TypeError, ValueError) as error:
        raise CommandFailed(str(error)) from error
