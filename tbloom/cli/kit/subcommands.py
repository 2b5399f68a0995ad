"""Commands with sub-commands (verbs) of their own."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tbloom.cli.kit.errors import CommandError
from tbloom.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Verb = Callable[[argparse.Namespace], int]


def adder(
    parser: argparse.ArgumentParser, add_first: Callable[[argparse.ArgumentParser], object]
) -> Callable[..., argparse.ArgumentParser]:
    """A function that adds a verb to the command; ``add_first`` declares the first argument of each verb that is not
    ``is_bare``."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(
        name: str, help: str, example: str, more: str = "", *, is_bare: bool = False
    ) -> argparse.ArgumentParser:
        description, epilog = f"{help[0].upper()}{help[1:]}.{more}", f"Example: {example}"
        made = verbs.add_parser(name, help=help, description=description, epilog=epilog)
        if not is_bare:
            add_first(made)
        return made

    return verb


def parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of each of the command's verbs, by name."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def add_slices(parser: argparse.ArgumentParser, what: str, without: str) -> None:
    """--granularity, --slices and --tz of a new counter or store, which may have no slices."""
    group = parser.add_argument_group(f"a new {what}")
    group.add_argument(
        "--granularity",
        metavar="PERIOD",
        help=f"length of a slice: h, d, w, m, or 15min, 3d ... ({without})",
    )
    group.add_argument("--slices", type=int, metavar="N", help="number of slices to keep")
    group.add_argument("--tz", metavar="ZONE", help="time zone, such as Europe/Berlin (UTC)")


def run(verb: Verb, arguments: argparse.Namespace, shown: Mapping[str, str]) -> int:
    """Runs a verb; an error about a parameter names the argument, as in ``shown``."""
    try:
        return verb(arguments)
    except ConfigError as error:
        argument = shown.get(error.argument, error.argument)
        if error.value is None:
            raise CommandError(f"{argument}: expected {error.expected}") from None
        raise ConfigError(argument, error.value, error.expected) from None
