"""Input and output of commands: files of lines, output files that appear when they are complete, answers on standard output."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import click

from tbloom.cli.kit import output
from tbloom.cli.kit.errors import CommandError, CommandFailed
from tbloom.cli.kit.formats import counted
from tbloom.engine.flow import text

#: Bytes per read, and of the longest line.
_READ_BYTES = 1 << 16
_LONGEST = 64 << 20
#: The errors of a write for which there is no room. Python does not say to which file.
_FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG
#: What editors put before text in UTF-8.
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Inputs:
    """Files with an item in each line, one after another. One that can't be read is named, and the others are read."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        #: How many could not be read.
        self.failed: int = 0

    def __iter__(self) -> Iterator[list[bytes]]:
        """Yield the lines in batches (see ``batches``)."""
        for name in self._names:
            try:
                with click.open_file(name, "rb") as file:
                    yield from batches(file)
            except (OSError, CommandError) as error:
                self.failed += 1
                why = f"{name}: {error.strerror}" if isinstance(error, OSError) else f"{error}"
                output.say(f"tbloom: {why}")

    def size(self) -> int:
        """Return the bytes of the files. A pipe counts 0."""
        return sum(Path(name).stat().st_size for name in self._names if Path(name).is_file())


def batches(file: Any) -> Iterator[list[bytes]]:
    """Yield the file's lines in batches, each as soon as it can be read.

    A line ends in LF, CR or both. Empty lines and byte order marks are left out.

    Raise CommandError for a line over 64 MB, and for a file that is not lines of text.
    """
    rest: list[bytes] = []
    size, number = 0, 1
    while data := file.read1(_READ_BYTES):
        check_text(name_of(file), data)
        ends = data.count(b"\n") or data.count(b"\r")
        ended, end, data = data.replace(b"\r", b"\n").rpartition(b"\n")
        if end:
            yield _items(b"".join([*rest, ended]))
            number += ends
            rest, size = [], 0
        rest.append(data)
        size += len(data)
        if size > _LONGEST:
            raise CommandError(f"{name_of(file)}: line {number}: expected at most 64 MB")
    if size:
        yield _items(b"".join(rest))


def name_of(file: Any) -> str:
    """Return what a user calls a file that was opened."""
    is_path = isinstance(file.name, str) and file.name != "<stdin>"
    return str(file.name) if is_path else "standard input"


def check_text(name: str, data: bytes) -> None:
    """Raise CommandError if data of the file of this name have a NUL byte: it is compressed, or in UTF-16."""
    before, nul, _ = data.partition(b"\0")
    if nul:
        raise CommandError(
            f"{name}: expected lines of text in UTF-8, got a NUL byte after {text(before[-60:])!r}"
        )


def _items(data: bytes) -> list[bytes]:
    return [item for line in data.split(b"\n") if (item := line.removeprefix(_BYTE_ORDER_MARK))]


@contextmanager
def writing(file: str, *, is_secret: bool = False) -> Iterator[BinaryIO]:
    """Yield a temporary file that takes the place of ``file`` at the end, with its permissions.

    ``-`` is standard output. Only its owner can read a new file with a secret. (click's atomic file would also replace a whole
    file with what an error has left of the new one.)
    """
    if file == "-":
        yield sys.stdout.buffer
        return
    target = Path(file).resolve()  # the target of a link
    if target.exists() and not target.is_file():  # a device such as /dev/null, or a pipe
        with target.open("wb") as opened:
            yield opened
        return
    new = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        try:
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if is_secret else 0o666)
        except OSError as error:
            raise OSError(error.errno, error.strerror, file) from None
        with open(fd, "wb") as opened:  # noqa: PTH123 - of a descriptor
            yield opened
            opened.flush()
            if target.exists():
                new.chmod(stat.S_IMODE(target.stat().st_mode))
            os.fsync(fd)
        new.replace(target)
    except OSError as error:
        if error.filename is None and error.errno in _FULL:
            error.filename = file
        raise
    finally:
        new.unlink(missing_ok=True)


def write(data: bytes, line: str = "") -> None:
    """Write all bytes to standard output. With ``line``, the name of a line, an error counts the lines that were not printed."""
    sys.stdout.flush()
    raw = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)
    written = 0
    try:
        while written < len(data):
            written += raw.write(data[written:]) or 0  # None: a full pipe that does not wait
    except OSError as error:
        is_closed = isinstance(error, BrokenPipeError)
        if is_closed and not line:
            raise
        left = data.count(b"\n", written)
        lost = f": {counted(left, line)} could not be printed" if line else ""
        kind = CommandFailed if is_closed else CommandError
        raise kind(f"standard output: {error.strerror}{lost}") from None
