"""Retry: how often, and how far apart, the attempts of one run are made. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from procsched.core.durations import duration_ns

if TYPE_CHECKING:
    from procsched.core.durations import Duration

__all__ = ["Retry"]


class Retry:
    """Make up to ``attempts`` attempts of a run in all before it counts as failed.

    Args:
        attempts: All attempts together, the first one included; at least 1.
        backoff: Pause before the second attempt (seconds, timedelta or text such as ``"10s"``). Default 1 s.
        factor: Each further pause is this much longer than the one before it. Default 2.
        max_backoff: No pause is longer than this. Default: no bound.
        jitter: Each pause is lengthened by a random time up to this, so that jobs which failed together don't come
            back together. Default 0.
        on_crash: Whether a run whose worker died is tried again too. Default True.

    A pause frees the worker, but the run still counts as executing (for ``max_instances`` as well).

    Raises:
        TypeError, ValueError: For a senseless argument, at once.
    """

    __slots__ = ("attempts", "backoff_ns", "factor", "jitter_ns", "max_backoff_ns", "on_crash")

    attempts: int
    backoff_ns: int
    factor: float
    max_backoff_ns: int | None
    jitter_ns: int
    on_crash: bool

    def __init__(
        self,
        attempts: int,
        backoff: Duration = "1s",
        factor: float = 2,
        max_backoff: Duration | None = None,
        jitter: Duration = 0,
        on_crash: bool = True,
    ) -> None:
        if isinstance(attempts, bool) or not isinstance(attempts, int):
            raise TypeError(f"Retry: attempts must be a whole number of attempts, such as 3, not {attempts!r}")
        if attempts < 1:
            raise ValueError(f"Retry: attempts counts the first one too, so it must be at least 1, not {attempts}")
        if isinstance(factor, bool) or not isinstance(factor, (int, float)):
            raise TypeError(f"Retry: factor must be a number such as 2, not {factor!r}")
        if not 1 <= factor < float("inf"):
            raise ValueError(f"Retry: factor must be at least 1 and finite, not {factor!r}")
        self.attempts = attempts
        self.backoff_ns = duration_ns(backoff, "Retry: backoff", zero=True)
        self.factor = factor
        self.max_backoff_ns = None if max_backoff is None else duration_ns(max_backoff, "Retry: max_backoff", zero=True)
        self.jitter_ns = duration_ns(jitter, "Retry: jitter", zero=True)
        self.on_crash = bool(on_crash)

    def pause_after(self, attempt: int, draw: float) -> int:
        """Nanoseconds between the end of this attempt (counted from 1) and the next one; ``draw`` is in [0, 1)."""
        # A power of a float overflows long before anybody waits that long: bound the exponent, not the result.
        grown = self.backoff_ns * self.factor ** min(attempt - 1, 200) if self.backoff_ns else 0
        bound = self.max_backoff_ns if self.max_backoff_ns is not None else 10**18
        return int(min(grown, bound)) + int(self.jitter_ns * draw)

    def __repr__(self) -> str:
        return f"Retry({self.attempts}, backoff={self.backoff_ns / 1e9:g}, factor={self.factor:g})"
