"""The fingerprints of an exact filter, in batches: a set on a server, or Scrapy's requests.seen."""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tbloom.cli.kit.errors import CommandError
from tbloom.engine.flow import text

if TYPE_CHECKING:
    from contextlib import ExitStack

    from tbloom.cli.kit.filters import Server

#: Members per SSCAN: less than a millisecond of the server's time.
_MEMBERS = 1000
#: Fingerprints per batch of a file.
_FINGERPRINTS = 2000
#: The length in front of each fingerprint in the requests.seen of Scrapy 2.19 and later.
_LENGTH_BYTES = 2
_HEX_DIGITS = b"0123456789abcdefABCDEF"
_HEX = re.compile(rb"([0-9a-fA-F]{2})*")

Batches = Iterator[list[bytes]]


def stored_set(server: Server, key: str) -> Batches:
    """scrapy-redis' dupefilter: the set of fingerprints in hex with that key."""
    kind = text(server.client.type(key))
    if kind == "none":
        raise CommandError(
            f"--from-set: there is no key {key!r} on {server.place}; "
            "without SCHEDULER_PERSIST = True, scrapy-redis deletes its set at the end of a crawl"
        )
    if kind != "set":
        raise CommandError(f"--from-set: key {key!r} holds a {kind}, not a set")
    return _members(server, key)


def _members(server: Server, key: str) -> Batches:
    cursor = None
    while cursor != 0:
        cursor, members = server.client.sscan(key, cursor or 0, count=_MEMBERS)
        yield _fingerprints(f"--from-set {key}", members)


def seen_file(stack: ExitStack, path: str) -> Batches:
    """Scrapy's requests.seen, or the one in a JOBDIR; before Scrapy 2.19 it has lines of hex digits.

    A last fingerprint that was cut off is left out, as by Scrapy.
    """
    found = Path(path) / "requests.seen" if Path(path).is_dir() else Path(path)
    file = stack.enter_context(found.open("rb"))
    # As the first byte of a length, a hex digit would mean a fingerprint of 12 KB.
    return _hex_lines(file) if file.peek(1)[:1] in _HEX_DIGITS else _records(file)


def _hex_lines(file: BinaryIO) -> Batches:
    whole = (line.rstrip() for line in file if line.endswith(b"\n"))
    for lines in _batched(whole):
        yield _fingerprints(f"--from-seen {file.name}", lines)


def _records(file: BinaryIO) -> Batches:
    """Fingerprints, each with its length in front of it."""

    def fingerprints() -> Iterator[bytes]:
        while len(head := file.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
            size = int.from_bytes(head, "big")
            if len(found := file.read(size)) == size > 0:
                yield found

    return _batched(fingerprints())


def _batched(items: Iterator[bytes]) -> Batches:
    while batch := [*islice(items, _FINGERPRINTS)]:
        yield batch


def _fingerprints(name: str, members: list[bytes]) -> list[bytes]:
    """The fingerprints as bytes, as ``tbloom.scrapy.DupeFilter`` adds them."""
    try:
        return [unhexlify(member) for member in members]
    except ValueError:
        wrong = next(member for member in members if not _HEX.fullmatch(member))
        raise CommandError(
            f"{name}: expected fingerprints in hex, as Scrapy and scrapy-redis write them, got {text(wrong)[:100]!r}"
        ) from None
