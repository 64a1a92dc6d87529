"""``@job``: what a function of a task file says about itself, kept with the module in which it stands. Anywhere.

Workers import this file with the task file: its own imports stay light.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from datetime import datetime

    from procsched.core.schedules import Schedule
    from procsched.jobs import Job
    from procsched.scheduler import ProcessScheduler

__all__ = ["DEFINITIONS", "JobDefinition", "definitions_in", "job"]

_F = TypeVar("_F", bound=Callable[..., Any])

DEFINITIONS = "__procsched_jobs__"  # in the globals of the module, so that they live and die with it

_OPTIONS = (  # what ProcessScheduler.schedule takes by keyword
    "args",
    "id",
    "kwargs",
    "max_instances",
    "misfire_grace_time",
    "pause_after_failures",
    "priority",
    "replace_existing",
    "retry",
    "tags",
    "timeout",
    "warn_after",
)


class JobDefinition:
    """One ``@job``: a function, when it runs, and the options that `ProcessScheduler.schedule` takes besides."""

    __slots__ = ("fn", "id", "options", "place", "when")

    def __init__(self, fn: Callable[..., Any], when: Schedule | datetime, options: dict[str, Any], place: str) -> None:
        self.fn = fn
        self.when = when
        self.id: str = options["id"]
        self.options = options
        self.place = place
        """File and line of the decorator, for messages."""

    def schedule_on(self, scheduler: ProcessScheduler) -> Job:
        """Schedule it; what that raises gets a note that says which job it was, and where it stands."""
        try:
            return scheduler.schedule(self.fn, self.when, **self.options)
        except Exception as error:
            error.add_note(f"This is about the job {self.id!r}, at {self.place}")
            raise

    def __repr__(self) -> str:
        return f"<job {self.id!r} of {self.place}>"


def job(when: Schedule | datetime, **options: Any) -> Callable[[_F], _F]:
    """Make the decorated function a job of its task file.

    ``options`` are the keyword arguments of `ProcessScheduler.schedule`; ``id`` defaults to the function's name. The
    function itself stays as it is. Raises `TypeError` where the decorator stands, for what no scheduler could run.
    """
    _check_when(when)
    unknown = sorted(options.keys() - set(_OPTIONS))
    if unknown:
        import difflib

        near = difflib.get_close_matches(unknown[0], _OPTIONS, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(_OPTIONS)}"
        raise TypeError(f"job() has no option {unknown[0]!r}; {hint}")
    frame = sys._getframe(1)
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def define(fn: _F) -> _F:
        _check_function(fn)
        given = dict(options)
        if given.get("id") is None:
            given["id"] = getattr(fn, "__name__", None) or type(fn).__name__
        definition = JobDefinition(fn, when, given, place)
        # The file in which @job stands, or that of the function, when a helper elsewhere wraps @job.
        homes = {id(home): home for home in (frame.f_globals, getattr(fn, "__globals__", frame.f_globals))}
        for home in homes.values():
            definitions_in(home).append(definition)
        return fn

    return define


def definitions_in(home: dict[str, Any]) -> list[JobDefinition]:
    """The list that the globals of a module keep; a new one when the module was reloaded, in the same globals."""
    spec = home.get("__spec__")
    made_for, definitions = home.get(DEFINITIONS, (spec, None))
    if definitions is None or made_for is not spec:
        definitions = []
        home[DEFINITIONS] = (spec, definitions)
    return cast("list[JobDefinition]", definitions)


def _check_when(when: object) -> None:
    if hasattr(when, "first") and hasattr(when, "next") and not isinstance(when, type):
        return
    from datetime import datetime

    if isinstance(when, datetime):
        return
    if callable(when) and not isinstance(when, type):
        raise TypeError('job() wants to know when to run: write @job(FixedRate("30s")) instead of @job')
    raise TypeError(
        f'job() wants a schedule, not {when!r}: FixedRate("30s") for a period, FixedDelay("30s") for a pause'
        ' after each run, After("30s") for once, Daily("02:00"), Cron("0 2 * * *") or an aware datetime'
    )


def _check_function(fn: object) -> None:
    import inspect

    if not callable(fn):
        raise TypeError(f"@job stands above {fn!r}, which can't be called")
    inner = fn
    while hasattr(inner, "func") and hasattr(inner, "keywords"):  # functools.partial, without importing it
        inner = inner.func
    name = getattr(inner, "__qualname__", repr(inner))
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        raise TypeError(f"{name} is an async function; a job is an ordinary one, which may call asyncio.run() itself")
    if inspect.isgeneratorfunction(inner):
        raise TypeError(f"{name} is a generator function: calling it would run nothing. Take the yield out of it")
