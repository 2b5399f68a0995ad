"""The items of an exact filter: a set on a server, Scrapy's requests.seen, or a file of lines."""

from __future__ import annotations

import os
import re
import stat
from binascii import unhexlify
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from tbloom.cli.kit import filters, streams
from tbloom.cli.kit.command import exactly_one
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.options import all_of
from tbloom.engine.flow import text

if TYPE_CHECKING:
    from contextlib import ExitStack

#: Members per SSCAN: less than a millisecond of the server's time.
_MEMBERS = 1000
#: Bytes per read of a file.
_PAGE_BYTES = 1 << 16
#: The length in front of each fingerprint in the requests.seen of Scrapy 2.19 and later.
_LENGTH_BYTES = 2
_HEX_DIGITS = b"0123456789abcdefABCDEF"
_HEX = re.compile(rb"([0-9a-fA-F]{2})*")
#: Some items, and the position after them.
Page = tuple[list[bytes], int]


@dataclass(frozen=True)
class Source:
    """A source of items, read in pages."""

    #: The name in messages and in the file of --resume.
    name: str
    #: Size, and its unit; None where the size is not known.
    total: int | None
    unit: str
    #: Identifies the file or the server process: a position is valid only while it is the same.
    mark: str
    #: The pages from a position on; 0 is the start.
    pages: Callable[[int], Iterator[Page]]


def options(verb: str, *names: str) -> Callable[[Any], Any]:
    """--VERB-set, --VERB-seen and --VERB-lines, those that are named, and --from-url; for ``opened``."""
    key = "the Redis set of an exact dupefilter, as scrapy-redis has it: news:dupefilter"
    declared: dict[str, dict[str, Any]] = {
        "set": {"metavar": "KEY", "type": str, "help": key},
        "seen": {"help": "Scrapy's requests.seen, or its JOBDIR"},
        "lines": {"help": "an item in each line; -: standard input"},
    }
    file = {"metavar": "FILE", "type": click.Path()}
    sources = [
        click.option(f"--{verb}-{name}", f"source_{name}", **{**file, **declared[name]})
        for name in names
    ]
    url = click.option("--from-url", metavar="URL", help="the server of KEY (that of --url)")
    return all_of([*sources, url])


def opened(stack: ExitStack, verb: str, url: str, given: dict[str, Any]) -> Source:
    """The source that the options of ``options`` name, which are removed from ``given``; the stack closes it.

    A set without --from-url is on the server of ``url``.
    """
    from_url: str | None = given.pop("from_url")
    names = [name for name in ("set", "seen", "lines") if f"source_{name}" in given]
    words = {f"{verb}_{name}": given.pop(f"source_{name}") for name in names}
    exactly_one(**words)
    [(option, word)] = [(option, word) for option, word in words.items() if word is not None]
    if option == f"{verb}_set":
        return stored_set(stack, url, from_url, f"--{verb}-set", word)
    if from_url is not None:
        raise CommandError(f"--from-url: needs --{verb}-set, the key of the set on that server")
    return seen_file(stack, word) if option == f"{verb}_seen" else line_file(stack, word)


def stored_set(stack: ExitStack, url: str, from_url: str | None, option: str, key: str) -> Source:
    """scrapy-redis' dupefilter: the set of fingerprints in hex with that key; ``option`` is for errors.

    It is on the server of ``from_url``, or where that is None, of ``url``.

    The position is SSCAN's cursor. A member that stays in the set is returned at least once, even if
    the set grows, as long as the same server process gets its cursors back.
    """
    server = stack.enter_context(
        filters.connect(url) if from_url is None else filters.connect(from_url, "--from-url")
    )
    kind = text(server.client.type(key))
    if kind == "none":
        raise CommandError(
            f"{option}: there is no key {key!r} on {server.place}; "
            "without SCHEDULER_PERSIST = True, scrapy-redis deletes its set at the end of a crawl"
        )
    if kind != "set":
        raise CommandError(f"{option}: key {key!r} holds a {kind}, not a set")

    def pages(position: int) -> Iterator[Page]:
        while True:
            position, members = server.client.sscan(key, position, count=_MEMBERS)
            yield _fingerprints(f"{option} {key}", members), position
            if not position:
                return

    process = server.client.info("server", **server.node_of(key))["run_id"]
    total = server.client.scard(key)
    return Source(f"set {key!r} on {server.place}", total, "items", process, pages)


def seen_file(stack: ExitStack, path: str) -> Source:
    """Scrapy's requests.seen, or the one in a JOBDIR; before Scrapy 2.19 it has lines of hex digits."""
    found = Path(path)
    if found.is_dir():
        found /= "requests.seen"
    file = streams.open_file(stack, str(found))
    if _size(file) is None:
        raise CommandError(f"--from-seen {found}: expected a file, not a pipe")
    first = file.read(1)
    file.seek(0)

    def hex_lines(position: int) -> Iterator[Page]:
        for items, after in _lines(file, position):
            # A last line without an end was cut off.
            is_cut_off = after - position == sum(map(len, items))
            position = after
            yield [] if is_cut_off else _fingerprints(f"--from-seen {found}", items), after

    # As the first byte of a length, a hex digit would mean a fingerprint of 12 KB.
    pages = hex_lines if first in _HEX_DIGITS else lambda position: _records(file, position)
    return _file_source(str(found.resolve()), file, pages)


def line_file(stack: ExitStack, path: str) -> Source:
    """A file with an item in each line; ``-`` is standard input."""
    name = "standard input" if path == "-" else str(Path(path).resolve())
    file = streams.open_file(stack, path)
    return _file_source(name, file, lambda position: _lines(file, position))


def _file_source(name: str, file: BinaryIO, pages: Callable[[int], Iterator[Page]]) -> Source:
    """A file; it is marked by its device and inode, which differ in a file that has replaced it."""
    status = os.fstat(file.fileno())
    return Source(name, _size(file), "bytes", f"{status.st_dev}:{status.st_ino}", pages)


def _lines(file: BinaryIO, position: int) -> Iterator[Page]:
    """Pages of lines; empty lines are left out."""
    if position:
        file.seek(position)
    for items, size in streams.batches(file):
        position += size
        yield items, position


def _records(file: BinaryIO, position: int) -> Iterator[Page]:
    """Pages of fingerprints, each with its length in front of it; one that was cut off is left out, as Scrapy does."""
    file.seek(position)
    data = b""
    while more := file.read(_PAGE_BYTES):
        data += more
        found, end = list[bytes](), 0
        while (start := end + _LENGTH_BYTES) <= len(data):
            after = start + int.from_bytes(data[end:start], "big")
            if after > len(data):
                break
            if after > start:
                found.append(data[start:after])
            end = after
        data, position = data[end:], position + end
        yield found, position


def _fingerprints(name: str, members: list[bytes]) -> list[bytes]:
    """The fingerprints as bytes, as ``tbloom.scrapy.DupeFilter`` adds them."""
    try:
        return [unhexlify(member) for member in members]
    except ValueError:
        wrong = next(member for member in members if not _HEX.fullmatch(member))
        raise CommandError(
            f"{name}: expected fingerprints in hex, as Scrapy and scrapy-redis write them, got {text(wrong)[:100]!r}"
        ) from None


def _size(file: BinaryIO) -> int | None:
    """A file's size (bytes); None where it is a pipe or a terminal."""
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None
