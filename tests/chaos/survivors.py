"""Who is left of a program: processes that carry its mark in their environment, and names in shared memory."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["Mark", "names_in_shared_memory", "wait_until"]


class Mark:
    """An environment variable that a program and all that it starts inherit."""

    def __init__(self) -> None:
        self.text = f"MARK_OF_A_TEST={secrets.token_hex(8)}"

    @property
    def env(self) -> dict[str, str]:
        """The environment for the program."""
        name, _, value = self.text.partition("=")
        return {**os.environ, name: value}

    def processes(self) -> set[int]:
        """Those that live; corpses have no environment."""
        wanted, found = self.text.encode(), set()
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    if wanted in Path(f"/proc/{name}/environ").read_bytes():
                        found.add(int(name))
                except OSError:
                    pass
        return found


def names_in_shared_memory(pids: set[int]) -> set[str]:
    """Files and semaphores that these processes use by name."""
    found = set()
    for pid in pids:
        try:
            maps = Path(f"/proc/{pid}/maps").read_text()
        except OSError:
            continue
        found |= {line.split(maxsplit=5)[5] for line in maps.splitlines() if "/dev/shm/" in line}
    return found


def wait_until(look: Callable[[], object], bound: float) -> float:
    """Seconds until it was true; more than the bound if it never was."""
    begun = time.monotonic()
    while not look():
        if time.monotonic() - begun > bound:
            return float("inf")
        time.sleep(0.005)
    return time.monotonic() - begun
