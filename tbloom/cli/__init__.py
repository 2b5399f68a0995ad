"""The command line: ``tbloom COMMAND``."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from tbloom.cli.group import COMMANDS, tbloom
from tbloom.cli.kit import streams
from tbloom.cli.kit.command import label
from tbloom.cli.kit.errors import (
    FAILED,
    INTERRUPTED,
    USER_ERROR,
    CommandError,
    expected,
    one_line,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Set by the shell's function when a user presses Tab.
COMPLETE = "_TBLOOM_COMPLETE"


def main(argv: Sequence[str] | None = None) -> int:  # noqa: PLR0911 - as many ways to end
    """Runs a command. Returns the exit code: 0 (yes, or done), 1 (no, or failed) or 2 (a user's error)."""
    words = [*(sys.argv[1:] if argv is None else argv)]
    streams.open_output()
    try:
        code = _complete(os.environ[COMPLETE]) if COMPLETE in os.environ else _run(words)
        sys.stdout.flush()  # an error in writing is reported as ours
    except click.exceptions.Exit as done:  # --help, --version
        return done.exit_code
    except BrokenPipeError:  # the reader of our output has ended, as head(1) does
        return FAILED
    except click.UsageError as error:
        place = error.ctx.command_path if error.ctx else "tbloom"
        return _failed(place, one_line(_text(error), words), USER_ERROR)
    except io.UnsupportedOperation:
        return _failed("tbloom", "standard output is closed", USER_ERROR)
    except ModuleNotFoundError as error:
        return _failed("tbloom", _missing(error, words), USER_ERROR)
    except Exception as error:
        if not isinstance(error, expected()):
            raise
        code = error.exit_code if isinstance(error, CommandError) else USER_ERROR
        return _failed("tbloom", one_line(error, words), code)
    except KeyboardInterrupt:
        return _failed("tbloom", "interrupted", INTERRUPTED)
    else:
        return code
    finally:
        streams.drop_unwritable()


def _run(words: list[str]) -> int:
    # Not click's main(), which has messages and exit codes of its own.
    with tbloom.make_context("tbloom", words) as context:
        return tbloom.invoke(context) or 0


def _complete(instruction: str) -> int:
    from click.shell_completion import shell_complete  # noqa: PLC0415 - a shell asks for it only

    with suppress(Exception):  # a traceback in the line that the user types helps nobody
        shell_complete(tbloom, {}, "tbloom", COMPLETE, instruction)
    return 0


def _failed(place: str, text: str, code: int) -> int:
    click.echo(f"{place}: {text}", err=True)  # nowhere, where the shell has closed standard error
    return code


def _text(error: click.UsageError) -> str:
    """Click's message, with the name of the option or argument in front."""
    if (
        isinstance(error, click.BadParameter)
        and not isinstance(error, click.MissingParameter)
        and error.param is not None
    ):
        return f"{label(error.param)}: {error.message}"
    return error.format_message()


def _missing(error: ModuleNotFoundError, words: list[str]) -> str:
    """The extra that installs what the command needs."""
    module = (error.name or "").partition(".")[0]
    command = next((word for word in words if word in COMMANDS), None)
    if module in {"", "tbloom"} or command is None:
        raise error
    return f"{command!r} needs {module}: pip install 'tbloom[{COMMANDS[command].extra}]'"
