"""The command line: arguments, signals, what people read, exit status. In the parent."""

from __future__ import annotations

import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line and exit with its status."""
    try:  # a Ctrl-C while the imports go on is no reason for a traceback
        from procsched.cli.app import call

        status = call(sys.argv[1:])
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
