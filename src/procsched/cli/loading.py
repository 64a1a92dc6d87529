"""From a task file to jobs on a scheduler; what goes wrong becomes one message for its author. In the parent."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from procsched import taskfile, tracebacks
from procsched.cli.status import CommandFailed, Status
from procsched.errors import AlreadyRunning, PoolUnusable, ProcschedError, TaskFileError
from procsched.taskfile import TaskFile

if TYPE_CHECKING:
    from procsched.scheduler import ProcessScheduler

__all__ = ["check_ids", "fill", "load", "open_scheduler", "telling_authors"]

_S = TypeVar("_S")


def load(path: str) -> TaskFile:
    """The task file, or `CommandFailed`."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())  # for dotted names; python -m has it first already
    with telling_authors(path):
        return taskfile.load(path)


def open_scheduler(kind: Callable[..., _S], **arguments: Any) -> _S:
    """Make a scheduler; what it can't be made of becomes `CommandFailed`."""
    try:
        return kind(**{name: value for name, value in arguments.items() if value is not None})
    except (AlreadyRunning, ValueError, TypeError, OSError) as error:
        raise CommandFailed(str(error)) from error


def fill(scheduler: ProcessScheduler, tasks: str) -> None:
    """Schedule the jobs of the file, with those of its ``setup``, or `CommandFailed`."""
    with telling_authors(tasks):
        scheduler.load(tasks)


def check_ids(asked: Collection[str], known: Collection[str]) -> None:
    """Raise `CommandFailed` for the first id that isn't known."""
    for job_id in sorted(asked):
        if job_id in known:
            continue
        near = get_close_matches(job_id, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(known)) or 'none at all'}"
        raise CommandFailed(f"no job has the id {job_id!r}; {hint}")


@contextmanager
def telling_authors(what: str) -> Iterator[None]:
    """Turn whatever a task file raises into `CommandFailed`, with its author's frames and none of ours."""
    try:
        yield
    except (CommandFailed, PoolUnusable):
        raise
    except TaskFileError as error:
        raise CommandFailed(str(error), detail=error.user_traceback) from error
    except Exception as error:
        if tracebacks.passed_through_user_code(error):
            words = f"{what} raised {type(error).__name__}"
            raise CommandFailed(words, Status.USAGE, tracebacks.trimmed_traceback(error)) from error
        if not isinstance(error, (ProcschedError, ValueError, TypeError)):
            raise
        notes = [f". {note}" for note in getattr(error, "__notes__", ())]
        raise CommandFailed(f"{what}: {str(error).rstrip('.')}{''.join(notes)}") from error
