"""RestartBudget: replace a lost worker now, later, or give up? Pure.

Crashes of runs never use up anything: they only pace replacement, so that a job that kills its worker on every run
can't heat the machine. Boots that fail are another matter: when no worker can be started, nothing can ever run, and
saying so loudly beats trying for ever. (The idea of a restart intensity is that of OTP's supervisors.)
"""

from __future__ import annotations

__all__ = ["GIVE_UP", "RestartBudget"]

GIVE_UP = -1

SECOND = 1_000_000_000

_FIRST_PAUSE = SECOND // 4
_LONGEST_PAUSE = 30 * SECOND
_NEVER_UP = 8 * SECOND
"""With a first failure this long ago and no worker ever up, the next failure is the last. Together with the pauses
(0.25, 0.5, 1, 2, 4 s) that is about ten seconds."""
_NONE_UP = 60 * SECOND
"""The same for a pool that has worked before and has no worker left: whatever broke may be mended again."""


class RestartBudget:
    """Says when a slot may get a new worker. All times are monotonic ns."""

    def __init__(self, workers: int) -> None:
        self._capacity = float(workers + 5)
        self._per_second = float(max(5, workers))
        self._tokens = self._capacity
        self._refilled = 0
        self._ever_up = False
        self._failing_since: int | None = None
        self._retry_at = 0
        self._pause = _FIRST_PAUSE

    def came_up(self) -> None:
        """A worker is ready: whatever kept others from starting is over."""
        self._ever_up = True
        self._failing_since = None
        self._pause = _FIRST_PAUSE
        self._retry_at = 0

    def crashed(self, now: int) -> int:
        """A worker that had been ready died: when to replace it. At once, unless that has happened too often lately."""
        earned = (now - self._refilled) * self._per_second / SECOND
        self._tokens = min(self._capacity, self._tokens + earned) - 1
        self._refilled = now
        wait = 0 if self._tokens >= 0 else int(-self._tokens * SECOND / self._per_second)
        return max(now + wait, self._retry_at)

    def boot_failed(self, now: int, *, others_up: bool) -> int:
        """A worker died before it was ready: when to try again, or `GIVE_UP`."""
        if self._failing_since is None:
            self._failing_since = now
        failing = now - self._failing_since
        if not others_up and failing >= (_NONE_UP if self._ever_up else _NEVER_UP):
            return GIVE_UP
        if now >= self._retry_at:  # several slots that fail together are one failure
            self._retry_at = now + self._pause
            if not self._ever_up:  # nor does boot after boot fail so quickly that the last pause is a long one
                self._retry_at = min(self._retry_at, max(now, self._failing_since + _NEVER_UP))
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return self._retry_at
