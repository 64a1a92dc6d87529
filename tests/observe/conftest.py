"""Values to observe."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from procsched import Outcome, RunRecord

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def record() -> Callable[..., RunRecord]:
    """A record of a run that went well, with whatever a test wants to have otherwise."""

    def make(**other: Any) -> RunRecord:
        fields: dict[str, Any] = {
            "job_id": "nightly",
            "number": 3,
            "generation": 1,
            "attempt": 1,
            "planned": NOON,
            "started": NOON + timedelta(milliseconds=5),
            "finished": NOON + timedelta(seconds=1.325),
            "lateness": 0.005,
            "duration": 1.32,
            "cpu_time": 1.3,
            "max_rss": 30 << 20,
            "worker": 1,
            "pid": 4242,
            "outcome": Outcome.SUCCEEDED,
        }
        return RunRecord(**(fields | other))

    return make
