"""Where figures come from: machine, versions, command, and how busy others kept the machine. In the driver."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import psutil

__all__ = ["Noise", "line", "machine", "write"]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"
PACKAGES = ["loky", "cloudpickle", "pebble", "APScheduler", "joblib", "numpy"]


class Noise:
    """How much of the machine others used since it was made."""

    def __init__(self) -> None:
        self._busy, self._own = self._look()
        self._total = self._sum()

    def _look(self) -> tuple[float, float]:
        times = psutil.cpu_times()
        return self._sum() - times.idle - times.iowait, sum(os.times()[:4])

    def _sum(self) -> float:
        times = psutil.cpu_times()
        return float(sum(times) - getattr(times, "guest", 0) - getattr(times, "guest_nice", 0))

    def share(self) -> float:
        """Of all CPU time, what went neither to us nor to idling. Processes that nobody waited for count as others."""
        busy, own = self._look()
        return max(0.0, (busy - self._busy) - (own - self._own)) / max(self._sum() - self._total, 1e-9)


def line(command: str, noise: Noise, seconds: float) -> str:
    """One line under each subject's tables."""
    share, load = noise.share(), os.getloadavg()[0]
    return (
        f"*`{command}`, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {seconds:.0f} s; procsched {_version()}; "
        f"other programs used {share:.0%} of the machine meanwhile, load average {load:.1f}.*"
    )


def machine() -> str:
    """What it ran on."""
    versions = []
    for name in PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name} not installed")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = psutil.virtual_memory().total / (1 << 30)
    return (
        f"{_processor()}, {cores} cores, {memory:.0f} GiB; {platform.system()} {platform.release()}; "
        f"{platform.python_implementation()} {platform.python_version()}; {', '.join(versions)}.\n"
    )


def write(name: str, text: str) -> None:
    """Into the page, between the marks of this name."""
    page = PAGE.read_text()
    begin, end = f"<!-- measured: {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(page):
        raise LookupError(f"{PAGE} has no marks for {name!r}")
    PAGE.write_text(pattern.sub(lambda _: f"{begin}\n\n{text}\n{end}", page))


def _version() -> str:
    import procsched

    command = ["git", "-C", str(Path(procsched.__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):  # an installed wheel
        return procsched.__version__
    return f"{procsched.__version__} at {commit}"


def _processor() -> str:
    try:
        names = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        names = []
    return names[0] if names else platform.machine()
