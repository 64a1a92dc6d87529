"""``import procsched`` costs next to nothing, and gives every public name."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import types

import pytest

import procsched


@pytest.mark.parametrize("name", procsched.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """And is what it says: a class or function of that name, no module."""
    value = getattr(procsched, name)
    assert not isinstance(value, types.ModuleType)
    assert value.__name__ == name
    assert name in dir(procsched)


def test_all_names_are_listed_once_and_typed() -> None:
    """The list for people and type checkers and the table for the interpreter are the same."""
    assert sorted(procsched._HOMES) == sorted(procsched.__all__)
    assert len(set(procsched.__all__)) == len(procsched.__all__)


def test_no_module_is_called_like_a_public_name() -> None:
    """Importing a submodule puts it in the package's namespace, in the place of whatever was there."""
    modules = {module.name for module in pkgutil.iter_modules(procsched.__path__)}
    assert not modules & set(procsched.__all__)
    importlib.import_module("procsched.jobs")
    assert callable(procsched.job)


def test_a_wrong_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Schedular'"):
        procsched.Schedular  # noqa: B018


def test_importing_it_loads_nothing_else() -> None:
    """No module at all beside the package itself (and __future__)."""
    code = "import sys; before = set(sys.modules); import procsched; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"procsched", "__future__"}
