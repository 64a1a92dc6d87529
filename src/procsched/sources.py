"""Sources: the code of a task file and of the modules beside it, as the parent has accepted it. Anywhere.

A worker may be started at any time: when the file on the disk is being written, is broken, or is newer than what the
parent runs. So workers don't read those files. The parent notes the code of what it loads, and they get it with their
boot, until a reload (`cli.reloading`) puts another one in its place, whole.

| in the parent                                   | in a worker                                     |
|-------------------------------------------------|-------------------------------------------------|
| ``note()``: from now on what is imported        |                                                 |
| and isn't installed is noted                    |                                                 |
| ``PoolSettings.sources = noted()`` ──────────── | ─→ ``use(sources)``, before anything is loaded  |

Modules that are *installed*, below a ``site-packages``, are none of this: they change with the program. Workers import
this file while they boot: its own imports stay light.
"""

from __future__ import annotations

import marshal
import os
import sys
from _frozen_importlib_external import PathFinder, SourceFileLoader, spec_from_file_location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType
    from typing import Any

__all__ = ["Source", "begin", "is_ours", "loader_for", "note", "noted", "use"]

Source = tuple[str, bool, bytes]
"""``(path, is a package, marshalled code)``"""

_noted: dict[str, Source] = {}
_given: Mapping[str, Source] = {}
_noting = False
_from_text = False

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def is_ours(path: object) -> bool:
    """Whether that is a Python file that belongs to the user's program: not installed, and no part of Python."""
    if type(path) is not str or not path.endswith(".py"):
        return False
    absolute = os.path.abspath(path)
    return not absolute.startswith((_OURS, _STDLIB)) and not any(part in absolute for part in _INSTALLED)


def note() -> None:
    """In the parent: note the code of every module of ours that is imported from now on."""
    global _noting
    _noting = True
    _stand_first()


def noted() -> dict[str, Source]:
    """What was loaded since `note`, or `begin`, by module name. It grows with what is imported later."""
    return _noted


def begin(table: dict[str, Source]) -> None:
    """Note into this table from now on: a new version is to be loaded (or was not, and the old one goes on).

    It is compiled, whatever ``__pycache__`` says, which goes by size and second of a file: two versions that were saved
    within one second may be one to it.
    """
    global _noted, _from_text
    _noted, _from_text = table, True


def use(sources: Mapping[str, Source]) -> None:
    """In a worker: import these modules from here, and not from their files."""
    global _given
    _given = sources
    _stand_first()


def loader_for(name: str, path: str) -> SourceFileLoader | None:
    """What loads that file as that module, where it matters that it isn't the usual loader."""
    return _Loader(name, path) if _noting or name in _given else None


def _stand_first() -> None:
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


class _Loader(SourceFileLoader):
    """The code that was given; else that of the file, which is noted."""

    def get_code(self, fullname: str) -> CodeType | None:
        given = _given.get(fullname)
        if given is not None and given[0] == self.path:
            return marshal.loads(given[2])  # type: ignore[no-any-return]
        if _from_text:
            code: Any = self.source_to_code(self.get_data(self.path), self.path)
        else:
            code = super().get_code(fullname)
        if _noting and code is not None:
            _noted[fullname] = (self.path, self.is_package(fullname), marshal.dumps(code))
        return code  # type: ignore[no-any-return]


class _Finder:
    """Stands first on ``sys.meta_path``."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name in _given:
            file, is_package, _ = _given[name]
            places = [os.path.dirname(file)] if is_package else None
            return spec_from_file_location(name, file, loader=_Loader(name, file), submodule_search_locations=places)
        if not _noting:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader or not is_ours(spec.origin):
            return None  # the others find it as they would have without us
        spec.loader = _Loader(name, str(spec.origin))
        return spec
