"""Ends of programs that use a scheduler: quiet, with status 0, in bounded time, and nothing left."""

from __future__ import annotations

import time
from typing import Any

import pytest


@pytest.mark.case("B45")
def test_forgetting_shutdown_is_harmless(program: Any) -> None:
    """Submitted calls complete, delayed ones and jobs don't hold the program."""
    done = program(
        """
        def say(n):
            time.sleep(0.05); print("call", n)
        s = ProcessScheduler(workers=2)
        for n in range(6):
            s.submit(say, n)
        s.schedule(print, FixedRate("1h", initial_delay="1h"), args=("never",))
        s.submit_after("1h", print, "never")
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [f"call {n}" for n in range(6)]


@pytest.mark.case("B45")
def test_a_busy_job_at_the_end(program: Any) -> None:
    """A job every 10 ms, and the main thread simply ends: no complaint about scheduling after shutdown."""
    for _ in range(3):
        done = program(
            """
            s = ProcessScheduler(workers=1)
            s.schedule(int, FixedRate("10ms"))
            s.submit(int).result()
            """
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("stop", ["", "s.shutdown(wait=False)"])
@pytest.mark.case("B37")
def test_a_jobs_run_gets_one_second(program: Any, stop: str) -> None:
    """A scheduled job's run that hangs is ended after it, also after `wait=False`."""
    started = time.monotonic()
    done = program(
        f"""
        def hang(path):
            open(path, "w").close()
            time.sleep(1000)
        s = ProcessScheduler(workers=1)
        s.schedule(hang, After(0), args=("begun",))
        while not os.path.exists("begun"):
            time.sleep(0.01)
        {stop}
        """
    )
    assert done.returncode == 0 and time.monotonic() - started < 6
    assert "Traceback" not in done.stderr and "resource_tracker" not in done.stderr


def test_a_jobs_run_that_ends_in_time(program: Any) -> None:
    """Within that second it completes."""
    done = program(
        """
        def work(path):
            open(path, "w").close()
            time.sleep(0.3)
            print("done")
        s = ProcessScheduler(workers=1)
        s.schedule(work, After(0), args=("begun",))
        while not os.path.exists("begun"):
            time.sleep(0.01)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_wait_false_lets_calls_complete(program: Any) -> None:
    """As with `concurrent.futures`."""
    done = program(
        """
        def say(n):
            time.sleep(0.1); print("call", n)
        s = ProcessScheduler(workers=1)
        futures = [s.submit(say, n) for n in range(3)]
        s.shutdown(wait=False)
        """
    )
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, ["call 0", "call 1", "call 2"], "")


def test_an_error_in_main(program: Any) -> None:
    """Its traceback and status 1, nothing else."""
    done = program(
        """
        with ProcessScheduler(workers=1) as s:
            s.submit(int).result()
            s.schedule(int, FixedRate("10ms"))
            raise ValueError("mine")
        """
    )
    assert done.returncode == 1 and done.stderr.count("Traceback") == 1 and "ValueError: mine" in done.stderr


def test_sys_exit_with_work_pending(program: Any) -> None:
    """The status is the user's own."""
    done = program(
        """
        s = ProcessScheduler(workers=1)
        s.submit(print, "call")
        sys.exit(5)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (5, "call\n", "")


def test_a_fork_of_the_parent_is_inert(program: Any) -> None:
    """In the copy calls raise, its end is quiet, and the original goes on."""
    done = program(
        """
        s = ProcessScheduler(workers=1)
        job = s.schedule(int, FixedRate("1h"))
        print(s.submit(abs, -1).result())
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            calls = [lambda: s.submit(int), lambda: s.schedule(int, After(1)), lambda: s.submit_after(1, int),
                     job.run_now, job.cancel, job.pause, job.resume, s.get_jobs, s.stats, s.health, s.workers, s.wait,
                     lambda: s.get_job("a"), lambda: s.cancel("a"), s.pause, s.resume, job.next_future, job.results,
                     job.wait, lambda: s.subscribe(print), lambda: job.reschedule(After(1)), lambda: s.map(int, "12")]
            raised = 0
            for call in calls:
                try:
                    call()
                except SchedulerClosed as error:
                    raised += "forked copy" in str(error)
            print("raised", raised == len(calls), raised)
            s.shutdown()
            with s: pass
            sys.exit(0)
        print("child", os.waitpid(pid, 0)[1])
        print(s.submit(abs, -2).result())
        s.shutdown()
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["1", "raised True 22", "child 0", "2"]


@pytest.mark.case("B82")
def test_a_scheduler_in_a_worker_is_inert(program: Any) -> None:
    """A module may have one; using it there raises."""
    done = program(
        """
        def inside():
            own = ProcessScheduler(workers=2)
            said = []
            for call in (lambda: own.submit(int), lambda: own.schedule(int, After(1)), own.get_jobs, own.wait,
                         own.stats, own.health, own.workers):
                try:
                    call()
                    said.append("nothing")
                except SchedulerClosed as error:
                    said.append("worker" in str(error))
            own.shutdown()
            return said
        with ProcessScheduler(workers=1) as s:
            print(s.submit(inside).result())
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{[True] * 7}\n", "")


@pytest.mark.case("B31")
def test_a_program_without_a_main_guard(program: Any) -> None:
    """`__main__` isn't run again in workers, replacements included."""
    done = program(
        """
        print("once", flush=True)
        class Thing:
            def __init__(self, n): self.n = n
        def work(thing): return Thing(thing.n + 1)
        with ProcessScheduler(workers=1, max_tasks_per_child=1) as s:
            print([s.submit(work, Thing(n)).result().n for n in range(3)])
            print(type(s.submit(work, Thing(0)).result()) is Thing)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "once\n[1, 2, 3]\nTrue\n", "")


def test_keyboard_interrupt_passes_through_wait(program: Any) -> None:
    """Ctrl-C in wait() raises there; leaving `with` ends everything."""
    done = program(
        """
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        with ProcessScheduler(workers=1) as s:
            s.schedule(int, FixedRate("10ms"))
            timer.start()
            try:
                s.wait()
            except KeyboardInterrupt:
                print("interrupted")
            print(s.submit(abs, -1).result())
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n1\n", "")


def test_an_interrupt_to_the_whole_group(program: Any) -> None:
    """As a terminal sends it: workers don't answer, one traceback is the parent's own."""
    done = program(
        """
        def work():
            time.sleep(0.4)
            return "survived"
        with ProcessScheduler(workers=2) as s:
            list(s.map(abs, range(4)))
            future = s.submit(work)
            time.sleep(0.1)
            try:
                os.killpg(os.getpgid(0), signal.SIGINT)
                time.sleep(5)
            except KeyboardInterrupt:
                pass
            print(future.result())
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "survived\n", "")


@pytest.mark.case("B44")
def test_library_use_installs_no_signal_handlers(program: Any) -> None:
    """Also in a thread that isn't the main one."""
    done = program(
        """
        before = [signal.getsignal(n) for n in range(1, 65)]
        def use():
            with ProcessScheduler(workers=1) as s:
                print(s.submit(abs, -1).result())
        thread = threading.Thread(target=use)
        thread.start(); thread.join()
        use()
        print(before == [signal.getsignal(n) for n in range(1, 65)])
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n1\nTrue\n", "")


def test_an_unreferenced_scheduler_ends_itself(program: Any) -> None:
    """When nothing is left to run and nobody holds it, its workers and threads go."""
    done = program(
        """
        import gc
        def use():
            s = ProcessScheduler(workers=1)
            return s.submit(os.getpid), s.submit(time.sleep, 0.3)
        first, last = use()
        gc.collect()
        pid = first.result()
        last.result()
        deadline = time.monotonic() + 10
        while threading.active_count() > 1 or os.path.exists(f"/proc/{pid}"):
            assert time.monotonic() < deadline, threading.enumerate()
            time.sleep(0.01)
        print("gone")
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "gone\n", "")


def test_an_unused_scheduler_lets_go_of_its_lock(program: Any) -> None:
    """Collected without having been used, it holds no lock file."""
    done = program(
        """
        import gc
        s = ProcessScheduler(workers=1, single_instance="lock")
        del s
        gc.collect()
        with ProcessScheduler(workers=1, single_instance="lock") as s:
            print(s.submit(abs, -1).result())
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_many_schedulers_in_one_program(program: Any) -> None:
    """One after the other and side by side; each ends by itself."""
    done = program(
        """
        schedulers = [ProcessScheduler(workers=1, name=f"s{n}") for n in range(3)]
        futures = [s.submit(os.getpid) for s in schedulers]
        print(len({f.result() for f in futures}))
        schedulers[0].shutdown()
        print(schedulers[1].submit(abs, -1).result())
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n1\n", "")
