"""The commands by name, each of which is imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple, cast

import click
from click.shell_completion import CompletionItem

from tbloom.version import __version__


class Entry(NamedTuple):
    """A command: its module in ``commands``, its purpose, the extra that installs what it needs, and its name in the module."""

    module: str
    help: str
    extra: str = "cli"
    function: str = "command"


COMMANDS = {
    "list": Entry("listing", "Shows the filters on a server.", function="list_filters"),
    "info": Entry("listing", "Shows a filter, slice by slice.", function="info"),
    "plan": Entry("plan", "Computes the memory of a filter, or what fits into a given memory."),
    "add": Entry("lookup", "Adds the lines of files, and prints the new ones.", function="add"),
    "check": Entry(
        "lookup", "Prints the new lines of files, without adding them.", function="check"
    ),
    "clear": Entry("clear", "Forgets all items of a filter."),
    "reconfigure": Entry(
        "reconfigure", "Gives a filter other parameters, and keeps what it has seen."
    ),
    "count": Entry("count", "Counts distinct members exactly, and combines counters.", "distinct"),
    "pages": Entry("pages", "Stores pages by URL in WARC files, and reads them.", "pages"),
    "metrics": Entry("metrics", "Serves the metrics of filters, for Prometheus.", "metrics"),
    "import": Entry(
        "importing", "Imports what scrapy-redis or Scrapy has seen, or a file of items."
    ),
    "doctor": Entry("doctor", "Says what is wrong with a Scrapy project's settings.", "scrapy"),
    "report": Entry("report", "Writes an HTML page about filters."),
    "export": Entry("export", "Writes a filter into a file."),
    "restore": Entry("restore", "Restores a filter from an exported file."),
    "demo": Entry("demo", "Crawls a site three times, and shows what was fetched.", "demo"),
    "completion": Entry("completion", "Prints a script that completes commands in a shell."),
}


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
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])

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
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="tbloom %(version)s")
def tbloom() -> None:
    """Remembers what a fleet of crawlers has seen."""
