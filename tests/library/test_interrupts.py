"""A Ctrl-C between any two steps of a call leaves the scheduler whole: its accounts are mended by the loop."""

from __future__ import annotations

from typing import Any


def test_interrupts_in_the_midst_of_calls(program: Any) -> None:
    """Hundreds of interrupts while jobs are scheduled, replaced, paused, rescheduled, run and cancelled."""
    done = program(
        """
        import random
        def interrupt(*_): raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        s = ProcessScheduler(workers=2)
        s.submit(abs, 1).result()
        dice, calls, interrupts, over = random.Random(7), 0, 0, time.monotonic() + 2
        while time.monotonic() < over:
            try:
                signal.setitimer(signal.ITIMER_REAL, dice.random() * 0.002 + 0.00002)
                while True:
                    calls += 1
                    s.submit(abs, calls)
                    s.submit_after(0.001, abs, calls)
                    job = s.schedule(abs, FixedRate("5ms"), args=(1,), id=f"j{calls % 3}", replace_existing=True)
                    job.pause(); job.resume(); job.run_now(); job.reschedule(After(0.001))
                    if calls % 3 == 0:
                        job.cancel()
            except KeyboardInterrupt:
                interrupts += 1
            except (RuntimeError, JobLookupError):  # CPython's own Condition.wait, when interrupted in its last line
                pass
        signal.setitimer(signal.ITIMER_REAL, 0)
        for job in s.get_jobs():
            job.cancel()
        print(interrupts > 100, s.wait(20), s.health().ok)
        stats = s.stats()
        print(stats.started == stats.ended, stats.executing, stats.ready, stats.scheduled)
        print(s.submit(abs, -1).result(10))
        s.shutdown(timeout=5)
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["True True True", "True 0 0 0", "1"]
