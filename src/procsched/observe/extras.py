"""Extras: packages that only some views need. Imported when they are used; a missing one is named. In the parent."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from procsched.errors import ProcschedError

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["MissingExtra", "need"]


class MissingExtra(ProcschedError, ImportError):
    """A package is missing that only a part of procsched needs; the message says what to install."""


def need(module: str, extra: str, what: str) -> ModuleType:
    """The module, for ``what`` (``"--metrics"``), which is there if procsched was installed with ``extra``.

    Raises:
        MissingExtra: It isn't installed. One that is there and broken raises whatever it raises.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise  # it is there, and something is missing that it needs itself
        raise MissingExtra(
            f"{what} needs the package {module.split('.')[0]!r}, which isn't installed: "
            f"pip install 'procsched[{extra}]'"
        ) from None
