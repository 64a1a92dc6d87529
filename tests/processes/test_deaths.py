"""The crash matrix: however a worker dies, what it reported is kept and what it never claimed comes back."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from procsched.pool.api import Died, Ended, Started, Up
from procsched.wire import REPORT, REPORT_MAGIC


def hold(path: str) -> None:
    with open(path, "rb", buffering=0) as latch:
        latch.read(1)


def null_pointer() -> None:
    import ctypes

    ctypes.string_at(0)


def close_all() -> None:
    import os

    os.closerange(0, 4096)


def close_all_and_open() -> None:
    import os

    os.closerange(0, 4096)
    for _ in range(20):
        os.open("/dev/null", os.O_RDWR)


WAYS: dict[str, tuple[Any, int | None, str | None]] = {
    "exit": (lambda: os._exit(3), 3, None),
    "exit zero": (lambda: os._exit(0), 0, None),
    "abort": (os.abort, None, "SIGABRT"),
    "kill": (lambda: os.kill(os.getpid(), signal.SIGKILL), None, "SIGKILL"),
    "null pointer": (null_pointer, None, "SIGSEGV"),
    "closes everything": (close_all, 70, None),
    "closes everything and opens files": (close_all_and_open, 70, None),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("position", [0, 2])
@pytest.mark.case("B10", "B15")
def test_the_account_is_exact(driver: Any, way: str, position: int, capfd: Any) -> None:
    """Reported runs are done, the rest minus one come back; status as it was."""
    deadly, exitcode, signal_name = WAYS[way]
    driver.open()
    fine, fatal = driver.expression("lambda: 1"), driver.kept(deadly) if callable(deadly) else deadly
    orders = driver.orders(fine, 5)
    orders[position] = (orders[position][0], fatal.key, *orders[position][2:])
    driver.pool.offer(0, orders, [fine, fatal])
    died = driver.until(Died)
    assert [event.ticket for event in driver.events if isinstance(event, Ended)] == [o[0] for o in orders[:position]]
    assert died.unclaimed == [order[0] for order in orders[position + 1 :]]
    assert (died.exitcode, died.signal) == (exitcode, signal_name)
    assert died.started
    assert not died.retired
    assert died.max_rss > 5_000_000
    if signal_name in ("SIGABRT", "SIGSEGV"):
        assert "most recent call first" in died.stack
        driver.eventually(lambda: "most recent call first" in capfd.readouterr().err)
    else:
        assert died.stack == ""


@pytest.mark.parametrize("state", ["idle", "busy", "armed", "stopped"])
def test_killed_from_outside(driver: Any, latch: Any, state: str) -> None:
    """In every state it is seen at once, and the slot can be used again."""
    driver.open()
    tickets = []
    if state == "busy":
        driver.start(hold, latch.path)
        driver.until(Started)
    elif state == "armed":
        tickets = [driver.start(driver.expression("lambda: 1"), due=time.monotonic_ns() + 10**12)]
    elif state == "stopped":
        os.kill(driver.pids[0], signal.SIGSTOP)
        tickets = [driver.start(driver.expression("lambda: 1"))]
    os.kill(driver.pids[0], signal.SIGKILL)
    died = driver.until(Died)
    assert died.signal == "SIGKILL"
    assert died.unclaimed == tickets
    driver.pool.spawn(0)
    assert driver.until(Up).pid != died.pid
    assert driver.value(driver.expression("lambda: 1")) == 1


def test_seen_at_once_behind_a_living_grandchild(driver: Any) -> None:
    """Which holds every pipe open; it left the group, and is found by its environment."""

    def leave() -> int:
        import os
        import time

        pid = os.fork()
        if not pid:
            os.setsid()
            time.sleep(60)
        return pid

    grandchild = driver.open().value(leave)
    os.kill(driver.pids[0], signal.SIGKILL)
    driver.until(Died)
    driver.gone(grandchild)


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM"])
def test_polite_signals_are_the_parents_business(driver: Any, latch: Any, how: str) -> None:
    """A worker doesn't end by itself."""
    ticket = driver.open().start(hold, latch.path)
    driver.until(Started)
    os.kill(driver.pids[0], getattr(signal, how))
    os.killpg(driver.pids[0], getattr(signal, how))
    latch.open()
    assert driver.until(Ended, ticket=ticket).success
    driver.nothing(Died)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff" * 200,
        REPORT.pack(1 << 30, REPORT_MAGIC, 3, 0, 0, 0, 0, 0, 0, 0),
        REPORT.pack(0, REPORT_MAGIC, 99, 0, 0, 0, 0, 0, 0, 0),
        REPORT.pack(0, REPORT_MAGIC, 3, 2, 0, 0, 0, 0, 0, 5),  # announces a file that never comes
    ],
)
def test_garbage_ends_the_worker(driver: Any, garbage: bytes) -> None:
    """A worker that can't be understood is killed; the loop goes on."""

    def write(data: bytes) -> None:
        import os
        import time

        for fd in range(3, 1024):
            try:
                if "pipe" in os.readlink(f"/proc/self/fd/{fd}"):
                    os.set_blocking(fd, False)
                    os.write(fd, data)
            except OSError:
                pass
        time.sleep(60)

    driver.open(workers=2)
    driver.start(write, garbage)
    assert driver.until(Died).signal == "SIGKILL"
    assert driver.value(driver.expression("lambda: 1"), slot=1) == 1


@pytest.mark.case("B04")
def test_half_a_report_is_dropped(driver: Any) -> None:
    """Killed in the middle of the write: not a result."""

    def write(half: bytes) -> None:
        import os

        for fd in range(3, 1024):
            try:
                if "pipe" in os.readlink(f"/proc/self/fd/{fd}"):
                    os.set_blocking(fd, False)
                    os.write(fd, half)
            except OSError:
                pass
        os._exit(5)

    whole = REPORT.pack(1000, REPORT_MAGIC, 3, 1, 1, 0, 0, 0, 0, 5) + b"x" * 1000
    driver.open()
    ticket = driver.start(write, whole[:500])
    assert ticket == 1
    assert driver.until(Died).exitcode == 5
    driver.nothing(Ended)


def test_kill_reaches_a_stopped_worker(driver: Any) -> None:
    """And one that ignores whatever can be ignored."""
    driver.open()
    os.kill(driver.pids[0], signal.SIGSTOP)
    driver.pool.kill(0)
    assert driver.until(Died).signal == "SIGKILL"


def test_retire_gives_the_exit_hooks_their_chance(driver: Any, tmp_path: Any) -> None:
    """A polite end, told as such."""

    def hook(path: str) -> None:
        import atexit

        atexit.register(lambda: open(path, "w").close())

    driver.open().value(hook, str(tmp_path / "hooked"))
    driver.pool.retire(0)
    died = driver.until(Died)
    assert (died.retired, died.exitcode, died.started) == (True, 0, True)
    assert (tmp_path / "hooked").exists()


def test_retire_ends_what_takes_too_long(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group, after a second."""
    from procsched.pool import process_pool

    def hook() -> None:
        import atexit
        import time

        atexit.register(time.sleep, 60)

    monkeypatch.setattr(process_pool, "EXIT_HOOKS_TIME", 0.05)
    driver.open().value(hook)
    driver.pool.retire(0)
    died = driver.until(Died)
    assert (died.retired, died.signal) == (True, "SIGKILL")


def test_a_worker_above_its_memory_says_so(driver: Any) -> None:
    """With the report; it isn't ended in the middle of anything."""
    driver.open(max_memory=60_000_000)
    assert not driver.run(driver.expression("lambda: 1")).over_memory
    keep = "lambda: setattr(__import__('builtins'), 'kept', bytearray(b'x') * 100_000_000)"
    assert driver.run(driver.expression(keep)).over_memory


def test_the_stack_of_a_running_worker(driver: Any, latch: Any) -> None:
    """Also when it was asked for before; "" for a stopped one."""
    driver.open().start(hold, latch.path)
    driver.until(Started)
    driver.eventually(lambda: "in hold" in driver.pool.dump_stack(0))
    assert driver.pool.dump_stack(0).count("in hold") == 1
    os.kill(driver.pids[0], signal.SIGSTOP)
    assert driver.pool.dump_stack(0) == ""
    os.kill(driver.pids[0], signal.SIGCONT)
    latch.open()
    driver.until(Ended)
    assert driver.pool.dump_stack(7) == ""
    driver.pool.kill(0)
    driver.until(Died)


def test_deaths_at_random_moments(driver: Any) -> None:
    """Every run ends once, or comes back unclaimed, or was the one that its worker died with."""
    import random

    random.seed(20260101)
    driver.open(workers=2)
    function = driver.expression("lambda: None")
    open_tickets: dict[int, set[int]] = {0: set(), 1: set()}
    up = {0, 1}
    ended: set[int] = set()
    lost = 0
    until = time.monotonic() + 3.0
    while time.monotonic() < until or any(open_tickets.values()):
        for slot in list(up):
            if not open_tickets[slot] and time.monotonic() < until:
                orders = driver.orders(function, 64)
                open_tickets[slot] = {order[0] for order in orders}
                driver.pool.offer(slot, orders, [function])
                if random.random() < 0.05:
                    os.kill(driver.pool.pids()[slot], random.choice([signal.SIGKILL, signal.SIGSEGV]))
        for event in driver.pool.poll(0.5):
            if isinstance(event, Ended):
                assert event.ticket not in ended
                ended.add(event.ticket)
                open_tickets[event.slot].remove(event.ticket)
            elif isinstance(event, Died):
                assert set(event.unclaimed) <= open_tickets[event.slot]
                claimed = len(open_tickets[event.slot]) - len(event.unclaimed)
                assert claimed in (0, 1)
                lost += claimed
                open_tickets[event.slot] = set()
                up.discard(event.slot)
                driver.pool.spawn(event.slot)
            elif isinstance(event, Up):
                up.add(event.slot)
    assert len(ended) > 500
