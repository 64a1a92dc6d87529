"""Each mistake in a task file is told with what, where and how to mend it, and without a frame of ours."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import procsched
from procsched import TaskFileError, taskfile

Write = Callable[..., Path]


def mistake(path: Path | str) -> TaskFileError:
    """Load it, in vain."""
    with pytest.raises(TaskFileError) as caught:
        taskfile.load(path)
    error = caught.value
    assert os.path.dirname(procsched.__file__) not in error.user_traceback
    assert "importlib" not in error.user_traceback
    return error


def test_a_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it was looked for, and which file may be meant."""
    monkeypatch.chdir(tmp_path)
    Path("work_tasks.py").touch()
    error = mistake("work_taks.py")
    assert str(tmp_path) in str(error)
    assert "Did you mean work_tasks.py?" in str(error)


def test_a_folder(write: Write) -> None:
    path = write("", "work/tasks.py")
    assert f"did you mean {path}?" in str(mistake(path.parent))


def test_a_file_that_is_not_python(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.touch()
    assert "ends in .py" in str(mistake(path))


def test_a_name_that_is_neither_file_nor_module() -> None:
    assert "no module of that name" in str(mistake("work_nowhere"))


def test_a_syntax_error(write: Write) -> None:
    """File, line and caret, as Python shows them."""
    error = mistake(write("x = 1\ndef broken(:\n    pass\n"))
    assert "can't be parsed" in str(error)
    assert "(line 2)" in str(error)
    assert 'work_tasks.py", line 2' in error.user_traceback
    assert "^" in error.user_traceback


def test_a_syntax_error_of_a_module_that_it_imports(write: Write) -> None:
    write("def broken(:\n", "work_helpers.py")
    assert "work_helpers.py" in str(mistake(write("import work_helpers\n")))


@pytest.mark.parametrize("content", [b"x = '\xff'\n", b"x = 1\0\n"])
def test_bytes_that_are_no_text(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "work_tasks.py"
    path.write_bytes(content)
    assert "can't be parsed" in str(mistake(path))


def test_an_exception_of_the_file(write: Write) -> None:
    """The author's own traceback with its cause, and the exception itself as the cause of ours."""
    error = mistake(
        write("""
            def connect():
                try: {}["host"]
                except KeyError as e: raise ValueError("no host") from e
            connect()
        """)
    )
    assert "raised ValueError" in str(error)
    assert isinstance(error.__cause__, ValueError)
    assert "KeyError: 'host'" in error.user_traceback
    assert "in connect" in error.user_traceback


def test_a_failed_load_leaves_no_module_and_can_be_mended(write: Write) -> None:
    path = write("raise ValueError('not yet')\n")
    mistake(path)
    assert "work_tasks" not in sys.modules
    path.write_text("def setup(scheduler): ...\n# mended\n")
    assert taskfile.load(path).setup is not None


def test_a_missing_import(write: Write) -> None:
    error = mistake(write("import work_not_installed\n"))
    assert f"Is work_not_installed installed for {sys.executable}?" in str(error)


def test_a_relative_import(write: Write) -> None:
    assert "without the dot" in str(mistake(write("from . import helpers\n")))


def test_a_call_of_sys_exit(write: Write) -> None:
    error = mistake(write("import sys\nsys.exit(3)\n"))
    assert "sys.exit(3)" in str(error)
    assert "__main__" in str(error)


def test_no_job_at_all(write: Write) -> None:
    assert "defines no job: put @job(" in str(mistake(write("x = 1\n")))


def test_only_jobs_of_another_file(write: Write) -> None:
    write("from procsched import After, job\n@job(After('1s'))\ndef work(): ...\n", "work_other.py")
    assert "scheduler.load(work_other)" in str(mistake(write("from work_other import work\n")))


def test_a_setup_that_is_no_function(write: Write) -> None:
    assert "isn't a function" in str(mistake(write("setup = 3\n")))


def test_the_same_id_twice(write: Write) -> None:
    """Both places, in the order of the file."""
    path = write("""
        from procsched import After, job

        @job(After("1s"))
        def work(): ...

        @job(After("2s"), id="work")
        def other(): ...
    """)
    assert f"at {path}:4 and at {path}:7." in str(mistake(path))


def test_two_functions_of_one_name(write: Write) -> None:
    """The second one hides the first from the module, but not from us."""
    path = write("""
        from procsched import After, job
        @job(After("1s"))
        def work(): ...
        @job(After("2s"))
        def work(): ...
    """)
    assert "twice" in str(mistake(path))


def test_two_decorators_with_one_id(write: Write) -> None:
    path = write("""
        from procsched import After, job
        @job(After("1s"))
        @job(After("2s"))
        def work(): ...
    """)
    assert f"at {path}:3 and at {path}:4." in str(mistake(path))


def test_a_loop_that_forgets_the_id(write: Write) -> None:
    """One line, the same id three times: all at one place, and still a mistake."""
    path = write("""
        from procsched import After, job
        for n in range(3):
            @job(After("1s"), args=(n,))
            def work(n): ...
    """)
    assert "'work' twice" in str(mistake(path))


def test_two_decorators_with_two_ids(write: Write) -> None:
    """That is how one function becomes two jobs."""
    loaded = taskfile.load(
        write("""
            from procsched import After, job
            @job(After("1s"), id="soon")
            @job(After("1h"), id="late")
            def work(): ...
        """)
    )
    assert [definition.id for definition in loaded.jobs] == ["late", "soon"]


def test_a_file_that_loads_itself(write: Write) -> None:
    path = write("from procsched import taskfile\ntaskfile.load(__file__)\n")
    assert "loads itself" in str(mistake(path))


@pytest.mark.parametrize(
    ("decorated", "words"),
    [
        ("@job(After('1s'))\nasync def work(): ...", "async function"),
        ("@job(After('1s'))\ndef work(): yield 1", "generator function"),
        ("import functools\nasync def w(): ...\njob(After('1s'))(functools.partial(w))", "async function"),
        ("@job\ndef work(): ...", "write @job(FixedRate"),
        ("@job(30)\ndef work(): ...", "wants a schedule, not 30"),
        ("@job('30s')\ndef work(): ...", "wants a schedule, not '30s'"),
        ("@job(After)\ndef work(): ...", "wants a schedule"),
        ("@job(After('1s'), max_instance=2)\ndef work(): ...", "did you mean max_instances?"),
        ("@job(After('1s'), quickly=True)\ndef work(): ...", "there are: args, id"),
        ("job(After('1s'))(3)", "can't be called"),
    ],
)
def test_a_wrong_decorator(write: Write, decorated: str, words: str) -> None:
    """Told where it stands: in the author's own traceback."""
    error = mistake(write(f"from procsched import After, job\n{decorated}\n"))
    assert words in error.user_traceback
    assert "work_tasks.py" in error.user_traceback
