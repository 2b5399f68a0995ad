"""Files with an item in each line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tbloom.cli.kit.errors import CommandError

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
