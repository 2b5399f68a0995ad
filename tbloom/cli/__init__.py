"""The command line: ``tbloom COMMAND``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol, cast

import redis

from tbloom.cli.kit.errors import CommandError, one_line
from tbloom.engine.urls import without_secrets
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
    #: The extra that brings what the module imports.
    extra: str = "cli"


COMMANDS = {
    "list": Command(
        "show the filters on a server",
        "tbloom.cli.commands.listing",
        "tbloom list redis://localhost",
    ),
    "info": Command(
        "show what a filter holds, slice by slice",
        "tbloom.cli.commands.info",
        "tbloom info redis://localhost news",
    ),
    "plan": Command(
        "work out how large a filter will be, or how much fits",
        "tbloom.cli.commands.plan",
        "tbloom plan --capacity 1e8 --slices 7",
    ),
    "add": Command(
        "add the lines of files, and print those that are new",
        "tbloom.cli.commands.add",
        "tbloom add redis://localhost news < urls.txt > new.txt",
    ),
    "check": Command(
        "print the lines of files that are new, and change nothing",
        "tbloom.cli.commands.check",
        "tbloom check redis://localhost news urls.txt",
    ),
    "count": Command(
        "count distinct members exactly, and how many of them counters share",
        "tbloom.cli.commands.count",
        "tbloom count add redis://localhost urls < urls.txt",
    ),
    "pages": Command(
        "store pages by URL in WARC files, and get them back",
        "tbloom.cli.commands.pages",
        "tbloom pages put pages https://example.com/ < page.html",
        "cli,pages",
    ),
    "metrics": Command(
        "serve what filters hold, for Prometheus",
        "tbloom.cli.commands.metrics",
        "tbloom metrics redis://localhost news --port 9185",
        "metrics",
    ),
    "compare": Command(
        "compare a filter with an exact set, and measure its error rate",
        "tbloom.cli.commands.compare",
        "tbloom compare redis://localhost news --with-set news:dupefilter",
    ),
    "import": Command(
        "move what scrapy-redis or Scrapy has seen, or a file of items, into a filter",
        "tbloom.cli.commands.importing",
        "tbloom import redis://localhost news:tbloom --create --from-set news:dupefilter",
    ),
    "watch": Command(
        "show a filter live, with the items that it takes per second",
        "tbloom.cli.commands.watch",
        "tbloom watch redis://localhost news --every 5",
    ),
    "report": Command(
        "write what filters hold as an HTML page",
        "tbloom.cli.commands.report",
        "tbloom report redis://localhost news images -o report.html",
    ),
    "export": Command(
        "write a whole filter into a file",
        "tbloom.cli.commands.export",
        "tbloom export redis://localhost news news.tbloom",
    ),
    "restore": Command(
        "make a filter again from an exported file",
        "tbloom.cli.commands.restore",
        "tbloom restore redis://localhost news.tbloom --name news-2",
    ),
    "demo": Command(
        "crawl a site three times and show what was fetched",
        "tbloom.demo",
        "tbloom demo --crawlers 2",
        "demo",
    ),
    "completion": Command(
        "print a script that completes commands in a shell",
        "tbloom.cli.commands.completion",
        "tbloom completion bash > tbloom.bash",
    ),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, where argparse would print the usage too."""
        self.exit(USER_ERROR, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a sub-command. Returns the exit code: 0, 1 (the answer is no), 2 (it could not be done)."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        return _run(argv)
    except (CommandError, TBloomError, redis.RedisError) as error:
        sys.stderr.write(f"tbloom: {one_line(error)}\n")
        return error.exit_code if isinstance(error, CommandError) else USER_ERROR
    except BrokenPipeError:  # who read our output has left
        return FAILED
    except (
        OSError,
        UnicodeError,
    ) as error:  # a full disk, an unreadable file, a terminal without our letters
        sys.stderr.write(f"tbloom: {one_line(error)}\n")
        return USER_ERROR
    except KeyboardInterrupt:
        sys.stderr.write("tbloom: interrupted\n")
        return INTERRUPTED
    finally:
        _drop_what_cannot_be_written()


def _run(argv: Sequence[str]) -> int:
    arguments = _parse(argv)
    code = load(arguments.command).run(arguments)
    if sys.stdout is not None:
        sys.stdout.flush()  # or an error would come after our last word
    return code


def _drop_what_cannot_be_written() -> None:
    """Or Python would complain of it at its end."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _parser(argv)
    arguments, rest = parser.parse_known_args(argv)
    # Of FILE ... and NAME ..., argparse leaves those over that come after an option.
    many = getattr(arguments, "files", getattr(arguments, "names", None))
    has_option = any(word[:1] == "-" != word for word in rest)
    if rest and many is not None and not has_option:
        many += rest
    elif len(rest) == 1 and not has_option and getattr(arguments, "file", "") is None:
        [arguments.file] = rest  # the same, where one FILE may be given
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(map(without_secrets, rest))}")
    return arguments


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser, commands = parsers()
    # The other commands stay unimported: they may need an extra that is not installed.
    chosen = next((word for word in argv if not word.startswith("-")), None)
    if chosen in commands:
        load(chosen).add_arguments(commands[chosen])
    return parser


def parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser, and that of each command, still without the command's arguments."""
    parser = _Parser("tbloom", description="Remembers what a fleet of crawlers has seen.")
    parser.add_argument("--version", action="version", version=f"tbloom {__version__}")
    choices = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands: dict[str, argparse.ArgumentParser] = {
        name: choices.add_parser(
            name,
            help=command.help,
            description=f"{command.help[0].upper()}{command.help[1:]}.",
            epilog=f"Example: {command.example}",
        )
        for name, command in COMMANDS.items()
    }
    return parser, commands


def verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a command's own sub-commands, by name."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def load(name: str) -> Module:
    """A command's module. Raises CommandError where the extra that it needs is not installed."""
    command = COMMANDS[name]
    try:
        return cast("Module", importlib.import_module(command.module))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in {"", "tbloom"}:
            raise
        message = f"{name!r} needs {missing}: pip install 'tbloom[{command.extra}]'"
        raise CommandError(message) from None
