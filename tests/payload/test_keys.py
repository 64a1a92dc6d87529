"""The same function gets the same key, without being kept alive; something else under its name doesn't."""

from __future__ import annotations

import gc
import importlib
import math
import sys
import threading
import types
import weakref
from typing import Any

import pytest

from procsched.shipping import payload as module
from procsched.shipping.payload import ship


def named(x: int = 0) -> int:
    return x


class Named:
    pass


class Meta(type):
    def __eq__(cls, other: object) -> bool:
        raise AssertionError

    __hash__ = None  # type: ignore[assignment]


class Hostile(metaclass=Meta):
    pass


def key(fn: Any) -> int:
    return ship(fn, (), {}).function.key


@pytest.mark.parametrize("fn", [named, Named, len, int, math.sqrt, str.upper, print])
def test_a_function_by_name_has_one_key(fn: Any) -> None:
    """The workers need its payload once."""
    assert key(fn) == key(fn)
    assert key(fn) != key(sorted)


def made(source: str, name: str = "f", **names: Any) -> Any:
    """A function as a script or an interactive session has it."""
    namespace: dict[str, Any] = {"__name__": "__main__", **names}
    exec(source, namespace)
    return namespace[name]


def test_an_unchanged_function_of_a_script_has_one_key() -> None:
    """What travels by value isn't sent again either, as long as it gives the same bytes."""
    for source in ("def f(): return 1", "def f(): return g()\ndef g(): return K\nK = 2", "f = lambda x: x"):
        fn = made(source)
        assert key(fn) == key(fn)
    listed = made("L = [1]\ndef f(): return L")
    assert key(listed) == key(listed)


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("K = 1\ndef f(): return K", "K = 2"),
        ("K = 'a'\ndef f(): return K", "K = 'b'"),
        ("L = [1]\ndef f(): return L", "L.append(2)"),
        ("def f(): return len('')", "len = lambda x: 7"),
        ("def g(): return 1\ndef f(): return g()", "def g(): return 2"),
        ("def g(): return K\nK = 1\ndef f(): return g()", "K = 2"),
        ("def g(): return 1\ndef f(): return g()", "g.__code__ = (lambda: 3).__code__"),
        ("class C:\n    v = 1\ndef f(): return C.v", "C.v = 2"),
        ("def f(): return K", "K = 1"),
        ("K = 1\ndef f(): return K", "del K"),
        ("def f(a=1): return a", "f.__defaults__ = (2,)"),
        ("def f(*, a=1): return a", "f.__kwdefaults__ = {'a': 2}"),
        ("def f(*, a=1): return a", "f.__kwdefaults__['a'] = 2"),
        ("def f(): return f.v", "f.v = 1"),
        ("def f(): return 1", "f.__code__ = (lambda: 2).__code__"),
        ("import math\ndef f(): return math.pi", "import cmath as math"),
        (
            "def make():\n n = 1\n def f(): return n\n def up():\n  nonlocal n\n  n = 2\n return f, up\nf, up = make()",
            "up()",
        ),
        ("def make():\n    n = [1]\n    def f(): return n\n    return f, n\nf, n = make()", "n.append(2)"),
    ],
)  # fmt: skip
def test_any_change_around_a_function_of_a_script_is_noticed(source: str, change: str) -> None:
    """A function by value is a snapshot of the moment, never of an earlier one."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(source, namespace)
    fn = namespace["f"]
    before = ship(fn, (), {}).function
    before = ship(fn, (), {}).function
    exec(change, namespace)
    after = ship(fn, (), {}).function
    assert after.key != before.key and after.body != before.body


def test_a_submodule_imported_later_is_noticed() -> None:
    """A package that a function mentions may have got another module, which the worker must import, too."""
    import xml

    gone = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("xml.dom")}
    try:
        fn = made("def f(): return xml.dom.minidom", xml=xml)
        assert key(fn) == key(fn)
        before = ship(fn, (), {}).function.body
        importlib.import_module("xml.dom.minidom")
        assert ship(fn, (), {}).function.body != before
    finally:
        sys.modules.update(gone)


def test_a_new_definition_has_a_new_key() -> None:
    """Redefined at a prompt: another object, another payload."""
    old = made("def f(): return 1")
    assert key(old) == key(old)
    new = made("def f(): return 2")
    assert key(new) != key(old)


def test_nothing_is_kept_alive() -> None:
    """A function, what it looks at, its class and its module go when the user drops them."""
    holder = types.ModuleType("pk_holder")
    exec("def f(): return g()\ndef g(): return K\nK = 1\nclass C: pass", holder.__dict__)
    sys.modules["pk_holder"] = holder
    try:
        for thing in (holder.f, holder.C, holder.f, holder.C):
            ship(thing, (holder.C(),), {})
    finally:
        del sys.modules["pk_holder"]
    refs = [weakref.ref(thing) for thing in (holder, holder.f, holder.g, holder.C)]
    local = types.FunctionType(named.__code__, {"__name__": "__main__"}, "local")
    ship(local, (), {})
    refs.append(weakref.ref(local))
    known = {id(local), id(holder.f)}
    assert known <= set(module._known)
    del holder, thing, local
    gc.collect()
    assert [ref() for ref in refs] == [None] * 5
    assert not known & set(module._known)


def test_what_is_remembered_is_bounded() -> None:
    """Ten thousand functions leave a bounded number of entries."""
    number = module._MAX_KNOWN + 500
    functions = [types.FunctionType(named.__code__, {"__name__": "__main__"}, "f") for _ in range(number)]
    for fn in functions:
        ship(fn, (), {})
    assert len(module._known) <= module._MAX_KNOWN
    assert key(functions[-1]) == key(functions[-1])


def test_a_class_with_hostile_equality_is_told_by_identity() -> None:
    """Neither __hash__ nor __eq__ of a user's class is asked."""
    assert key(Hostile) == key(Hostile)
    assert ship(Hostile, (), {}).function.name == "Hostile"


def test_many_threads_may_ship_at_once() -> None:
    """Shipping is thread-safe: every thread gets a whole payload of its own function."""
    errors: list[BaseException] = []

    def many() -> None:
        try:
            for index in range(300):
                fn = made(f"def f(): return {index}")
                assert ship(fn, (index, fn), {}).function.name == "f"
                assert key(named) == key(named)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
