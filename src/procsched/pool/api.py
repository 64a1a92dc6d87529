"""What the dispatcher knows of a pool: the protocol, its settings, its events. Runs in the parent; imports no pool.

A pool has numbered slots, each with at most one worker at a time. It moves orders out and events in, and decides
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from procsched.core.model import Outcome
    from procsched.shipping.payload import Payload
    from procsched.sources import Source
    from procsched.spool import Spooled
    from procsched.wire import Function, Order, RemoteDropped, RemoteLog, RemoteProgress

    Chatter = RemoteLog | RemoteProgress | RemoteDropped

__all__ = ["Died", "Ended", "Event", "Pool", "PoolSettings", "Started", "Up", "Voided"]


@dataclass(slots=True)
class PoolSettings:
    """How to make workers; the same for every one of a pool's life."""

    workers: int
    name: str = "procsched"
    spares: int = 0
    """Workers kept ready without a slot, to replace a lost one at once."""
    initializer: bytes | None = None
    """Pickle of ``(function, args)``, called in every worker before it is up."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the parent's environment, in the workers only."""
    max_memory: int | None = None
    """Bytes; a worker above it after a run says so in its report."""
    task_files: Sequence[tuple[str, str]] = ()
    """``(module name, path)`` of files that every worker loads before it is up."""
    sources: Mapping[str, Source] = field(default_factory=dict)
    """The code of modules, by name, that workers don't read from files."""
    log_levels: Mapping[str, int] = field(default_factory=dict)
    """Levels of the workers' loggers by name; "" is the root."""


class Up(NamedTuple):
    """A worker is ready in this slot."""

    slot: int
    pid: int


class Started(NamedTuple):
    """A run with REPORT_START has begun."""

    slot: int
    ticket: int
    started: int
    """Monotonic ns, taken before the claim."""


class Ended(NamedTuple):
    """A run has been reported. ``body`` goes to ``Pool.decode``; `wire.failure` reads that of a failed one."""

    slot: int
    ticket: int
    success: bool
    started: int
    finished: int
    cpu_time: int
    """ns, of all threads of the worker."""
    max_rss: int
    """Bytes; the worker's peak so far."""
    size: int
    """Bytes of the value that was sent."""
    body: bytes | Spooled | None
    over_memory: bool


class Voided(NamedTuple):
    """One acknowledgement of one withdrawal: the worker holds none of those orders any more."""

    slot: int


class Died(NamedTuple):
    """A worker is gone, buried, and everything it managed to report was returned before."""

    slot: int
    pid: int
    """0 when there never was a process."""
    started: bool
    """It said hello; else it failed to boot and ``boot_error`` says what is known."""
    retired: bool
    exitcode: int | None
    """None when a signal ended it, or somebody else took its status."""
    signal: str | None
    unclaimed: list[int]
    """Tickets nobody has claimed: those runs never started."""
    stack: str
    """What faulthandler wrote at a native crash."""
    logs: list[str]
    """The last records of the run it was executing."""
    max_rss: int
    oom: bool
    """The kernel's OOM killer struck in our cgroup meanwhile."""
    boot_error: str


Event = Up | Started | Ended | Voided | Died


class Pool(Protocol):
    """Used by the dispatcher's loop thread, except where it says otherwise. Its methods never block there."""

    # -- callers' threads

    def ship(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Payload:
        """Pickle for a worker. `NotShippable`, or `TypeError` for coroutine and generator functions."""

    # -- the delivery thread

    def decode(self, outcome: Outcome, body: object) -> object:
        """The value; for a failed run the exception instance, `RemoteError` when that can't be had."""

    # -- the loop's thread

    def open(self, settings: PoolSettings, chatter: Callable[[Chatter], None]) -> None:
        """Once, before the rest. ``chatter`` is called from a thread of the pool."""

    def spawn(self, slot: int) -> None:
        """Start a worker for an empty slot; Up or Died(started=False) follows."""

    def offer(self, slot: int, orders: list[Order], functions: list[Function]) -> None:
        """Hand over runs, still to be claimed. No error for a dead worker: its Died says what it had not claimed."""

    def withdraw(self, slot: int) -> list[int]:
        """Take back every unclaimed ticket; if there were any, one Voided follows."""

    def retract(self, slot: int, ticket: int) -> bool:
        """Take back this one only, the others keep their order; True if it was unclaimed, then one Voided follows."""

    def ask_stop(self, slot: int, ticket: int) -> None:
        """``current_run().should_stop()`` of that run becomes True; -1: of any run from now on."""

    def retire(self, slot: int) -> None:
        """End an idle worker politely; Died(retired=True) follows within about a second."""

    def kill(self, slot: int) -> None:
        """End the worker and all its descendants, booting ones too; Died follows."""

    def poll(self, timeout: float | None, linger: float = 0.0) -> list[Event]:
        """Sleep until something happens, ``timeout`` seconds at most. The only place where the loop sleeps."""

    def close(self, deadline: float) -> None:
        """Kill what is left, close everything; takes ``deadline`` seconds at most; idempotent."""

    # -- any thread

    def wake(self) -> None:
        """Let ``poll`` return; also from a signal handler."""

    def pids(self) -> dict[int, int]:
        """Process id by slot."""

    def dump_stack(self, slot: int) -> str:
        """The Python stack of a running worker, "" if it shows none within 0.2 s. Not in the loop's thread."""
