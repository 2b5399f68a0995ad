"""What commands read and write: files of lines, output files that appear when they are complete, standard output."""

from __future__ import annotations

import errno
import io
import os
import secrets
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.formats import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

#: Bytes per read, and of the longest line.
_READ_BYTES = 1 << 16
_LONGEST = 64 << 20


def batches(file: BinaryIO) -> Iterator[tuple[list[bytes], int]]:
    """Batches of the file's lines, as they can be read without waiting, each with its size (bytes).

    Line ends and empty lines are left out. Raises CommandError for a line over 64 MB.
    """
    rest: list[bytes] = []
    size, number = 0, 1
    while data := file.read1(_READ_BYTES):  # type: ignore[attr-defined] # of a file, and of standard input
        ended, end, data = data.rpartition(b"\n")
        if end:
            whole = b"".join([*rest, ended])
            yield _items(whole), len(whole) + 1
            number += whole.count(b"\n") + 1
            rest, size = [], 0
        rest.append(data)
        size += len(data)
        if size > _LONGEST:
            raise CommandError(f"{_name(file)}: line {number}: expected at most 64 MB")
    if size:
        yield _items(b"".join(rest)), size


def _items(data: bytes) -> list[bytes]:
    return [item for line in data.split(b"\n") if (item := line.rstrip(b"\r"))]


def _name(file: BinaryIO) -> str:
    name = getattr(file, "name", "")
    return name if isinstance(name, str) and name != "<stdin>" else "standard input"


def open_file(stack: ExitStack, file: str) -> BinaryIO:
    """The file, which the stack closes; ``-`` is standard input."""
    if file == "-":
        if sys.stdin is None:
            raise CommandError("standard input is closed")
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(file).open("rb"))
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None


def open_files(stack: ExitStack, files: tuple[str, ...]) -> list[BinaryIO]:
    """All of them at once, so that a wrong name changes nothing; none: standard input."""
    return [open_file(stack, file) for file in files or ("-",)]


@contextmanager
def writing(file: str) -> Iterator[BinaryIO]:
    """Yields a temporary file beside it, renamed at the end; ``-`` is standard output."""
    try:
        if file == "-":
            check_output()
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        target = Path(file)
        if target.exists() and not target.is_file():  # a device such as /dev/null
            with target.open("wb") as opened:
                yield opened
            return
        target = target.resolve()  # the target of a link
        new = target.with_name(f"{target.name}.{secrets.token_hex(4)}.new")
        try:
            with new.open("xb") as opened:
                if target.exists():
                    shutil.copymode(target, new)
                yield opened
                opened.flush()
                os.fsync(opened.fileno())
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)
    except BrokenPipeError:  # main() reports it
        raise
    except OSError as error:
        place = "standard output" if file == "-" else file
        raise CommandError(f"{place}: {error.strerror or error}") from None
    except RuntimeError as error:  # a link to itself; an OSError from Python 3.13 on
        raise CommandError(f"{file}: {error}") from None


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
