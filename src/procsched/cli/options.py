"""Kinds of arguments that several commands take. In the parent."""

from __future__ import annotations

import click

from procsched.core.durations import duration_ns

__all__ = ["TASKS", "WORKERS", "duration"]

TASKS = click.argument("tasks", metavar="TASKS.PY")
WORKERS = click.IntRange(min=1)


def duration(text: str) -> float:
    """``60s``, ``1h30m``, or a bare number of seconds, in seconds."""
    try:
        number: float | str = float(text)
    except ValueError:
        number = text
    try:
        return duration_ns(number, "the duration", zero=True) / 1e9
    except (TypeError, ValueError) as error:
        raise click.BadParameter(str(error)) from error
