"""What a worker sends is bytes: whatever they are, the readers take them whole, or say that they make no sense.

The readers are fed directly, through a pipe; `test_garbage.py` does it with real workers.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from procsched import wire
from procsched.pool.api import Ended, Started, Voided
from procsched.pool.listener import Ear
from procsched.pool.reports import BrokenReports, Reports
from procsched.spool import Spooled, anonymous_file

int64 = st.integers(-(2**63), 2**63 - 1)
kinds = st.integers(wire.HELLO, wire.BOOT_FAILED)
frames = st.builds(
    lambda kind, flags, numbers, body: wire.REPORT.pack(len(body), wire.REPORT_MAGIC, kind, flags, *numbers) + body,
    kinds,
    st.integers(0, 255),
    st.lists(int64, min_size=6, max_size=6),
    st.binary(max_size=200),
)
honest = st.builds(
    lambda kind, ticket, body: wire.REPORT.pack(len(body), wire.REPORT_MAGIC, kind, 1, ticket, 1, 2, 3, 4, 5) + body,
    st.sampled_from([wire.STARTED, wire.ENDED, wire.VOIDED]),
    st.integers(1, 1000),
    st.binary(max_size=200),
)


class FakeEnds:
    """The parent's end of an outbox, and a passage with some files."""

    def __init__(self, files: list[int]) -> None:
        self.outbox, self.writer = os.pipe()
        os.set_blocking(self.outbox, False)
        self._files = files

    def take_file(self) -> int:
        if not self._files:
            raise EOFError("none came")
        return self._files.pop()

    def close(self) -> None:
        for fd in (self.outbox, self.writer, *self._files):
            os.close(fd)


@contextmanager
def reports(*files: int) -> Iterator[tuple[Reports, FakeEnds]]:
    ends: Any = FakeEnds(list(files))
    yield Reports(ends), ends
    ends.close()


def read(data: bytes, *files: int) -> tuple[list[Any], bool]:
    """(events, whether it made sense) of what an outbox holds."""
    with reports(*files) as (reader, ends):
        os.write(ends.writer, data)
        events: list[Any] = []
        try:
            reader.drain(0, events)
        except BrokenReports:
            return events, False
        return events, True


@given(st.lists(frames | st.binary(max_size=300), max_size=8).map(b"".join))
def test_a_reader_of_reports_takes_anything(data: bytes) -> None:
    """Events, or one way of saying that it makes no sense."""
    events, _ = read(data)
    assert {type(event) for event in events} <= {Ended, Started, Voided}


@given(st.lists(honest, max_size=8), st.data())
def test_half_a_report_changes_nothing(sent: list[bytes], data: st.DataObject) -> None:
    """Cut anywhere, the whole ones before the cut are what there is; the rest completes it."""
    whole = b"".join(sent)
    cut = data.draw(st.integers(0, len(whole)))
    with reports() as (reader, ends):
        first: list[Any] = []
        both: list[Any] = []
        os.write(ends.writer, whole[:cut])
        reader.drain(0, first)
        os.write(ends.writer, whole[cut:])
        reader.drain(0, both)
    assert first + both == read(whole)[0]
    assert len(first + both) == len(sent)


def test_a_long_body_is_no_body() -> None:
    """It is refused by its announcement, before anything is read or kept for it."""
    assert read(wire.REPORT.pack(wire.BODY_LIMIT + 1, wire.REPORT_MAGIC, wire.ENDED, 0, 1, 1, 2, 3, 4, 5)) == (
        [],
        False,
    )


@pytest.mark.parametrize("announced", [1, 1 << 40, (1 << 63) - 1, -1, -(1 << 63)])
@pytest.mark.parametrize("sealable", [True, False])
def test_a_spooled_value_of_another_size(announced: int, sealable: bool) -> None:
    """Shorter, absurdly longer, less than nothing; also in a file whose length can't be held fast, and is a lie."""
    if sealable:
        fd = anonymous_file()
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
        os.ftruncate(fd, min(max(announced, 0), 1 << 43))
    header = wire.REPORT.pack(0, wire.REPORT_MAGIC, wire.ENDED, wire.SPOOLED, 1, 1, 2, 3, 4, announced)
    events, fine = read(header, fd)
    for event in events:
        with pytest.raises((ValueError, EOFError, OSError, MemoryError, pickle.UnpicklingError)):
            wire.decode(event.body)
        event.body.close()
    assert fine is bool(events)


def test_a_value_cannot_be_cut_short_afterwards() -> None:
    """Or looking at it would be a SIGBUS, the end of the parent."""
    fd = anonymous_file()
    other = os.dup(fd)
    os.write(fd, bytes(8_000_000))
    spooled = Spooled.adopt(fd, 8_000_000)
    view = spooled.view()
    with pytest.raises(PermissionError):
        os.ftruncate(other, 0)
    assert view[-1] == 0
    os.close(other)
    spooled.close()


def test_a_value_in_a_file_that_can_be_cut_is_copied() -> None:
    """Where there are no memory files, or their maker has sealed the seals."""
    with tempfile.TemporaryFile() as file:
        file.write(bytes(8_000_000))
        file.flush()
        spooled = Spooled.adopt(os.dup(file.fileno()), 8_000_000)
        file.truncate(0)
        assert spooled.view()[-1] == 0
        spooled.close()


# ---------------------------------------------------------------------------------------------------- bodies, chatter


class Trap:
    def __reduce__(self) -> Any:
        return os.abort, ()


atoms = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
bodies = st.binary(max_size=300) | atoms.map(pickle.dumps) | st.just(pickle.dumps(Trap()))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A pickle, or a container of one, with a byte or two of it changed, or its end cut off."""
    value = draw(atoms)
    parts = wire.encode([value, b"x" * draw(st.sampled_from([1, 20_000]))], pickle.dumps)
    data = bytearray(parts if isinstance(parts, bytes) else b"".join(bytes(part) for part in parts))
    for _ in range(draw(st.integers(0, 2))):
        data[draw(st.integers(0, min(len(data) - 1, 200)))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))])


@given(bodies | damaged(), st.booleans())
def test_a_failure_is_always_readable(body: bytes, spooled: bool) -> None:
    """It is text, whatever the body is, and no code of the worker's choice runs."""
    told = wire.failure(Spooled(len(body), content=body) if spooled else body)
    assert isinstance(told.type_name, str) and isinstance(told.message, str)
    assert told.exception is None or isinstance(told.exception, bytes)


@given(damaged() | st.binary(max_size=300))
def test_a_broken_container_is_an_error(data: bytes) -> None:
    """Of Python, that is: no read beyond its end."""
    spooled = Spooled(len(data), content=data)
    try:
        wire.decode(spooled, wire.plain_loads)
    except Exception as error:
        assert not isinstance(error, (SystemError, AssertionError))


def chunk(flags: int, pid: int, payload: bytes) -> bytes:
    return wire.CHUNK.pack(len(payload), wire.CHUNK_MAGIC, flags, pid) + payload


said = st.tuples(st.integers(-1, 4), atoms, atoms, atoms, atoms, atoms, atoms, atoms, atoms, atoms, atoms)
chunks = st.builds(chunk, st.integers(0, 255), st.integers(0, 3), bodies | said.map(pickle.dumps))


@given(st.lists(chunks | st.binary(max_size=50), max_size=6).map(b"".join))
def test_an_ear_takes_anything(data: bytes) -> None:
    """What it hears can be told: the fields of a log record have the types that logging needs."""
    for message in hear(data):
        if isinstance(message, wire.RemoteLog):
            assert [type(value) for value in message] == [int, int, str, int, str, int, str, float, str, int, str]
        elif isinstance(message, wire.RemoteProgress):
            assert [type(value) for value in message] == [int, int, str, int, float, str]
        else:
            assert [type(value) for value in message] == [int, int]


def hear(data: bytes) -> list[Any]:
    """What an ear hears of these bytes."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.write(writer, data)
    os.close(writer)
    ear = Ear(reader, 0)
    while ear.pump():
        pass
    ear.finish(0)
    ear.close()
    return ear.heard()


def test_what_is_said_honestly_is_heard() -> None:
    """The fields that are checked are those that are sent."""
    log = (wire.SAY_LOG, 1, "job", 2, "logger", 30, "text", 1.0, "path", 5, "function")
    progress, dropped = (wire.SAY_PROGRESS, 1, "job", 2, 0.5, "half"), (wire.SAY_DROPPED, 7)
    data = b"".join(chunk(wire.CHUNK_FIRST | wire.CHUNK_LAST, 9, pickle.dumps(it)) for it in (log, progress, dropped))
    assert hear(data) == [
        wire.RemoteLog(0, 9, *log[2:]),
        wire.RemoteProgress(0, *progress[1:]),
        wire.RemoteDropped(0, 7),
    ]
