"""The command line: ``tbloom COMMAND``."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.shell_completion import shell_complete

from tbloom.cli.kit import errors, interrupts
from tbloom.cli.kit.command import LEFT_OUT
from tbloom.version import __version__

#: Set by the shell's function when a user presses Tab.
COMPLETE = "_TBLOOM_COMPLETE"
#: The number of standard error.
_LAST_STREAM = 2
#: The commands in the order of the help, each with its module in ``commands`` and its function there.
COMMANDS = {
    "list": ("listing", "list_filters"),
    "info": ("listing", "info"),
    "plan": ("plan", "command"),
    "add": ("lookup", "add"),
    "check": ("lookup", "check"),
    "clear": ("listing", "clear"),
    "migrate": ("migrate", "command"),
    "export": ("export", "export"),
    "import": ("export", "import_"),
    "push": ("fleet", "push"),
    "queue": ("fleet", "queue"),
    "failed": ("fleet", "failed"),
    "retry": ("fleet", "retry"),
    "drop": ("fleet", "drop"),
    "doctor": ("development", "doctor"),
    "metrics": ("watching", "metrics"),
    "watch": ("watching", "watch"),
    "pages": ("pages", "command"),
    "count": ("count", "command"),
    "server": ("development", "server"),
    "demo": ("development", "demo"),
}


class _Lazy(click.Group):
    """A group that imports a command when it is run, and all of them for the help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        return command(cmd_name) if cmd_name in COMMANDS else None


def command(name: str) -> Any:
    """Return the command of this name."""
    module, function = COMMANDS[name]
    return getattr(import_module(f"tbloom.cli.commands.{module}"), function)


@click.group(
    cls=_Lazy,
    commands=dict.fromkeys(COMMANDS, click.Command(None)),  # for "Did you mean"
    invoke_without_command=True,
    subcommand_metavar="[COMMAND] [ARGS]...",  # click before 8.5 says that the command is needed
    epilog=f"Example: tbloom add news --create < urls.txt > new.txt{LEFT_OUT}",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="tbloom %(version)s")
@click.pass_context
def tbloom(context: click.Context) -> None:
    """Remember what a fleet of crawlers has seen."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit code: 0 (yes, or done), 1 (no, or failed) or 2 (a user's error)."""
    if argv is None:
        interrupts.as_ctrl_c()
    words = [*(sys.argv[1:] if argv is None else argv)]
    _open_closed()
    if sys.stdout is None:
        return _failed("standard output is closed", errors.USER_ERROR)
    try:
        if COMPLETE in os.environ:
            code = _complete(os.environ[COMPLETE])
        else:  # not click's main(), which has messages and exit codes of its own
            with tbloom.make_context("tbloom", words) as context:
                code = tbloom.invoke(context) or 0
        sys.stdout.flush()  # an error in writing is reported as ours
    except click.exceptions.Exit as done:  # --help, --version
        return done.exit_code
    except KeyboardInterrupt as stop:
        return _failed(": ".join(["interrupted", *map(str, stop.args)]), errors.INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - bugs are raised again
        return _print_expected(error, words)
    else:
        return code
    finally:
        _drop_unwritable()


class _Closed(io.RawIOBase):
    """Standard input that the shell has closed."""

    name = "<stdin>"

    def readable(self) -> bool:
        return True

    def readinto(self, _: object) -> int:
        raise OSError(errno.EBADF, "it is closed", "standard input")


def _open_closed() -> None:
    """Open standard error and input if the shell has closed them, as it does for daemons: what is said is dropped, and what reads
    fails. Python has None for them."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= _LAST_STREAM:
        # Else a file or a connection would get it, and what libraries and child processes say.
        os.set_inheritable(number, True)  # noqa: FBT003 - Python's signature
    os.close(number)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_Closed()))


def _complete(instruction: str) -> int:
    with suppress(Exception):  # a traceback in the line that the user types helps nobody
        shell_complete(tbloom, {}, "tbloom", COMPLETE, instruction)
    return 0


def _print_expected(error: Exception, words: list[str]) -> int:
    """Print the error that has ended a command, and return the exit code. Raise an error that is a bug."""
    if isinstance(error, BrokenPipeError):  # the reader of our output has ended, as head(1) does
        return errors.FAILED
    if isinstance(error, click.UsageError):
        place = error.ctx.command_path if error.ctx else "tbloom"
        return _failed(errors.one_line(error.format_message(), words), errors.USER_ERROR, place)
    if not isinstance(error, errors.expected()):
        raise error
    code = error.exit_code if isinstance(error, errors.CommandError) else errors.USER_ERROR
    return _failed(errors.one_line(error, words), code)


def _failed(text: str, code: int, place: str = "tbloom") -> int:
    click.echo(f"{place}: {text}", err=True)  # prints nothing if standard error is closed
    return code


def _drop_unwritable() -> None:
    """Drop output that can't be written, so that Python does not report the same error at its exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
