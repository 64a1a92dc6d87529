"""The kernel kills for memory in our control group: the run that grew is told of, and nobody else suffers."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import Program

MEMORY = Path("/sys/fs/cgroup/memory")
"""Version 1 of control groups."""
UNIFIED = Path("/sys/fs/cgroup")
"""Version 2."""
LIMIT = 200 << 20
"""Bytes: for the parent and three workers, and no more."""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with little memory."""
    name = f"procsched-test-{secrets.token_hex(4)}"
    old, new = MEMORY / name, UNIFIED / name
    path, limit = (old, "memory.limit_in_bytes") if MEMORY.is_dir() else (new, "memory.max")
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        try:
            (path / limit).write_text(str(LIMIT))
            if path is new:
                (path / "memory.swap.max").write_text("0")
        except OSError as error:
            pytest.skip(f"the control group's memory can't be limited: {error}")
        yield path
    finally:
        path.rmdir()


def test_a_run_that_takes_all_memory(group: Path, tmp_path: Path) -> None:
    """CRASHED by SIGKILL, with the kernel's killer named in record and error; its sibling and what follows succeed."""
    program = Program(
        """
        def grow():
            hoard = []
            while True:
                hoard.append(bytearray(b"x") * (8 << 20))

        def wait_for(path):
            while not os.path.exists(path):
                time.sleep(0.01)
            return "well"

        records = []
        with ProcessScheduler(2) as scheduler:
            scheduler.subscribe(lambda event: records.append(event.record), RunEnded)
            latch = sys.argv[1]
            sibling = scheduler.submit(wait_for, latch)
            error = scheduler.submit(grow).exception(20)
            open(latch, "w").close()
            print(type(error).__name__, error.signal, "OOM" in str(error))
            print(sibling.result(20), scheduler.submit(abs, -1).result(20))
        crashed = next(record for record in records if record.outcome is Outcome.CRASHED)
        print(crashed.error.oom, crashed.error.signal, crashed.max_rss > 50 << 20, len(records))
        """,
        tmp_path / "latch",
        before=("sh", "-c", f'echo $$ > "{group}/cgroup.procs"; exec "$@"', "sh"),
    )
    with program:
        out, _err = program.end()
    assert out.splitlines() == ["WorkerCrashed SIGKILL True", "well 1", "True SIGKILL True 3"]
