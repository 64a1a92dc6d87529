"""Endpoint: a few small pages over HTTP, for machines that ask now and then. A thread of the parent, with its own loop.

The parent has better things to do than to serve strangers, so everything here has a bound: connections at once, their
number in a second, the time that each may take, the size of what it says, and the share of a processor that answers
may take in all. A connection is good for one request. Nothing that a client does shows in the log, or as a traceback.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

__all__ = ["Endpoint", "HttpAnswer", "HttpRequest", "Listening", "split_address"]

MOST_CONNECTIONS = 32
"""At once. One more takes the place of the one that has been thinking about its question for longest."""
PACE = 0.005
"""Seconds from one connection to the next: what comes faster waits in the kernel's queue, and then outside."""
PATIENCE = 10.0
"""Seconds for a whole connection: question, answer, and reading it."""
MOST_HEAD = 8192
"""Bytes of a request line with its headers."""
REST = 4
"""An answer that took a millisecond of CPU is followed by so many without one: a fifth of one core is the most that
clients can take from the scheduler, however many there are."""
LAST_WORDS = 5.0
"""Seconds to wait at the end for an answer that is just being made."""

_log = logging.getLogger("procsched.metrics")


class HttpRequest(NamedTuple):
    """A GET or HEAD that can be answered."""

    path: str
    query: str
    headers: dict[str, str]
    """By name in small letters."""


class HttpAnswer(NamedTuple):
    """What to say; the length and the like are added."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


def split_address(option: str, address: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``, ``[IPv6]:PORT``, or a port alone, which means this machine's own address.

    Raises:
        ValueError: It isn't one; says so in the name of ``option``.
    """
    found = re.fullmatch(r"(?:(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[^:\[\]/\s]+)):)?(?P<port>[0-9]{1,5})", address)
    if found is None or int(found["port"]) > 65535:
        raise ValueError(f"{option} needs HOST:PORT, such as 127.0.0.1:9464 or [::1]:9464, not {address!r}")
    return found["six"] or found["host"] or "127.0.0.1", int(found["port"])


class Listening:
    """An address that was taken. Nobody is answered before an `Endpoint` starts on it.

    Raises:
        ValueError, OSError: It can't be had; says so in one line, in the name of ``option``.
    """

    def __init__(self, option: str, address: str) -> None:
        host, port = split_address(option, address)
        try:
            self.socket = _taken(host, port)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "not a name of a host"
            raise OSError(f"{option} {address}: {why[0].lower()}{why[1:]}") from error
        taken = self.socket.getsockname()
        self.host, self.port = host, taken[1]
        self.is_loopback = ipaddress.ip_address(taken[0].partition("%")[0]).is_loopback

    @property
    def url(self) -> str:
        """Where it can be reached, as far as we know."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    def is_meant_by(self, host: str | None) -> bool:
        """Whether a Host header names us. On a loopback address anything else is a web page that had its own name
        point here, so as to read us with its visitor's browser."""
        if host is None or not self.is_loopback:
            return True
        name = re.sub(r":[0-9]*$", "", host.strip().lower()).removeprefix("[").removesuffix("]")
        if name in ("localhost", self.host.lower()):
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False

    def close(self) -> None:
        self.socket.close()

    def __del__(self) -> None:
        if hasattr(self, "socket"):
            self.socket.close()


def _taken(host: str, port: int) -> socket.socket:
    """A socket that listens there, on the first address of that name that can be had."""
    failed: OSError | None = None
    for family, kind, protocol, _name, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            made = socket.socket(family, kind, protocol)
        except OSError as error:  # IPv6 where there is none
            failed = failed or error
            continue
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart needn't wait for old connections
            made.bind(where)
            made.listen(128)
            made.setblocking(False)
        except OSError as error:
            made.close()
            failed = failed or error
            continue
        return made
    raise failed or OSError(f"no address of {host}")


class Endpoint:
    """Answers what comes to an address, from `start` to `stop`."""

    def __init__(self, listening: Listening, answer: Callable[[HttpRequest], HttpAnswer], name: str) -> None:
        self._listening = listening
        self._answer = answer
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._turn = asyncio.Lock()
        self._rest_until = 0.0
        self._complained = False
        self._asking: dict[asyncio.Task[None], None] = {}
        """Connections whose question hasn't come whole."""
        self._open: dict[asyncio.Task[None], None] = {}
        """All connections, the oldest first."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Closes everything. When this has returned the port is free."""
        if self._thread.ident is not None:
            with contextlib.suppress(RuntimeError):  # its loop has ended by itself
                self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(LAST_WORDS)
        else:
            self._loop.close()
        self._listening.close()

    # -- in its thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        # What clients do to their connections isn't worth a line that anybody sees.
        self._loop.set_exception_handler(lambda loop, context: _log.debug("%s", context["message"]))
        try:
            self._loop.run_until_complete(self._serve())
        except Exception as error:
            _log.error("metrics are no longer served: %r; please report this", error)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        accepting = self._loop.create_task(self._accept())
        await self._end.wait()
        tasks = [accepting, *self._open]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports close in the turn after

    async def _accept(self) -> None:
        while True:
            await self._knocked()
            try:
                connection, _peer = self._listening.socket.accept()
            except OSError:  # it has gone again, or there is no descriptor left for it
                await asyncio.sleep(10 * PACE)
                continue
            if len(self._open) >= MOST_CONNECTIONS:
                next(iter(self._asking or self._open)).cancel()
            task = self._loop.create_task(self._attend(connection))
            self._open[task] = self._asking[task] = None
            task.add_done_callback(partial(self._closed, connection))
            await asyncio.sleep(PACE)

    async def _knocked(self) -> None:
        """Until there is somebody. Not ``loop.sock_accept``, which would drop him unclosed if cancelled as he comes."""
        knock = asyncio.Event()
        self._loop.add_reader(self._listening.socket, knock.set)
        try:
            await knock.wait()
        finally:
            self._loop.remove_reader(self._listening.socket)

    def _closed(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        connection.close()  # here: a task that is cancelled at once does nothing at all
        self._open.pop(task, None)
        self._asking.pop(task, None)

    async def _attend(self, connection: socket.socket) -> None:
        writer = None
        try:
            async with asyncio.timeout(PATIENCE):
                connection.setblocking(False)
                reader, writer = await asyncio.open_connection(sock=connection, limit=MOST_HEAD)
                writer.transport.set_write_buffer_limits(0)  # drain() until all is out
                writer.write(await self._answer_to(reader))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError):  # a timeout is an OSError; half a question ends as EOFError
            pass
        finally:
            if writer is not None:
                writer.transport.abort()

    async def _answer_to(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _written(HttpAnswer(431, [], b"so long a question is not read\n"))
        self._asking.pop(asyncio.current_task(), None)  # type: ignore[arg-type]
        try:
            method, target, headers = _parsed(head)
            url = urlsplit(target)
        except ValueError:
            return _written(HttpAnswer(400, [], b"not understood\n"))
        if not self._listening.is_meant_by(headers.get("host")):
            return _written(HttpAnswer(403, [], b"this is not the host that you asked for\n"))
        if method not in ("GET", "HEAD"):
            return _written(HttpAnswer(405, [("Allow", "GET, HEAD")], b"GET and HEAD are all there is\n"))
        async with self._turn:
            await asyncio.sleep(max(0.0, self._rest_until - self._loop.time()))
            began = time.thread_time()
            try:
                answer = self._answer(HttpRequest(url.path, url.query, headers))
            except Exception as error:
                if not self._complained:  # whoever has found the question that does this may ask it again and again
                    _log.error("%s can't be answered: %r; please report this", url.path, error)
                    self._complained = True
                answer = HttpAnswer(500, [], b"this can't be answered\n")
            self._rest_until = self._loop.time() + REST * (time.thread_time() - began)
        return _written(answer, body=method == "GET")


def _parsed(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Method, target and headers; raises `ValueError`."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, target, version = first.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(version)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip() or (name == "host" and name in headers):
            raise ValueError(line)
        headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
    return method, target, headers


def _written(answer: HttpAnswer, *, body: bool = True) -> bytes:
    headers = dict(answer.headers)
    headers.setdefault("Content-Type", "text/plain; charset=utf-8")
    headers |= {"Content-Length": str(len(answer.body)), "Cache-Control": "no-store", "Connection": "close"}
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + (answer.body if body else b"")
