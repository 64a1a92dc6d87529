"""Trace: what ran when, as a file for Perfetto and Chrome's tracing pages. In the parent, in a thread of its own.

::

    the loop ─news─► events thread ─lines─► BackgroundWriter ─events as text, twice a second─► FILE, and FILE.1

A file is one JSON array, and is one at any moment: what is new goes over the closing bracket, together with a new one,
in one write. Should the kernel cut that write short because the program is killed, the last event is incomplete, which
these pages and `tracefile` take as the end.

A *lane* is what the format calls a thread: one for each worker; and some for runs that wait, from when they were due to
their start, from where an arrow leads to the run.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from procsched import doorway, events
from procsched.figures import stats_of
from procsched.ledger import SHORT, error_of, whole
from procsched.observe.writer import BackgroundWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from procsched.engine import Engine
    from procsched.scheduler import ProcessScheduler

__all__ = ["SIZE", "prepare", "tracing"]

SIZE = "64MiB"
"""Of both files together."""
_LEAST = 64 << 10
_MOST_WAITING = 200_000
"""Runs and other events that wait to be written."""
_LATE = 1_000_000
"""From here on (ns) waiting is worth a bar of its own."""
_WAITING_LANES = 16
"""Runs that are drawn waiting at the same time; of more, the others have no bar."""
_FIRST_WAITING_LANE = 100_000
_MANY = 2000
"""Runs in one batch from which on short ones that follow each other on a worker are drawn as one."""
_SHORT = 1_000_000
_OPEN, _CLOSE = b"[\n", b"\n]\n"
_EVENTS = (
    events.WorkerStarted, events.WorkerLost, events.WorkerReplaced, events.RunRetrying, events.RunSlow,
    events.JobPaused, events.JobResumed, events.RunProgress, events.SchedulerStarted, events.SchedulerStopped,
)  # fmt: skip


def prepare(
    path: str | os.PathLike[str], *, size: int | str = SIZE
) -> Callable[[ProcessScheduler], AbstractContextManager[None]]:
    """For `run --trace`: looks whether the file can be written, and makes it; see `tracing`.

    Raises:
        OSError, TypeError, ValueError: It can't be written; there is a file that is no trace; a senseless size.
    """
    most = doorway.size_of(size, "the size of a trace")
    if most < _LEAST:
        raise ValueError(f"the size of a trace is {size!r}; give at least {_LEAST >> 10}KiB")
    _File(path, most).close()

    @contextmanager
    def opened(scheduler: ProcessScheduler) -> Iterator[None]:
        file = _File(path, most)
        tracer = _Tracer(file, scheduler._engine)
        writer = BackgroundWriter(f"the trace {os.fspath(path)}", tracer.write, _MOST_WAITING)
        writer.start()
        leave = (
            scheduler._engine.announcer.follow(
                lambda news: writer.note([item[1] for item in news if item[0] is events.RunEnded])
            ),
            scheduler.subscribe(lambda event: writer.note([(event, time.time_ns())]), *_EVENTS),
        )
        try:
            yield
        finally:
            for deed in leave:
                deed()
            writer.stop()
            file.close()

    return opened


@contextmanager
def tracing(scheduler: ProcessScheduler, path: str | os.PathLike[str], *, size: int | str = SIZE) -> Iterator[None]:
    """Write what runs within the ``with`` block into ``path``, for Perfetto (ui.perfetto.dev) or `procsched trace`.

    A trace that is there already becomes ``path.1``, and so does each half of what is written that is full.

    Args:
        size: Of both files together: bytes, or ``"64MiB"``.

    Raises:
        OSError, TypeError, ValueError: As `prepare`. Later errors are logged, once: the scheduler goes on.
    """
    with prepare(path, size=size)(scheduler):
        yield


class _File:
    """The array in the file: opened, continued, closed with each write; and put aside when it is full."""

    def __init__(self, path: str | os.PathLike[str], most: int) -> None:
        self._path = os.fspath(path)
        self._most = most // 2
        self._fd = -1
        self._torn = False
        """Whether the last write failed halfway."""
        self._end = 0
        """Where the closing bracket is."""
        self._writes = 0
        """Since it was opened."""
        self._open()

    def _open(self) -> None:
        """Raises `OSError` and `ValueError`."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            fd = os.open(self._path, flags, 0o600)
            found = os.pread(fd, len(_OPEN), 0)
            if found and found != _OPEN:
                os.close(fd)
                raise ValueError(f"{self._path} is no trace of procsched; it is left as it is")
            if os.fstat(fd).st_size > len(_OPEN + _CLOSE):
                os.close(fd)
                os.replace(self._path, f"{self._path}.1")
                fd = os.open(self._path, flags | os.O_EXCL, 0o600)
            os.pwrite(fd, _OPEN + _CLOSE, 0)
        except OSError as error:
            raise OSError(f"the trace {self._path} can't be written: {error.strerror or error}") from None
        self._fd, self._end, self._writes = fd, len(_OPEN), 0

    @property
    def is_new(self) -> bool:
        return self._end == len(_OPEN)

    def fitting(self, texts: list[str]) -> int:
        """How many of these there is still room for; in a file that has only its head, one at least."""
        room, count = self._most - self._end - len(_CLOSE), 0
        for text in texts:
            room -= len(text.encode()) + 2
            if room < 0:
                break
            count += 1
        return count if count or self._writes > 1 else 1

    def turn_over(self) -> None:
        """What was written becomes the older half."""
        self.close()
        self._open()

    def append(self, texts: list[str]) -> None:
        """All of it, or nothing that counts: the next write begins at the same place."""
        data = ",\n".join(texts).encode()
        data = (data if self.is_new else b",\n" + data) + _CLOSE
        written, at = 0, self._end
        torn, self._torn = self._torn, True
        while written < len(data):
            written += os.pwrite(self._fd, data[written:], at + written)
        self._end = at + len(data) - len(_CLOSE)
        self._writes += 1
        if torn:
            os.ftruncate(self._fd, at + len(data))  # what an earlier try has left behind it
        self._torn = False

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class _Tracer:
    """Turns lines and events into the format's events. In the writer's thread."""

    def __init__(self, file: _File, engine: Engine) -> None:
        self._file = file
        self._engine = engine
        self._base = time.time_ns()
        self._names: dict[str, str] = {}
        """Texts as JSON."""
        self._workers: dict[int, int] = {}
        self._waiting = [0] * _WAITING_LANES
        """When each waiting lane is free again."""
        self._flow = 0

    def write(self, batch: list[Any]) -> None:
        """One write, or as many as it takes files. Raises `OSError`."""
        texts: list[str] = []
        lines = [item for item in batch if not isinstance(item[0], events.Event)]
        for item in batch:
            if isinstance(item[0], events.Event):
                self._note(texts, *item)
        if len(lines) > _MANY:
            lines = self._merged(lines)
        for line in lines:
            self._run(texts, whole(line))
        stats = stats_of(self._engine)
        texts.append(
            f'{{"name":"runs","ph":"C","ts":{self._at(time.time_ns())},"pid":1,'
            f'"args":{{"executing":{stats.executing},"ready":{stats.ready}}}}}'
        )
        while texts:
            if self._file.is_new:
                self._file.append(self._head())
            fitting = self._file.fitting(texts)
            if fitting:
                self._file.append(texts[:fitting])
                del texts[:fitting]
            else:
                self._file.turn_over()

    def _head(self) -> list[str]:
        """What each file must tell by itself."""
        about = {"base_ns": self._base, "scheduler": self._engine.name, "workers": len(self._engine.roster.slots)}
        texts = [
            _text({"name": "procsched", "ph": "M", "pid": 1, "tid": 0, "args": about}),
            _meta("process_name", 0, {"name": f"procsched {self._engine.name}"}),
        ]
        for slot in self._engine.roster.slots:
            pid = self._workers.get(slot.index, slot.pid)
            texts += _lane(slot.index, f"worker {slot.index}" + (f" (pid {pid})" if pid else ""))
        for index in range(_WAITING_LANES):
            if self._waiting[index]:
                texts += _lane(_FIRST_WAITING_LANE + index - 1, f"waiting {index + 1}")
        return texts

    def _at(self, wall: int) -> str:
        """Microseconds since the trace began."""
        return f"{(wall - self._base) / 1000:.3f}"

    def _name(self, text: str) -> str:
        found = self._names.get(text)
        if found is None:
            if len(self._names) > 10_000:
                self._names.clear()
            found = self._names[text] = json.dumps(text)
        return found

    def _run(self, texts: list[str], line: tuple[Any, ...]) -> None:
        job_id, number, generation, attempt, _planned, started, finished, late, took = line[:9]
        outcome, error = line[13], line[14]
        if not started:
            name = self._name(f"{job_id} {outcome}")
            texts.append(f'{{"name":{name},"ph":"i","ts":{self._at(finished)},"pid":1,"tid":0,"s":"p","cat":"run"}}')
            return
        if not generation:
            job_id = job_id.removesuffix(f"-{number}")
        name, lane, begin = self._name(job_id), line[11] + 1, self._at(started)
        more = ""
        if outcome != "succeeded":
            told = error_of(error)
            why = f"{told.type}: {told.message[:300]}" if told is not None else ""
            more = f',"error":{json.dumps(why)}'
        if line[18]:
            more += f',"held_by":{self._name(line[18])}'
        colour = "" if outcome == "succeeded" else ',"cname":"terrible"'
        loop, worker = line[16] / 1000, line[17] / 1000
        texts.append(
            f'{{"name":{name},"cat":"{outcome}","ph":"X","ts":{begin},"dur":{took / 1000:.3f},"pid":1,'
            f'"tid":{lane}{colour},"args":{{"number":{number},"attempt":{attempt},"outcome":"{outcome}",'
            f'"late_us":{late / 1000:.3f},"waited_loop_us":{loop:.3f},"waited_worker_us":{worker:.3f},'
            f'"pid":{line[12]}{more}}}}}'
        )
        if late >= _LATE:
            self._wait(texts, name, started - late, started, lane)

    def _wait(self, texts: list[str], name: str, due: int, started: int, lane: int) -> None:
        for index, free in enumerate(self._waiting):
            if free <= due:
                if not free:
                    texts += _lane(_FIRST_WAITING_LANE + index - 1, f"waiting {index + 1}")
                self._waiting[index] = started
                break
        else:
            return
        self._flow += 1
        at, tid = self._at(due), _FIRST_WAITING_LANE + index
        texts.append(
            f'{{"name":{name},"cat":"waiting","ph":"X","ts":{at},"dur":{(started - due) / 1000:.3f},"pid":1,'
            f'"tid":{tid}}},\n'
            f'{{"name":"start","cat":"waiting","ph":"s","id":{self._flow},"ts":{at},"pid":1,"tid":{tid}}},\n'
            f'{{"name":"start","cat":"waiting","ph":"f","bp":"e","id":{self._flow},"ts":{self._at(started)},"pid":1,'
            f'"tid":{lane}}}'
        )

    def _merged(self, lines: list[Any]) -> list[Any]:
        """Short successes of one job, or function, that follow each other on a worker become one.

        Late ones and others aren't mixed: the first of each kind tells how late it was.
        """
        merged: list[Any] = []
        latest: dict[int, int] = {}
        for line in lines:
            if len(line) != SHORT:
                latest.pop(line[11], None)
                merged.append(line)
                continue
            name, _, _, _, start, finished, expected, _, _, _, _, slot, _, _, _ = line
            index = latest.get(slot)
            if index is not None:
                first = merged[index]
                is_alike = (first[4] - first[6] >= _LATE) == (start - expected >= _LATE)
                if first[0] == name and start - first[5] < _SHORT and finished - start < _SHORT and is_alike:
                    merged[index] = (*first[:5], finished, *first[6:])
                    continue
            if finished - start < _SHORT:
                latest[slot] = len(merged)
            merged.append(line)
        return merged

    def _note(self, texts: list[str], event: Any, at: int) -> None:
        if isinstance(event, events.RunProgress):
            about = {"name": f"progress of {event.job_id}", "ph": "C", "ts": (at - self._base) / 1000, "pid": 1}
            texts.append(_text({**about, "args": {"fraction": event.fraction}}))
            return
        lane, kind = 0, type(event).__name__
        args: dict[str, Any] = {}
        if isinstance(event, (events.WorkerStarted, events.WorkerReplaced)):
            self._workers[event.worker] = event.pid
            texts += _lane(event.worker, f"worker {event.worker} (pid {event.pid})")
            lane = event.worker + 1
        elif isinstance(event, events.WorkerLost):
            lane = event.worker + 1
            args = {"pid": event.pid, "signal": event.signal, "exitcode": event.exitcode, "oom": event.oom}
        elif isinstance(event, events.RunRetrying):
            args = {"job": event.record.job_id, "retry_in": event.retry_in}
            texts.append(_text(_attempt(event.record, self._base)))
        elif isinstance(event, events.RunSlow):
            lane, args = event.worker + 1, {"job": event.job_id, "elapsed": event.elapsed, "stack": event.stack}
        elif isinstance(event, (events.JobPaused, events.JobResumed)):
            args = {"job": event.job_id}
        scope = "t" if lane else "p"
        mark = {"name": kind, "cat": "event", "ph": "i", "ts": (at - self._base) / 1000, "pid": 1, "tid": lane}
        texts.append(_text({**mark, "s": scope, "args": args}))


def _attempt(record: Any, base: int) -> dict[str, Any]:
    """A failed attempt that is followed by another one, as a slice."""
    started = record.started.timestamp() * 1e9 - base
    return {
        "name": record.job_id, "cat": record.outcome.value, "ph": "X", "ts": started / 1000,
        "dur": record.duration * 1e6, "pid": 1, "tid": (record.worker or 0) + 1, "cname": "bad",
        "args": {
            "number": record.number, "attempt": record.attempt, "outcome": record.outcome.value, "retried": True,
            "late_us": record.lateness * 1e6,
            "error": f"{record.error.type}: {record.error.message[:300]}" if record.error is not None else "",
        },
    }  # fmt: skip


def _lane(slot: int, name: str) -> list[str]:
    lane = slot + 1
    return [_meta("thread_name", lane, {"name": name}), _meta("thread_sort_index", lane, {"sort_index": lane})]


def _meta(name: str, lane: int, args: dict[str, Any]) -> str:
    return _text({"name": name, "ph": "M", "pid": 1, "tid": lane, "args": args})


def _text(event: dict[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":"))
