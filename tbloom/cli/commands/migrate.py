"""``tbloom migrate``: the requests that scrapy-redis or Scrapy has seen, into a filter."""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import click

from tbloom import TimeBloom
from tbloom.bloom.fingerprinter import note
from tbloom.bloom.hasher import Secret
from tbloom.cli.kit import filters, formats, options, output, progress
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


@click.command(
    cls=Command, example="tbloom migrate news:tbloom --create --from-set news:dupefilter"
)
@options.name
@options.server
@options.secret
@click.option("--from-set", metavar="KEY", help="the set of an exact dupefilter: news:dupefilter")
@click.option("--from-seen", type=click.Path(exists=True), help="requests.seen, or Scrapy's JOBDIR")
@click.option("--from-url", metavar="URL", help="the server of --from-set (--url)")
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
    from_url: str | None,
    **parameters: Any,
) -> None:
    """Migrate what scrapy-redis or Scrapy has seen.

    The same command a second time adds nothing. So it can be started again after an interrupt.
    """
    given, other = options.creation_parameters(parameters), None
    with ExitStack() as stack:
        # The source is opened first, so that a wrong name changes nothing.
        if from_seen is not None and from_set is None:
            found, expected = _in_file(from_seen), 0
        elif from_set is not None and from_seen is None:
            source = server
            if from_url is not None:
                source = stack.enter_context(filters.connect(from_url, "--from-url"))
            found, expected = _in_set(source, from_set)
        else:
            raise CommandError("expected one of --from-set, --from-seen")
        target = server.open_or_create(name, given, retry_for=filters.RETRY_FOR, secret=secret)
        # Not by EXISTS, for which a crawler has no right.
        is_new = target.client.get(target.config.keys.root) is None
        read = new = 0
        advance = stack.enter_context(progress.bar("items", expected))
        with filters.until_full(lambda: _counts(read, new)):
            while items := [*islice(found, _AT_ONCE)]:
                new += target.import_many(items)
                read += len(items)
                advance(len(items))
        if given is not None and not read:
            filters.begin(target)
        if from_set is not None and read:
            other = _other_fingerprinter(target, is_new=is_new)
    output.show({"read": read, "new": new, "seen": read - new}, str)
    output.summary(_counts(read, new))
    if other:
        output.say(
            f"Warning: {name!r} was filled with the fingerprints of {other}, these are {_SCRAPY_REDIS}'s: "
            "to a crawl, only those of its own REQUEST_FINGERPRINTER_CLASS are seen"
        )


def _counts(read: int, new: int) -> str:
    return f"{formats.counted(read, 'item')} read, {new:,} new, {read - new:,} already seen"


def _other_fingerprinter(target: TimeBloom, *, is_new: bool) -> str | None:
    """Note which class made the fingerprints. Return the class that has filled the filter before, if it is another one."""
    keys = target.config.keys
    left = int(target.client.pttl(keys.root))
    noting = note(keys.fingerprinter(), _SCRAPY_REDIS, left if left > 0 else None, is_new=is_new)
    known = target.run(noting)
    return None if known == _SCRAPY_REDIS else known


def _in_set(server: Server, key: str) -> tuple[Iterator[bytes], int]:
    """Return the fingerprints in the set of scrapy-redis' dupefilter with that key, and their number."""
    with server.named():
        number = server.client.scard(key)
    if not number:
        raise CommandError(
            f"--from-set: there is no key {key!r} on {server.place}; "
            "without SCHEDULER_PERSIST = True, scrapy-redis deletes its set at the end of a crawl"
        )

    def members() -> Iterator[bytes]:
        with server.named():
            for member in server.client.sscan_iter(key, count=_AT_ONCE):
                yield _unhexed(member, f"--from-set {key}")

    return members(), number


def _in_file(path: str) -> Iterator[bytes]:
    """Yield the fingerprints in Scrapy's requests.seen, or in that of a JOBDIR. Before Scrapy 2.19, it has lines of hex digits.

    Like Scrapy, leave out a last fingerprint that was cut off.
    """
    found = Path(path) / "requests.seen" if Path(path).is_dir() else Path(path)
    with found.open("rb") as file:
        # As the first byte of a length, a hex digit would mean a fingerprint of 12 KB.
        if file.peek(1)[:1] in _HEX_DIGITS:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    yield _unhexed(line.rstrip(), f"{found}: line {number:,}")
            return
        while len(head := file.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
            size = int.from_bytes(head, "big")
            if not 0 < size <= _LONGEST:
                raise CommandError(f"{found}: expected Scrapy's requests.seen, or a JOBDIR")
            if len(item := file.read(size)) == size:
                yield item


def _unhexed(digits: bytes, place: str) -> bytes:
    try:
        return unhexlify(digits)
    except ValueError:
        got = text(digits[:100])
        raise CommandError(f"{place}: expected fingerprints in hex, got {got!r}") from None
