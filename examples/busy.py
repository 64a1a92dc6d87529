"""Jobs of all kinds, good and bad, to see how the views show them: lateness, failures, crashes, retries, progress.

    procsched run examples/busy.py --workers 4 --live
    procsched run examples/busy.py --workers 4 --trace trace.json --history runs.db

Nothing here is of any use. Ctrl-C ends it.
"""

import logging
import math
import os
import random
import signal
import time

from procsched import FixedDelay, FixedRate, Missed, Retry, current_run, job

log = logging.getLogger("busy")


def work(seconds):
    """Keep a core busy, about so long."""
    end = time.monotonic() + seconds * random.uniform(0.7, 1.3)
    while time.monotonic() < end:
        math.factorial(300)


@job(FixedRate("250ms"))
def heartbeat():
    work(0.004)


@job(FixedRate("500ms", jitter="100ms"))
def thumbnails():
    work(0.12)


@job(FixedDelay("700ms"))
def aggregate():
    work(0.5)


@job(FixedRate("3s"), warn_after="1s")
def train():
    """Takes a while, and tells how far it is."""
    for step in range(20):
        current_run().progress(step / 20, f"epoch {step}")
        work(0.08)


@job(FixedRate("1s", missed=Missed.CATCH_UP), retry=Retry(3, backoff="200ms"))
def upload():
    """Fails now and then, and is tried again."""
    work(0.05)
    if random.random() < 0.35:
        raise ConnectionError("the other side hung up")


@job(FixedRate("4s", initial_delay="2s"))
def leaky():
    """Its worker dies sometimes."""
    log.warning("memory is getting short")
    work(0.2)
    if random.random() < 0.5:
        os.kill(os.getpid(), signal.SIGKILL)


@job(FixedRate("5s", initial_delay="3s"), timeout="800ms")
def stuck():
    """Runs into its timeout."""
    time.sleep(random.choice((0.2, 10)))
