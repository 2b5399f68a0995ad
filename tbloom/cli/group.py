"""The commands by name, each of which is imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import cast

import click
from click.shell_completion import CompletionItem

from tbloom.cli.kit.entries import COMMANDS, GROUPS
from tbloom.version import __version__


class _Group(click.Group):
    """The group of all commands, whose names and purposes it knows without importing them."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if (entry := COMMANDS.get(cmd_name)) is None:
            return None
        module = import_module(f"tbloom.cli.commands.{entry.module}")
        return cast("click.Command", getattr(module, entry.function))

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [*COMMANDS]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                rows = [(name.ljust(width), entry.help) for name, entry in group.items()]
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [
            CompletionItem(name, help=entry.help)
            for name, entry in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)


@click.group(
    cls=_Group,
    commands=dict.fromkeys(COMMANDS, click.Command(None)),  # for "Did you mean"
    invoke_without_command=True,
    epilog="Example: tbloom add news --create < urls.txt > new.txt",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="tbloom %(version)s")
@click.pass_context
def tbloom(context: click.Context) -> None:
    """Remembers what a fleet of crawlers has seen."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
