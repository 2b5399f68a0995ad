"""Reading WARC files: what tbloom, warcio and FastWARC find in damaged ones, and the time for a record."""

from __future__ import annotations

import base64
import gzip
import hashlib
import random
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from io import BytesIO, StringIO
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from fastwarc.warc import ArchiveIterator as FastIterator
from fastwarc.warc import WarcRecordType
from warcio.archiveiterator import ArchiveIterator

from bench.pages import DOCS
from bench.progress import shown
from bench.serving import Server
from bench.tables import Table
from tbloom.pages import PageStore, import_warc
from tbloom.pages.archives import Archive, Fields, Record
from tbloom.pages.members import zstd
from tbloom.pages.message import Message, message_of

#: Pages of each damaged file, and the one that is damaged or follows damage.
PAGES, DAMAGED = 20, 10
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
#: Errors after which a reader is given up.
MOST_ERRORS = 50
#: The digests of each record: a page is damaged if both are wrong.
DIGESTS = 2
Pages = dict[str, bytes]


def measure(_server: Server, *, pages: int = 500, rounds: int = 7) -> list[Table]:
    """Small files with damage, and one of ``pages`` pages of Debian's documentation."""
    rows = [[name, len(wanted), *_found(data, wanted)] for name, (data, wanted) in _cases().items()]
    columns = {"": "", "pages": "d", **dict.fromkeys(READERS, "")}
    paths = sorted(DOCS.rglob("*.html"))[:pages]
    data = _members(
        [_record(f"https://docs.example.com/{path}", path.read_bytes()) for path in paths]
    )
    spent: dict[str, list[float]] = {name: [] for name in READERS}
    for _ in shown(range(rounds), "reading"):
        for name, read in READERS.items():  # in turn, so that a busy moment is nobody's
            start = time.perf_counter()
            assert len(read(data)) == len(paths)
            spent[name].append(1e6 * (time.perf_counter() - start) / len(paths))
    times = [[name, median(each)] for name, each in spent.items()]
    return [
        Table("reading", columns, rows),
        Table("reading-time", {"": "", "time (us)": ".0f"}, times),
    ]


def _imported(data: bytes) -> Pages:
    """Return the pages with the bodies that revisits refer to."""
    with TemporaryDirectory() as folder, PageStore(folder) as store:
        import_warc(store, BytesIO(data))
        return {page.url: page.body for page in store.pages()}


def _tbloom(data: bytes) -> Pages:
    def wanted(fields: Fields) -> int:
        return fields.length if fields.get("WARC-Type") in {"response", "revisit"} else 0

    found = Pages()
    for one in Archive(BytesIO(data), "", wanted, 0).records():
        if isinstance(one, Record) and one.is_whole is not False:
            message = message_of(one.block, "", is_plain=False)
            if isinstance(message, Message):
                found[one.fields.get("WARC-Target-URI")] = message.body
    return found


def _warcio(data: bytes) -> Pages:
    def read(record: Any) -> bytes | None:
        body: bytes = record.content_stream().read()
        return None if len(record.digest_checker.problems) == DIGESTS else body

    with redirect_stdout(StringIO()):  # warnings
        records = ArchiveIterator(BytesIO(data), check_digests=True)
        return _gone_on(records, lambda one: one.rec_headers["WARC-Target-URI"], read)


def _fastwarc(data: bytes) -> Pages:
    def read(record: Any) -> bytes | None:
        record.freeze()
        is_whole = record.verify_block_digest()
        record.parse_http()
        if not (is_whole or record.verify_payload_digest()):
            return None
        body: bytes = record.reader.read()
        return body

    kinds = WarcRecordType.response | WarcRecordType.revisit
    records = FastIterator(BytesIO(data), record_types=kinds, parse_http=False, quirks_mode=True)
    return _gone_on(records, lambda one: one.headers["WARC-Target-URI"], read)


def _gone_on(records: Any, url: Callable[[Any], str], read: Callable[[Any], bytes | None]) -> Pages:
    """Return the pages; ask for the next one behind an error."""
    found, errors = Pages(), 0
    while errors < MOST_ERRORS:
        try:
            record = next(records)
            if (body := read(record)) is not None:
                found[url(record)] = body
        except StopIteration:
            break
        except Exception:  # noqa: BLE001 - each library has several
            errors += 1
    return found


READERS: dict[str, Callable[[bytes], Pages]] = {
    "tbloom": _tbloom,
    "warcio": _warcio,
    "FastWARC": _fastwarc,
}


def _found(data: bytes, wanted: Pages) -> list[str]:
    """For each reader: the pages with their right bodies, and the others."""
    cells = []
    for read in (_imported, _warcio, _fastwarc):
        found = read(data)
        right = sum(found.get(url) == body for url, body in wanted.items())
        wrong = len(found) - right
        cells.append(f"{right}, {wrong} wrong" if wrong else f"{right}")
    return cells


def _digest(data: bytes) -> str:
    found = hashlib.sha1(data, usedforsecurity=False).digest()
    return f"sha1:{base64.b32encode(found).decode()}"


def _record(
    url: str, body: bytes, head: bytes = HEAD, kind: str = "response", more: str = ""
) -> bytes:
    block = head + (body if kind == "response" else b"")
    fields = (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:11111111-2222-3333-4444-555555555555>\r\n"
        f"WARC-Target-URI: {url}\r\nWARC-Date: 2026-06-03T04:05:06Z\r\n{more}"
        f"Content-Type: application/http; msgtype=response\r\nWARC-Payload-Digest: {_digest(body)}\r\n"
        f"WARC-Block-Digest: {_digest(block)}\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return fields.encode() + block + b"\r\n\r\n"


def _members(records: Iterable[bytes]) -> bytes:
    return b"".join(map(gzip.compress, records))


def _frames(records: Iterable[bytes]) -> bytes:
    return b"".join(map(zstd.compress, records))


def _lengths(records: Sequence[bytes], change: Callable[[int], int]) -> list[bytes]:
    """Return the records, of which one has another Content-Length."""

    def changed(found: re.Match[bytes]) -> bytes:
        return b"\nContent-Length: %d" % change(int(found[1]))

    wrong = re.sub(rb"\nContent-Length: (\d+)", changed, records[DAMAGED])
    return [*records[:DAMAGED], wrong, *records[DAMAGED + 1 :]]


def _cases() -> dict[str, tuple[bytes, Pages]]:
    """Each file, and the pages that are whole in it."""
    chance = random.Random(1)
    all_pages = {f"https://example.com/{n}": chance.randbytes(600) for n in range(PAGES)}
    others = {url: body for n, (url, body) in enumerate(all_pages.items()) if n != DAMAGED}
    records = [_record(url, body) for url, body in all_pages.items()]
    cases: dict[str, tuple[bytes, Pages]] = {
        "one gzip member": (gzip.compress(b"".join(records)), all_pages)
    }
    for name, form in {"plain": b"".join, "gzip": _members, "zstd": _frames}.items():
        before, one, after = (
            form(records[:DAMAGED]),
            form([records[DAMAGED]]),
            form(records[DAMAGED + 1 :]),
        )
        cases |= {
            f"{name}: whole": (before + one + after, all_pages),
            f"{name}: other bytes between two records": (
                before + b"garbage\n" * 9 + one + after,
                all_pages,
            ),
            f"{name}: a record is cut": (before + one[:300] + after, others),
            f"{name}: a bit is wrong": (
                before + one[:-60] + bytes([one[-60] ^ 1]) + one[-59:] + after,
                others,
            ),
            f"{name}: a length is too long by 2": (
                form(_lengths(records, lambda n: n + 2)),
                all_pages,
            ),
            f"{name}: a length is 99999999": (
                form(_lengths(records, lambda _: 99_999_999)),
                others,
            ),
        }
    small = [_record(url, body, b"http/1.1 200 OK\r\n\r\n") for url, body in all_pages.items()]
    refers = [f"WARC-Profile: http://netpreserve.org/warc/1.1/revisit/identical-payload-digest\r\nWARC-Refers-To-Target-URI: {url}\r\n" for url in all_pages]  # fmt: skip
    revisits = [_record(f"{url}/again", body, kind="revisit", more=more) for (url, body), more in zip(all_pages.items(), refers, strict=True)]  # fmt: skip
    again = {f"{url}/again": body for url, body in all_pages.items()}
    return cases | {
        "gzip: block digests of other headers": (
            _members(
                [re.sub(rb"(Block-Digest: sha1:)\w+", rb"\1" + b"A" * 32, one) for one in records]
            ),
            all_pages,
        ),
        "gzip: status lines in small letters": (_members(small), all_pages),
        "gzip: revisits": (_members([*records, *revisits]), all_pages | again),
    }
