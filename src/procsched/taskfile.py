"""Loads a task file under one name, in the parent and in every worker, and knows the jobs that it defines. Anywhere.

A function of a file that was loaded by its path is pickled as *module name + function name*. So the same file has to be
the same module wherever it is loaded: `load` chooses the name, once, and `import_source` uses the name it is told.

| in the parent                                | in a worker                                              |
|----------------------------------------------|----------------------------------------------------------|
| ``load("jobs/tasks.py")``                    |                                                          |
| name: ``tasks``; sys.path: ``…/jobs`` first  |                                                          |
| ``source_of("tasks")`` → (name, path) ────── | ─→ ``import_source(name, path)``: once per worker's life |

The file runs with ``__name__`` set to that name, so a main behind the usual guard stays quiet. One without a guard may
build a scheduler: in a worker, and while the file is being loaded, that one is inert, its first use raises
`SchedulerClosed`, and the module counts as loaded as far as it got, on both sides alike.

Workers import this file while they boot: its own imports stay light.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from datetime import datetime
    from types import ModuleType

    from procsched.core.schedules import Schedule
    from procsched.errors import TaskFileError
    from procsched.jobs import Job
    from procsched.scheduler import ProcessScheduler

__all__ = [
    "JobDefinition",
    "TaskFile",
    "import_source",
    "is_loading",
    "job",
    "load",
    "loaded_sources",
    "passed_through_user_code",
    "source_of",
    "trimmed_traceback",
]

_F = TypeVar("_F", bound=Callable[..., Any])

_DEFINITIONS = "__procsched_jobs__"  # in the globals of the module, so that they live and die with it

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

_sources: dict[str, str] = {}  # module name -> absolute path, of every file that was loaded here
_loading: list[tuple[int, str]] = []  # (thread, path) of the files that are executing right now


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


class TaskFile:
    """A loaded task file."""

    __slots__ = ("jobs", "module", "setup", "source")

    def __init__(self, module: ModuleType, source: tuple[str, str] | None, jobs: list[JobDefinition]) -> None:
        self.module = module
        self.source = source
        """(module name, path), or None for a module that workers import in the ordinary way."""
        self.jobs = jobs
        self.setup: Callable[[Any], object] | None = getattr(module, "setup", None)
        """The file's own ``def setup(scheduler)``, which makes further jobs."""


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
            _definitions_in(home).append(definition)
        return fn

    return define


def load(path_or_module: str | os.PathLike[str] | ModuleType) -> TaskFile:
    """The jobs of a task file: a path, a module, or the dotted name of a module that can be imported.

    A path is executed once per process; loading it again gives the same module. Raises `TaskFileError`, whose
    ``user_traceback`` holds what the file itself raised, if it did.
    """
    if not isinstance(path_or_module, (str, os.PathLike)):
        return _read(path_or_module, str(getattr(path_or_module, "__file__", path_or_module.__name__)), None)
    text = os.fspath(path_or_module)
    if _is_dotted_name(text):
        return _load_dotted(text)
    path = _checked_path(text)
    name = _name_for(path)
    if (get_ident(), path) in _loading:
        raise _unusable(f'{text} loads itself. Put that part behind: if __name__ == "__main__":')
    try:
        import_source(name, path)
    except (Exception, SystemExit) as error:
        raise _load_error(text, error) from error
    return _read(sys.modules[name], text, (name, path))


def source_of(module_name: str) -> tuple[str, str] | None:
    """(module name, path) when that module is a task file loaded here: a worker has to load it the same way."""
    path = _sources.get(module_name)
    return None if path is None else (module_name, path)


def loaded_sources() -> list[tuple[str, str]]:
    """(module name, path) of every task file loaded here, in the order in which they were."""
    return list(_sources.items())


def is_loading() -> bool:
    """Whether this thread is executing a task file: a scheduler that the file builds at its top level is inert."""
    return any(thread == get_ident() for thread, _ in _loading)


def import_source(module_name: str, path: str) -> None:
    """Load a file as that module, unless it is already. What the file raises passes through, and leaves no module."""
    present = sys.modules.get(module_name)
    if present is not None and _is_file_of(present, path):
        _sources.setdefault(module_name, path)
        return
    import importlib.util

    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} can't be loaded as a Python file", name=module_name, path=path)
    directory = os.path.dirname(path)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    _loading.append(entry := (get_ident(), path))
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        if not _met_inert_scheduler(error):  # an unguarded main: what was defined before it is there
            if present is None:
                del sys.modules[module_name]
            else:
                sys.modules[module_name] = present
            raise
    finally:
        _loading.remove(entry)
    _sources[module_name] = path


# ---------------------------------------------------------------------------------------------------------- the file


def _is_dotted_name(text: str) -> bool:
    if text.endswith(".py") or os.path.exists(text):
        return False
    return all(part.isidentifier() for part in text.split("."))


def _load_dotted(name: str) -> TaskFile:
    import importlib

    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f". Did you mean {name}.py?" if os.path.exists(f"{name}.py") else ""
            raise _unusable(f"there is no file {name}, and no module of that name can be imported{hint}") from error
        raise _load_error(name, error) from error
    except (Exception, SystemExit) as error:
        raise _load_error(name, error) from error
    return _read(module, name, None)


def _checked_path(text: str) -> str:
    if os.path.isdir(text):
        inside = os.path.join(text, "tasks.py")
        hint = f"did you mean {inside}?" if os.path.isfile(inside) else "name the Python file that has the jobs"
        raise _unusable(f"{text} is a folder: {hint}")
    if not os.path.exists(text):
        raise _unusable(f"there is no file {text} (looked in {os.getcwd()}){_similar(text)}")
    if not text.endswith(".py"):
        raise _unusable(f"{text} isn't a Python file: the name of a task file ends in .py")
    if not os.access(text, os.R_OK):
        raise _unusable(f"{text} can't be read: permission denied")
    return os.path.realpath(text)


def _similar(text: str) -> str:
    import difflib

    directory, name = os.path.split(text)
    try:
        names = [entry for entry in os.listdir(directory or ".") if entry.endswith(".py")]
    except OSError:
        return ""
    near = difflib.get_close_matches(name, names, 1)
    return f". Did you mean {os.path.join(directory, near[0])}?" if near else ""


def _name_for(path: str) -> str:
    """The stem, if that is free; else a name that depends on nothing but the path."""
    for name, known in _sources.items():
        if known == path:
            return name
    stem = os.path.basename(path)[:-3]
    if stem.isidentifier() and stem not in sys.stdlib_module_names and stem not in ("__main__", "procsched"):
        present = sys.modules.get(stem)
        if present is None or _is_file_of(present, path):
            return stem
    import zlib

    readable = "".join(c if c.isalnum() else "_" for c in stem)
    return f"tasks_{readable}_{zlib.crc32(path.encode('utf-8', 'surrogateescape')):08x}"


def _is_file_of(module: ModuleType, path: str) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and os.path.realpath(file) == path


# ---------------------------------------------------------------------------------------------------------- its jobs


def _definitions_in(home: dict[str, Any]) -> list[JobDefinition]:
    """The list that the globals of a module keep; a new one when the module was reloaded, in the same globals."""
    spec = home.get("__spec__")
    made_for, definitions = home.get(_DEFINITIONS, (spec, None))
    if definitions is None or made_for is not spec:
        definitions = []
        home[_DEFINITIONS] = (spec, definitions)
    return cast("list[JobDefinition]", definitions)


def _read(module: ModuleType, shown: str, source: tuple[str, str] | None) -> TaskFile:
    task_file = TaskFile(module, source, list(_definitions_in(vars(module))))
    places: dict[str, str] = {}
    for definition in task_file.jobs:
        if definition.id in places:
            first, second = sorted((places[definition.id], definition.place), key=_line_order)
            raise _unusable(
                f"{shown} defines the job id {definition.id!r} twice: at {first} and at {second}."
                ' Give one of them another id: @job(…, id="another")'
            )
        places[definition.id] = definition.place
    if task_file.setup is not None and not callable(task_file.setup):
        raise _unusable(f"setup in {shown} isn't a function: it should be def setup(scheduler), or have another name")
    if not task_file.jobs and task_file.setup is None:
        raise _unusable(
            f'{shown} defines no job: put @job(FixedRate("30s")) above a function, or define setup(scheduler)'
            f"{_jobs_elsewhere(module)}"
        )
    return task_file


def _line_order(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(":")
    return file, int(line)


def _jobs_elsewhere(module: ModuleType) -> str:
    """Imported functions are not jobs of the importer; whoever expects that is told what to write."""
    for value in vars(module).values():
        home = sys.modules.get(getattr(value, "__module__", None) or "")
        if home is not None and home is not module and _DEFINITIONS in vars(home):
            name = home.__name__
            return f". The jobs that it imports are those of {name}: def setup(scheduler): scheduler.load({name})"
    return ""


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


# ------------------------------------------------------------------------------------------------------------ errors
# The module of that name drags in concurrent.futures.process, 15 ms that each worker would pay at boot.


def _unusable(message: str, user_traceback: str = "") -> TaskFileError:
    from procsched.errors import TaskFileError

    error = TaskFileError(message)
    error.user_traceback = user_traceback
    return error


def _met_inert_scheduler(error: BaseException) -> bool:
    errors = sys.modules.get("procsched.errors")
    return errors is not None and isinstance(error, errors.SchedulerClosed)


def _load_error(shown: str, error: BaseException) -> TaskFileError:
    """What the file raised, told with its own traceback: no frame of ours or of importlib in it."""
    from procsched.errors import TaskFileError

    if isinstance(error, TaskFileError):  # a task file that loads another one
        return error
    if isinstance(error, ValueError) and not passed_through_user_code(error):  # bytes of 0, before Python 3.11.4
        what = f"{shown} can't be parsed: {error}"
    elif isinstance(error, SyntaxError):
        line = f" (line {error.lineno})" if error.lineno else ""
        sibling = error.filename is not None and os.path.basename(error.filename) != os.path.basename(shown)
        what = f"{shown} {f'imports {error.filename}, which ' if sibling else ''}can't be parsed: {error.msg}{line}"
    elif isinstance(error, SystemExit):
        what = f"{shown} called sys.exit({error.code!r}) while it was loaded."
        what += ' Put that behind: if __name__ == "__main__":'
    else:
        what = f"{shown} raised {type(error).__name__} while it was loaded{_import_hint(shown, error)}"
    return _unusable(what, trimmed_traceback(error))


def _import_hint(shown: str, error: BaseException) -> str:
    if isinstance(error, ImportError) and "relative import" in str(error) and shown.endswith(".py"):
        return f". {shown} is loaded by its path, as no part of a package: import siblings by name, without the dot"
    if isinstance(error, ModuleNotFoundError):
        return f". Is {error.name} installed for {sys.executable}? Modules beside the file are found as well"
    return ""


def passed_through_user_code(error: BaseException) -> bool:
    """Whether the traceback of the error itself, its causes aside, has a frame that is neither ours nor importlib's."""
    frames = error.__traceback__
    while frames is not None:
        if not _is_ours(frames.tb_frame.f_code.co_filename):
            return True
        frames = frames.tb_next
    return False


def trimmed_traceback(error: BaseException) -> str:
    """The traceback of an error as its author should see it: frames of procsched and of importlib are left out."""
    import traceback

    shown = traceback.TracebackException.from_exception(error)
    seen: set[int] = set()

    def trim(one: traceback.TracebackException | None) -> None:
        if one is None or id(one) in seen:
            return
        seen.add(id(one))
        kept = [frame for frame in one.stack if not _is_ours(frame.filename)]
        one.stack = traceback.StackSummary.from_list(kept)
        trim(one.__cause__)
        trim(one.__context__)
        for inner in one.exceptions or ():
            trim(inner)

    trim(shown)
    return "".join(shown.format())


_OURS = (os.path.dirname(os.path.abspath(__file__)) + os.sep, "<frozen importlib")


def _is_ours(filename: str) -> bool:
    return filename.startswith(_OURS)
