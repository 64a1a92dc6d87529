"""The parent is killed at a random moment: everything that it had started is gone, and nothing else stays."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import doomed
import pytest
from survivors import Mark, names_in_shared_memory, wait_until

import procsched
from procsched import AlreadyRunning, ProcessScheduler

GONE = 2.0
"""The contract's number, seconds."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many deaths as were asked for, in all states by turns."""
    deaths = metafunc.config.getoption("--chaos-deaths")
    seed = metafunc.config.getoption("--chaos-seed") or random.randrange(1 << 20)
    states = [doomed.STATES[number % len(doomed.STATES)] for number in range(deaths)]
    if "state" in metafunc.fixturenames:
        metafunc.parametrize(("state", "seed"), [(state, seed + i) for i, state in enumerate(states)])


def test_the_parent_dies(state: str, seed: int, tmp_path: Path) -> None:
    """Within two seconds no process is left, no name, no file, and the next scheduler starts at once."""
    rng, mark = random.Random(seed), Mark()
    lock, temporary = tmp_path / "lock", tmp_path / "temporary"
    temporary.mkdir()
    env = {**mark.env, "TMPDIR": str(temporary), "PYTHONPATH": str(Path(procsched.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, doomed.__file__, state, str(lock)], env=env, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        copies = set()
        # During the boot of the program itself, of its workers, or once it is in its state
        for line in map(str.strip, parent.stdout):
            if line.isdigit():
                copies.add(int(line))
            if line == ("made" if state == "boot" else "loaded"):
                break
        time.sleep(rng.uniform(0, 0.15))
        named = names_in_shared_memory(mark.processes())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        begun = time.monotonic()
        free = wait_until(lambda: _is_free(lock), 0.5)
        wait_until(lambda: mark.processes() <= copies, GONE * 3)
        took = time.monotonic() - begun
        survivors = mark.processes() - copies
        for pid in survivors | copies:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not mark.processes(), 5)
    sys.stdout.write(f"{state}: gone after {took:.3f} s, lock free after {free:.3f} s\n")
    assert not survivors, f"{survivors} still live"
    assert took < GONE
    assert free < 0.2, "the lock is held by a dead scheduler"
    assert not named
    assert list(temporary.iterdir()) == []


def _is_free(lock: Path) -> bool:
    try:
        with ProcessScheduler(1, single_instance=lock):
            return True
    except AlreadyRunning:
        return False


def test_the_next_scheduler_works(tmp_path: Path) -> None:
    """It takes the lock of the dead one, and runs what it is given."""
    lock = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, doomed.__file__, "gil", str(lock)],
        env={**os.environ, "PYTHONPATH": str(Path(procsched.__file__).parents[1])},
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        assert [parent.stdout.readline() for _ in range(2)] == ["made\n", "loaded\n"]
        with pytest.raises(AlreadyRunning, match=str(parent.pid)):
            ProcessScheduler(1, single_instance=lock)
        parent.kill()
        parent.wait()
        assert wait_until(lambda: _is_free(lock), 0.5) < 0.2
        with ProcessScheduler(1, single_instance=lock) as scheduler:
            assert scheduler.submit(abs, -1).result(30) == 1
