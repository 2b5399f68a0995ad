"""What all commands are made of: an example, and errors that name the argument as the user has typed it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import click

from tbloom.cli.kit.errors import CommandError, CommandFailed
from tbloom.cli.kit.formats import printable
from tbloom.errors import ConfigError


class Command(click.Command):
    """A command with an example in its help."""

    def __init__(self, name: str | None, *, example: str, **options: Any) -> None:
        super().__init__(name, epilog=f"Example: {example}", **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs it; an error about a parameter names the option or the argument."""
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            shown = {param.name: label(param) for param in self.params}
            argument = shown.get(error.argument, error.argument)
            if error.value is None:
                raise CommandError(f"{argument}: expected {error.expected}") from None
            raise ConfigError(argument, error.value, error.expected) from None


class Group(click.Group):
    """A command with sub-commands."""

    command_class = Command

    def __init__(self, name: str | None, **options: Any) -> None:
        super().__init__(name, no_args_is_help=False, **options)


def at_most_one(**given: object) -> None:
    """Raises CommandError where more than one of these options is given (by their names, ``-`` as ``_``)."""
    names = _given(given)
    if len(names) > 1:
        raise CommandError(f"{names[1]}: expected none, because {names[0]} is given")


def exactly_one(**given: object) -> None:
    """The same, and where none is given."""
    at_most_one(**given)
    if not _given(given):
        raise CommandError(f"expected one of {', '.join(map(_option, given))}")


def confirm(question: str, failed: str, *, yes: bool) -> None:
    """Asks on the terminal, unless ``yes``; raises CommandFailed unless the answer is yes."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise CommandError("--yes: needed where standard input is no terminal")
    if not click.confirm(printable(question), err=True):
        raise CommandFailed(failed)


def _given(options: Mapping[str, object]) -> list[str]:
    return [_option(name) for name, value in options.items() if value not in (None, False, ())]


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def label(param: click.Parameter) -> str:
    """What a user calls the parameter: ``--capacity``, ``NAME``."""
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    return "".join(
        re.findall(r"\w+", param.human_readable_name)[:1]
    )  # without the brackets of "[FILE]..."
