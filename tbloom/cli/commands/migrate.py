"""``tbloom migrate``: the requests that scrapy-redis or Scrapy has seen, into a filter."""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Iterator
from contextlib import ExitStack
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any

import click

from tbloom import TimeBloom
from tbloom.bloom.fingerprinter import differing, maker_of, note
from tbloom.bloom.hasher import Secret
from tbloom.cli.commands.project import settings_if_here
from tbloom.cli.commands.targets import on_server
from tbloom.cli.kit import filters, formats, options, output, progress
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filters import Server
from tbloom.engine.flow import text
from tbloom.errors import TBloomError

#: What has made the fingerprints in the set of scrapy-redis' dupefilter, as a crawl describes it.
_SCRAPY_REDIS = (
    "tbloom.scrapy.ScrapyRedisFingerprinter e7a1a3b442f04ec8 e7a1a3b442f04ec8 "
    "17f8436648dd4615 89f2bba308396ead"
)
#: Fingerprints per batch; per SSCAN, they take less than a millisecond of the server's time.
_AT_ONCE = 1000
#: The bytes of the length before each fingerprint in requests.seen since Scrapy 2.19, and the longest fingerprint that is plausible.
_LENGTH_BYTES, _LONGEST = 2, 1024
_HEX_DIGITS = b"0123456789abcdefABCDEF"
_LONGEST_LINE = 2 * _LONGEST + 2
_NEITHER = (
    "{}: byte {:,}: expected a fingerprint of Scrapy's requests.seen (a line of hex digits, or since 2.19 two bytes of length and "
    "the bytes), got {!r}"
)
_REMEDY = "To let all that was scheduled count as seen, migrate {} in place of its folder"


@click.command(
    cls=Command, example="tbloom migrate news:tbloom --create --from-set news:dupefilter"
)
@options.name
@on_server
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
    file: _SeenFile | None = None
    with ExitStack() as stack:
        # The source is opened first, so that a wrong name changes nothing.
        if from_seen is not None and from_set is None:
            file = _SeenFile(from_seen)
            found, expected = iter(file), len(file)
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
    forms = {"lines": file.lines, "records": file.records, "waiting": file.waiting} if file else {}
    output.show({"read": read, "new": new, "seen": read - new, **forms}, str)
    output.summary(_counts(read, new, file))
    if file and file.note:
        output.say(f"Warning: {file.note}")
    if other:
        output.say(
            f"Warning: {name!r} was filled with the fingerprints of {other}, these are {maker_of(_SCRAPY_REDIS)}'s: "
            "to a crawl, only those of its own REQUEST_FINGERPRINTER_CLASS are seen"
        )


def _counts(read: int, new: int, file: _SeenFile | None = None) -> str:
    forms = (
        f" ({formats.counted(file.lines, 'line')}, {formats.counted(file.records, 'record')})"
        if file
        else ""
    )
    return f"{formats.counted(read, 'item')} read, {new:,} new, {read - new:,} already seen{forms}"


def _other_fingerprinter(target: TimeBloom, *, is_new: bool) -> str | None:
    """Note which fingerprints these are. Return the class that has filled the filter before, if it made others."""
    keys = target.config.keys
    left = int(target.client.pttl(keys.root))
    noting = note(keys.fingerprinter(), _SCRAPY_REDIS, left if left > 0 else None, is_new=is_new)
    known = target.run(noting)
    return maker_of(known) if differing(known, _SCRAPY_REDIS) else None


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
                try:
                    yield unhexlify(member)
                except ValueError:
                    got = f"expected fingerprints in hex, got {text(member[:100])!r}"
                    raise CommandError(f"--from-set {key}: {got}") from None

    return members(), number


class _SeenFile:
    """Scrapy's requests.seen: lines of hex digits before Scrapy 2.19, since then records. One file may have both."""

    def __init__(self, path: str) -> None:
        self._is_jobdir = Path(path).is_dir()
        self._path = Path(path) / "requests.seen" if self._is_jobdir else Path(path)
        self._queue = self._path.with_name("requests.queue")
        #: How many fingerprints are in lines and in records, and how many requests wait beside them.
        self.lines: int = 0
        self.records: int = 0
        self.waiting: int = 0
        #: Why it is not known what waits.
        self._unreadable = ""
        #: The fingerprints of those that wait; none if only the file is named.
        self._left_out = set[bytes]()
        with self._path.open("rb"):  # its absence is the first error
            pass
        unseen = set[bytes]()
        if self._path.name == "requests.seen" and self._queue.is_dir():
            unseen = self._find_waiting()
        for item, is_line in self._read():
            self.lines += is_line
            self.records += not is_line
            unseen.discard(item)
        if unseen:
            raise CommandError(
                f"{self._path} lacks {len(unseen):,} of the {self.waiting:,} requests that wait in {self._queue}, so their "
                "fingerprints can't be told from the others: run this in the project's folder, unless the crawl was killed. "
                f"{_REMEDY.format(self._path)}"
            )

    def __iter__(self) -> Iterator[bytes]:
        return (item for item, _ in self._read() if item not in self._left_out)

    def __len__(self) -> int:
        return self.lines + self.records

    @property
    def note(self) -> str:
        """What is to be said of the requests that wait; "": none do."""
        if self._unreadable or not self.waiting:
            return self._unreadable
        holds = f"{self._queue} still holds {formats.counted(self.waiting, 'request')}"
        if not self._is_jobdir:
            return f"{holds}. They count as seen: only a crawl with this JOBDIR, and DUPEFILTER_CLASS or TBLOOM_MARK = 'scheduled', fetches them"
        if not (self._queue / "active.json").exists():  # without it, Scrapy does not resume
            return f"{holds}. They are not imported. Scrapy does not resume, because the crawl was killed: only links lead to them"
        return f"{holds}. They are not imported: crawl with this JOBDIR to fetch them; without it, only links lead to them"

    def _find_waiting(self) -> set[bytes]:
        """Find what waits. Return the fingerprints that the file must have; that of a retry may be in it, too."""
        try:
            from tbloom.scrapy.extras import moving  # noqa: PLC0415 - needs Scrapy

            self.waiting = sum(1 for _ in moving.stored_requests(self._queue))
            is_to_tell = self.waiting and self._is_jobdir
            found = moving.waiting(self._queue, settings_if_here()) if is_to_tell else []
            self._left_out = {item for item, _ in found}
            return {item for item, is_unfiltered in found if not is_unfiltered}
        except ImportError as error:
            why = f"{self._queue} can't be read without {error.name}"
        except TBloomError as error:
            why = str(error)
        if self._is_jobdir:
            raise CommandError(f"{why}. {_REMEDY.format(self._path)}")
        self._unreadable = f"{why}. What waits there counts as seen"
        return set()

    def _read(self) -> Iterator[tuple[bytes, bool]]:
        """Yield each fingerprint, and whether it is a line. Like Scrapy, leave out a last one that was cut off."""
        offset = 0
        with self._path.open("rb") as file:
            while first := file.peek(1)[:1]:
                # As the first byte of a length, a hex digit would mean a fingerprint of 12 KB.
                is_line = first in _HEX_DIGITS
                data, item = _line(file) if is_line else _record(file)
                if item is None:
                    return
                if not item:
                    raise CommandError(_NEITHER.format(self._path, offset, text(data[:40])))
                yield item, is_line
                offset += len(data)


def _line(file: BufferedReader) -> tuple[bytes, bytes | None]:
    """Return a line with its fingerprint; None: it was cut off; b"": it has none."""
    data = file.readline(_LONGEST_LINE)
    if not data.strip(_HEX_DIGITS) and not file.peek(1):
        return data, None
    try:
        return data, unhexlify(data.rstrip()) if data.endswith(b"\n") else b""
    except ValueError:
        return data, b""


def _record(file: BufferedReader) -> tuple[bytes, bytes | None]:
    """Return a record with its fingerprint; None: it was cut off; b"": it has none."""
    head = file.read(_LENGTH_BYTES)
    size = int.from_bytes(head, "big")
    item = file.read(size) if size <= _LONGEST else b""
    is_cut = len(head) < _LENGTH_BYTES or len(item) < size <= _LONGEST
    return head + item, None if is_cut else item
