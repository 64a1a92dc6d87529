"""Kinds of arguments that several commands take. In the parent."""

from __future__ import annotations

import click

from procsched.core.durations import duration_ns

__all__ = ["DURATION", "TASKS", "WORKERS"]


class _Duration(click.ParamType):
    """``60s``, ``1h30m``, or a bare number of seconds; seconds as a float."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):  # a default, converted already
            return value
        text = str(value)
        try:
            number: float | str = float(text)
        except ValueError:
            number = text
        try:
            return duration_ns(number, "the duration", zero=True) / 1e9
        except (TypeError, ValueError) as error:
            self.fail(str(error), param, ctx)


DURATION = _Duration()
TASKS = click.argument("tasks", metavar="TASKS.PY")
WORKERS = click.IntRange(min=1)
