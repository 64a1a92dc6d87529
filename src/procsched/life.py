"""Life: from the first piece of work to the last word: start, shutdown, a loop that dies, the end. In the parent.

Started by callers' threads; the loop's thread lives here, and ends itself with the last acts.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

from procsched import events
from procsched.clock import follow as follow_clock
from procsched.errors import InternalError, PoolUnusable, SchedulerClosed
from procsched.lifecycle import check_not_exiting
from procsched.observe import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from procsched.announcer import Announcer
    from procsched.clock import Clock
    from procsched.delivery import Delivery
    from procsched.dispatcher import Dispatcher
    from procsched.gate import Gate
    from procsched.mailbox import Mailbox
    from procsched.pool.api import Pool, PoolSettings
    from procsched.settling import Settling
    from procsched.staff import Staff
    from procsched.stopping import Stopping
    from procsched.waiting import Waiting

__all__ = ["Life"]

_log = logging.getLogger("procsched.scheduler")

LAST_WORDS = 5.0
"""Seconds at the end for a user's callback that doesn't return, and for workers that don't die."""

_BAD_END = "scheduler %r: its end didn't go well; please report this"


class Life:
    """The engine's threads and states. Law: once there was a loop, ``stopping.ended`` is set, whatever ends it."""

    clock: Clock
    pool: Pool
    mailbox: Mailbox
    delivery: Delivery
    announcer: Announcer
    gate: Gate
    dispatcher: Dispatcher
    settling: Settling
    staff: Staff
    waiting: Waiting
    stopping: Stopping

    def __init__(self, settings: PoolSettings, *, threaded: bool) -> None:
        self.name = settings.name
        self.settings = settings
        self.failure: BaseException | None = None
        self.inert: str | None = None
        """Why this engine takes no work, beside being closed: a forked copy, or inside a worker."""
        self.threaded = threaded
        self.started = False
        self._thread: threading.Thread | None = None
        self._start_lock = threading.RLock()
        self._pool_is_open = False
        self.admits = False
        """Whether calls can come in without being looked at: started, not closing, well, and with no bound. Cleared
        *before* whatever ends that looks for calls for the last time."""
        self._last_deeds: list[Callable[[], object]] = []

    @property
    def closing(self) -> bool:
        return self.stopping.begun

    @property
    def turns(self) -> bool:
        """Whether there is a thread that turns the loop."""
        return self.started and self.threaded and self.inert is None

    def become_inert(self, reason: str) -> None:
        """This engine takes no work, and does none, from now on."""
        self.inert = reason
        self.admits = False

    def check_usable(self) -> None:
        """Raises `SchedulerClosed` in a forked copy, and inside a worker."""
        if self.inert is not None:
            raise SchedulerClosed(self.inert)

    def check_open(self) -> None:
        """Raises `SchedulerClosed` with the reason when no new work is taken."""
        self.check_usable()
        if isinstance(self.failure, PoolUnusable):
            raise PoolUnusable(f"the scheduler {self.name!r} has ended itself: {self.failure}") from self.failure
        if self.failure is not None:
            raise SchedulerClosed(f"the scheduler {self.name!r} has ended itself: {self.failure}") from self.failure
        if self.stopping.begun:
            raise SchedulerClosed(f"the scheduler {self.name!r} was shut down and takes no new work")

    def start(self) -> None:
        """Starts threads and workers, at the first piece of work."""
        if not self.started:
            with self._start_lock:
                self._start_once()

    def _start_once(self) -> None:
        if not self.started:
            self.check_open()
            if self.threaded:
                check_not_exiting()
            self.settings.log_levels = log.levels()
            follow_clock(self.clock, self.mailbox.nudge)
            use_clock = getattr(self.pool, "use_clock", None)
            if use_clock is not None:
                use_clock(self.clock)
            if not self._pool_is_open:  # a start that failed halfway, for want of threads, can be tried again
                self.pool.open(self.settings, self.announcer.chatter)
                self._pool_is_open = True
                self.dispatcher.announce(events.SchedulerStarted, self.name, self.settings.workers)
            self.staff.hire()
            self.delivery.start()
            self.announcer.start()
            if self.threaded:
                self.mailbox.reader = 0  # nobody yet: what is asked from now on waits for the thread
                thread = threading.Thread(target=self._run, name=f"{self.name}-loop", daemon=True)
                try:
                    thread.start()
                except BaseException:
                    self.mailbox.reader = None
                    raise
                self._thread = thread
            self.started = True
            self.admits = not self.gate.bounded
            if self.stopping.begun or self.failure is not None:  # looked at last: the loop may have died already
                self.admits = False

    def shutdown(
        self, *, wait: bool, cancel_calls: bool = False, timeout: float | None = None, only_jobs: bool = False
    ) -> None:
        """Stops, as `Stopping.ask` says. Idempotent; from one of our own threads it doesn't wait."""
        if self.inert is not None:
            return
        with self._start_lock:
            if not self.started:
                self.stopping.begun = True
                self.gate.close()
                if self._pool_is_open:  # its start was tried, and failed halfway
                    self.wind_up()
                else:
                    self._say_ended()
                return
        self.stopping.ask(cancel_calls=cancel_calls, timeout=timeout, only_jobs=only_jobs)
        if wait and not self.is_own_thread():
            self.await_end()

    def await_end(self) -> None:
        """Until the loop has ended and its threads with it."""
        self.stopping.ended.wait()
        if self._thread is not None:
            self._thread.join()

    def is_own_thread(self) -> bool:
        """Whether the caller is a thread of ours, which mustn't wait for the loop's end."""
        current = threading.current_thread()
        return current is self._thread or self.delivery.is_current() or self.announcer.is_current()

    def _run(self) -> None:
        self.mailbox.reader = threading.get_ident()
        try:
            while not self.stopping.finished():
                self.dispatcher.turn()
        except BaseException as error:
            try:  # what must happen at the end is tried twice: memory may be short for a moment
                self.break_down(error)
            except BaseException:
                self.break_down(error)
        finally:
            try:
                self.wind_up()
            except BaseException as error:
                self.failure = self.failure or error
                self.wind_up()

    def break_down(self, error: BaseException) -> None:
        """The loop can't go on: loudly, with everybody who waits released."""
        if isinstance(error, PoolUnusable):
            first_line = str(error).partition("\n")[0]  # the traceback that follows was logged with the first failure
            complaint = partial(_log.critical, "scheduler %r: %s", self.name, first_line)
        else:
            complaint = partial(
                _log.critical, "scheduler %r: its loop died; please report this", self.name, exc_info=error
            )
            wrapped = InternalError(f"the scheduler's loop died of {error!r}; please report this")
            wrapped.__cause__ = error
            error = wrapped
        try:
            complaint()
        except BaseException:  # a handler of the program's raised: that mustn't keep anybody waiting
            pass
        self.failure = error
        self.admits = False
        self.gate.close()
        self.mailbox.read_on()
        try:
            self.settling.fail_all(error)
        except BaseException:
            _log.critical("scheduler %r: not everybody could be told", self.name, exc_info=True)

    def wind_up(self) -> None:
        """The last act of the loop: workers, threads, news."""
        last_acts: tuple[Callable[[], object], ...] = (
            partial(self.pool.close, LAST_WORDS),
            self.mailbox.read_on,
            self.mailbox.close,
            partial(self.dispatcher.announce, events.SchedulerStopped, self.name),
            self.dispatcher.tell,
            partial(self.delivery.stop, LAST_WORDS),
            partial(self.announcer.stop, LAST_WORDS),
            self.waiting.release,
        )
        for act in last_acts:
            try:
                act()
            except BaseException as error:
                self.failure = self.failure or error
                for deed in (partial(_log.critical, _BAD_END, self.name, exc_info=True), act):
                    try:
                        deed()  # the act once more: doing it again does no harm
                    except BaseException:  # the others are to happen all the same
                        pass
        self._say_ended()

    def _say_ended(self) -> None:
        deeds, self._last_deeds = self._last_deeds, []
        try:
            for deed in deeds:
                deed()
        finally:
            self.stopping.ended.set()

    def at_end(self, deed: Callable[[], object]) -> None:
        """Something to do when this has ended."""
        self._last_deeds.append(deed)

    def abandon(self) -> None:
        """Nobody holds the scheduler any more: it ends when nothing is left to run."""
        if self.inert is not None or self.stopping.begun:
            return
        if self.started:
            self.mailbox.post(self.stopping.when_idle)
        else:
            self.shutdown(wait=False)
