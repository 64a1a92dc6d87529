"""ControlServer: answers what `procsched ctl` asks, and does what it asks for. In the parent, in a thread of its own.

One JSON object a line, one question a connection::

    → {"v": 1, "do": "pause", "id": "backup"}
    ← {"v": 1, "ok": true, "answer": "backup is paused"}

It serves one connection after the other, and none for longer than some seconds: whoever can connect is the user
himself, and a scheduler has no time to lose for him either.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import threading
import time
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Self

from procsched import __version__
from procsched.control import place
from procsched.errors import JobLookupError, ProcschedError
from procsched.observe.board import Board

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from procsched.scheduler import ProcessScheduler

__all__ = ["VERSION", "ControlServer"]

VERSION = 1
LONGEST = 64 << 10
"""Bytes of a question."""
PATIENCE = 3.0
"""Seconds for a question to come, and for its answer to be taken."""

_log = logging.getLogger("procsched.cli")


class ControlServer:
    """Listens from ``with`` on, and until its end.

    Args:
        scheduler: What is talked about.
        path: Of the socket; None: in this user's own folder, by process id.
        about: Told by ``status`` beside the rest, such as the task file.

    Raises:
        OSError: The socket can't be made, or somebody listens there already.
    """

    def __init__(self, scheduler: ProcessScheduler, path: str | None, about: dict[str, Any]) -> None:
        self._scheduler = scheduler
        self._about = about
        self.path = path if path is not None else str(place.socket_of(os.getpid(), place.private_folder(make=True)))
        self._listening = _listen(self.path)
        self._identity = _identity_of(self.path)
        self._wake_read, self._wake_write = os.pipe()
        self._stopping = False
        self._board = Board(scheduler)
        self._thread = threading.Thread(target=self._serve, name="procsched control", daemon=True)
        self._deeds: dict[str, Callable[[dict[str, Any]], Any]] = {
            "list": self._list,
            "status": self._status,
            "pause": self._pause,
            "resume": self._resume,
            "trigger": self._trigger,
            "cancel": self._cancel,
            "stack": self._stack,
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        os.write(self._wake_write, b"x")
        self._thread.join(2 * PATIENCE)
        self._board.close()
        self._listening.close()
        if _identity_of(self.path) == self._identity:  # else somebody has put another one in its place
            os.unlink(self.path)
        if not self._thread.is_alive():
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _serve(self) -> None:
        poller = select.poll()
        poller.register(self._listening, select.POLLIN)
        poller.register(self._wake_read, select.POLLIN)
        while True:
            poller.poll()
            if self._stopping:
                return
            try:
                connection, _ = self._listening.accept()
            except OSError:  # it has gone again, or there is no descriptor left
                time.sleep(0.05)
                continue
            with connection:
                try:
                    self._answer(connection)
                except (OSError, ValueError):  # it went away, was slow, or sent what can't be read
                    pass
                except Exception:
                    _log.exception("a question could not be answered; please report this")

    def _answer(self, connection: socket.socket) -> None:
        if place.peer_of(connection) not in (os.geteuid(), 0):
            return
        connection.settimeout(PATIENCE)
        question = _question_on(connection)
        try:
            answer = {"ok": True, "answer": self._do(question)}
        except _Refused as refusal:
            answer = {"ok": False, "error": str(refusal)}
        except (ProcschedError, RuntimeError) as error:
            answer = {"ok": False, "error": str(error)}
        connection.sendall(json.dumps({"v": VERSION, **answer}, default=str).encode() + b"\n")

    def _do(self, question: Any) -> Any:
        if not isinstance(question, dict) or question.get("v") != VERSION:
            raise _Refused(f"this is procsched {__version__}, which speaks version {VERSION} of the protocol")
        deed = self._deeds.get(str(question.get("do")))
        if deed is None:
            raise _Refused(f"there is no {question.get('do')!r}; there are {', '.join(self._deeds)}")
        return deed(question)

    # -- what can be asked for ------------------------------------------------------------------------------------

    def _job(self, question: dict[str, Any]) -> Any:
        name = question.get("id")
        if not isinstance(name, str):
            raise _Refused("which job? Give its id")
        try:
            return self._scheduler.get_job(name)
        except JobLookupError:
            known = [job.id for job in self._scheduler.get_jobs()]
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise _Refused(f"no job has the id {name!r}{hint}") from None

    def _list(self, question: dict[str, Any]) -> Any:
        return [
            {
                "id": job.id,
                "state": job.state,
                "next_run_time": job.next_run.astimezone().isoformat() if job.next_run is not None else None,
                "executing": job.executing,
                "runs": job.runs,
                "failures": job.failures,
                "last_outcome": job.last_outcome or None,
                "schedule": job.schedule,
            }
            for job in self._board.view().jobs
            if job.state != "ended"
        ]

    def _status(self, question: dict[str, Any]) -> Any:
        view = self._board.view()
        return {
            **self._about,
            "pid": os.getpid(),
            "version": __version__,
            "uptime": view.uptime,
            "rate": view.rate,
            "health": view.health._asdict(),
            "stats": view.stats._asdict(),
            "workers": [worker._asdict() for worker in view.workers],
            "waiting": [run._asdict() for run in view.waiting],
        }

    def _pause(self, question: dict[str, Any]) -> Any:
        job = self._job(question)
        job.pause()
        return f"{job.id} is paused"

    def _resume(self, question: dict[str, Any]) -> Any:
        job = self._job(question)
        job.resume()
        return f"{job.id} goes on"

    def _trigger(self, question: dict[str, Any]) -> Any:
        job = self._job(question)
        job.run_now()
        return f"{job.id} runs as soon as a worker is free"

    def _cancel(self, question: dict[str, Any]) -> Any:
        job = self._job(question)
        job.cancel()
        return f"{job.id} is cancelled"

    def _stack(self, question: dict[str, Any]) -> Any:
        job = self._job(question)
        text = self._scheduler.stack(job.id)
        if not text:
            raise _Refused(f"{job.id} doesn't execute just now")
        return text


class _Refused(Exception):
    """Told to who has asked."""


def _question_on(connection: socket.socket) -> Any:
    """Raises `OSError` and `ValueError`."""
    data, end = b"", time.monotonic() + PATIENCE
    while not data.endswith(b"\n"):
        if time.monotonic() > end or len(data) > LONGEST:
            raise ValueError("a question that doesn't end")
        piece = connection.recv(1 << 16)
        if not piece:
            raise ValueError("half a question")
        data += piece
    return json.loads(data)


def _listen(path: str) -> socket.socket:
    place.check_length(path)
    if os.path.lexists(path):
        if place.answers(path):
            raise OSError(f"somebody listens at {path} already")
        if not _identity_of(path):
            raise OSError(f"{path} is there already, and is no socket; it is left as it is")
        os.unlink(path)
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(path)
        os.chmod(path, 0o600)
        listening.listen(16)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise OSError(f"no socket can be made at {path}: {error.strerror or error}") from None
    return listening


def _identity_of(path: str | Path) -> tuple[int, int] | None:
    """Of a socket; None if there is none."""
    import stat

    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISSOCK(found.st_mode) else None
