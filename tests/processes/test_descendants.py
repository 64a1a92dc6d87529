"""Nothing is left behind: not by a kill, not by a burial, not by the death of the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import pytest

from procsched.pool.api import Died


def family() -> list[int]:
    """One in the group, one that left it, one that left it and its parent, one with another environment."""
    import subprocess

    plain = subprocess.Popen(["sleep", "100"])
    apart = subprocess.Popen(["sleep", "100"], start_new_session=True)
    bare = subprocess.Popen(["/bin/sleep", "100"], start_new_session=True, env={})
    text = subprocess.run(
        ["/bin/sh", "-c", "setsid sleep 100 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True, check=True
    ).stdout
    return [plain.pid, apart.pid, bare.pid, int(text)]


@pytest.mark.case("B54")
def test_kill_takes_all_descendants(driver: Any) -> None:
    """Whatever they did to get away."""
    pids = driver.open().value(family)
    driver.pool.kill(0)
    driver.until(Died)
    driver.gone(*pids)


def test_a_crash_takes_all_descendants_that_can_be_known(driver: Any) -> None:
    """The one with another environment and another group can't."""
    plain, apart, bare, orphan = driver.open().value(family)
    os.kill(driver.pids[0], signal.SIGKILL)
    driver.until(Died)
    driver.gone(plain, apart, orphan)
    os.kill(bare, signal.SIGKILL)


def test_retire_takes_them_too(driver: Any) -> None:
    """What a run started lives until its worker ends."""
    plain, apart, bare, orphan = driver.open().value(family)
    assert driver.alive(plain)
    driver.pool.retire(0)
    driver.until(Died)
    driver.gone(plain, apart, orphan)
    os.kill(bare, signal.SIGKILL)


def test_close_takes_everything(driver: Any) -> None:
    """Busy, stopped, booting; and returns soon."""
    driver.open(workers=3, spares=1)
    pids = driver.value(family)
    os.kill(driver.pids[1], signal.SIGSTOP)
    driver.start(driver.expression("lambda: __import__('time').sleep(100)"), slot=2)
    workers = list(driver.pool.pids().values())
    driver.pool.spawn(7)
    began = time.monotonic()
    driver.pool.close(10)
    assert time.monotonic() - began < 5
    driver.gone(*pids, *workers)


def test_a_forked_copy_of_the_parent_is_inert(driver: Any) -> None:
    """Its calls do nothing, and it doesn't keep the workers alive."""
    driver.open()
    pid = os.fork()
    if not pid:
        driver.pool.wake()
        driver.pool.close(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert driver.value(driver.expression("lambda: 1")) == 1


PARENT = """
import os, pickle, sys, time
from procsched.pool.api import PoolSettings, Up, Ended, Started
from procsched.pool.process_pool import ProcessPool
from procsched.wire import Function, WANT_VALUE, REPORT_START

class Evaluated:
    def __init__(self, text): self.text = text
    def __reduce__(self): return eval, (self.text,)

pool = ProcessPool()
pool.open(PoolSettings(workers=3), print)
for slot in range(3): pool.spawn(slot)
state = sys.argv[1]
if state == "booting":
    time.sleep(float(sys.argv[2]))
    os.kill(os.getpid(), 9)
up = 0
while up < 3: up += sum(isinstance(event, Up) for event in pool.poll(10))
texts = {
    "idle": "lambda: 1",
    "busy": "lambda: __import__('time').sleep(100)",
    "holding the GIL": "lambda: 7 ** (10 ** 9)",
    "with programs": "lambda: __import__('os').system('sleep 100')",
    "with a copy": "lambda: 1",
    "all closed": "lambda: __import__('os').closerange(0, 4096) or __import__('time').sleep(100)",
}
for slot in range(3):
    function = Function(pickle.dumps(Evaluated(texts.get(state, texts["busy"]))), True, "f")
    pool.offer(slot, [(slot, function.key, 0, WANT_VALUE | REPORT_START, 1, 1, 0, 0, "", b"")], [function])
begun = 0
while begun < 3: begun += sum(isinstance(event, Started) for event in pool.poll(10))
time.sleep(0.05)
if state == "stopped":
    for pid in pool.pids().values(): os.kill(pid, 19)
if state == "with a copy" and os.fork() == 0:
    os.setsid()
    print(os.getpid(), flush=True)
    time.sleep(3)
    os._exit(0)
print(*pool.pids().values(), flush=True)
os.kill(os.getpid(), 9)
"""


def group_members() -> set[int]:
    """Processes of workers of any parent: they carry the marker."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as environ:
                    if b"MARK_OF_THIS_TEST=1" in environ.read():
                        found.add(int(name))
            except OSError:
                pass
    return found


STATES = ["idle", "busy", "holding the GIL", "with programs", "stopped", "with a copy", "all closed"]


@pytest.mark.parametrize(
    ("state", "delay"), [(s, 0.0) for s in STATES] + [("booting", d / 1000) for d in (0, 2, 5, 10, 15, 20, 30)]
)
@pytest.mark.case("B49", "B50")
def test_the_parent_is_killed(driver: Any, state: str, delay: float) -> None:
    """Everything is gone within two seconds; a copy of the parent doesn't keep it."""
    env = {**os.environ, "MARK_OF_THIS_TEST": "1"}
    command = [sys.executable, "-c", textwrap.dedent(PARENT), state, str(delay)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as parent:
        parent.wait()
        began = time.monotonic()
        copies = 1 if state == "with a copy" else 0
        driver.eventually(lambda: len(group_members()) <= copies)
        assert time.monotonic() - began < 2.0
        for pid in group_members():
            os.kill(pid, signal.SIGKILL)
        assert parent.stdout is not None
        parent.stdout.read()
    driver.gone(*group_members())
