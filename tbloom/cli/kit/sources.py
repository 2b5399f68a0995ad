"""The items of an exact filter: a set on a server, Scrapy's requests.seen, or a file of lines."""

from __future__ import annotations

import os
import stat
from binascii import unhexlify
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

from tbloom.cli.kit import filters, lines
from tbloom.cli.kit.errors import CommandError
from tbloom.engine.flow import text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import ExitStack

    from tbloom.cli.kit.filters import Server

#: Members per SSCAN: less than a millisecond of the server's time.
_MEMBERS = 1000
#: Bytes per read of a file.
_PAGE_BYTES = 1 << 16
#: The length in front of each fingerprint in the requests.seen of Scrapy 2.19 and later.
_LENGTH_BYTES = 2
_HEX_DIGITS = b"0123456789abcdefABCDEF"


class Page(NamedTuple):
    """Some items, and the position after them."""

    items: list[bytes]
    position: int


class Source(Protocol):
    """A source of items, read in pages."""

    #: The name in messages and in the file of --resume.
    name: str

    @property
    def mark(self) -> str:
        """Identifies the file or server process: a position is valid only while it is the same."""

    #: Size, and its unit; None where the size is not known.
    total: int | None
    unit: str

    def pages(self, position: int) -> Iterator[Page]:
        """The pages from a position on; 0 is the start."""


class SetOfFingerprints:
    """scrapy-redis' dupefilter: a set of fingerprints in hex.

    The position is SSCAN's cursor. A member that stays in the set is returned at least once, even if
    the set grows, as long as the same server process gets its cursors back.
    """

    unit = "items"

    def __init__(self, option: str, server: Server, key: str) -> None:
        self._option, self._server, self._key = option, server, key
        self.name = f"set {key!r} on {server.place}"
        kind = text(server.client.type(key))
        if kind == "none":
            raise CommandError(f"{option}: there is no key {key!r} on {server.place}")
        if kind != "set":
            raise CommandError(f"{option}: key {key!r} holds a {kind}, not a set")
        self.total: int | None = server.client.scard(key)

    @property
    def mark(self) -> str:
        """The id of the server process, whose cursors are not valid in another one."""
        node = self._server.node_of(self._key)
        return str(self._server.client.info("server", **node)["run_id"])

    def pages(self, position: int) -> Iterator[Page]:
        """Pages of members, as SSCAN returns them."""
        while True:
            position, members = self._server.client.sscan(self._key, position, count=_MEMBERS)
            yield Page(_fingerprints(f"{self._option} {self._key}", members), position)
            if not position:
                return


class Lines:
    """A file with an item in each line, which ``read`` decodes; empty lines are left out.

    ``whole``: a last line without an end was cut off, and is left out too.
    """

    unit = "bytes"

    def __init__(
        self,
        name: str,
        file: BinaryIO,
        read: Callable[[list[bytes]], list[bytes]],
        *,
        whole: bool = False,
    ) -> None:
        self.name, self._file, self._read, self._whole = name, file, read, whole
        self.total, self.mark = _size(file), _identity(file)

    def pages(self, position: int) -> Iterator[Page]:
        """Pages of lines; the position is an offset in the file."""
        if position:
            self._file.seek(position)
        for items, size in lines.batches(self._file):
            position += size
            is_cut_off = self._whole and size == sum(map(len, items))
            yield Page([] if is_cut_off else self._read(items), position)


class Records:
    """The requests.seen of Scrapy 2.19 and later: fingerprints, each with its length in front of it."""

    unit = "bytes"

    def __init__(self, name: str, file: BinaryIO) -> None:
        self.name, self._file = name, file
        self.total, self.mark = _size(file), _identity(file)

    def pages(self, position: int) -> Iterator[Page]:
        """Pages of fingerprints; a last one that was cut off is left out, as Scrapy does."""
        self._file.seek(position)
        data = b""
        while more := self._file.read(_PAGE_BYTES):
            data += more
            items, end = _records(data)
            data, position = data[end:], position + end
            yield Page(items, position)


def stored_set(stack: ExitStack, url: str, option: str, key: str) -> Source:
    """The set with that key; ``option`` is for errors."""
    return SetOfFingerprints(option, stack.enter_context(filters.connect(url)), key)


def seen_file(stack: ExitStack, path: str) -> Source:
    """Scrapy's requests.seen, or the one in a JOBDIR; before Scrapy 2.19 it has lines of hex digits."""
    found = Path(path)
    if found.is_dir():
        found /= "requests.seen"
    file = lines.open_file(stack, str(found))
    if _size(file) is None:
        raise CommandError(f"--from-seen {found}: expected a file, not a pipe")
    first = file.read(1)
    file.seek(0)
    name = str(found.resolve())
    # As the first byte of a length, a hex digit would mean a fingerprint of 12 KB.
    if first in _HEX_DIGITS:
        return Lines(name, file, partial(_fingerprints, f"--from-seen {found}"), whole=True)
    return Records(name, file)


def line_file(stack: ExitStack, path: str) -> Source:
    """A file with an item in each line; ``-`` is standard input."""
    name = "standard input" if path == "-" else str(Path(path).resolve())
    return Lines(name, lines.open_file(stack, path), list)


def _fingerprints(name: str, some: list[Any]) -> list[bytes]:
    """The fingerprints as bytes, as ``tbloom.scrapy.DupeFilter`` adds them."""
    try:
        return [unhexlify(member) for member in some]
    except ValueError:
        wrong = next(member for member in some if not _is_hex(member))
        raise CommandError(
            f"{name}: expected fingerprints in hex, as Scrapy and scrapy-redis write them, got {text(wrong)[:100]!r}"
        ) from None


def _is_hex(member: Any) -> bool:
    try:
        unhexlify(member)
    except ValueError:
        return False
    return True


def _records(data: bytes) -> tuple[list[bytes], int]:
    """The complete records at the start of the data, and the offset after them."""
    found, end = list[bytes](), 0
    while True:
        start = end + _LENGTH_BYTES
        after = start + int.from_bytes(data[end:start], "big")
        if start > len(data) or after > len(data):
            return found, end
        if after > start:
            found.append(data[start:after])
        end = after


def _size(file: BinaryIO) -> int | None:
    """A file's size (bytes); None where it is a pipe or a terminal."""
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _identity(file: BinaryIO) -> str:
    """The file's device and inode, which differ in a file that has replaced it."""
    status = os.fstat(file.fileno())
    return f"{status.st_dev}:{status.st_ino}"
