"""No process can be started for a while, no room in the spool: runs wait or fail by themselves, and it goes on."""

from __future__ import annotations

import errno
import os
import threading
from typing import Any

import pytest

from procsched import PoolUnusable, ProcessScheduler, spool
from procsched.pool.tenant import Tenant

LARGE = 3_000_000
"""Bytes: through a file."""


def carry(burden: bytes) -> int:
    """Its size."""
    return len(burden)


def die() -> None:
    """Its worker is replaced."""
    os._exit(3)


@pytest.mark.parametrize("error", [errno.EAGAIN, errno.EMFILE, errno.ENOMEM])
def test_a_process_cannot_be_started_for_a_while(monkeypatch: pytest.MonkeyPatch, error: int, caplog: Any) -> None:
    """As when the user has too many: the slot is tried again, and calls wait; the other worker works meanwhile."""
    with ProcessScheduler(2) as scheduler:
        assert [scheduler.submit(abs, -n).result(30) for n in range(4)] == [0, 1, 2, 3]
        launch, failures = Tenant.launch, [0]

        def refused(self: Tenant) -> None:
            failures[0] += 1
            if failures[0] <= 2:
                raise OSError(error, os.strerror(error))
            launch(self)

        monkeypatch.setattr(Tenant, "launch", refused)
        assert scheduler.submit(die).exception(30) is not None
        assert [scheduler.submit(abs, -n).result(60) for n in range(20)] == list(range(20))
        pause = threading.Event()
        assert any(scheduler.health().workers_up == 2 or pause.wait(0.01) for _ in range(3000))
        assert failures[0] >= 3 and scheduler.health().ok
    assert scheduler.stats().crashed == 1


def test_none_can_be_started_at_all(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """It ends loudly, with the reason, and everybody who waits is told."""

    def refused(self: Tenant) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(Tenant, "launch", refused)
    scheduler = ProcessScheduler(1)
    waiting = [scheduler.submit(abs, 1) for _ in range(10)]
    for future in waiting:
        assert isinstance(future.exception(60), PoolUnusable) and "temporarily unavailable" in str(future.exception())
    assert not scheduler.health().ok
    scheduler.shutdown()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE, errno.EIO])
def test_no_room_in_the_spool_for_an_argument(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    """Said where the call is made, which is registered nowhere; small ones need no room, and later there is some."""
    with ProcessScheduler(1, max_pending=3) as scheduler:
        assert scheduler.submit(carry, b"x" * 6 * LARGE).result(30) == 6 * LARGE
        with monkeypatch.context() as patch:

            def full(*_: Any, **__: Any) -> Any:
                raise OSError(error, os.strerror(error))

            patch.setattr(spool, "_filled", full)
            for _ in range(5):  # no place of max_pending is lost
                with pytest.raises(OSError, match=os.strerror(error)):
                    scheduler.submit(carry, b"x" * 6 * LARGE)
            assert scheduler.submit(carry, b"x").result(30) == 1
        assert scheduler.submit(carry, b"x" * 6 * LARGE).result(30) == 6 * LARGE
    assert (scheduler.stats().succeeded, scheduler.stats().ended) == (3, 3)


def fill_up_and_return(error: int) -> bytes:
    """From now on there is no room in this worker's spool."""
    from procsched import spool as own

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(error, os.strerror(error))

    own._filled = full
    return b"x" * LARGE


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
def test_no_room_in_the_spool_for_a_result(error: int) -> None:
    """The run has failed, saying so; the worker lives on, and small values go through."""
    with ProcessScheduler(1) as scheduler:
        pid = scheduler.submit(os.getpid).result(30)
        failure = scheduler.submit(fill_up_and_return, error).exception(30)
        assert failure is not None and os.strerror(error) in f"{failure}{failure.__cause__}"
        assert scheduler.submit(os.getpid).result(30) == pid
    assert (scheduler.stats().failed, scheduler.stats().crashed) == (1, 0)
