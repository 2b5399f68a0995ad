"""What all commands are made of: an example, and errors that name the option or the argument."""

from __future__ import annotations

import sys
from typing import Any

import click

from tbloom.cli.kit.entries import COMMANDS, install
from tbloom.cli.kit.errors import CommandError, CommandFailed
from tbloom.cli.kit.formats import printable
from tbloom.errors import ConfigError


class Command(click.Command):
    """A command with an example at the end of its help, behind the extra that it needs."""

    def __init__(self, name: str | None, *, example: str, **options: Any) -> None:
        super().__init__(name, epilog=f"Example: {example}", **options)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes both."""
        _write_needs(ctx, formatter)
        super().format_epilog(ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs it; an error about a parameter names the option or the argument."""
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            shown = {param.name: param for param in self.params}
            param, argument = shown.get(error.argument), error.argument
            if isinstance(param, click.Option):
                argument = max(param.opts, key=len)
            elif param is not None:
                argument = argument.upper()
            if error.value is None:
                raise CommandError(f"{argument}: expected {error.expected}") from None
            raise ConfigError(argument, error.value, error.expected) from None


class Group(click.Group):
    """A command with sub-commands."""

    command_class = Command

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the extra that all of them need."""
        _write_needs(ctx, formatter)


def _write_needs(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    _, name, *_others = *ctx.command_path.split(), ""
    if name in COMMANDS and COMMANDS[name].extra:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"Needs: {install(name)}")


def confirm(question: str, failed: str, *, yes: bool) -> None:
    """Asks on the terminal, unless ``yes``; raises CommandFailed unless the answer is yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError("--yes: needed where standard input is no terminal")
    if not click.confirm(printable(question), err=True):
        raise CommandFailed(failed)
