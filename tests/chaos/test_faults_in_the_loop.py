"""Memory runs out at any call of the loop: the scheduler goes on, or it ends loudly and nobody waits for ever.

Virtual time and a fake pool, so that it is the same run again and again, and every call of it can fail once.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from typing import Any

import pytest
from fake_pool import FakePool
from injector import Injector, chosen

from procsched import Cron, FixedDelay, FixedRate, JobLookupError, Retry, SchedulerClosed
from procsched.testing import FakeClock, ManualScheduler

SECOND = 1_000_000_000
SCRIPT_ENDS = 40 * SECOND


class ScriptedPool(FakePool):
    """A fake pool during whose sleeps callers act, at given times."""

    def __init__(self, clock: FakeClock, injector: Injector) -> None:
        begin = clock.monotonic_ns()
        deaths = [(begin + 3 * SECOND + SECOND // 2, 0), (begin + 9 * SECOND, 1)]
        super().__init__(clock, _duration_of, deaths, lambda job_id, number: job_id == "failing" and number % 2 == 1)
        self.script: list[tuple[int, Any]] = []
        self.injector = injector
        self.slept_for_ever = False

    def poll(self, timeout: float | None, linger: float = 0.0) -> list[Any]:
        self.injector.paused = True
        try:
            now = self._clock.monotonic_ns()
            while self.script and self.script[0][0] <= now:
                self.script.pop(0)[1]()
                timeout = 0
            if self.script:
                left = (self.script[0][0] - now) / SECOND
                timeout = left if timeout is None else min(left, timeout)
            elif timeout is None and not self._ready and not any(map(self._moments, self._workers.values())):
                self.slept_for_ever = True
                raise SystemExit("nothing would ever wake the loop")
            return super().poll(timeout)
        finally:
            self.injector.paused = False


def _duration_of(job_id: str, number: int) -> int:
    return {"slow": 2 * SECOND, "": SECOND // 10000}.get(job_id, SECOND // 10)


def work() -> None:
    """Never called: the pool only pretends."""


class Story:
    """Calls and jobs of all kinds, some changes of mind, two dead workers, and a shutdown."""

    def __init__(self, injector: Injector) -> None:
        self.clock = clock = FakeClock()
        self.pool = ScriptedPool(clock, injector)
        self.scheduler = scheduler = ManualScheduler(clock=clock, pool=self.pool, workers=2, max_tasks_per_child=30)
        self.futures = {f"call {i}": scheduler.submit(work) for i in range(20)}
        self.futures |= {f"later {i}": scheduler.submit_after(i, work) for i in range(3)}
        jobs = {
            "rate": scheduler.schedule(work, FixedRate(1).times(6), id="rate"),
            "slow": scheduler.schedule(work, FixedDelay(1).times(2), id="slow", timeout=1.5, warn_after=1),
            "failing": scheduler.schedule(work, FixedDelay(1).times(4), id="failing", retry=Retry(2, backoff=1)),
            "cron": scheduler.schedule(work, Cron("* * * * * */5").times(2), id="cron", misfire_grace_time=1),
            "grid": scheduler.schedule(work, FixedRate("50ms"), id="grid", max_instances=2),
        }
        self.futures |= {f"next {name}": job.next_future() for name, job in jobs.items()}
        begin = clock.monotonic_ns()
        self.pool.script = [
            (begin + 2 * SECOND, jobs["rate"].pause),
            (begin + 4 * SECOND, jobs["rate"].resume),
            (begin + 5 * SECOND, lambda: scheduler.schedule(work, FixedRate(1), id="grid", replace_existing=True)),
            (begin + 6 * SECOND, lambda: self.futures.update(extra=jobs["failing"].run_now())),
            (begin + 7 * SECOND, lambda: jobs["slow"].reschedule(FixedDelay(2).times(3))),
            (begin + 12 * SECOND, lambda: scheduler.cancel("grid")),
            (begin + SCRIPT_ENDS, lambda: scheduler._engine.shutdown(wait=False, timeout=5)),
        ]
        self.pool.script = [(at, _forgiving(deed)) for at, deed in self.pool.script]

    def run(self) -> None:
        """The loop, on this thread."""
        self.scheduler._engine._run()


def _forgiving(deed: Any) -> Any:
    def act() -> None:
        try:
            deed()
        except (SchedulerClosed, JobLookupError):  # it has ended meanwhile: that is an answer
            pass

    return act


def told(story: Story) -> dict[str, str]:
    """How each Future ended."""
    return {
        name: "pending"
        if not future.done()
        else "cancelled"
        if future.cancelled()
        else type(future.exception()).__name__
        for name, future in story.futures.items()
    }


@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a fault in a finalizer or callback
def test_memory_runs_out_in_the_loop(caplog: Any) -> None:
    """At every place where the loop calls something, at its first time."""
    caplog.set_level(logging.CRITICAL, "procsched")
    with Injector() as counting:
        story = Story(counting)
        counting.sites.clear()
        counting.count = 0
        story.run()
    assert story.scheduler._engine.failure is None and not story.pool.slept_for_ever
    usual = told(story)
    assert "pending" not in usual.values(), usual
    steps = chosen(counting.sites, len(counting.sites), 0)
    ends: Counter[str] = Counter()
    wrong: list[object] = []
    for step in steps:
        injector = Injector()
        injector.paused = True
        story = Story(injector)
        injector.paused, injector.step = False, step
        with injector:
            try:
                story.run()
            except BaseException as error:
                wrong.append((injector.hit, "the loop's thread ended with", repr(error)))
        engine = story.scheduler._engine
        ends["loud" if engine.failure is not None else "went on"] += 1
        found = _wrong(story, usual)
        if injector.hit is not None and injector.hit[0] in ("core/slots.py", "core/schedules.py"):
            # In a schedule: its job is paused, as by one that raises, and the run that was waited for doesn't come.
            found = [what for what in found if what[0] != "went on, but" or "cancelled" not in what[1].values()]
        wrong += [(injector.hit, *what) for what in found]
    sys.stdout.write(f"{len(counting.sites)} sites, {counting.count} calls, {len(steps)} faults: {dict(ends)}\n")
    assert wrong == [], "\n".join(map(str, wrong))


def _wrong(story: Story, usual: dict[str, str]) -> list[tuple[object, ...]]:
    engine, answers = story.scheduler._engine, told(story)
    found: list[tuple[object, ...]] = []
    if story.pool.slept_for_ever:
        found.append(("alive, but not scheduling",))
    pending = [name for name, answer in answers.items() if answer == "pending"]
    if pending:
        found.append(("pending", pending))
    if not engine.stopping.ended.is_set():
        found.append(("never ended",))
    if story.scheduler.health().ok:
        found.append(("well, though it has ended",))
    stats = story.scheduler.stats()
    if stats.started != stats.ended:
        found.append(("books", stats))
    # A value that couldn't be brought to its Future is an error there.
    wrong = {name: a for name, a in answers.items() if a not in (usual.get(name), "RemoteError")}
    if engine.failure is None and wrong:
        found.append(("went on, but", wrong))
    # The numbers of "grid" start again when it is replaced.
    twice = [run for run, count in Counter(story.pool.executed).items() if count > 1 and run[0] not in ("", "grid")]
    if twice:
        found.append(("executed twice", twice))
    return found
