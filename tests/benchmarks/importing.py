"""What ``import procsched`` costs beyond a bare interpreter, and what it loads."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from harness import Plan, Table, figure

TITLE = "Import"
IMPORTS = {
    "a bare interpreter": "",
    "procsched": "import procsched",
    "procsched, and its scheduler": "from procsched import FixedRate, ProcessScheduler",
    "concurrent.futures.ProcessPoolExecutor": "from concurrent.futures import ProcessPoolExecutor",
    "multiprocessing.pool": "import multiprocessing.pool",
    "loky": "import loky",
    "pebble": "import pebble",
    "APScheduler": "import apscheduler.schedulers.background",
    "joblib": "import joblib",
}
HEAVY = ("loky", "numpy", "psutil", "cloudpickle", "multiprocessing", "asyncio", "logging", "click", "cronsim", "ssl")
LIST = "\nimport sys; print(*sys.modules)"


def seconds(source: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", source], check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin


def loaded(source: str) -> set[str]:
    """Names of the modules that are there afterwards."""
    found = subprocess.run([sys.executable, "-c", source + LIST], check=True, capture_output=True, text=True)
    return set(found.stdout.split())


def tables(plan: Plan) -> list[Table]:
    table = Table(("import", "ms beyond a bare interpreter", "modules beyond it", "of them heavy", "target"))
    table.note = (
        "Median of runs in turn, with compiled files in place. Names of procsched are loaded when they are asked for."
    )
    before, times = loaded(""), {name: list[float]() for name in IMPORTS}
    modules: dict[str, set[str]] = {}
    for name, source in IMPORTS.items():
        try:
            modules[name] = loaded(source) - before  # and it is compiled now
        except subprocess.CalledProcessError:
            table.add(name, "isn't installed", "", "", "")
    for _ in range(plan.size(25, 2)):
        for name in modules:
            times[name].append(seconds(IMPORTS[name]))
    bare = times["a bare interpreter"]
    for name, found in modules.items():
        if name != "a bare interpreter":
            extra = statistics.median(took - floor for took, floor in zip(times[name], bare, strict=True))
            heavy = [module for module in HEAVY if module in found]
            target = "≤ 20 ms, none" if name == "procsched" else ""
            table.add(name, figure(extra * 1000), str(len(found)), ", ".join(heavy) or "none", target)
    return [table]
