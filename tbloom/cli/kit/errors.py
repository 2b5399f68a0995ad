"""The exit codes, and the errors that end a command with one line on stderr."""

from __future__ import annotations

FAILED = 1
USER_ERROR = 2
INTERRUPTED = 130


def one_line(error: Exception) -> str:
    """The text of an error, in one line."""
    return " ".join(str(error).split())


class CommandError(Exception):
    """A mistake of the user; its text is the line on stderr."""

    exit_code = USER_ERROR


class CommandFailed(CommandError):
    """A failure that is no mistake of the user."""

    exit_code = FAILED
