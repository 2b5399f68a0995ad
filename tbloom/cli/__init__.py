"""The command line: ``tbloom COMMAND``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol, cast

import redis

from tbloom.cli.errors import CommandError, one_line
from tbloom.errors import TBloomError
from tbloom.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130
USER_ERROR = 2
FAILED = 1


class Module(Protocol):
    """What the module of a sub-command has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares its arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Does it, and returns the exit code."""


class Command(NamedTuple):
    """A sub-command."""

    help: str
    module: str
    #: A command line that a test runs.
    example: str
    #: The extra that brings what the module imports; None where the core's requirements do.
    extra: str | None = "cli"


COMMANDS = {
    "list": Command(
        "show the filters on a server", "tbloom.cli.listing", "tbloom list redis://localhost"
    ),
    "info": Command(
        "show what a filter holds, slice by slice",
        "tbloom.cli.info",
        "tbloom info redis://localhost news",
    ),
    "plan": Command(
        "work out how large a filter will be, or how much fits",
        "tbloom.cli.plan",
        "tbloom plan --capacity 1e8 --slices 7",
    ),
    "add": Command(
        "add the lines of files, and print those that are new",
        "tbloom.cli.add",
        "tbloom add redis://localhost news < urls.txt > new.txt",
    ),
    "check": Command(
        "print the lines of files that are new, and change nothing",
        "tbloom.cli.check",
        "tbloom check redis://localhost news urls.txt",
    ),
    "export": Command(
        "write a whole filter into a file",
        "tbloom.cli.export",
        "tbloom export redis://localhost news news.tbloom",
    ),
    "restore": Command(
        "make a filter again from an exported file",
        "tbloom.cli.restore",
        "tbloom restore redis://localhost news.tbloom --name news-2",
    ),
    "demo": Command(
        "crawl a site three times and show what was fetched",
        "tbloom.cli.demo",
        "tbloom demo --crawlers 2",
        "demo",
    ),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, where argparse would print the usage too."""
        self.exit(USER_ERROR, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a sub-command. Returns the exit code: 0, 1 (it did not succeed), 2 (user's error)."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        arguments = _parse(argv)
        return _load(arguments.command).run(arguments)
    except (CommandError, TBloomError, redis.RedisError) as error:
        sys.stderr.write(f"tbloom: {one_line(error)}\n")
        return error.exit_code if isinstance(error, CommandError) else USER_ERROR
    except BrokenPipeError:  # who read our output has left
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # or Python would complain at its end
        return FAILED
    except KeyboardInterrupt:
        sys.stderr.write("tbloom: interrupted\n")
        return INTERRUPTED


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _parser(argv)
    arguments, rest = parser.parse_known_args(argv)
    # Of FILE ..., argparse leaves those over that come after an option.
    if rest and hasattr(arguments, "files") and not any(word[:1] == "-" != word for word in rest):
        arguments.files += rest
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return arguments


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser("tbloom", description="Remembers what a fleet of crawlers has seen.")
    parser.add_argument("--version", action="version", version=f"tbloom {__version__}")
    choices = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    # The other commands stay unimported: they may need an extra that is not installed.
    chosen = next((word for word in argv if not word.startswith("-")), None)
    for name, command in COMMANDS.items():
        subparser = choices.add_parser(
            name,
            help=command.help,
            description=f"{command.help[0].upper()}{command.help[1:]}.",
            epilog=f"Example: {command.example}",
        )
        if name == chosen:
            _load(name).add_arguments(subparser)
    return parser


def _load(name: str) -> Module:
    command = COMMANDS[name]
    try:
        return cast("Module", importlib.import_module(command.module))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if command.extra is None or missing in {"", "tbloom"}:
            raise
        message = f"{name!r} needs {missing}: pip install 'tbloom[{command.extra}]'"
        raise CommandError(message) from None
