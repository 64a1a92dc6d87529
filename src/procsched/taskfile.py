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
from typing import TYPE_CHECKING, Any

from procsched import sources
from procsched.definitions import DEFINITIONS, definitions_in
from procsched.tracebacks import passed_through_user_code, trimmed_traceback

if TYPE_CHECKING:
    from types import ModuleType

    from procsched.definitions import JobDefinition
    from procsched.errors import TaskFileError

__all__ = ["TaskFile", "checked_path", "import_source", "is_loading", "load", "name_for", "source_of"]

_sources: dict[str, str] = {}  # module name -> absolute path, of every file that was loaded here
_loading: list[tuple[int, str]] = []  # (thread, path) of the files that are executing right now


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
    path = checked_path(text)
    name = name_for(path)
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

    loader = sources.loader_for(module_name, path)
    if loader is None:
        spec = importlib.util.spec_from_file_location(module_name, path)
    else:
        spec = importlib.util.spec_from_file_location(module_name, path, loader=loader)
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


def checked_path(text: str) -> str:
    """The real path of a task file; `TaskFileError` if it is none."""
    if os.path.isdir(text):
        inside = os.path.join(text, "tasks.py")
        hint = f"did you mean {inside}?" if os.path.isfile(inside) else "name the Python file that has the jobs"
        raise _unusable(f"{text} is a folder: {hint}")
    if not os.path.exists(text):
        raise _unusable(f"there is no file {text} (looked in {os.getcwd()}){_similar(text)}")
    if not text.endswith(".py"):
        raise _unusable(f"{text} isn't a Python file: the name of a task file ends in .py")
    if not os.path.isfile(text):  # reading a pipe would wait for whoever writes to it
        raise _unusable(f"{text} isn't a file but a pipe, a socket or a device")
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


def name_for(path: str) -> str:
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


def _read(module: ModuleType, shown: str, source: tuple[str, str] | None) -> TaskFile:
    task_file = TaskFile(module, source, list(definitions_in(vars(module))))
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
        if home is not None and home is not module and DEFINITIONS in vars(home):
            name = home.__name__
            return f". The jobs that it imports are those of {name}: def setup(scheduler): scheduler.load({name})"
    return ""


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
