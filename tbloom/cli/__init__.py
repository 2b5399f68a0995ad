"""The command line: ``tbloom COMMAND``."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from tbloom.cli.commands import registry
from tbloom.cli.kit.errors import FAILED, INTERRUPTED, CommandError, expected, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command. Returns the exit code: 0 (yes, or done), 1 (no, or failed) or 2 (a user's error)."""
    words = sys.argv[1:] if argv is None else argv
    _buffer_output()
    try:
        return _run(words)
    except BrokenPipeError:  # the reader of our output has ended, as head(1) does
        return FAILED
    except Exception as error:
        if not isinstance(error, expected()):  # not above: --help ends with SystemExit
            raise
        known = error if isinstance(error, CommandError) else CommandError()
        sys.stderr.write(f"{known.prog}: {one_line(error, words)}\n")
        return known.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("tbloom: interrupted\n")
        return INTERRUPTED
    finally:
        _drop_unwritable_output()


def _run(argv: Sequence[str]) -> int:
    arguments = registry.parse(argv)
    with registry.naming_extra(arguments.command):
        code = registry.load(arguments.command).run(arguments)
    if sys.stdout is not None:
        sys.stdout.flush()  # an error in writing is reported as ours
    return code


def _buffer_output() -> None:
    """Gives standard output the buffer that PYTHONUNBUFFERED takes from it.

    Without one, a write into a pipe takes a part where the process is stopped meanwhile, and Python drops the rest.
    """
    out = sys.stdout
    if out is not None and isinstance(out.buffer, io.RawIOBase):
        buffer = open(out.fileno(), "wb", closefd=False)  # noqa: SIM115 - a number; it stays open
        sys.stdout = io.TextIOWrapper(buffer, out.encoding, out.errors, line_buffering=True)


def _drop_unwritable_output() -> None:
    """Keeps Python from reporting the same error again at its exit."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
