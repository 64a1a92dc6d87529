"""A process whose jobs are far away: how often does it wake up, and what does it burn?"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
from harness import Failed, Plan, Side, Table, figure, together
from peers import EXECUTORS, background, nothing, observed

from procsched import After, Daily

TITLE = "Idle"
SECONDS = 65.0
JOBS = 1000


def ours(seconds: float) -> dict[str, float]:
    """Intervals and a calendar, none of them due within hours."""
    with observed() as (scheduler, _witness):
        for _ in range(JOBS):
            scheduler.schedule(nothing, After("1d"))
        scheduler.schedule(nothing, Daily(f"{(datetime.now(UTC).hour + 12) % 24:02}:00", timezone="UTC"))
        return _watch(seconds)


def executor(name: str, seconds: float) -> dict[str, float]:
    """A warm pool with nothing to do."""
    with EXECUTORS[name]():
        return _watch(seconds)


def apscheduler(seconds: float) -> dict[str, float]:
    with background() as scheduler:
        for _ in range(JOBS):
            scheduler.add_job(nothing, "date", run_date=datetime.now(UTC) + timedelta(days=1))
        return _watch(seconds)


def _watch(seconds: float) -> dict[str, float]:
    """What happens meanwhile in this process and in those that it has started; our own sleep is one wake-up."""
    time.sleep(0.5)
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    main = threading.main_thread().native_id
    switches, cpu = _switches(processes), _cpu(processes)
    time.sleep(seconds)
    after = _switches(processes)
    woken = {thread: count - switches.get(thread, 0) for thread, count in after.items() if thread != main}
    own = {thread.native_id: thread.name for thread in threading.enumerate()}
    return {
        "all": sum(woken.values()),
        "busiest thread of the parent": max((woken[t] for t in own if t in woken), default=0),
        "cpu": max(0.0, _cpu(processes) - cpu) * 1000,
        "processes": len(processes),
        "seconds": seconds,
    }


def _switches(processes: list[psutil.Process]) -> dict[int, int]:
    """Voluntary context switches, by thread."""
    found = {}
    for process in processes:
        for status in Path(f"/proc/{process.pid}/task").glob("*/status"):  # none: loky's idle workers go home
            text = status.read_text()
            found[int(status.parent.name)] = int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return found


def _cpu(processes: list[psutil.Process]) -> float:
    """Seconds, from the scheduler's own account in nanoseconds: clock ticks are too coarse here."""
    total = 0
    for process in processes:
        for schedstat in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            total += int(schedstat.read_text().split()[0])
    return total / 1e9


def tables(plan: Plan) -> list[Table]:
    seconds = plan.seconds or SECONDS
    sides = [Side(f"procsched, {JOBS:,} jobs", ours, {"seconds": seconds})]
    sides += [
        Side(name, executor, {"name": name, "seconds": seconds})
        for name in ("multiprocessing.Pool", "concurrent.futures", "loky", "pebble")
    ]
    sides.append(Side(f"APScheduler, {JOBS:,} jobs", apscheduler, {"seconds": seconds}))
    table = Table((f"idle for {seconds:g} s", "wake-ups", "of the parent's busiest thread", "CPU ms", "processes"))
    table.note = (
        "Voluntary context switches and CPU time of all processes and threads. All sides were watched at the same "
        "time, after each had warmed up. procsched looks at the wall clock every 30 s while a calendar job waits. "
        "loky's workers end after some seconds of idling, and boot again with the next call."
    )
    for name, value in together(sides).items():
        if isinstance(value, Failed):
            table.fail(name, value)
            continue
        keys = ("all", "busiest thread of the parent", "cpu", "processes")
        table.add(name, *(figure(value[key]) for key in keys))
    return [table]
