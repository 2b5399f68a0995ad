"""The errors that end a command with one line on stderr."""

from __future__ import annotations


def one_line(error: Exception) -> str:
    """An error's text, as stderr gets it."""
    return " ".join(str(error).split())


class CommandError(Exception):
    """What the user asked for can't be done; its text is the line that says why."""

    exit_code = 2


class CommandFailed(CommandError):
    """Something broke down on the way, through no fault of the user's."""

    exit_code = 1
