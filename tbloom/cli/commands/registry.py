"""The registry of commands, and the parser of their command lines."""

from __future__ import annotations

import argparse
import importlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, cast

from tbloom.cli.kit.errors import CommandError
from tbloom.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Module(Protocol):
    """The module of a command."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the command's arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Runs the command and returns its exit code."""


class Command(NamedTuple):
    """A command: its help, its module, and an example of its use."""

    help: str
    example: str
    #: The extra that installs what the module needs.
    extra: str = "cli"
    #: Its module in ``commands``, where that has another name.
    module: str = ""


COMMANDS = {
    "list": Command(
        "show the filters on a server",
        "tbloom list",
        module="listing",
    ),
    "info": Command(
        "show a filter, slice by slice",
        "tbloom info news",
    ),
    "plan": Command(
        "compute the memory of a filter, or what fits into a given memory",
        "tbloom plan --capacity 1e8 --slices 7",
    ),
    "add": Command(
        "add the lines of files, and print the new ones",
        "tbloom add news < urls.txt > new.txt",
    ),
    "check": Command(
        "print the new lines of files, without adding them",
        "tbloom check news urls.txt",
    ),
    "clear": Command(
        "forget all items of a filter",
        "tbloom clear news",
    ),
    "reconfigure": Command(
        "give a filter other parameters, and keep what it has seen",
        "tbloom reconfigure news --capacity 5M --slices 14",
    ),
    "count": Command(
        "count distinct members exactly, and combine counters",
        "tbloom count add urls < urls.txt",
    ),
    "pages": Command(
        "store pages by URL in WARC files, and read them",
        "tbloom pages put pages https://example.com/ < page.html",
        extra="pages",
    ),
    "metrics": Command(
        "serve the metrics of filters, for Prometheus",
        "tbloom metrics news --port 9185",
        extra="metrics",
    ),
    "compare": Command(
        "compare a filter with an exact set, and measure its error rate",
        "tbloom compare news --with-set news:dupefilter",
    ),
    "import": Command(
        "import the requests that scrapy-redis or Scrapy has seen, or a file of items",
        "tbloom import news:tbloom --create --from-set news:dupefilter",
        module="importing",
    ),
    "watch": Command(
        "show a filter live, with its new items per second",
        "tbloom watch news --every 5",
    ),
    "report": Command(
        "write an HTML page about filters",
        "tbloom report news images -o report.html",
    ),
    "export": Command(
        "write a filter into a file",
        "tbloom export news news.tbloom",
    ),
    "restore": Command(
        "restore a filter from an exported file",
        "tbloom restore news.tbloom --name news-2",
    ),
    "demo": Command(
        "crawl a site three times, and show what was fetched",
        "tbloom demo --crawlers 2",
        extra="demo",
    ),
    "completion": Command(
        "print a script that completes commands in a shell",
        "tbloom completion bash > tbloom.bash",
    ),
}


#: The commands that are rooms of their own.
_ROOMS = {"demo"}


class _Help(argparse.HelpFormatter):
    def __init__(self, *args: Any, **arguments: Any) -> None:
        super().__init__(*args, **arguments)
        # argparse forgets how far the names of commands are indented, and breaks the line after the longest.
        self._action_max_length = 4 + max(map(len, COMMANDS))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raises CommandError, whose one line comes without argparse's usage."""
        error = CommandError(message)
        error.prog = self.prog
        raise error


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of a command line."""
    parser, commands = parsers()
    # The other commands stay unimported: they may need an extra that is not installed.
    chosen = next((word for word in argv if not word.startswith("-")), None)
    if chosen in commands:
        load(chosen).add_arguments(commands[chosen])
    arguments, rest = parser.parse_known_args(argv)
    # argparse leaves over the values of FILE ... and NAME ... that come after an option.
    many = getattr(arguments, "files", getattr(arguments, "names", None))
    has_option = any(word[:1] == "-" != word for word in rest)
    if rest and many is not None and not has_option:
        many += rest
    elif len(rest) == 1 and not has_option and getattr(arguments, "file", "") is None:
        [arguments.file] = rest  # likewise for an optional FILE
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return arguments


def parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The main parser, and the parser of each command, yet without the command's arguments."""
    parser = _Parser(
        "tbloom", description="Remembers what a fleet of crawlers has seen.", formatter_class=_Help
    )
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


def load(name: str) -> Module:
    """The module of a command. Raises CommandError where an extra is not installed."""
    room = "tbloom" if name in _ROOMS else __package__
    with naming_extra(name):
        return cast("Module", importlib.import_module(f"{room}.{COMMANDS[name].module or name}"))


@contextmanager
def naming_extra(name: str) -> Iterator[None]:
    """Raises CommandError where a module is missing that an extra of the command installs."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in {"", "tbloom"}:
            raise
        raise CommandError(
            f"{name!r} needs {missing}: pip install 'tbloom[{COMMANDS[name].extra}]'"
        ) from None
