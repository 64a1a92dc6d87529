"""Kinds of arguments that several commands take. In the parent."""

from __future__ import annotations

import click

from procsched.core.durations import duration_ns

__all__ = ["TASKS", "WORKERS", "AddressOption", "CommandWithAddresses", "duration"]

TASKS = click.argument("tasks", metavar="TASKS.PY")
WORKERS = click.IntRange(min=1)


class AddressOption(click.Option):
    """An option whose value, an address, may be left out. Its command is a `CommandWithAddresses`."""


class CommandWithAddresses(click.Command):
    """For options with an optional address: what follows one and can't be an address is no value of it.

    click would take ``--metrics tasks.py`` for metrics at an address called tasks.py, and miss the task file.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = {
            name: str(param.flag_value)
            for param in self.params
            if isinstance(param, AddressOption)
            for name in param.opts
        }
        plain = args.index("--") if "--" in args else len(args)
        for place in range(plain):
            word, following = args[place], args[place + 1 : place + 2]
            if word in options and not (following and _may_be_address(following[0])):
                args[place] = f"{word}={options[word]}"
        return super().parse_args(ctx, args)


def _may_be_address(word: str) -> bool:
    """As far as it can be told from the path of a task file, or the name of a module; what is wrong with it, whoever
    uses it says."""
    return word.isdigit() or (":" in word and "/" not in word and not word.startswith("-"))


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
