"""The programs of ``tests/cli``."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location("cli_conftest", Path(__file__).parents[1] / "cli" / "conftest.py")
assert _spec is not None and _spec.loader is not None
_programs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_programs)
start, write = _programs.start, _programs.write
