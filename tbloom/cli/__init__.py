"""The command line: ``tbloom COMMAND``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import cast

import click
from click.shell_completion import CompletionItem, shell_complete

from tbloom.cli.kit import errors, interrupts
from tbloom.cli.kit.entries import COMMANDS, GROUPS, install
from tbloom.version import __version__

#: Set by the shell's function when a user presses Tab.
COMPLETE = "_TBLOOM_COMPLETE"


class _Group(click.Group):
    """The group of all commands. It imports a command only to run it: names and help are in ``entries``."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if (entry := COMMANDS.get(cmd_name)) is None:
            return None
        module, _, function = entry.place.partition(".")
        commands = import_module(f"tbloom.cli.commands.{module}")
        return cast("click.Command", getattr(commands, function or "command"))

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
    subcommand_metavar="[COMMAND] [ARGS]...",  # click before 8.5 says that the command is needed
    epilog="Example: tbloom add news --create < urls.txt > new.txt",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="tbloom %(version)s")
@click.pass_context
def tbloom(context: click.Context) -> None:
    """Remember what a fleet of crawlers has seen."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit code: 0 (yes, or done), 1 (no, or failed) or 2 (a user's error)."""
    if argv is None:
        interrupts.as_ctrl_c()
    words = [*(sys.argv[1:] if argv is None else argv)]
    if sys.stdin is None or sys.stdout is None:
        return _failed("standard input or output is closed", errors.USER_ERROR)
    try:
        if COMPLETE in os.environ:
            code = _complete(os.environ[COMPLETE])
        else:  # not click's main(), which has messages and exit codes of its own
            with tbloom.make_context("tbloom", words) as context:
                code = tbloom.invoke(context) or 0
        sys.stdout.flush()  # an error in writing is reported as ours
    except click.exceptions.Exit as done:  # --help, --version
        return done.exit_code
    except KeyboardInterrupt as stop:
        return _failed(": ".join(["interrupted", *map(str, stop.args)]), errors.INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - bugs are raised again
        return _print_expected(error, words)
    else:
        return code
    finally:
        _drop_unwritable()


def _complete(instruction: str) -> int:
    with suppress(Exception):  # a traceback in the line that the user types helps nobody
        shell_complete(tbloom, {}, "tbloom", COMPLETE, instruction)
    return 0


def _print_expected(error: Exception, words: list[str]) -> int:
    """Print the error that has ended a command, and return the exit code. Raise an error that is a bug."""
    if isinstance(error, BrokenPipeError):  # the reader of our output has ended, as head(1) does
        return errors.FAILED
    if isinstance(error, click.UsageError):
        place = error.ctx.command_path if error.ctx else "tbloom"
        return _failed(errors.one_line(error.format_message(), words), errors.USER_ERROR, place)
    if isinstance(error, ImportError):
        return _failed(_missing(error, words), errors.USER_ERROR)
    if not isinstance(error, errors.expected()):
        raise error
    code = error.exit_code if isinstance(error, errors.CommandError) else errors.USER_ERROR
    return _failed(errors.one_line(error, words), code)


def _failed(text: str, code: int, place: str = "tbloom") -> int:
    click.echo(f"{place}: {text}", err=True)  # prints nothing if standard error is closed
    return code


def _missing(error: ImportError, words: list[str]) -> str:
    """Return which extra installs the missing module, or that Scrapy is too old. Raise any other error."""
    if not isinstance(error, ModuleNotFoundError):
        if error.name != "scrapy":
            raise error
        return str(error)
    module = (error.name or "").partition(".")[0]
    command = next((word for word in words if word in COMMANDS), None)
    if module in {"", "tbloom"} or command is None:
        raise error
    return f"{command!r} needs {module}: {install(command)}"


def _drop_unwritable() -> None:
    """Drop output that can't be written, so that Python does not report the same error at its exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
