"""What can be called in the parent can be called in a first, and equally in a replacement, worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import procsched
from procsched import After, ProcessScheduler


@pytest.mark.case("B28")
def test_a_task_file_in_replacement_workers(run: Any, write: Any, tmp_path: Path) -> None:
    """Helpers, constants, classes and modules beside the file, from elsewhere, in every worker's life."""
    write("LIMIT = 7\ndef double(x): return 2 * x", name="site/helpers.py", head="")
    path = write(
        """
        import os
        from dataclasses import dataclass
        import helpers

        @dataclass
        class Point: x: int
        ORIGIN = Point(0)
        def moved(): return Point(helpers.double(helpers.LIMIT))

        def setup(scheduler):
            for n in range(3): scheduler.schedule(work, After(0), args=(ORIGIN,), id=f"work{n}")

        def work(origin):
            assert type(origin) is Point and moved() == Point(14)
            print("pid", os.getpid(), flush=True)
            os.abort() if current_run().job_id == "work1" else None
        """,
        name="site/tasks.py",
    )
    (tmp_path / "elsewhere").mkdir()
    program = run("run", path, "--workers", 1, "--until-idle", cwd=tmp_path / "elsewhere")
    assert len({line for line in program.stdout.splitlines() if line.startswith("pid")}) == 2
    assert program.stderr.count("succeeded") == 2 and program.stderr.count("SIGABRT") >= 1


@pytest.mark.case("B30")
def test_a_task_file_is_imported_once_per_worker_life(run: Any, write: Any, tmp_path: Path) -> None:
    """Not once per run; and its import starts nothing there."""
    log = tmp_path / "imports"
    path = write(f"""
        import os
        with open({str(log)!r}, "a") as file: file.write(f"{{os.getpid()}}\\n")
        scheduler = ProcessScheduler(workers=3)
        try:
            scheduler.submit(print, "a second scheduler")
        except SchedulerClosed: ...

        @job(FixedDelay("5ms").times(10))
        def first(): ...
        @job(FixedDelay("5ms").times(10))
        def second(): ...
    """)
    program = run("run", path, "--workers", 2, "--until-idle")
    pids = log.read_text().split()
    assert len(pids) == len(set(pids)) <= 3  # the parent, and its workers
    assert "a second scheduler" not in program.stdout


@pytest.mark.case("B31")
def test_an_unguarded_script_whose_worker_is_replaced(program: Any) -> None:
    """The script is executed once, by its parent; replacements know its functions all the same."""
    done = program(
        """
        print("script")
        def work(): return os.getpid()
        s = ProcessScheduler(workers=1)
        first = s.submit(work).result()
        os.kill(first, signal.SIGKILL)
        print(s.submit(work).result() != first)
        s.shutdown()
        """
    )
    assert (done.returncode, done.stdout.split()) == (0, ["script", "True"]), done.stderr


@pytest.mark.case("B33")
def test_functions_typed_at_a_prompt() -> None:
    """The definition that was there at the call is the one that runs; an error in one leaves the others alone."""
    typed = """
from procsched import *
s = ProcessScheduler(workers=1)
def f(): return helper() + 1

def helper(): return 1

print("first", s.schedule(f, After("1h"), id="f").run_now().result())
def helper(): return 10

def g(): return 1 / 0

print("failed", type(s.submit(g).exception()).__name__)
print("second", s.schedule(f, After("1h"), id="f", replace_existing=True).run_now().result())
s.shutdown()
"""
    done = subprocess.run(
        [sys.executable, "-i", "-q", "-c", ""],
        input=typed,
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": str(Path(procsched.__file__).parents[1])},
        check=False,
    )
    words = [
        line.split()[-2:] for line in done.stdout.replace(">>>", "").replace("...", "").splitlines() if line.strip()
    ]
    assert words == [["first", "2"], ["failed", "ZeroDivisionError"], ["second", "11"]], done.stderr


@pytest.mark.case("B34")
def test_callables_of_every_kind_in_a_replacement(one: ProcessScheduler, up: Any) -> None:
    """Lambda, closure, partial, method, instance: a method acts on a copy of its object."""
    from functools import partial

    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def add(self) -> int:
            self.count += 1
            return self.count

        __call__ = add

    def make_adder(n: int) -> Any:
        return lambda x: x + n

    counter = Counter()
    calls = [lambda: 1, partial(make_adder(1), 0), partial(max, 1, 0), counter.add, counter]
    jobs = [one.schedule(call, After("1h")) for call in calls]
    for _ in range(2):
        assert [job.run_now().result(30) for job in jobs] == [1] * 5
        [pid] = up(one)
        os.kill(pid, signal.SIGKILL)
    assert counter.count == 0


@pytest.mark.case("B36")
def test_what_would_only_make_a_coroutine_is_refused_early(one: ProcessScheduler, run: Any, write: Any) -> None:
    """At the call, and when a task file is loaded: never as a success without execution."""
    from functools import partial

    async def work() -> None: ...

    def generate() -> Any:
        yield

    for fn in (work, generate, partial(work)):
        with pytest.raises(TypeError, match=r"coroutine|generator|async"):
            one.schedule(fn, After(0))
    assert one.get_jobs() == []
    program = run("run", write("@job(After(0))\nasync def work(): ..."), status=2)
    assert "async" in program.stderr and "succeeded" not in program.stderr
