"""Where commands find what an exact filter has seen: a set on a server, Scrapy's requests.seen, or lines."""

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
from tbloom.engine.urls import without_secrets

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from contextlib import ExitStack

#: So many members of a set SSCAN is asked for at once: under a millisecond of the server's time.
_MEMBERS = 1000
#: A page of a file: lines of about so many bytes.
_PAGE_BYTES = 1 << 16
#: A fingerprint in the requests.seen of a newer Scrapy (2.19, say) has its length in front of it.
_LENGTH_BYTES = 2
_HEX_DIGITS = b"0123456789abcdefABCDEF"


class Page(NamedTuple):
    """Some items, and where to go on after them."""

    items: list[bytes]
    position: int


class Source(Protocol):
    """Items, page by page."""

    #: How people, and the file of --resume, know it.
    name: str

    @property
    def mark(self) -> str:
        """What must not have changed where one goes on from a position."""

    #: How much there is, and of what; None where nobody knows.
    total: int | None
    unit: str

    def pages(self, position: int) -> Iterator[Page]:
        """The pages from a position on; 0: from the start."""


class SetOfFingerprints:
    """scrapy-redis' dupefilter: a set whose members are fingerprints in hex.

    The position is SSCAN's cursor. What is in the set all the while is returned whenever one goes on
    from a cursor, at least once, even if the set grows; but only by the process that made the cursor.
    """

    unit = "items"

    def __init__(self, option: str, url: str, client: Any, key: str) -> None:
        self._option, self._client, self._key = option, client, key
        self.name = f"set {key!r} on {without_secrets(url)}"
        kind = text(client.type(key))
        if kind == "none":
            raise CommandError(f"{option}: there is no key {key!r} on {without_secrets(url)}")
        if kind != "set":
            raise CommandError(f"{option}: key {key!r} holds a {kind}, not a set")
        self.total: int | None = client.scard(key)

    @property
    def mark(self) -> str:
        """The process that makes the cursors."""
        return _run_id(self._client, self._key)

    def pages(self, position: int) -> Iterator[Page]:
        """As SSCAN returns them."""
        while True:
            position, members = self._client.sscan(self._key, position, count=_MEMBERS)
            yield Page(_fingerprints(f"{self._option} {self._key}", members), position)
            if not position:
                return


class Lines:
    """A file with an item in each line, which ``read`` makes of it; empty lines are left out.

    ``whole``: a last line without an end was cut off, and is left out, too.
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
        """Some lines each; the position is the file's."""
        if position:
            self._file.seek(position)
        for items, size in lines.pages(self._file):
            position += size
            is_cut_off = self._whole and size == sum(map(len, items))
            yield Page([] if is_cut_off else self._read(items), position)


class Records:
    """The requests.seen of a newer Scrapy (2.19, say): fingerprints, each with its length in front of it."""

    unit = "bytes"

    def __init__(self, name: str, file: BinaryIO) -> None:
        self.name, self._file = name, file
        self.total, self.mark = _size(file), _identity(file)

    def pages(self, position: int) -> Iterator[Page]:
        """Some fingerprints each; one that was cut off at the end is left out, as Scrapy does."""
        self._file.seek(position)
        data = b""
        while more := self._file.read(_PAGE_BYTES):
            data += more
            items, end = _records(data)
            data, position = data[end:], position + end
            yield Page(items, position)


def stored_set(stack: ExitStack, arguments: argparse.Namespace, option: str, key: str) -> Source:
    """The set of that key, where --from-url says, or else where the filter is."""
    url = arguments.url if arguments.from_url is None else arguments.from_url
    return SetOfFingerprints(option, url, stack.enter_context(filters.connect(url)), key)


def seen_file(stack: ExitStack, path: str) -> Source:
    """Scrapy's requests.seen, or that in a JOBDIR: records of a newer Scrapy, lines of hex of an older one."""
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
    """Fingerprints as Scrapy has them, and ``tbloom.scrapy.DupeFilter`` asks for: bytes, not hex."""
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
    """The whole records at the beginning of the data, and where they end."""
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
    """Tells a file from one that has taken its place."""
    status = os.fstat(file.fileno())
    return f"{status.st_dev}:{status.st_ino}"


def _run_id(client: Any, key: str) -> str:
    """Which process holds the key: cursors are no good for another one."""
    return str(client.info("server", **filters.node_of(client, key))["run_id"])
