"""The same from parents of other kinds: a script, a module run with -m, an interactive session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import procsched

SOURCE = str(Path(procsched.__file__ or "").parents[1])
HERE = str(Path(__file__).parent)


def run(*command: str, stdin: str = "", cwd: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([SOURCE, HERE])}
    done = subprocess.run(
        [sys.executable, *command], input=stdin, capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SCRIPT = """
import enum, functools, math, typing
from dataclasses import dataclass
from workerlike import call_elsewhere, ship

FACTOR = 10
UserId = typing.NewType("UserId", int)

@dataclass
class Row:
    value: int
    def scaled(self): return self.value * FACTOR

class Kind(enum.Enum):
    A = 1

class Special(Row):
    def scaled(self): return super().scaled() + 1

class Oops(Exception):
    pass

def helper(x): return x * FACTOR
def task(x: UserId = 1): return helper(x)
def make(x): return [Row(x), Kind.A, Special(x).scaled(), Oops]
def raises():
    try:
        raise Oops("text")
    except Exception as error:
        return error

@functools.lru_cache(maxsize=None)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)

def main():
    payload = ship(task, (2,), {})
    assert not payload.function.by_reference and payload.function.name == "task"
    assert call_elsewhere(task, 2) == 20
    row, kind, special, oops = call_elsewhere(make, 3)
    assert type(row) is Row and row == Row(3)
    assert kind is Kind.A and special == 31 and oops is Oops
    assert call_elsewhere(Row(4).scaled) == 40
    assert call_elsewhere(lambda rows: sum(r.scaled() for r in rows), [Row(1), Special(1)]) == 21
    assert call_elsewhere(Row, 5) == Row(5)
    assert type(call_elsewhere(raises)) is Oops
    assert call_elsewhere(fib, 30) == 832040
    assert call_elsewhere(lambda n: fib(n), 10) == 55
    assert call_elsewhere(isinstance, Row(1), Row)
    assert call_elsewhere(lambda: math.pi) == math.pi
    import sibling
    assert call_elsewhere(sibling.value) == "beside"
    assert call_elsewhere(lambda: sibling.value()) == "beside"
    print("all well")

if __name__ == "__main__":
    main()
"""


def test_a_script_ships_what_is_its_own(tmp_path: Path) -> None:
    """Functions and classes of __main__ work, and classes keep their identity on the way back."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "sibling.py").write_text("def value(): return 'beside'\n")
    assert run(str(tmp_path / "script.py"), cwd=Path("/")) == "all well\n"
    assert run("-m", "script", cwd=tmp_path) == "all well\n"


def test_an_interactive_session_ships_what_was_typed(tmp_path: Path) -> None:
    """A redefinition is what runs from then on; what was shipped before stays as it was."""
    session = """
from workerlike import call_elsewhere, run_elsewhere, ship
def f(): return "first"

payload = ship(f, (), {})
old = f
def f(): return "second"

print(run_elsewhere(payload), call_elsewhere(f), call_elsewhere(old))
class C:
    v = 1

c = C()
print(call_elsewhere(lambda x: x.v, c), type(call_elsewhere(lambda: C())) is C)
C.v = 2
print(call_elsewhere(lambda x: x.v, c))
import sibling
print(call_elsewhere(sibling.value))
"""
    (tmp_path / "sibling.py").write_text("def value(): return 'beside'\n")
    out = run("-i", "-q", stdin=session, cwd=tmp_path)
    assert out.split("\n")[:4] == ["first second first", "1 True", "2", "beside"]


def test_a_file_loaded_by_path_in_a_script_is_shipped(tmp_path: Path) -> None:
    """F5, from the outside: runpy, exec'd modules and hand-registered modules all work."""
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "plug.py").write_text("K = 3\ndef helper(x): return x * K\ndef f(x): return helper(x)\n")
    (tmp_path / "script.py").write_text(
        "import importlib.util, runpy, sys\nfrom workerlike import call_elsewhere\n"
        "path = sys.argv[1]\n"
        "spec = importlib.util.spec_from_file_location('plug', path)\n"
        "plug = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(plug)\n"
        "print(call_elsewhere(plug.f, 1))\nsys.modules['plug'] = plug\nprint(call_elsewhere(plug.f, 2))\n"
        "print(call_elsewhere(lambda: plug.f(3)))\n"
        "print(call_elsewhere(runpy.run_path(path)['f'], 4))\n"
    )
    out = run(str(tmp_path / "script.py"), str(tmp_path / "plugins" / "plug.py"), cwd=tmp_path)
    assert out.split() == ["3", "6", "9", "12"]


def test_plain_calls_import_no_cloudpickle(tmp_path: Path) -> None:
    """By name and with plain arguments, shipping needs nothing heavy."""
    code = (
        "import sys, json\nfrom procsched.shipping.payload import ship\nship(json.dumps, (1, 'a'), {'indent': 2})\n"
        "print([m for m in ('cloudpickle', 'numpy', 'loky') if m in sys.modules])"
    )
    assert run("-c", code, cwd=tmp_path) == "[]\n"
