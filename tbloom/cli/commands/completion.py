"""``tbloom completion``: a script with which a shell completes commands, options and files."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import shtab

from tbloom.cli.commands import registry
from tbloom.cli.kit import subcommands
from tbloom.cli.kit.errors import CommandError

if TYPE_CHECKING:
    import argparse

_SHELLS = ("bash", "zsh", "fish")
#: The metavars of arguments that are files or folders.
_COMPLETED = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY, "PATH": shtab.DIRECTORY}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SHELL."""
    parser.add_argument(
        "shell",
        metavar="SHELL",
        choices=_SHELLS,
        help=f'{", ".join(_SHELLS)}; in bash: eval "$(tbloom completion bash)"',
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the script."""
    parser, commands = registry.parsers()
    for name, command in commands.items():
        with suppress(CommandError):  # without its extra, only a command's name is completed
            registry.load(name).add_arguments(command)
        for nested in (command, *subcommands.parsers(command).values()):
            _complete_files(nested)
    sys.stdout.write(shtab.complete(parser, arguments.shell) + "\n")
    return 0


def _complete_files(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        if isinstance(action.metavar, str) and action.metavar in _COMPLETED:
            action.complete = _COMPLETED[action.metavar]  # type: ignore[attr-defined]
