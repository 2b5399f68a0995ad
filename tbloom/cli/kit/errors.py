"""The exit codes, and the errors that end a command with one line on stderr."""

from __future__ import annotations

import sys

from tbloom.cli.kit.formats import printable

FAILED = 1
USER_ERROR = 2
INTERRUPTED = 130


def one_line(error: object) -> str:
    """The text of an error, in one line that no terminal takes for commands."""
    return printable(" ".join(str(error).split()))


def print_error(name: str, error: Exception) -> None:
    """Prints the error of one of several filters or counters on stderr."""
    sys.stderr.write(f"tbloom: {one_line(f'{name}: {error}')}\n")


class CommandError(Exception):
    """A mistake of the user; its text is the line on stderr."""

    exit_code = USER_ERROR


class CommandFailed(CommandError):
    """A failure that is no mistake of the user."""

    exit_code = FAILED
