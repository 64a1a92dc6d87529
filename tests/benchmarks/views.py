"""Views of what goes on, beside a scheduler that nobody listens to: what being watched costs the runs."""

from __future__ import annotations

import importlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import repeat
from typing import Any

from harness import Failed, Plan, Side, Table, figure, in_turn, medians, quantile, ratio
from peers import WARM_UP, WORKERS, Witness, busy, nothing, timed

from procsched import FixedRate, Missed, ProcessScheduler

TITLE = "Views"
JOBS = 64
LINES = 100
"""Records that a job keeps: so many runs of one job can be looked at without anybody listening."""
GOAL = 0.9
ALONE = "nobody listens"

VIEWS: dict[str, tuple[str, ...]] = {
    "metrics": ("procsched.observe.metrics", "127.0.0.1:{port}"),
    "history": ("procsched.observe.history", "{folder}/runs.db"),
    "trace": ("procsched.observe.trace", "{folder}/trace.json"),
    "a board looked at": ("looked_at",),
}
"""By name: the module whose `prepare` makes its opener, and what that is told. ``{folder}`` is one of its own;
``{port}`` is free, and whoever answers there is asked for ``/metrics`` once a second, by another process."""

SCRAPER = """
import sys, time, urllib.request
while True:
    urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics", timeout=10).read()
    print(flush=True)
    time.sleep(1)
"""


@contextmanager
def watched(views: list[str], witness: bool) -> Iterator[ProcessScheduler]:
    """A scheduler, its workers up, with these views on it."""
    with ExitStack() as stack:
        given = {"folder": stack.enter_context(tempfile.TemporaryDirectory()), "port": _free_port()}
        openers = []
        for name in views:
            module, *words = VIEWS[name]
            openers.append(importlib.import_module(module).prepare(*(word.format_map(given) for word in words)))
        scheduler = ProcessScheduler(WORKERS)
        for opener in openers:
            stack.enter_context(opener(scheduler))
        stack.callback(scheduler.shutdown)  # views see the last events: they close behind it
        if witness:
            scheduler.subscribe(Witness())
        if any("{port}" in word for name in views for word in VIEWS[name]):
            stack.enter_context(_scraped(given["port"]))
        scheduler.submit(nothing).result()
        while scheduler.health().workers_up < WORKERS:
            time.sleep(0.01)
        for future in [scheduler.submit(nothing) for _ in range(WARM_UP)]:
            future.result()
        yield scheduler


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def _scraped(port: int) -> Iterator[None]:
    scraper = subprocess.Popen([sys.executable, "-c", SCRAPER, str(port)], stdout=subprocess.PIPE)
    try:
        assert scraper.stdout is not None
        assert scraper.stdout.readline() == b"\n", "it can't be scraped"
        yield
    finally:
        scraper.kill()
        scraper.wait()
        scraper.stdout.close()  # type: ignore[union-attr]


def calls(views: list[str], witness: bool, count: int) -> dict[str, float]:
    """Calls a second: all submitted, then each asked for its result."""
    with watched(views, witness) as scheduler:

        def measured() -> None:
            for future in [scheduler.submit(nothing) for _ in range(count)]:
                future.result()

        return _measured(scheduler, measured, count)


def work(views: list[str], witness: bool, count: int) -> dict[str, float]:
    """Calls a second that keep a core busy for a millisecond."""
    with watched(views, witness) as scheduler:

        def measured() -> None:
            for future in [scheduler.submit(busy, 0.001) for _ in range(count)]:
                future.result()

        return _measured(scheduler, measured, count)


def recurring(views: list[str], witness: bool, count: int) -> dict[str, float]:
    """Runs a second of jobs that are always due."""
    with watched(views, witness) as scheduler:
        when = FixedRate("1us", missed=Missed.CATCH_UP).times(count // JOBS)

        def measured() -> None:
            for _ in repeat(None, JOBS):
                scheduler.schedule(nothing, when)
            scheduler.wait()

        return _measured(scheduler, measured, count // JOBS * JOBS)


def _measured(scheduler: ProcessScheduler, work: Any, count: int) -> dict[str, float]:
    """Runs a second; µs of CPU per run, of the whole parent and of the thread that tells the news."""
    announcer = scheduler._engine.announcer
    clock = time.pthread_getcpuclockid(announcer._thread.ident)  # type: ignore[union-attr, arg-type]
    cpu, telling = time.process_time(), time.clock_gettime(clock)
    seconds = timed(work)
    while announcer._put > announcer._told:  # what is late is to be paid for all the same
        time.sleep(0.001)
    cpu, telling = time.process_time() - cpu, time.clock_gettime(clock) - telling
    return {"rate": count / seconds, "cpu": cpu / count * 1e6, "telling": telling / count * 1e6}


def lateness(views: list[str], witness: bool, frequency: int, count: int) -> dict[str, float]:
    """Of starts, µs, out of the jobs' own records."""
    late: list[float] = []
    with watched(views, witness) as scheduler:
        while len(late) < count:
            runs = min(LINES, count - len(late))
            job = scheduler.schedule(nothing, FixedRate(1 / frequency, initial_delay=0.1).times(runs))
            assert scheduler.wait()
            late += [record.lateness for record in job.history]
    return {"p50": quantile(late, 0.5) * 1e6, "p99": quantile(late, 0.99) * 1e6}


def _sides(function: Any, **arguments: Any) -> list[Side]:
    looks: dict[str, tuple[list[str], bool]] = {
        ALONE: ([], False),
        "a subscriber for all events": ([], True),
    }
    looks |= {f"procsched with {name}": ([name], False) for name in VIEWS}
    if len(VIEWS) > 1:
        looks["procsched with all views"] = (list(VIEWS), False)
    return [
        Side(label, function, {"views": views, "witness": witness, **arguments})
        for label, (views, witness) in looks.items()
    ]


def tables(plan: Plan) -> list[Table]:
    count = plan.size(96_000, 640)
    return [
        _rates("calls of 1 ms", _sides(work, count=plan.size(4_000, 100)), plan),
        _rates("calls in order", _sides(calls, count=count), plan),
        _rates("recurring no-ops", _sides(recurring, count=count), plan),
        _lateness(_sides(lateness, frequency=200, count=plan.size(600, 20)), plan),
    ]


def _rates(what: str, sides: list[Side], plan: Plan) -> Table:
    found = in_turn(sides, plan.rounds)
    table = Table((what, "runs/s", "CPU µs/run", "of it for telling", "against nobody", "goal"))
    alone = found[ALONE]
    for name, values in found.items():
        if isinstance(values, Failed):
            table.fail(name, values)
            continue
        middle, against = medians(values), ""
        if not isinstance(alone, Failed) and values is not alone:
            against = f"{ratio([v['rate'] for v in values], [v['rate'] for v in alone]):.2f} x"
        cells = [figure(middle[key]) for key in ("rate", "cpu", "telling")]
        table.add(name, *cells, against, f"≥ {GOAL} x" if name.startswith("procsched") else "")
    return table


def _lateness(sides: list[Side], plan: Plan) -> Table:
    found = in_turn(sides, plan.size(max(5, plan.rounds), 1))
    table = Table(("lateness of starts at 200 Hz, µs", "p50", "p99", "p50 against nobody", "p99", "goal"))
    table.note = (
        "Nobody listens: no subscriber, and a log that wants no successes; procsched doesn't note calls down then. "
        "Everywhere else on this page it has a subscriber for all events. Metrics are scraped once a second meanwhile, "
        "by another process on the same two cores. CPU is that of the parent; telling is the thread in which "
        "subscribers and views are told."
    )
    alone = found[ALONE]
    for name, values in found.items():
        if isinstance(values, Failed):
            table.fail(name, values)
            continue
        cells = [figure(medians(values)[key]) for key in ("p50", "p99")]
        if not isinstance(alone, Failed) and values is not alone:
            cells += [f"{ratio([v[key] for v in values], [v[key] for v in alone]):.2f} x" for key in ("p50", "p99")]
        table.add(name, *cells, *[""] * (4 - len(cells)), "p50 ≤ 1.1 x" if name.startswith("procsched") else "")
    return table
