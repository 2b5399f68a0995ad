"""``tbloom import``: the requests that scrapy-redis or Scrapy has seen, or a file of items, into a filter."""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import click

from tbloom import TimeBloom
from tbloom.bloom.fingerprinter import note
from tbloom.bloom.hasher import Secret
from tbloom.cli.kit import filters, formats, options, output, progress, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filters import Server
from tbloom.engine.flow import text

#: What has made the fingerprints in the set of scrapy-redis' dupefilter.
_SCRAPY_REDIS = "tbloom.scrapy.ScrapyRedisFingerprinter"
#: Fingerprints per batch; per SSCAN, they take less than a millisecond of the server's time.
_AT_ONCE = 1000
#: The bytes of the length before each fingerprint in requests.seen since Scrapy 2.19, and the longest that is plausible.
_LENGTH_BYTES, _LONGEST = 2, 1024
_HEX_DIGITS = b"0123456789abcdefABCDEF"
_HEX = re.compile(rb"([0-9a-fA-F]{2})*")

Batches = Iterator[list[bytes]]


@click.command(cls=Command, example="tbloom import news:tbloom --create --from-set news:dupefilter")
@options.name
@options.server
@options.secret
@click.option("--from-set", metavar="KEY", help="the set of an exact dupefilter: news:dupefilter")
@click.option("--from-seen", type=click.Path(exists=True), help="requests.seen, or Scrapy's JOBDIR")
@click.option("--from-lines", type=click.File("rb"), help="an item in each line; -: standard input")
@click.option("--from-url", metavar="URL", help="the server of --from-set (--url)")
@click.option(
    "--slice",
    "label",
    metavar="LABEL",
    help="the slice to import into, by its label in 'tbloom info' (the current one)",
)
@options.as_json
@options.quiet
@options.creation
def command(
    *,
    name: str,
    server: Server,
    secret: Secret | None,
    from_set: str | None,
    from_seen: str | None,
    from_lines: BinaryIO | None,
    from_url: str | None,
    label: str | None,
    **parameters: Any,
) -> None:
    """Import what scrapy-redis or Scrapy has seen, or a file.

    The same import a second time adds nothing. So an interrupted import can be started again.
    """
    if sum(source is not None for source in (from_set, from_seen, from_lines)) != 1:
        raise CommandError("expected one of --from-set, --from-seen, --from-lines")
    given, other = options.creation_parameters(parameters), None
    with ExitStack() as stack:
        # The source is opened first, so that a wrong name changes nothing.
        if from_set is not None:
            source = server
            if from_url:
                source = stack.enter_context(filters.connect(from_url, "--from-url"))
            with source.named():
                batches, expected = _stored_set(source, from_set), source.client.scard(from_set)
        elif from_seen is not None:
            batches, expected = _seen_file(stack, from_seen), 0
        elif from_lines is not None:
            batches, expected = streams.batches(from_lines), streams.lines_in(from_lines)
        own = {"retry_for": filters.RETRY_FOR, "secret": secret}
        target = server.open_or_create(name, given, **own)
        target.import_many([], label)  # raises if there is no such slice
        is_new = not target.client.exists(target.config.keys.root)
        read = new = 0
        advance = stack.enter_context(progress.bar("items", expected))
        for items in batches:
            with filters.announcing_waits():
                new += target.import_many(items, label)
            read += len(items)
            advance(len(items))
        if from_set is not None and read:
            other = _other_fingerprinter(target, is_new=is_new)
    output.show({"read": read, "new": new, "seen": read - new}, str)
    counts = f"{formats.counted(read, 'item')} read, {new:,} new, {read - new:,} already seen"
    output.summary(counts)
    if other:
        output.say(
            f"Warning: {name!r} was filled with the fingerprints of {other}, these are {_SCRAPY_REDIS}'s: "
            "to a crawl, only those of its own REQUEST_FINGERPRINTER_CLASS are seen"
        )


def _other_fingerprinter(target: TimeBloom, *, is_new: bool) -> str | None:
    """Note which class made the fingerprints. Return the class that has filled the filter before, if it is another one."""
    keys = target.config.keys
    left = int(target.client.pttl(keys.root))
    noting = note(keys.fingerprinter(), _SCRAPY_REDIS, left if left > 0 else None, is_new=is_new)
    known = target.run(noting)
    return None if known == _SCRAPY_REDIS else known


def _stored_set(server: Server, key: str) -> Batches:
    """Return the fingerprints in the set of scrapy-redis' dupefilter with that key."""
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
    with server.named():
        for members in _batched(server.client.sscan_iter(key, count=_AT_ONCE)):
            wrong = next((text(each)[:100] for each in members if not _HEX.fullmatch(each)), None)
            if wrong is not None:
                raise CommandError(f"--from-set {key}: expected fingerprints in hex, got {wrong!r}")
            yield [unhexlify(member) for member in members]


def _seen_file(stack: ExitStack, path: str) -> Batches:
    """Return the fingerprints in Scrapy's requests.seen, or in that of a JOBDIR. Before Scrapy 2.19, it has lines of hex digits.

    Like Scrapy, leave out a last fingerprint that was cut off.
    """
    found = Path(path) / "requests.seen" if Path(path).is_dir() else Path(path)
    if not found.exists():
        raise CommandError(f"--from-seen {path}: expected Scrapy's JOBDIR, with requests.seen")
    file = stack.enter_context(found.open("rb"))
    # As the first byte of a length, a hex digit would mean a fingerprint of 12 KB.
    return _batched(_hex_lines(file) if file.peek(1)[:1] in _HEX_DIGITS else _records(file))


def _hex_lines(file: BinaryIO) -> Iterator[bytes]:
    for number, line in enumerate(file, 1):
        digits = line.rstrip()
        if digits.strip(_HEX_DIGITS) or ((is_whole := line.endswith(b"\n")) and len(digits) % 2):
            raise _no_seen_file(file, f"line {number:,} is {text(digits)[:100]!r}")
        if is_whole:
            yield unhexlify(digits)


def _records(file: BinaryIO) -> Iterator[bytes]:
    """Yield fingerprints, which are stored after their lengths."""
    number = 0
    while len(head := file.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
        size, number = int.from_bytes(head, "big"), number + 1
        if not 0 < size <= _LONGEST:
            raise _no_seen_file(file, f"fingerprint {number:,} would have {size:,} bytes")
        if len(found := file.read(size)) == size:
            yield found


def _no_seen_file(file: BinaryIO, why: str) -> CommandError:
    kinds = "lines of 40 (or 64) hex digits, or since Scrapy 2.19 fingerprints behind their lengths"
    return CommandError(f"{file.name}: expected Scrapy's requests.seen ({kinds}): {why}")


def _batched(items: Iterator[bytes]) -> Batches:
    while batch := [*islice(items, _AT_ONCE)]:
        yield batch
