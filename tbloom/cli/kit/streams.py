"""Input and output of commands: files of lines, output files that appear when they are complete, answers on standard output."""

from __future__ import annotations

import os
import secrets
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
#: The first bytes of files that are not lines of text, with the format, and what makes lines of it.
_FORMATS = {
    b"\x1f\x8b": "gzip (see zcat; 'tbloom restore' takes what 'tbloom export' wrote)",
    b"\xfd7zXZ": "xz (see xzcat)",
    b"\x28\xb5\x2f\xfd": "zstd (see zstdcat)",
    **{b"BZh%d1AY&SY" % level: "bzip2 (see bzcat)" for level in range(1, 10)},
    b"PK\x03\x04": "zip (see unzip -p)",
}
#: What editors put before text in UTF-8, and in UTF-16.
_BYTE_ORDER_MARK, _OF_UTF_16 = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")


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

    def lines(self) -> int:
        """Estimate the number of lines. A pipe counts 0: it can be opened only once."""
        lines = 0
        for name in self._names:
            if name == "-" or Path(name).is_file():
                with suppress(OSError), click.open_file(name, "rb") as file:
                    lines += lines_in(file)
        return lines


def batches(file: Any) -> Iterator[list[bytes]]:
    """Yield the file's lines in batches, each as soon as it can be read.

    A line ends in LF, CR or both. Empty lines and byte order marks are left out.

    Raise CommandError for a line over 64 MB, and for a file that is not lines of text.
    """
    rest: list[bytes] = []
    size, number, is_begun = 0, 1, False
    while data := file.read1(_READ_BYTES):
        if wrong := _other_format(data, is_begun=is_begun):
            raise CommandError(f"{file.name}: expected lines of text, got {wrong}")
        is_begun = True
        ends = data.count(b"\n") or data.count(b"\r")
        ended, end, data = data.replace(b"\r", b"\n").rpartition(b"\n")
        if end:
            yield _items(b"".join([*rest, ended]))
            number += ends
            rest, size = [], 0
        rest.append(data)
        size += len(data)
        if size > _LONGEST:
            raise CommandError(f"{file.name}: line {number}: expected at most 64 MB")
    if size:
        yield _items(b"".join(rest))


def _other_format(data: bytes, *, is_begun: bool) -> str | None:
    """Return what the bytes are if they are not lines of text. Unless ``is_begun``, they are the beginning of a file."""
    before, nul, _ = data.partition(b"\0")
    if not is_begun:
        for magic, found in _FORMATS.items():
            if data.startswith(magic):
                return found
        if nul and data.startswith(_OF_UTF_16):
            return "UTF-16 (see iconv -f UTF-16 -t UTF-8)"
    return f"a NUL byte after {text(before[-60:])!r} (see tr '\\0' '\\n')" if nul else None


def lines_in(file: Any) -> int:
    """Estimate the number of lines in a file by its size and first lines. A pipe counts 0."""
    about = os.fstat(file.fileno())
    if not stat.S_ISREG(about.st_mode):
        return 0
    first = file.peek(_READ_BYTES)
    ends = first.count(b"\n") or first.count(b"\r") or 1
    return about.st_size * ends // max(1, len(first))


def _items(data: bytes) -> list[bytes]:
    return [item for line in data.split(b"\n") if (item := line.removeprefix(_BYTE_ORDER_MARK))]


@contextmanager
def writing(file: str, *, is_secret: bool = False) -> Iterator[BinaryIO]:
    """Yield a temporary file that takes the place of ``file`` at the end, with its permissions and owner.

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
    before = target.stat() if target.exists() else None
    try:
        try:
            fd = os.open(
                new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if is_secret or before else 0o666
            )
        except OSError as error:
            raise OSError(error.errno, error.strerror, file) from None
        with open(fd, "wb") as opened:  # noqa: PTH123 - of a descriptor
            yield opened
            opened.flush()
            if before:
                with suppress(PermissionError):  # only root may give a file to another user
                    os.chown(new, before.st_uid, before.st_gid)
                new.chmod(stat.S_IMODE(before.st_mode))
            os.fsync(fd)
        new.replace(target)
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
