"""Workers kept ready without a slot, to replace a lost one at once. Runs in the loop's thread.

Nobody waits for a spare, so they start after the slots, and after a failed one there is a pause that doubles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from procsched.pool.tenant import Stage, Tenant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Spares"]

_SHORTEST, _LONGEST = 1.0, 60.0  # seconds of pause


class Spares:
    """Law: never more than ``wanted``; each is a tenant without a slot, until it is taken or dies."""

    def __init__(
        self, wanted: int, start: Callable[[], Tenant], after: Callable[[float, Callable[[], None]], None]
    ) -> None:
        self._wanted = wanted
        self._start = start
        self._after = after
        self._tenants: list[Tenant] = []
        self._pause = 0.0
        self.pausing = False

    def __iter__(self) -> Iterator[Tenant]:
        return iter(list(self._tenants))

    def __len__(self) -> int:
        return len(self._tenants)

    def take(self) -> Tenant | None:
        """The one that is furthest: ready, or booting."""
        fit = [tenant for tenant in self._tenants if not tenant.killed]
        if not fit:
            return None
        best = min(fit, key=lambda tenant: (tenant.stage is not Stage.UP, tenant.stage is not Stage.BOOTING))
        self._tenants.remove(best)
        return best

    def came_up(self) -> None:
        """One said hello: the trouble, if there was any, is over."""
        self._pause = 0.0

    def lose(self, tenant: Tenant) -> None:
        """One died."""
        self._tenants.remove(tenant)
        self._pause = min(_LONGEST, self._pause * 2) if self._pause else _SHORTEST

    def refill(self, slots: Iterable[Tenant]) -> None:
        """Start what is missing, unless a slot still waits for its worker."""
        if self.pausing or len(self._tenants) >= self._wanted:
            return
        if any(tenant.stage in (Stage.STARTING, Stage.BOOTING) for tenant in slots):
            return
        if self._pause:
            self.pausing = True
            self._after(self._pause, self._try_one)
            return
        while len(self._tenants) < self._wanted:
            self._tenants.append(self._start())

    def stop(self) -> None:
        """No more of them."""
        self._wanted = 0

    def check_valid(self) -> None:
        """The law."""
        for tenant in self._tenants:
            assert tenant.slot == -1
            assert tenant.stage in (Stage.STARTING, Stage.BOOTING, Stage.UP)

    def _try_one(self) -> None:
        self.pausing = False
        if len(self._tenants) < self._wanted:
            self._tenants.append(self._start())
