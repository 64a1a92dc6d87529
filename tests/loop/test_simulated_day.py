"""A day of hundreds of jobs and a thousand dead workers, on the real dispatcher, in seconds."""

from __future__ import annotations

import random
from collections import Counter

from fake_pool import FakePool

from procsched import Cron, Daily, FixedDelay, FixedRate, Missed, Outcome, Retry, RunEnded, RunRecord
from procsched.testing import FakeClock, ManualScheduler

SECOND = 1_000_000_000
DAY = 86_400 * SECOND


def work() -> None:
    """Never called: the pool only pretends."""


def duration_of(job_id: str, number: int) -> int:
    """Between 1 ms and 20 s, always the same for the same run; bursts are short, so that they travel in batches."""
    if job_id.startswith("burst"):
        return 100_000
    dice = random.Random(f"{job_id} {number}")
    return int(dice.choice((0.001, 0.01, 0.2, 3, 20)) * dice.uniform(0.5, 1.5) * SECOND)


def fails(job_id: str, number: int) -> bool:
    """Every third run of some jobs raises."""
    return job_id.startswith("delay") and number % 3 == 0


def boot(pid: int) -> int:
    """Between 50 ms and 2 s; one worker in eight doesn't come up at all."""
    dice = random.Random(pid)
    return dice.randrange(SECOND // 20, 2 * SECOND) * (-1 if pid % 8 == 0 else 1)


def test_a_day_with_a_thousand_deaths() -> None:
    """Every run ends once, as it really went; no slot is lost; the books balance after every turn."""
    dice = random.Random(7)
    clock = FakeClock()
    begin = clock.monotonic_ns()
    deaths = [(begin + dice.randrange(DAY), dice.randrange(8)) for _ in range(900)]
    # …and some in the middle of a burst, when workers hold batches of runs that they haven't claimed.
    bursts = [begin + step * 600 * SECOND for step in range(1, 144)]
    deaths += [(burst + dice.randrange(2_000_000), dice.randrange(8)) for burst in bursts * 2]
    pool = FakePool(clock, duration_of, deaths, fails, boot)
    scheduler = ManualScheduler(clock=clock, pool=pool, workers=8)
    records: list[RunRecord] = []
    scheduler.subscribe(lambda event: records.append(event.record), RunEnded)
    caught_up, on_a_grid = {}, {}
    for number in range(100):
        period = dice.randrange(600, 3600)
        scheduler.schedule(work, FixedDelay(period), id=f"delay-{number}")
        scheduler.schedule(work, FixedRate(period), id=f"rate-{number}", priority=dice.randrange(1, 4))
        skip = FixedRate(period, missed=Missed.SKIP)
        scheduler.schedule(work, skip, id=f"skip-{number}", max_instances=1 + number % 2)
        on_a_grid[f"rate-{number}"] = on_a_grid[f"skip-{number}"] = period
        caught_up[f"all-{number}"] = period
        scheduler.schedule(work, FixedRate(period, missed=Missed.CATCH_UP), id=f"all-{number}")
        scheduler.schedule(work, FixedRate(period), id=f"retried-{number}", retry=Retry(3))
        caught_up[f"burst-{number}"] = 600
        scheduler.schedule(work, FixedRate(600, missed=Missed.CATCH_UP), id=f"burst-{number}")
    for hour in range(24):
        scheduler.schedule(work, Daily(f"{hour:02}:30", timezone="UTC"), id=f"daily-{hour}")
        scheduler.schedule(work, Cron(f"{hour} * * * *", timezone="UTC"), id=f"hourly-{hour}")

    engine = scheduler._engine
    engine.start()
    turns = 0
    while clock.monotonic_ns() < begin + DAY:
        engine.dispatcher.turn()
        stats = scheduler.stats()
        assert stats.started == stats.ended + stats.executing
        claimed = sum(run.started for run in engine.roster.holding())
        assert claimed <= stats.executing
        if turns % 25 == 0:
            assert stats.executing == sum(row.executing for row in engine.timetable.jobs.rows())
        turns += 1
        if turns % 1000 == 0:
            engine.check_valid()
            engine.announcer.flush()
    engine.check_valid()
    engine.announcer.flush()

    assert pool.deaths > 1000
    assert pool.failed_boots > 100
    # The loop turns for what happens, and no more.
    assert turns < 6 * len(pool.executed) + 86_400 // 30 + 10 * pool.deaths
    # Every run ended once, under a number of its own.
    ends = Counter((record.job_id, record.number) for record in records)
    assert set(ends.values()) == {1}
    # What ended is what was executed, but for the runs that are still under way.
    executed = {(job_id, number) for job_id, number, _attempt in pool.executed}
    under_way = executed - set(ends)
    assert set(ends) <= executed
    # (of a batch, a start is told with its end)
    assert scheduler.stats().executing <= len(under_way) <= 8 + 100
    # Only those runs crashed whose worker died under them; the retried ones were tried again.
    crashed = [record for record in records if record.outcome is Outcome.CRASHED]
    retries = sum(attempt > 1 for _job_id, _number, attempt in pool.executed)
    assert len(crashed) + retries + len(under_way) >= pool.lost >= len(crashed)
    assert not [record for record in crashed if record.job_id.startswith("retried") and record.attempt < 3]
    # Nothing that had to run was left out: CATCH_UP serves every slot, a calendar every date.
    runs = Counter(job_id for job_id, _number in ends)
    for job_id, period in caught_up.items():
        slots = 86_400 // period + 1
        assert slots - 1 <= runs[job_id] <= slots, job_id
    # The other policies serve or count every slot; one may be under way, and one due behind it.
    for job_id, period in on_a_grid.items():
        stats = scheduler[job_id].stats
        assert 0 <= 86_400 // period + 1 - (stats.runs + stats.missed) <= 2, job_id
    # Those runs failed that raised, and no others.
    for record in records:
        if record.outcome is not Outcome.CRASHED:
            assert (record.outcome is Outcome.FAILED) == fails(record.job_id, record.number)
    for hour in range(24):
        assert runs[f"daily-{hour}"] == 1
        assert 23 <= runs[f"hourly-{hour}"] <= 24
    # A fixed delay counts from the end, whatever that was like.
    last_end: dict[str, float] = {}
    for record in records:
        if record.job_id.startswith("delay") and record.started is not None:
            started = record.started.timestamp()
            if record.job_id in last_end:
                assert started >= last_end[record.job_id] + 600 - 0.001
            last_end[record.job_id] = record.finished.timestamp()
    scheduler.shutdown(timeout=0)
