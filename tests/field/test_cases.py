"""No case is forgotten: each has a test that names it, and no test names one that isn't there."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("field_cases", Path(__file__).with_name("cases.py"))
assert _spec is not None and _spec.loader is not None
cases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(cases)


def named_cases() -> Iterator[tuple[str, str]]:
    """(case, test) as the decorators of all tests tell."""
    for path in sorted(Path(__file__).parents[1].rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for decorator in node.decorator_list:
                    for call in ast.walk(decorator):
                        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.case":
                            for argument in call.args:
                                assert isinstance(argument, ast.Constant), f"{path}: name cases by literals"
                                yield argument.value, f"{path.parent.name}/{path.name}::{node.name}"


NAMED = list(named_cases())


@pytest.mark.parametrize("case", [*cases.CASES, *cases.WAITING])
def test_every_case_has_a_test(case: str) -> None:
    """Or a reason why not."""
    tests = [test for name, test in NAMED if name == case]
    if case in cases.WAITING:
        assert not tests, f"{case} has a test by now: {tests}; move it to CASES"
        pytest.skip(cases.WAITING[case])
    assert tests, f"no test names the case {case}: {cases.CASES[case]}"


def test_no_test_names_an_unknown_case() -> None:
    """A case is a sentence in the list."""
    assert not [(name, test) for name, test in NAMED if name not in cases.CASES | cases.WAITING]
