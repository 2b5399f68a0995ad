"""The exit codes, and the errors that end a command with one line on stderr."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from tbloom.cli.kit.formats import printable
from tbloom.engine.flow import with_rights
from tbloom.engine.urls import without_secrets
from tbloom.errors import TBloomError

FAILED, USER_ERROR, INTERRUPTED = 1, 2, 130
#: The environment variables with the server's URL.
VARIABLES = "TBLOOM_URL", "REDIS_URL"
#: The environment variable with the prefix of keys.
PREFIX = "TBLOOM_KEY_PREFIX"

# Does not match the URL of a page, where an @ after the host follows no password.
_MAY_HAVE_SECRETS = re.compile(
    r"(?!https?://[^@/?#]*([/?#]|$)).*(:.*@|password=|://)", re.DOTALL | re.IGNORECASE
)


def one_line(error: object, words: Iterable[str] = ()) -> str:
    """Return the text of an error in one line, without control characters.

    URLs that are in ``words``, the command line, or in the environment are shown without passwords.
    """
    text = with_rights(str(error))
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename or 'standard output, or a file'}: {error.strerror}"
    for word in (*words, *(os.environ.get(name, "") for name in VARIABLES)):
        url = re.sub("^--?[a-z-]+=", "", word)
        if _MAY_HAVE_SECRETS.match(url):
            for written in (url, str(Path(url))):
                for quoted in (written, repr(written)[1:-1]):
                    text = text.replace(quoted, without_secrets(url))
    return printable(" ".join(text.split()))


def expected() -> tuple[type[Exception], ...]:
    """Return the errors that are not bugs."""
    import redis  # noqa: PLC0415 - `tbloom --help` needs no redis-py

    return CommandError, TBloomError, redis.RedisError, OSError, UnicodeError


class CommandError(Exception):
    """A mistake of the user; its text is the line on stderr."""

    exit_code = USER_ERROR


class CommandFailed(CommandError):
    """A failure that is not the user's mistake."""

    exit_code = FAILED
