"""The classes of commands: their help has an example, and their errors name the option or the argument."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import date
from typing import Any

import click

from tbloom.cli.kit.entries import COMMANDS, install
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.options import Parameter, Shared
from tbloom.errors import ConfigError


class _WithExample(click.Command):
    """A command whose help ends with the extra that it needs, and an example."""

    def __init__(self, name: str | None, *, example: str, **options: Any) -> None:
        super().__init__(name, epilog=f"Example: {example}", **options)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the needed extra and the example."""
        _, name, *_others = ctx.command_path.split()
        if COMMANDS[name].extra:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(f"Needs: {install(name)}")
        super().format_epilog(ctx, formatter)


class Command(_WithExample):
    """A command, whose errors name its options and arguments."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options first, then common ones."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        sections |= {kind.section: [] for kind in (Parameter, Shared)}
        for param in self.get_params(ctx):
            own = Shared.section if "--help" in param.opts else "Options"
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                sections[getattr(param, "section", own)].append(record)
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Errors about a parameter name its option or argument; an outage names the server."""
        server = ctx.params.get("server")
        try:
            # Not a resource of the context: click before 8.3 closes these without the error.
            with server.named() if server else nullcontext():
                return super().invoke(ctx)
        except ConfigError as error:
            param = next((each for each in self.params if each.name == error.argument), None)
            argument = max(param.opts, key=len) if param else error.argument
            if isinstance(param, click.Argument):
                argument = argument.upper()
            value, expected = error.value, error.expected.replace("a str ", "text ")
            expected = expected.removesuffix(", or a timedelta of whole seconds")
            if value is None or repr(value).startswith("<"):  # an object of ours
                raise CommandError(f"{argument}: expected {expected}") from None
            value = value.isoformat() if isinstance(value, date) else value
            raise ConfigError(argument, value, expected) from None


class Group(_WithExample, click.Group):
    """A command with sub-commands."""

    command_class: type[click.Command] | None = Command
