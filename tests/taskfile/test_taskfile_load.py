"""A task file becomes one module, the same one wherever it is loaded."""

from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from procsched import taskfile

Write = Callable[..., Path]

ONE_JOB = """
    from procsched import After, job

    @job(After("1s"))
    def work(): return __name__
"""


def test_the_jobs_of_a_file_are_its_decorated_functions(write: Write) -> None:
    """In the order in which they stand, with their options; the functions stay as they are."""
    loaded = taskfile.load(
        write("""
            from procsched import After, job

            @job(After("1s"))
            def first(): return 1

            @job(After("2s"), id="other", tags=("a",), args=(7,))
            def second(x): return x
        """)
    )
    assert [definition.id for definition in loaded.jobs] == ["first", "other"]
    assert loaded.jobs[0].options == {"id": "first"}
    assert loaded.jobs[1].options == {"id": "other", "tags": ("a",), "args": (7,)}
    assert loaded.module.first() == 1
    assert loaded.jobs[0].fn is loaded.module.first


def test_the_module_is_called_like_the_file(write: Write) -> None:
    """So that what it defines is pickled by a name that people recognise."""
    path = write(ONE_JOB)
    loaded = taskfile.load(path)
    assert loaded.module.__name__ == "work_tasks"
    assert loaded.module.work() == "work_tasks"
    assert loaded.source == ("work_tasks", str(path.resolve()))
    assert taskfile.source_of("work_tasks") == loaded.source
    assert sys.modules["work_tasks"] is loaded.module


def test_a_file_is_executed_once(write: Write) -> None:
    """Loading it again, by whatever spelling of its path, gives the same module."""
    path = write(ONE_JOB)
    first = taskfile.load(path)
    again = taskfile.load(os.path.relpath(path))
    assert again.module is first.module
    assert again.jobs == first.jobs


@pytest.mark.parametrize("name", ["json.py", "my tasks.py", "2024.py", "procsched.py", "import.py"])
def test_a_name_that_is_taken_gives_way_to_a_derived_one(write: Write, name: str) -> None:
    """The standard library stays what it is, and the derived name depends on the path alone."""
    json = sys.modules["json"] if name == "json.py" else None
    loaded = taskfile.load(write(ONE_JOB, name))
    derived = loaded.module.__name__
    if name == "import.py":  # a keyword is no obstacle: nobody has to write it
        assert derived == "import"
        return
    assert derived.startswith("tasks_")
    assert derived.isidentifier()
    assert taskfile.name_for(loaded.source[1]) == derived
    if json is not None:
        assert sys.modules["json"] is json


def test_two_files_of_one_name_are_two_modules(write: Write) -> None:
    """tasks.py of one project beside tasks.py of another."""
    one = taskfile.load(write(ONE_JOB, "one/work_tasks.py"))
    two = taskfile.load(write(ONE_JOB, "two/work_tasks.py"))
    assert one.module is not two.module
    assert one.source != two.source
    assert one.source[0] == "work_tasks"


def test_modules_beside_the_file_can_be_imported(write: Write) -> None:
    """From whatever directory it is loaded."""
    write("FACTOR = 3\n", "work_helpers.py")
    loaded = taskfile.load(
        write("""
            from procsched import After, job
            from work_helpers import FACTOR

            @job(After("1s"))
            def work(): return FACTOR
        """)
    )
    assert loaded.module.work() == 3


def test_classes_of_the_file_keep_their_identity(write: Write) -> None:
    """A dataclass of it can be pickled and comes back as the same class."""
    loaded = taskfile.load(
        write("""
            from dataclasses import dataclass
            from procsched import After, job

            @dataclass
            class Point:
                x: int

            @job(After("1s"))
            def work(): return Point(1)
        """)
    )
    point = pickle.loads(pickle.dumps(loaded.module.work()))
    assert type(point) is loaded.module.Point
    assert dataclasses.asdict(point) == {"x": 1}


def test_the_other_side_loads_it_under_the_name_that_it_is_told(write: Write) -> None:
    """What was pickled here by reference can be read in another interpreter, in another directory."""
    loaded = taskfile.load(write(ONE_JOB, "json.py"))
    code = (
        "import pickle, sys; from procsched.taskfile import import_source;"
        f"import_source(*{loaded.source!r}); import_source(*{loaded.source!r});"
        f"print(pickle.loads({pickle.dumps(loaded.module.work)!r})())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True)
    assert done.stdout.strip() == loaded.module.__name__


def test_the_usual_guard_stays_closed(write: Write) -> None:
    """The file isn't __main__, and knows."""
    loaded = taskfile.load(write(ONE_JOB + '\n    if __name__ == "__main__": raise SystemExit("ran")\n'))
    assert len(loaded.jobs) == 1


def test_an_unguarded_main_meets_an_inert_scheduler(write: Write) -> None:
    """What was defined before it counts; and the file knows that it is being loaded."""
    loaded = taskfile.load(
        write(ONE_JOB + "\n    from procsched import SchedulerClosed, taskfile\n    raise SchedulerClosed('inert')\n")
    )
    assert [definition.id for definition in loaded.jobs] == ["work"]
    assert not taskfile.is_loading()


def test_only_the_loading_thread_is_loading(write: Write) -> None:
    """A scheduler of another thread works on meanwhile."""
    seen: list[bool] = []
    ask = threading.Thread(target=lambda: seen.append(taskfile.is_loading()))
    sys.modules["work_asker"] = ask  # type: ignore[assignment]
    path = write(
        """
        import sys
        from procsched import After, job, taskfile
        here = taskfile.is_loading()
        sys.modules["work_asker"].start()
        sys.modules["work_asker"].join()

        @job(After("1s"))
        def work(): ...
        """
    )
    loaded = taskfile.load(path)
    assert loaded.module.here is True
    assert seen == [False]


def test_setup_is_kept(write: Write) -> None:
    """It is called later, with a scheduler; and it is enough, without any @job."""
    loaded = taskfile.load(write("def setup(scheduler): scheduler.append(1)\n"))
    assert loaded.jobs == []
    made: list[int] = []
    assert loaded.setup is not None
    loaded.setup(made)
    assert made == [1]


def test_a_module_is_as_good_as_its_path(write: Write) -> None:
    """One that was imported in the ordinary way needs no source: workers import it too."""
    path = write(ONE_JOB, "work_module.py")
    sys.path.insert(0, str(path.parent))
    by_name = taskfile.load("work_module")
    by_object = taskfile.load(sys.modules["work_module"])
    assert by_name.source is None
    assert by_name.jobs == by_object.jobs
    assert [definition.id for definition in by_name.jobs] == ["work"]


def test_a_reloaded_module_has_its_jobs_once(write: Write) -> None:
    """importlib.reload executes a file in the same globals."""
    import importlib

    path = write(ONE_JOB, "work_module.py")
    sys.path.insert(0, str(path.parent))
    module = taskfile.load("work_module").module
    assert len(taskfile.load(importlib.reload(module)).jobs) == 1


def test_a_helper_that_wraps_the_decorator_defines_jobs_of_the_file(write: Write) -> None:
    """The job is that of the file in which the function stands, not of the helper's."""
    write("from procsched import After, job\ndef soon(fn): return job(After('1s'))(fn)\n", "work_helpers.py")
    loaded = taskfile.load(write("from work_helpers import soon\n@soon\ndef work(): ...\n"))
    assert [definition.id for definition in loaded.jobs] == ["work"]


def test_imported_jobs_belong_to_the_file_that_defines_them(write: Write) -> None:
    """Importing a function to call it doesn't schedule it a second time."""
    write(ONE_JOB, "work_other.py")
    loaded = taskfile.load(
        write("""
            from procsched import After, job
            from work_other import work

            @job(After("1s"))
            def mine(): work()
        """)
    )
    assert [definition.id for definition in loaded.jobs] == ["mine"]


def test_the_module_is_light() -> None:
    """Workers import it while they boot."""
    code = "import sys, procsched.taskfile; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"concurrent.futures", "multiprocessing", "logging", "inspect", "dataclasses", "importlib.util", "datetime"}
    assert not heavy & set(done.stdout.split())
