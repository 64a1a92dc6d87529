"""procsched as a library: the same pool runs things now, later, and again and again.

python examples/library.py
"""

from procsched import After, FixedRate, Outcome, ProcessScheduler, RunEnded, current_run


def primes_below(limit):
    """Count primes the slow way; this is what keeps a core busy."""
    return sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(2, limit))


def heartbeat():
    print(f"heartbeat {current_run().number}")


def show(event):
    run = event.record
    if run.outcome is Outcome.SUCCEEDED:
        print(f"  {run.job_id} #{run.number} took {run.duration * 1000:.1f} ms on worker {run.worker}")


if __name__ == "__main__":
    with ProcessScheduler(workers=2) as scheduler:
        scheduler.subscribe(show, RunEnded)

        # Now, as with concurrent.futures
        future = scheduler.submit(primes_below, 50_000)
        print("primes below 50,000:", future.result())
        print("and below 1,000 … 4,000:", list(scheduler.map(primes_below, [1_000, 2_000, 3_000, 4_000])))

        # Later, with a Future too
        later = scheduler.submit_after("500ms", primes_below, 10_000)

        # Again and again: three times, half a second apart
        scheduler.schedule(heartbeat, FixedRate("500ms").times(3))
        scheduler.schedule(primes_below, After("1s"), args=(20_000,), id="one-more")

        print("primes below 10,000:", later.result())
        scheduler.wait()
