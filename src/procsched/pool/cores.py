"""How many cores this process may use. Runs in the parent; here, because only the pool imports loky."""

from __future__ import annotations

__all__ = ["cpu_count"]


def cpu_count() -> int:
    """Cores that affinity and cgroup quota leave to this process, at least 1 (loky's count)."""
    from loky import cpu_count as count

    return int(count())
