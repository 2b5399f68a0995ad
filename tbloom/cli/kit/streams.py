"""Standard output, as all commands use it: what can't be written is an error."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path

from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.formats import counted


def open_output() -> None:
    """Gives standard output the buffer that PYTHONUNBUFFERED takes from it, and one that fails where the shell has closed it.

    Without a buffer, a write into a pipe takes a part where the process is stopped meanwhile, and Python drops the rest.
    """
    out = sys.stdout
    if out is None:
        sys.stdout = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - it stays open; writing raises
    elif isinstance(out.buffer, io.RawIOBase):
        buffer = open(out.fileno(), "wb", closefd=False)  # noqa: SIM115 - a number; it stays open
        sys.stdout = io.TextIOWrapper(buffer, out.encoding, out.errors, line_buffering=True)


def drop_unwritable() -> None:
    """Keeps Python from reporting the same error again at its exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def check_output() -> None:
    """Raises CommandError where the shell has closed standard output (``>&-``)."""
    if not sys.stdout.writable():
        raise CommandError("standard output is closed")


def write_lines(lines: list[bytes]) -> None:
    """Writes lines at once; raises CommandError that says how many of them nobody got."""
    data = b"".join(line + b"\n" for line in lines)
    sys.stdout.flush()
    raw = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)
    written = 0
    try:
        while written < len(data):
            size = raw.write(data[written:])
            if size is None:  # a pipe that does not wait
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            written += size
    except BrokenPipeError:
        raise
    except OSError as error:
        lost = counted(len(lines) - data[:written].count(b"\n"), "answer")
        raise CommandError(f"standard output: {error.strerror}: nobody got {lost}") from None
