"""Stop in every state, by whoever asks: bounded, quiet, with the right status, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import stopping
from survivors import Mark, names_in_shared_memory, wait_until

import procsched

BOUND = 30.0
"""Seconds. It takes one or two; what takes longer than this hangs."""
NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")
UNTIDY = ("Traceback", "please report", "leaked", "Exception ignored", "resource_tracker", "BrokenPipe")


def can_be_process_1() -> bool:
    """Whether this machine lets us make process namespaces."""
    try:
        return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.parametrize("way", stopping.WAYS)
@pytest.mark.parametrize("state", stopping.STATES)
def test_stopping(state: str, way: str, tmp_path: Path) -> None:
    """The status is 0, that of the signal where nobody catches it, and 7 where the program caught Ctrl-C."""
    if way == "process 1" and not can_be_process_1():
        pytest.skip("no new process namespaces here")
    mark = Mark()
    env = {**mark.env, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(procsched.__file__).parents[1])}
    command = [sys.executable, "-W", "error::ResourceWarning", stopping.__file__, state, way]
    if way == "process 1":
        command[:0] = NAMESPACE
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, start_new_session=True
    ) as program:
        assert program.stdout is not None and program.stderr is not None
        says = program.stderr if way == "a full pipe" else program.stdout
        assert says.readline() == b"there\n", program.stderr.read().decode()
        named = names_in_shared_memory(mark.processes())
        if way in stopping.SIGNALLED:
            send(program, way)
        try:
            if way == "a full pipe":  # nobody reads it until the end
                status, out, err = program.wait(BOUND), b"", program.stderr.read().decode()
            else:
                out, complaints = program.communicate(timeout=BOUND)
                status, err = program.returncode, complaints.decode()
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            pytest.fail(f"it didn't end within {BOUND} s")
    left = wait_until(lambda: not mark.processes(), 2)
    for pid in mark.processes():
        os.kill(pid, signal.SIGKILL)
    assert left <= 2, "processes are left"
    assert not named and list(tmp_path.iterdir()) == []
    assert [word for word in UNTIDY if word in err] == [], err
    # The second Ctrl-C may come when the program has caught the first, and is about to end with its status
    assert status == expected_status(way) or (way == "SIGINT twice" and status == -signal.SIGINT), err
    if status == 0 and way not in ("exit", "a full pipe"):
        assert out == b"over\n"


def expected_status(way: str) -> int:
    """That of the program."""
    return {"SIGTERM": -signal.SIGTERM, "SIGINT": 7, "SIGINT twice": 7, "SIGINT to all": 7}.get(way, 0)


def send(program: subprocess.Popen[bytes], way: str) -> None:
    """What was said is sent, once the program listens."""
    number = signal.SIGTERM if way == "SIGTERM" else signal.SIGINT
    if way == "SIGINT to all":
        os.killpg(program.pid, number)
    else:
        program.send_signal(number)
    if way == "SIGINT twice":
        time.sleep(0.05)
        program.send_signal(number)
