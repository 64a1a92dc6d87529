"""Stopping always ends: from any thread, in any state, any number of times, and without a word too many."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from procsched import After, FixedDelay, Outcome, ProcessScheduler

Make = Callable[..., ProcessScheduler]


def touch_and_work(path: str, until_asked: bool) -> None:
    """By value: until it is asked to stop, or for good."""
    import time
    from pathlib import Path

    from procsched import current_run

    Path(path).touch()
    while not (until_asked and current_run().should_stop()):
        time.sleep(0.01)


@pytest.mark.case("B37")
def test_after_shutdown_without_waiting_the_program_can_end(program: Any) -> None:
    """A job's run that sleeps on is ended one second after main's end, with its id in the log."""
    done = program(
        """
        import logging
        logging.basicConfig(format="%(message)s")
        def hang():
            open("begun", "w").close()
            time.sleep(1000)
        s = ProcessScheduler(workers=1)
        s.schedule(hang, After(0), id="hanging")
        while not os.path.exists("begun"): time.sleep(0.01)
        s.shutdown(wait=False)
        """
    )
    assert done.returncode == 0 and "gave up hanging #1" in done.stderr
    assert "Traceback" not in done.stderr.replace("RunAborted", "")


@pytest.mark.case("B38")
def test_a_timeout_of_the_shutdown_ends_only_what_hangs(
    two: ProcessScheduler, tmp_path: Path, caplog: Any, eventually: Any
) -> None:
    """What ends in time completes; what doesn't is ended, recorded as aborted, and named."""
    quick = two.schedule(touch_and_work, After(0), args=(str(tmp_path / "quick"), True), id="quick")
    hung = two.schedule(touch_and_work, After(0), args=(str(tmp_path / "hung"), False), id="hung")
    eventually(lambda: len(list(tmp_path.iterdir())) == 2)
    two.shutdown(timeout=1)
    assert quick.last is not None and quick.last.outcome is Outcome.SUCCEEDED
    assert hung.last is not None and hung.last.outcome is Outcome.ABORTED
    assert "gave up hung #1" in caplog.text and "gave up quick" not in caplog.text


@pytest.mark.case("B39")
@pytest.mark.parametrize("body", ["...", "open('begun', 'a').close(); time.sleep(0.5)"], ids=["idle", "busy"])
def test_ctrl_c_at_a_terminal_is_one_line(start: Any, write: Any, tmp_path: Path, eventually: Any, body: str) -> None:
    """The terminal signals the whole group, idle and busy workers too: nobody prints a traceback."""
    program = start("run", write(f"import time\n@job(FixedDelay('10ms'))\ndef work(): {body}"), "--workers", 4)
    program.wait_for("1 job of")
    if body == "...":
        program.wait_for("succeeded")
    else:
        eventually((tmp_path / "begun").exists)
    os.killpg(program.process.pid, signal.SIGINT)
    assert program.end() == 0
    assert program.stderr.count("stopping") == 1 and "Traceback" not in program.stderr


@pytest.mark.case("B44")
def test_in_a_thread_of_a_program_with_its_own_handlers(program: Any) -> None:
    """Import, start, work and end in another thread: the program's handlers stay, and no other is set."""
    done = program(
        """
        mine = lambda *_: None
        signal.signal(signal.SIGTERM, mine)
        before = [signal.getsignal(n) for n in sorted(signal.valid_signals())]
        def live():
            with ProcessScheduler(workers=1) as s:
                print(s.submit(abs, -1).result(), s.schedule(abs, After(0), args=(1,)).wait(30))
        thread = threading.Thread(target=live)
        thread.start(); thread.join()
        print([signal.getsignal(n) for n in sorted(signal.valid_signals())] == before)
        """
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["1", "True", "True"], "")


@pytest.mark.case("B45")
def test_a_busy_scheduler_at_the_end_of_main(program: Any) -> None:
    """A job every millisecond, several kinds of work pending, and main simply ends: quiet, status 0."""
    for moment in (0, 0.01, 0.05, 0.2):
        done = program(
            f"""
            s = ProcessScheduler(workers=2)
            s.schedule(int, FixedDelay("1ms"))
            s.schedule(int, FixedRate("1ms"))
            s.submit_after("1h", int)
            time.sleep({moment})
            """
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.case("B37", "B38")
def test_stopping_in_every_state_any_number_of_times(make: Make) -> None:
    """Before the start, twice, from several threads at once, from callbacks, and a start after the end is refused."""
    unused = make(workers=1)
    unused.shutdown()
    unused.shutdown(wait=True, cancel_futures=True, timeout=0)
    with pytest.raises(RuntimeError, match="shut down"):
        unused.submit(abs, 1)

    scheduler = make(workers=2)
    scheduler.schedule(abs, FixedDelay("1ms"), args=(1,))
    called: list[Any] = []
    first = scheduler.submit(abs, 1)
    first.add_done_callback(lambda _: called.append(scheduler.shutdown()))
    threads = [threading.Thread(target=scheduler.shutdown, kwargs={"timeout": 5}) for _ in range(4)]
    first.result(30)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    scheduler.shutdown()
    assert called == [None]
    with pytest.raises(RuntimeError, match="shut down"):
        scheduler.schedule(abs, After(0), args=(1,))
