"""What runs log and tell reaches the parent whole; a flood is dropped and counted and blocks nobody."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from procsched.pool.api import Died, Ended
from procsched.wire import RemoteDropped, RemoteLog, RemoteProgress


def log(count: int, text: str = "line %d") -> None:
    import logging

    logger = logging.getLogger("task.module")
    for number in range(count):
        logger.warning(text, number)


def test_log_records_arrive_formatted(driver: Any) -> None:
    """With their place in the code, their run, and the exception's text."""

    def run() -> None:
        import logging

        try:
            raise ValueError("inner")
        except ValueError:
            logging.getLogger("task").exception("failed %s", "here")

    ticket = driver.open().start(driver.named(run, job_id="nightly"))
    driver.until(Ended, ticket=ticket)
    record = driver.heard_until(lambda message: isinstance(message, RemoteLog))
    assert (record.slot, record.pid, record.job_id, record.number) == (0, driver.pids[0], "nightly", ticket)
    assert (record.logger, record.level, record.func) == ("task", 40, "run")
    assert record.text.startswith("failed here\nTraceback")
    assert "ValueError: inner" in record.text
    assert abs(record.created - time.time()) < 60


def test_levels_are_those_of_the_parent(driver: Any) -> None:
    """By logger; the rest isn't even formatted."""

    def run() -> None:
        import logging

        logging.getLogger("quiet").warning("no")
        logging.getLogger("task").debug("yes")

    driver.open(log_levels={"": 10, "quiet": 40}).value(run)
    texts = [m.text for m in driver.eventually(lambda: [m for m in driver.heard if isinstance(m, RemoteLog)])]
    assert texts == ["yes"]


def test_hundreds_of_records_are_whole_and_in_order(driver: Any) -> None:
    """From several workers at once."""
    driver.open(workers=2)
    function = driver.kept(log)
    tickets = [driver.start(function, 200, slot=slot) for slot in (0, 1)]
    for ticket in tickets:
        driver.until(Ended, ticket=ticket)
    driver.eventually(lambda: len(driver.heard) == 400)
    for slot in (0, 1):
        assert [m.text for m in driver.heard if m.slot == slot] == [f"line {number}" for number in range(200)]


def test_a_long_record_is_whole(driver: Any) -> None:
    """In many pieces."""

    def run() -> None:
        import logging

        logging.warning("x" * 100_000)

    driver.open().value(run)
    assert driver.heard_until(lambda message: True).text == "x" * 100_000


def test_threads_and_copies_dont_tear_records(driver: Any) -> None:
    """Several writers on one pipe."""

    def run() -> None:
        import logging
        import os
        import threading

        def say() -> None:
            for _ in range(20):
                logging.warning("y" * 9000)

        threads = [threading.Thread(target=say) for _ in range(2)]
        for thread in threads:
            thread.start()
        pids = []
        for _ in range(2):
            pid = os.fork()
            if not pid:
                say()
                os._exit(0)
            pids.append(pid)
        for thread in threads:
            thread.join()
        for pid in pids:
            os.waitpid(pid, 0)

    driver.open().value(run)
    driver.heard_until(lambda message: isinstance(message, RemoteLog))
    assert {m.text for m in driver.heard if isinstance(m, RemoteLog)} == {"y" * 9000}


def test_a_flood_is_dropped_and_counted(driver: Any) -> None:
    """While the reader is held up the run goes on; then the count comes."""
    import threading

    held = threading.Event()
    original = driver.heard.append
    heard: list[Any] = driver.heard

    class Slow(list):  # type: ignore[type-arg]
        def append(self, message: Any) -> None:
            held.wait(20)
            original(message)

    driver.heard = Slow()
    driver.open()
    driver.value(log, 20_000, "a line of some length, to fill the pipe soon: %d")
    held.set()
    driver.value(log, 1)
    driver.eventually(lambda: any(isinstance(m, RemoteDropped) for m in heard))
    logs = sum(isinstance(m, RemoteLog) for m in heard)
    dropped = driver.eventually(lambda: sum(m.count for m in heard if isinstance(m, RemoteDropped)))
    assert logs + dropped <= 20_001
    assert dropped > 1000


def test_a_stopped_parent_thread_blocks_no_run(driver: Any) -> None:
    """A run that fills the pipe ends in time."""
    driver.open()
    began = time.monotonic()
    driver.value(log, 5_000)
    assert time.monotonic() - began < 5


def test_progress(driver: Any) -> None:
    """With its run."""

    def run() -> None:
        from procsched.context import current_run

        current_run().progress(0.5, "half")

    ticket = driver.open().start(driver.named(run, job_id="p"))
    driver.until(Ended)
    told = driver.heard_until(lambda message: isinstance(message, RemoteProgress))
    assert told == RemoteProgress(0, ticket, "p", ticket, 0.5, "half")


def test_a_death_comes_with_the_last_records_of_its_run(driver: Any) -> None:
    """Fifty, and none of an earlier run."""

    def die() -> None:
        log(80)
        os.kill(os.getpid(), signal.SIGKILL)

    driver.open().value(log, 3, "earlier %d")
    died = driver.crash(die)
    assert died.logs == [f"task.module: line {number}" for number in range(30, 80)]
    driver.eventually(lambda: len(driver.heard) == 83)


def test_a_silent_death_has_no_records(driver: Any) -> None:
    """Those of the run before aren't its."""
    driver.open().value(log, 3)
    assert driver.crash(lambda: os._exit(1)).logs == []


def test_a_sink_that_raises_changes_nothing(driver: Any, capfd: Any) -> None:
    """It is told on stderr."""

    told = []

    class Broken(list):  # type: ignore[type-arg]
        def append(self, message: Any) -> None:
            told.append(message)
            raise ValueError("sink")

    driver.heard = Broken()
    driver.open().value(log, 1)
    driver.eventually(lambda: len(told) == 1)
    driver.value(log, 1)
    driver.eventually(lambda: len(told) == 2)  # by the same thread: the first one's traceback is written
    assert "ValueError: sink" in capfd.readouterr().err  # once: what is written while it looks may be lost
    assert driver.value(driver.expression("lambda: 1")) == 1


def test_garbage_on_the_chatter_pipe_harms_nobody(driver: Any) -> None:
    """The worker goes on, unheard."""

    def write() -> None:
        for fd in range(3, 1024):
            try:
                if "pipe" in os.readlink(f"/proc/self/fd/{fd}") and not os.get_blocking(fd):
                    os.write(fd, b"\xff" * 100)
            except OSError:
                pass

    driver.open().value(write)
    driver.heard_until(lambda message: isinstance(message, RemoteDropped))
    assert driver.value(driver.expression("lambda: 1")) == 1
    driver.nothing(Died)
