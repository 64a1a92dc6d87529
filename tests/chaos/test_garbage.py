"""Bytes that no worker of ours would send: they are refused, that worker is ended, and nothing in them is unpickled."""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from misdeeds import forge

from procsched import ProcessScheduler, WorkerCrashed, wire
from procsched.pool.api import Ended, Started, Voided
from procsched.pool.ends import Ends
from procsched.pool.listener import Ear
from procsched.pool.reports import BrokenReports, Reports
from procsched.spool import Spooled

PIPE_TAKES = 60_000
kinds = st.integers(-1, 12) | st.integers(0, 255)
numbers = st.integers(-(1 << 63), (1 << 63) - 1)


class Exploding:
    """Whoever unpickles it is told so."""

    def __reduce__(self) -> Any:
        return os.write, (2, b"UNPICKLED\n")


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Reports: right ones, ones with odd fields, and torn ones."""
    body = draw(st.sampled_from([b"", b"x", pickle.dumps(Exploding()), b"\x80\x05garbage"]))
    length = draw(st.just(len(body)) | st.integers(0, (1 << 32) - 1))
    magic = draw(st.just(wire.REPORT_MAGIC) | st.integers(0, 255))
    fields = [draw(numbers) for _ in range(6)]
    try:
        head = wire.REPORT.pack(length, magic, draw(kinds), draw(st.integers(0, 255)), *fields)
    except struct.error:
        return b""
    return (head + body)[: draw(st.integers(0, 200))]


@settings(max_examples=150, deadline=None)
@given(st.lists(frames() | st.binary(max_size=300), max_size=20))
def test_reports(pieces: list[bytes]) -> None:
    """Events and `BrokenReports` are all that can come out of them."""
    data = b"".join(pieces)[:PIPE_TAKES]
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    ends: Any = type("", (), {"outbox": reader, "take_file": Ends.take_file, "_passage": None})()
    ends.take_file = lambda: Ends.take_file(ends)
    try:
        os.write(writer, data)
        events: list[Any] = []
        Reports(ends).drain(0, events)
    except BrokenReports:
        pass
    finally:
        os.close(reader)
        os.close(writer)
    assert all(isinstance(event, (Ended, Started, Voided)) for event in events)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=2000), st.integers(0, 255), st.booleans())
def test_chatter(data: bytes, flags: int, framed: bool) -> None:
    """Log records that aren't are dropped and counted."""
    if framed:
        data = wire.CHUNK.pack(len(data), wire.CHUNK_MAGIC, flags, 7) + data
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    ear = Ear(reader, 0)
    try:
        os.write(writer, data)
        ear.pump()
        assert isinstance(ear.finish(0), list)
        ear.heard()
    finally:
        ear.close()
        os.close(writer)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400), st.booleans())
def test_failures_and_spool_files(data: bytes, headed: bool) -> None:
    """A failure's text can always be read, if only as unreadable; a container is refused with an exception."""
    body = Spooled(len(data), content=(struct.pack("<I", 0x70736368) if headed else b"") + data)
    told = wire.failure(data)
    assert isinstance(told.message, str)
    assert isinstance(wire.failure(body).message, str)
    try:
        wire.decode(body, wire.plain_loads)
    except Exception:
        return
    assert not headed or len(data) >= 12, "it can't have been a container"


def test_plain_messages_call_nothing(capfd: Any) -> None:
    """What a worker sends for the loop and the listener can't name a function."""
    data = pickle.dumps(Exploding())
    with pytest.raises(pickle.UnpicklingError):
        wire.plain_loads(data)
    assert wire.failure(data).type_name == "Unreadable"
    assert "UNPICKLED" not in capfd.readouterr().err


def report(
    kind: int, ticket: int = 0, *, started: int = 0, finished: int = 0, flags: int = 0, body: bytes = b""
) -> bytes:
    return wire.REPORT.pack(len(body), wire.REPORT_MAGIC, kind, flags, ticket, started, finished, 0, 0, 0) + body


FORGED = {
    "an unknown kind": [report(77)],
    "garbage": [b"\xff" * 300],
    "an enormous body": [wire.REPORT.pack(1 << 31, wire.REPORT_MAGIC, wire.ENDED, 0, 0, 0, 0, 0, 0, 0)],
    "half a report and no more": [report(wire.ENDED, 5)[:7]],
    "acknowledgements of nothing": [report(wire.VOIDED)] * 3,
    "a second hello": [report(wire.HELLO)] * 2,
    "a failed boot": [report(wire.BOOT_FAILED, body=b"\xff\x00")],
    "ends of runs that there aren't": [report(wire.ENDED, ticket) for ticket in (-1, 0, 1 << 62)],
    "starts of runs that there aren't": [report(wire.STARTED, ticket, started=-1) for ticket in (-1, 0, 1 << 62)],
    "a file that never comes": [report(wire.ENDED, 1, flags=wire.SPOOLED)],
}


@pytest.mark.parametrize("what", FORGED)
def test_a_worker_that_forges_reports(what: str, capfd: Any) -> None:
    """Its run has ended or crashed; the scheduler is well, and its other runs go on."""
    with ProcessScheduler(1) as scheduler:
        future = scheduler.submit(forge, FORGED[what])
        error = future.exception(30)
        assert error is None or isinstance(error, WorkerCrashed), error
        assert scheduler.submit(abs, -1).result(30) == 1
        assert scheduler.health().ok
        scheduler._engine.check_valid()
    stats = scheduler.stats()
    assert stats.started == stats.ended == 2
    assert "UNPICKLED" not in capfd.readouterr().err
