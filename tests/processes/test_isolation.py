"""A run starts from the worker's base state and can't make its worker unmanageable."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest

from procsched.pool.api import Died, Ended


def state() -> dict[str, Any]:
    import signal

    return {
        "cwd": os.getcwd(),
        "env": dict(os.environ),
        "handlers": [repr(signal.getsignal(number)) for number in sorted(signal.valid_signals()) if number < 32],
        "timer": signal.getitimer(signal.ITIMER_REAL),
        "streams": [stream.name for stream in (sys.stdin, sys.stdout, sys.stderr)],  # type: ignore[union-attr]
        "closed": [stream.closed for stream in (sys.stdin, sys.stdout, sys.stderr)],  # type: ignore[union-attr]
        "files": [os.path.realpath(f"/proc/self/fd/{fd}") for fd in range(3)],
    }


def change_directory() -> None:
    os.chdir("/")


def change_environment() -> None:
    os.environ["NEW"] = "1"
    os.environ["HOME"] = "/nowhere"
    del os.environ["PATH"]


def replace_environment() -> None:
    os.environ = {}  # type: ignore[assignment]  # noqa: B003


def change_handlers() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda *args: None)


def leave_an_alarm() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.3)


def replace_streams() -> None:
    import io

    sys.stdout = io.StringIO()
    sys.stderr = sys.stdin = None  # type: ignore[assignment]


def close_streams() -> None:
    sys.stdin.close()
    sys.stdout.close()
    sys.stderr.close()


def close_descriptors() -> None:
    for fd in (0, 1, 2):
        os.close(fd)


CHANGES = [
    change_directory,
    change_environment,
    replace_environment,
    change_handlers,
    leave_an_alarm,
    replace_streams,
    close_streams,
    close_descriptors,
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.case("B116")
def test_what_a_run_changes_is_put_back(driver: Any, change: Any) -> None:
    """For the very next run."""
    driver.open()
    before = driver.value(state)
    assert driver.run(change).success
    assert driver.value(state) == before


def test_a_removed_directory_is_no_trouble(driver: Any, tmp_path: Any) -> None:
    """The worker's own was taken away."""

    def remove(path: str) -> None:
        os.mkdir(path)
        os.chdir(path)
        os.rmdir(path)

    driver.open()
    home = driver.value(os.getcwd)
    driver.run(remove, str(tmp_path / "gone"))
    assert driver.value(os.getcwd) == home


@pytest.mark.parametrize("ending", ["return", "raise", "sys.exit"])
def test_a_forked_copy_does_not_join_the_loop(driver: Any, ending: str) -> None:
    """It exits; the run is reported once, and the tickets stay the worker's."""

    def fork(ending: str) -> int:
        if os.fork() == 0:
            if ending == "raise":
                raise ValueError("in the copy")
            if ending == "sys.exit":
                sys.exit(5)
            return -1
        return os.waitstatus_to_exitcode(os.wait()[1])

    driver.open()
    function = driver.kept(fork)
    orders = [driver.orders(function, 1, ending)[0] for _ in range(10)]
    driver.pool.offer(0, orders, [function])
    values = [driver.pool.decode(None, driver.until(Ended).body) for _ in orders]
    assert values == [{"return": 0, "raise": 1, "sys.exit": 5}[ending]] * 10
    driver.nothing(Ended)


@pytest.mark.case("B117")
def test_nested_processes_work(driver: Any) -> None:
    """multiprocessing by fork and by spawn, concurrent.futures, subprocess; Pool's end must not hang."""

    def nested() -> list[Any]:
        import concurrent.futures
        import multiprocessing
        import operator
        import subprocess

        found: list[Any] = []
        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                found.append(pool.map(operator.neg, [1, 2]))
        with concurrent.futures.ProcessPoolExecutor(1) as executor:
            found.append(executor.submit(operator.neg, 3).result())
        found.append(subprocess.run(["echo", "x"], capture_output=True, text=True, check=True).stdout)
        return found

    assert driver.open().value(nested) == [[-1, -2], [-1, -2], -3, "x\n"]


def test_programs_of_a_run_can_be_terminated(driver: Any) -> None:
    """They inherit no ignored signals."""

    def terminate() -> int:
        import subprocess

        process = subprocess.Popen(["sleep", "60"])
        process.terminate()
        return process.wait()

    assert driver.open().value(terminate) == -signal.SIGTERM


def test_a_managers_proxy_can_be_an_argument(driver: Any) -> None:
    """The workers share the parent's key."""
    import multiprocessing

    def put(queue: Any) -> None:
        queue.put(5)

    driver.open()
    with multiprocessing.get_context("spawn").Manager() as manager:
        queue = manager.Queue()
        driver.value(put, queue)
        assert queue.get(timeout=10) == 5


def test_printed_lines_are_whole_and_out_before_the_report(driver: Any, capfd: Any) -> None:
    """Also a line without an end."""
    driver.open()
    driver.value(driver.expression("lambda: print('one') or print('two', end='')"))
    assert capfd.readouterr().out == "one\ntwo"


@pytest.mark.case("B95")
def test_lines_of_many_workers_stay_whole(driver: Any, capfd: Any) -> None:
    """Also where Python was told not to buffer."""
    driver.open(workers=3, env={"PYTHONUNBUFFERED": "1"})
    function = driver.expression("lambda n: [print('x' * n) for _ in range(200)]")
    tickets = [driver.start(function, 200, slot=slot) for slot in range(3)]
    for ticket in tickets:
        driver.until(Ended, ticket=ticket)
    assert capfd.readouterr().out.splitlines() == ["x" * 200] * 600


def test_reading_input_gives_its_end(driver: Any) -> None:
    """And no stopped worker."""
    assert isinstance(driver.open().error(driver.expression("input")), EOFError)


def test_threads_of_a_run_live_on(driver: Any) -> None:
    """Until the worker ends, which they don't hold up."""

    def start() -> None:
        import threading
        import time

        threading.Thread(target=time.sleep, args=(60,)).start()

    driver.open().value(start)
    driver.pool.retire(0)
    assert driver.until(Died).exitcode == 0
