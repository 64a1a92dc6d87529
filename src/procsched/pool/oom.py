"""Whether the kernel's OOM killer struck in our cgroup. Runs in the parent; best effort, a small read per question."""

from __future__ import annotations

import os

__all__ = ["OomCounter"]

_ROOT = "/sys/fs/cgroup"


class OomCounter:
    """Compares the cgroup's count of kills with the last one it saw."""

    def __init__(self) -> None:
        self._paths = _candidates()
        self._seen = self._read()

    def rose(self) -> bool:
        """Since the last question. Two deaths and one kill: the first one asked about gets it."""
        now = self._read()
        before, self._seen = self._seen, now
        return now > before

    def _read(self) -> int:
        for path in self._paths:
            try:
                with open(path) as file:
                    for line in file:
                        if line.startswith("oom_kill "):
                            return int(line.split()[1])
            except (OSError, ValueError, IndexError):
                continue
        return 0


def _candidates() -> list[str]:
    paths = []
    try:
        with open("/proc/self/cgroup") as file:
            for line in file:
                number, controllers, group = line.rstrip("\n").split(":", 2)
                if number == "0":
                    paths += [f"{_ROOT}{group}/memory.events", f"{_ROOT}/unified{group}/memory.events"]
                elif "memory" in controllers.split(","):
                    paths.append(f"{_ROOT}/memory{group}/memory.oom_control")
    except (OSError, ValueError):
        pass
    # in a container the path names the host's hierarchy, and the root that we see is our group
    paths += [f"{_ROOT}/memory.events", f"{_ROOT}/memory/memory.oom_control"]
    return [os.path.normpath(path) for path in paths]
