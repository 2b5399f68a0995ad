"""The command line: ``tbloom COMMAND``."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from tbloom.cli.group import tbloom
from tbloom.cli.kit import interrupts
from tbloom.cli.kit.entries import COMMANDS, install
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


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command. Returns the exit code: 0 (yes, or done), 1 (no, or failed) or 2 (a user's error)."""
    if argv is None:
        interrupts.as_ctrl_c()
    words = [*(sys.argv[1:] if argv is None else argv)]
    if sys.stdin is None or sys.stdout is None:
        return _failed("standard input or output is closed", USER_ERROR)
    try:
        code = _complete(os.environ[COMPLETE]) if COMPLETE in os.environ else _run(words)
        sys.stdout.flush()  # an error in writing is reported as ours
    except click.exceptions.Exit as done:  # --help, --version
        return done.exit_code
    except KeyboardInterrupt as stop:
        return _failed(": ".join(["interrupted", *map(str, stop.args)]), INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - those that are none of ours are raised again
        return _ended_by(error, words)
    else:
        return code
    finally:
        _drop_unwritable()


def _run(words: list[str]) -> int:
    # Not click's main(), which has messages and exit codes of its own.
    with tbloom.make_context("tbloom", words) as context:
        return tbloom.invoke(context) or 0


def _complete(instruction: str) -> int:
    from click.shell_completion import shell_complete  # noqa: PLC0415 - a shell asks for it only

    with suppress(Exception):  # a traceback in the line that the user types helps nobody
        shell_complete(tbloom, {}, "tbloom", COMPLETE, instruction)
    return 0


def _ended_by(error: Exception, words: list[str]) -> int:
    """Prints the error that has ended a command; returns the exit code."""
    if isinstance(error, BrokenPipeError):  # the reader of our output has ended, as head(1) does
        return FAILED
    if isinstance(error, click.UsageError):
        place = error.ctx.command_path if error.ctx else "tbloom"
        return _failed(one_line(error.format_message(), words), USER_ERROR, place)
    if isinstance(error, ModuleNotFoundError):
        return _failed(_missing(error, words), USER_ERROR)
    if not isinstance(error, expected()):
        raise error
    code = error.exit_code if isinstance(error, CommandError) else USER_ERROR
    return _failed(one_line(error, words), code)


def _failed(text: str, code: int, place: str = "tbloom") -> int:
    click.echo(f"{place}: {text}", err=True)  # nowhere, where the shell has closed standard error
    return code


def _missing(error: ModuleNotFoundError, words: list[str]) -> str:
    """The extra that installs what the command needs."""
    module = (error.name or "").partition(".")[0]
    command = next((word for word in words if word in COMMANDS), None)
    if module in {"", "tbloom"} or command is None:
        raise error
    return f"{command!r} needs {module}: {install(command, module)}"


def _drop_unwritable() -> None:
    """Keeps Python from reporting the same error again at its exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
