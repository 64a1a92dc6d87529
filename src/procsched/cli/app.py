"""The commands under one name, and how what they raise becomes a message and a status. In the parent."""

from __future__ import annotations

import sys

import click

from procsched import __version__, context, taskfile
from procsched.cli.check import check
from procsched.cli.ctl import ctl
from procsched.cli.history import history
from procsched.cli.listing import list_jobs
from procsched.cli.once import once
from procsched.cli.output import complain
from procsched.cli.run import run
from procsched.cli.signals import Interrupted
from procsched.cli.status import CommandFailed, Status
from procsched.cli.trace import trace
from procsched.errors import PoolUnusable, SchedulerClosed

__all__ = ["call", "procsched"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="procsched")
def procsched() -> None:
    """CPU-heavy periodic work on a fixed pool of worker processes.

    A task file is a Python file with functions under @job(…):

    \b
        from procsched import FixedRate, job

    \b
        @job(FixedRate("30s"))
        def work(): ...
    """


for command in (run, list_jobs, check, once, history, trace, ctl):
    procsched.add_command(command)


def call(arguments: list[str]) -> int:
    """Run one command line; returns its exit status."""
    if context.in_worker() or taskfile.is_loading():
        # A task file whose unguarded main calls us: it is being imported, not run
        raise SchedulerClosed("the command line isn't run while a task file is loaded, or in a worker")
    try:
        status = procsched.main(arguments, prog_name="procsched", standalone_mode=False)
        return int(status or Status.CLEAN)
    except click.exceptions.Abort:
        return 130
    except Interrupted as signal:
        return signal.status
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except CommandFailed as error:
        if error.detail:
            complain(error.detail)
        complain(f"procsched: {error}")
        return int(error.status)
    except PoolUnusable as error:
        complain(f"procsched: {error}")
        return int(Status.UNUSABLE)
    finally:
        _flush()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (BrokenPipeError, ValueError):
            pass
