"""Announcer: tells subscribers and the log what happened, in order. A thread of the parent.

It has a thread of its own, beside that of the Futures: a subscriber may wait for a Future, or write to a slow disk.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

from procsched.events import Event, JobAdded, JobCancelled, RunEnded, RunProgress, RunStarted
from procsched.ledger import is_failure, record_of
from procsched.observe import log
from procsched.wire import RemoteDropped, RemoteLog, RemoteProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Announcer"]

_log = logging.getLogger("procsched.scheduler")
_jobs = logging.getLogger("procsched.job")
_runs = logging.getLogger("procsched.run")

_MOST_WAITING = 100_000
"""News kept for subscribers that are slower than the scheduler; beyond it the newest are dropped and counted."""
_MANY = 16
"""So much news of one turn, and there will be more in a moment."""
_REST = 0.005
"""Seconds that the thread lets it gather then: to be woken by every turn costs the loop, which wants the same
interpreter lock, more than the news does."""

News = tuple[Any, ...]
"""(event class, *its fields), runs as lines of the ledger: a ready event costs more than the loop wants to spend on one
that nobody asked for. Or (function that makes the event,), or (partial that logs something,)."""


class Announcer:
    """Subscribers, the news for them, and the thread that brings it."""

    def __init__(self, name: str, *, threaded: bool) -> None:
        self._news: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._subscribers: tuple[tuple[Callable[[Any], object], tuple[type, ...]], ...] = ()
        self._followers: tuple[Callable[[list[News]], object], ...] = ()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._name = name
        self._threaded = threaded
        self._dropped = 0
        self.dropped = 0
        """News that nobody was told of, since the start."""
        self._put = self._told = 0
        """News of the loop: counted in by it, and out by the announcer's thread."""
        self._stopped = False
        self._wants_jobs = False
        self.minds_successes = True
        """Whether anybody wants to hear of successes."""
        self.minds_starts = True
        """Whether anybody wants to hear of starts."""

    def subscribe(self, callback: Callable[[Any], object], types: Sequence[type]) -> Callable[[], None]:
        """Calls ``callback`` with each event of these types (none: of all) from now on. Returns what ends that."""
        if not callable(callback):
            raise TypeError(f"subscribe() needs a function that takes an event, not {callback!r}")
        for kind in types:
            if not (isinstance(kind, type) and issubclass(kind, Event)):
                raise TypeError(f"subscribe() takes event classes such as RunEnded after the callback, not {kind!r}")
        entry = (callback, tuple(types) or (Event,))
        with self._lock:
            self._subscribers = (*self._subscribers, entry)
            self._wants_jobs = self.wants(JobAdded) or self.wants(JobCancelled)

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers = tuple(other for other in self._subscribers if other is not entry)
                self._wants_jobs = self.wants(JobAdded) or self.wants(JobCancelled)

        return unsubscribe

    def follow(self, take: Callable[[list[News]], object]) -> Callable[[], None]:
        """Calls ``take`` with the news of each turn as they come, unmade, before subscribers are told of them; ends of
        all runs are among them. For those who would spend more on the events than on what they do with them.
        Returns what ends that."""
        with self._lock:
            self._followers = (*self._followers, take)

        def leave() -> None:
            with self._lock:
                self._followers = tuple(other for other in self._followers if other is not take)

        return leave

    def start(self) -> None:
        if self._threaded and self._thread is None:
            thread = threading.Thread(target=self._run, name=f"{self._name}-events", daemon=True)
            thread.start()
            self._thread = thread  # one that could not be started can be tried again

    def is_current(self) -> bool:
        """Whether the caller is this thread."""
        return threading.current_thread() is self._thread

    def put(self, news: list[News]) -> None:
        """The news of one turn of the loop."""
        if self._put - self._told > _MOST_WAITING:
            self._dropped += len(news)
            self.dropped += len(news)
            return
        self._put += len(news)
        self._news.put(news)

    def chatter(self, said: Any) -> None:
        """What a worker said beside its reports. Called by the pool's own thread."""
        if self._news.qsize() <= _MOST_WAITING:
            self._news.put((said,))

    def flush(self) -> bool:
        """Without a thread: tells what there is, on the calling one. True if there was something."""
        told = False
        while not self._news.empty():
            news = self._news.get()
            if news is not None:
                told = True
                self._tell_all(news)
        return told

    def stop(self, timeout: float | None = None) -> None:
        """Tells what there is and ends. ``timeout`` (seconds) bounds the wait for a subscriber that doesn't return."""
        self._stopped = True
        if self._thread is None:
            self.flush()
            return
        self._news.put(None)
        if not self.is_current():
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            try:
                news = self._news.get()
            except Exception:  # no memory to wait with: what is there is there still
                time.sleep(_REST)
                continue
            if news is None:
                return
            try:
                self._tell_all(news)
            except BaseException:  # a log handler raised, and at the complaint about it: news go on
                pass
            many = len(news) >= _MANY
            del news  # or the last ones would live until the next
            if many and self._news.empty():
                time.sleep(_REST)

    def _tell_all(self, news: list[Any] | tuple[Any]) -> None:
        starts, successes = _runs.isEnabledFor(logging.DEBUG), _runs.isEnabledFor(logging.INFO)
        jobs = _jobs.isEnabledFor(logging.DEBUG)
        if type(news) is list:  # else a worker's chatter, which has come by another way
            self._told += len(news)
            for take in self._followers:
                _surely(take, news)
            if self._followers and not successes and not self.wants(RunEnded):  # for them alone all ends were noted
                news = [item for item in news if item[0] is not RunEnded or is_failure(item[1])]
        for item in news:
            try:
                if type(item) is not tuple:
                    self._tell(item)
                elif item[0] is RunEnded:
                    self._tell_event(RunEnded.of(item[1]), successes or is_failure(item[1]))
                elif item[0] is RunStarted:
                    self._tell_event(RunStarted.of(item[1]), starts)
                elif item[0] is JobAdded or item[0] is JobCancelled:
                    self._tell_event(item[0](item[1], item[2]), jobs)
                else:
                    self._tell(item)
            except Exception:
                _surely(_log.exception, "an event couldn't be told; please report this")
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            _surely(_log.warning, "subscribers are slower than the scheduler: %d events were dropped", dropped)

    def _tell(self, item: Any) -> None:
        if isinstance(item, tuple):
            kind, *fields = item
            if isinstance(kind, partial):
                _surely(kind)  # a line for the log
                return
            if not fields:
                event = kind()  # one that takes its time to make
            else:
                event = kind(*(record_of(field) if type(field) is tuple else field for field in fields))
        elif isinstance(item, RemoteLog):
            _surely(log.log_remote, item)
            return
        elif isinstance(item, RemoteDropped):
            _surely(log.log_dropped, item)
            return
        elif isinstance(item, RemoteProgress):
            event = RunProgress(item.job_id, item.number, item.fraction, item.message)
        else:
            event = item
        self._tell_event(event, logged=True)

    def _tell_event(self, event: Event, logged: bool) -> None:
        """By far most events: the log isn't even asked where it wants none."""
        if logged:
            _surely(log.log_event, event)
        for callback, types in self._subscribers:
            if isinstance(event, types):
                try:
                    callback(event)
                except BaseException:  # sys.exit() too: others have their news to come
                    _surely(_log.exception, "a subscriber raised at %s", type(event).__name__)

    def minds_jobs(self) -> bool:
        """Whether anybody wants to hear of jobs that come and go. Any thread."""
        return self._wants_jobs or _jobs.isEnabledFor(logging.DEBUG)

    def look_who_minds(self) -> None:
        """Before news is made: whether anybody wants to hear of runs that start and succeed."""
        self.minds_successes = bool(self._followers) or self.wants(RunEnded) or _runs.isEnabledFor(logging.INFO)
        self.minds_starts = self.wants(RunStarted) or _runs.isEnabledFor(logging.DEBUG)

    def wants(self, kind: type) -> bool:
        """Whether anybody subscribed to this type of event. Any thread."""
        return any(issubclass(kind, types) for _callback, types in self._subscribers)


def _surely(write: Callable[..., object], *args: object) -> None:
    """A line for the log. A handler of the program's that raises must not keep news from anybody."""
    try:
        write(*args)
    except Exception:
        if logging.raiseExceptions:  # as `logging` itself does it
            traceback.print_exc()
