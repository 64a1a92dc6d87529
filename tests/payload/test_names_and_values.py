"""By name where a worker finds the same thing under it, else by value; checked in a fresh interpreter."""

from __future__ import annotations

import collections
import functools
import importlib
import importlib.util
import json
import math
import operator
import os.path
import pickle
import sys
import types
import typing
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from workerlike import SEARCH, call_elsewhere, run_elsewhere

from procsched.shipping.homes import Way, home_of
from procsched.shipping.payload import ship
from procsched.wire import Function


def double(x: int) -> int:
    return 2 * x


class Account:
    def __init__(self, balance: int) -> None:
        self.balance = balance

    def after(self, deposit: int) -> int:
        return self.balance + deposit

    def __call__(self, deposit: int) -> int:
        return self.after(deposit)

    @classmethod
    def named(cls, name: str) -> tuple[str, str]:
        return cls.__name__, name

    @staticmethod
    def rate() -> float:
        return 0.5


class Savings(Account):
    pass


@functools.cache
def slow(x: int) -> int:
    return x * x


def shipped(fn: Any) -> Function:
    return ship(fn, (), {}).function


def by_path(path: Path, name: str) -> types.ModuleType:
    """Load a file as scripts and plug-in managers do, and register it."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def forget_modules() -> Any:
    before, search = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = search
    for name in set(sys.modules) - before:
        if name.startswith("pl_"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("fn", "args", "value"),
    [
        (double, (2,), 4),
        (json.dumps, ([1],), "[1]"),
        (len, ("abc",), 3),
        (math.sqrt, (4.0,), 2.0),
        (int, ("7",), 7),
        (os.path.join, ("a", "b"), "a/b"),
        (str.upper, ("a",), "A"),
        (collections.Counter, ("aa",), {"a": 2}),
        (Account.rate, (), 0.5),
        (slow, (3,), 9),
    ],
)
def test_what_a_worker_can_import_goes_by_name(fn: Any, args: tuple[Any, ...], value: object) -> None:
    """Functions, built-ins and classes of importable modules travel as their name."""
    payload = ship(fn, args, {})
    assert payload.function.by_reference
    assert len(payload.function.body) < 120
    assert run_elsewhere(payload) == value


def test_the_standard_library_and_what_is_installed_have_their_names() -> None:
    """Of all that this process has imported, next to nothing would be taken for a module without a home."""
    importlib.import_module("numpy.linalg")
    without = [
        name
        for name, module in list(sys.modules.items())
        if type(module) is types.ModuleType and home_of(name).way is Way.VALUE and not name.startswith("__m")
    ]
    # py.path is pytest's alias; _cython_3 holds classes of compiled code; pl_, pk_ and exec'd ones are our tests' own
    assert [name for name in without if not name.startswith(("py.", "_cython", "cython_runtime", "pl_", "pk_"))] == []
    assert home_of("collections.abc").way is Way.NAME


def factory(step: int) -> Any:
    def inner(x: int) -> int:
        return x + step

    return inner


@pytest.mark.parametrize(
    ("fn", "args", "value", "name"),
    [
        (lambda x: x + 1, (1,), 2, "<lambda>"),
        (factory(5), (1,), 6, "inner"),
        (functools.partial(double, 4), (), 8, "double"),
        (functools.partial(functools.partial(lambda a, b: a - b, 9), 2), (), 7, "<lambda>"),
        (Account(10).after, (5,), 15, "after"),
        (Savings(10).after, (5,), 15, "after"),
        (Account(10), (5,), 15, "Account"),
        (Savings.named, ("x",), ("Savings", "x"), "named"),
        ("a-b".split, ("-",), ["a", "b"], "split"),
        (operator.itemgetter(1), ([1, 2],), 2, "itemgetter"),
        (functools.wraps(double)(lambda x: x), (1,), 1, "double"),
        (slow.__wrapped__, (3,), 9, "slow"),
    ],
)
def test_what_has_no_name_there_goes_by_value(fn: Any, args: tuple[Any, ...], value: object, name: str) -> None:
    """Lambdas, closures, partials, bound methods and callable instances work, and have a name for people."""
    payload = ship(fn, args, {})
    assert not payload.function.by_reference
    assert payload.function.name == name
    assert run_elsewhere(payload) == value


def test_a_module_loaded_by_path_goes_by_value(tmp_path: Path, forget_modules: Any) -> None:
    """That a module is in sys.modules doesn't mean that a worker can import it (F5)."""
    (tmp_path / "plug.py").write_text(
        "import functools, typing\nBASE = 100\nT = typing.TypeVar('T')\nKey = typing.NewType('Key', int)\n"
        "class Point:\n    def __init__(self, x): self.x = x\n    def __eq__(self, other): return self.x == other.x\n"
        "def helper(x): return x + BASE\n"
        "def work(x: Key, t: T = None) -> Key: return helper(x)\n"
        "def shift(point): return Point(point.x + 1)\n"
        "@functools.cache\ndef fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
        "class Kind(__import__('enum').Enum):\n    A = 1\n"
    )
    module = by_path(tmp_path / "plug.py", "pl_plug")
    payload = ship(module.work, (1,), {})
    assert not payload.function.by_reference
    assert run_elsewhere(payload) == 101
    moved = call_elsewhere(module.shift, module.Point(1))
    assert type(moved) is module.Point and moved.x == 2
    assert call_elsewhere(module.fib, 20) == 6765
    assert call_elsewhere(lambda: module.helper(5)) == 105
    assert call_elsewhere(len, [module.helper, module.Point(1), module.Kind.A, module.T, module.Key]) == 5
    assert call_elsewhere(operator.attrgetter("name"), module.Kind.A) == "A"


def test_modules_loaded_by_path_that_import_each_other_go_by_value(tmp_path: Path, forget_modules: Any) -> None:
    """A cycle of modules that no worker can import is no endless recursion."""
    (tmp_path / "a.py").write_text("import pl_b\nX = 1\ndef f(): return pl_b.g()\n")
    (tmp_path / "b.py").write_text("import sys\nimport pl_a\ndef g(): return pl_a.X + 1\n")
    sys.modules["pl_a"] = types.ModuleType("pl_a")
    by_path(tmp_path / "b.py", "pl_b")
    first = by_path(tmp_path / "a.py", "pl_a")
    sys.modules["pl_b"].pl_a = first  # type: ignore[attr-defined]
    assert call_elsewhere(first.f) == 2


def test_a_module_under_the_name_of_another_file_goes_by_value(tmp_path: Path, forget_modules: Any) -> None:
    """When the name would give a worker another file, the name isn't sent."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "pl_same.py").write_text("def f(): return 1\n")
    (tmp_path / "two" / "pl_same.py").write_text("def f(): return 2\n")
    sys.path.append(str(tmp_path / "one"))
    module = by_path(tmp_path / "two" / "pl_same.py", "pl_same")
    assert call_elsewhere(module.f) == 2


def test_a_module_made_by_hand_goes_by_value(tmp_path: Path, forget_modules: Any) -> None:
    """A module without a file is known to this process only, even when there is a file of that name."""
    module = types.ModuleType("pl_made")
    exec("def f(x): return x * K\nK = 3", module.__dict__)
    sys.modules["pl_made"] = module
    assert call_elsewhere(module.f, 2) == 6
    (tmp_path / "pl_made.py").write_text("def f(x): return 'the file'\n")
    sys.path.append(str(tmp_path))
    assert call_elsewhere(module.f, 2) == 6


def test_classes_of_all_kinds_survive_without_a_home(tmp_path: Path, forget_modules: Any) -> None:
    """Named tuples, enums, flags, generics, protocols, abstract and frozen classes of a file loaded by path."""
    (tmp_path / "kinds.py").write_text(
        "import abc, enum, typing\nfrom dataclasses import dataclass, field\nT = typing.TypeVar('T')\n"
        "class Tup(typing.NamedTuple):\n    a: int\n    b: str = 'x'\n"
        "class F(enum.Flag):\n    A = enum.auto()\n    B = enum.auto()\n"
        "class G(typing.Generic[T]):\n    def __init__(self, v: T): self.v = v\n"
        "class P(typing.Protocol):\n    def m(self) -> int: ...\n"
        "class Base(abc.ABC):\n    @abc.abstractmethod\n    def m(self): ...\n"
        "class Sub(Base):\n    __slots__ = ('v',)\n    def __init__(self): self.v = 1\n    def m(self): return self.v\n"
        "@dataclass(frozen=True, slots=True)\nclass D:\n    l: list = field(default_factory=list)\n    n: int = 1\n"
        "class Err(Exception):\n    def __init__(self, a, b): super().__init__(a, b); self.b = b\n"
        "class D2(typing.TypedDict):\n    x: int\n"
    )
    kinds = by_path(tmp_path / "kinds.py", "pl_kinds")
    sent = [kinds.Tup(1), kinds.F.A | kinds.F.B, kinds.G(3), kinds.Sub(), kinds.D(), kinds.Err(1, 2), kinds.P, kinds.D2]
    back = call_elsewhere(lambda x: x, sent)
    assert [type(thing) for thing in back] == [type(thing) for thing in sent]
    assert back[0] == (1, "x") and back[1] is kinds.F.A | kinds.F.B and back[2].v == 3 and back[3].m() == 1
    assert back[4] == kinds.D() and back[5].b == 2 and back[6] is kinds.P and back[7] is kinds.D2
    assert call_elsewhere(kinds.D, [1], n=2) == kinds.D([1], 2)


def test_a_changed_search_path_travels_along(tmp_path: Path, forget_modules: Any) -> None:
    """What is found through an entry that sys.path got later is found in older workers, too, with its imports."""
    (tmp_path / "pl_late.py").write_text(
        "import pl_sibling\ndef f(x): return pl_sibling.g(x)\nclass C:\n    v = 4\n    def __init__(self): self.w = 1\n"
    )
    (tmp_path / "pl_sibling.py").write_text("def g(x): return x + 1\n")
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()
    module = importlib.import_module("pl_late")
    payload = ship(module.f, (1,), {})
    assert payload.function.by_reference
    assert str(tmp_path) not in SEARCH
    assert run_elsewhere(payload) == 2
    assert call_elsewhere(lambda: module.C().v) == 4
    assert call_elsewhere(operator.attrgetter("w"), module.C()) == 1
    assert type(call_elsewhere(lambda c: c, module.C())) is module.C


def test_a_reloaded_module_goes_by_value(tmp_path: Path, forget_modules: Any) -> None:
    """The workers may hold the older state of a module that was reloaded here, so its new functions travel whole."""
    file = tmp_path / "pl_again.py"
    file.write_text("def f(): return 'old'\n")
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()
    module = importlib.import_module("pl_again")
    old = module.f
    assert shipped(old).by_reference
    file.write_text("def f(): return 'newer'\n")
    importlib.reload(module)
    assert call_elsewhere(module.f) == "newer"
    assert not shipped(module.f).by_reference
    assert call_elsewhere(old) == "old"


def halve(x: int) -> float:
    return x / 2


def test_an_object_no_longer_found_under_its_name_goes_by_value(
    forget_modules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that was replaced in its module is itself, not its successor."""
    original = halve
    assert shipped(original).by_reference
    monkeypatch.setattr(sys.modules[__name__], "halve", lambda x: "other")
    assert not shipped(original).by_reference
    assert call_elsewhere(original, 2) == 1
    assert call_elsewhere(sys.modules[__name__].halve, 2) == "other"


def test_a_function_of_a_task_file_goes_by_name_with_its_file(tmp_path: Path, forget_modules: Any) -> None:
    """Its module is loaded from the file first; and so is that of a class or function inside other things."""
    taskfile = pytest.importorskip("procsched.taskfile")
    (tmp_path / "pl_tasks.py").write_text(
        "import pl_beside\nclass Row:\n    def __init__(self): self.v = 5\ndef task(): return pl_beside.V\n"
    )
    (tmp_path / "pl_beside.py").write_text("V = 'beside'\n")
    taskfile.import_source("pl_tasks", str(tmp_path / "pl_tasks.py"))
    module = sys.modules["pl_tasks"]
    payload = ship(module.task, (), {})
    assert payload.function.by_reference
    assert payload.function.source == ("pl_tasks", str(tmp_path / "pl_tasks.py"))
    assert run_elsewhere(payload) == "beside"
    assert call_elsewhere(lambda: (module.task(), module.Row().v)) == ("beside", 5)
    assert call_elsewhere(lambda row: row.v, module.Row()) == 5


def test_the_users_registry_of_cloudpickle_is_honoured_and_left_alone(
    tmp_path: Path, forget_modules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the user registered goes by value; nothing of ours is ever found in there."""
    (tmp_path / "pl_plain.py").write_text("def f(): return 1\n")
    by_path(tmp_path / "pl_plain.py", "pl_plain")
    seen = []

    class Spy:
        def __reduce__(self) -> Any:
            seen.append(cloudpickle.list_registry_pickle_by_value())
            return int, ()

    ship(sys.modules["pl_plain"].f, (sys.modules["pl_plain"].f, Spy()), {})
    assert seen == [set()]
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        fresh = factory  # not shipped before
        assert not shipped(fresh).by_reference
        assert b"inner" in ship(len, ([fresh],), {}).args  # type: ignore[operator]
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    assert cloudpickle.list_registry_pickle_by_value() == set()


def test_the_traceback_of_a_function_by_value_names_its_file() -> None:
    """cloudpickle blanks the file name of code; ours keeps it."""
    rebuilt = pickle.loads(shipped(lambda: 1).body)  # type: ignore[arg-type]
    assert rebuilt.__code__.co_filename == __file__


def test_typing_things_of_a_script_go_along() -> None:
    """Annotations with TypeVar, NewType, ParamSpec don't break a function that goes by value."""
    namespace: dict[str, Any] = {"typing": typing, "__name__": "__main__"}
    exec(
        "U = typing.NewType('U', int)\nT = typing.TypeVar('T')\n"
        "P = typing.ParamSpec('P')\nTs = typing.TypeVarTuple('Ts')\n"
        "def f(x: U, y: T, z: typing.Callable[P, T], *a: typing.Unpack[Ts]) -> list[T]: return U(x)",
        namespace,
    )
    assert call_elsewhere(namespace["f"], 1, 2, 3) == 1
    if sys.version_info >= (3, 12):
        exec("type Pair[A] = tuple[A, A]\ndef g(x: Pair[int]) -> int: return 3", namespace)
        assert call_elsewhere(namespace["g"], (1, 2)) == 3
