"""Arguments are a snapshot, and arrive as what they were."""

from __future__ import annotations

import datetime
import decimal
import enum
import logging
import math
import pickle
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workerlike import call_elsewhere

from procsched import wire
from procsched.shipping.payload import ship, ship_arguments
from procsched.spool import Spooled


class Colour(enum.Enum):
    RED = 1


def arrived(*args: Any, **kwargs: Any) -> Any:
    return wire.decode(ship_arguments(args, kwargs))


def first(*args: Any, **kwargs: Any) -> Any:
    return args[0] if args else kwargs


atoms = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
odd = st.just(Colour.RED) | st.dates() | st.decimals(allow_nan=False) | st.just(len) | st.just(datetime.date)
values = st.recursive(
    atoms | odd,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(st.lists(values).map(tuple), st.dictionaries(st.text(), values))
def test_what_is_sent_is_what_arrives(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Whatever mixture of plain and other values: equal, and of the same types."""
    back = arrived(*args, **kwargs)
    assert back == (args, kwargs)
    assert repr(back) == repr((args, kwargs))


@given(st.lists(atoms, max_size=4).map(tuple), st.dictionaries(st.text(), atoms, max_size=3))
def test_plain_arguments_need_no_cloudpickle(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The bytes of plain arguments are those of pickle."""
    data = ship_arguments(args, kwargs)
    assert isinstance(data, Spooled) or data == pickle.dumps((args, kwargs), 5)


def test_no_arguments_are_no_bytes() -> None:
    """A call without arguments ships nothing for them."""
    assert ship(len, (), {}).args == b""
    assert ship(len, (), {"x": 1}).args != b""


def test_a_self_containing_list_arrives() -> None:
    """A cycle isn't taken for a small plain container."""
    ring: list[Any] = [1]
    ring.append(ring)
    ((back,), _) = arrived(ring)
    assert back[1] is back


@pytest.mark.parametrize("size", [100, 20_000, 200_000, 3_000_000])
def test_what_is_done_to_arguments_later_changes_nothing(size: int) -> None:
    """Arguments are a snapshot, whatever way large ones take."""
    numpy = pytest.importorskip("numpy")
    array, text, items = numpy.zeros(size, "u1"), bytearray(size), [0] * 3
    data = ship_arguments((array, text, items), {})
    array += 1
    text[0] = 1
    items[0] = 1
    ((array, text, items), _) = wire.decode(data)
    assert not array.any() and text[0] == 0 and items == [0, 0, 0]
    assert isinstance(data, Spooled) == (size >= 20_000)
    array += 1  # and a run may write to them


def test_large_plain_arguments_are_spooled() -> None:
    """A long text takes the spool, though it is plain."""
    data = ship_arguments(("x" * 100_000,), {})
    assert isinstance(data, Spooled)
    assert wire.decode(data) == (("x" * 100_000,), {})


def test_functions_and_classes_without_a_home_travel_in_arguments() -> None:
    """Lambdas, local classes and their instances are sent whole, wherever they hide."""

    class Local:
        def __init__(self, value: int) -> None:
            self.value = value

    assert call_elsewhere(lambda fs: [f(1) for f in fs], [lambda x: x, lambda x: x + 1]) == [1, 2]
    assert call_elsewhere(lambda d: d["deep"][0].value, {"deep": (Local(7),)}) == 7
    back = call_elsewhere(first, Local(3))
    assert type(back) is Local and back.value == 3
    assert call_elsewhere(first, Local) is Local


def test_names_of_keyword_arguments_are_free() -> None:
    """A user's keyword may have any name; one that isn't a text is refused."""
    assert call_elsewhere(first, fn=1, self=2, job_id=3, args=4) == {"fn": 1, "self": 2, "job_id": 3, "args": 4}
    with pytest.raises(TypeError, match="must be str"):
        ship(first, (), {1: 2})  # type: ignore[dict-item]


def test_args_may_be_any_sequence_that_is_a_tuple() -> None:
    """A named tuple as args and a mapping as kwargs are what they stand for."""
    parts = sys.version_info
    assert wire.decode(ship_arguments(parts, {})) == (tuple(parts), {})


def test_standard_streams_and_loggers_go_by_name() -> None:
    """A function may mention sys.stderr or a logger: a worker has its own."""
    logger = logging.getLogger("some.where")
    assert call_elsewhere(lambda: logger.name) == "some.where"
    stream = sys.__stderr__
    if sys.stderr is stream:
        assert call_elsewhere(lambda: stream.fileno()) == 2


def test_numbers_of_all_kinds_arrive() -> None:
    """Atoms by the fast way, others by the slow one."""
    sent = (1, 1.5, 2j, True, None, decimal.Decimal("1.10"), datetime.timedelta(1), math.inf, 1 << 100)
    assert arrived(*sent) == (sent, {})
