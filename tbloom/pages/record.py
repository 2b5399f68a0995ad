"""A record of a segment: what any WARC tool reads, as one gzip member.

A member's header has gzip's extra field "sl" (skip lengths, as WARC 0.9 had it): how long the member is,
and how long what it holds. So a segment's records are found without decompressing their bodies.

Records are written with warcio. They are read here, because a page must come back as it was put, byte for
byte: warcio takes header bytes beyond ASCII for UTF-8 where it can.

ISO 28500:2017 (WARC/1.1); RFC 1952 (gzip).
"""

from __future__ import annotations

import zlib
from datetime import datetime, timezone
from http import HTTPStatus
from io import BytesIO
from struct import Struct
from typing import Any, NamedTuple, cast
from uuid import uuid4

from isal import isal_zlib
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from tbloom.items import Item
from tbloom.pages.page import Page, Pairs, address_of, fingerprint_of, is_own, is_true, micros
from tbloom.version import __version__

#: Of ISA-L's 0 to 3. Measured (docs/benchmarks.md): 3 takes twice the time for 4 % less.
LEVEL = 2
#: What every member begins with: deflate, with an extra field of 12 bytes, which is "sl", 8 bytes.
MAGIC = bytes.fromhex("1f8b0804 00000000 00ff 0c00 736c 0800")
_IsalError = cast("type[Exception]", isal_zlib.error)  # its types have it as an instance
_HEAD = Struct("<16sII")
_TAIL = Struct("<II")
TAIL_BYTES = _TAIL.size
_WARC = "1.1"
#: So much of what a member holds is looked at for its headers, before all that was given is.
_FIRST = 4096
_SEGMENT = "WARC-Warcinfo-ID"
_SEQUENCE, _KEY, _DELETED = "X-Tbloom-Sequence", "X-Tbloom-Key", "X-Tbloom-Deleted"
_MOST_SEQUENCE, _FINGERPRINT_BYTES = 1 << 62, 16
#: What a reader believes about a body; where it is not true of this one, it is kept under another name.
_ORIGINAL = "X-Archive-Orig-"


class Damaged(Exception):
    """These bytes are no record."""


class Head(NamedTuple):
    """What the index must know of a record."""

    #: ``response`` (a page), ``metadata`` (a page was deleted), ``warcinfo`` (a segment begins).
    kind: str
    #: The segment that it was written into. Nobody can know it before, so what looks like a record within a page's
    #: body is told from one.
    segment: str
    #: The address that it is about, as the index has it; none for a warcinfo.
    fingerprint: bytes
    #: A page's address.
    address: Item
    #: Of the store's puts and deletes, the how many-th.
    sequence: int
    #: When the page was fetched (microseconds since the epoch).
    at: int


def new_segment() -> str:
    """What tells a segment from all others."""
    return f"<urn:uuid:{uuid4()}>"


def of_page(page: Page, sequence: int, segment: str) -> bytes:
    """The record of a page."""
    fields = dict(page.fields) | _fields(page.at, sequence, segment)
    if page.key is not None:
        fields[_KEY] = page.key.hex()
    headers = [(_stored(name, value, page.body), value) for name, value in page.headers]
    http = _Http(f"{page.status} {_phrase(page.status)}".strip(), headers, protocol="HTTP/1.1")
    return _build("response", page.url, page.body, fields, http=http)


def of_deletion(fingerprint: bytes, sequence: int, segment: str) -> bytes:
    """The record that says that what this address had is deleted."""
    fields = _fields(datetime.now(timezone.utc), sequence, segment)
    fields[_DELETED] = fingerprint.hex()
    return _build("metadata", f"urn:tbloom:{fingerprint.hex()}", b"deleted: yes\r\n", fields)


def of_segment(filename: str, details: str, segment: str) -> bytes:
    """The record that a segment begins with."""
    out = BytesIO()
    writer = WARCWriter(out, gzip=False, warc_version=_WARC)
    info = {
        "software": f"tbloom/{__version__}",
        "format": "WARC File Format 1.1",
        "tbloom": details,
    }
    record = writer.create_warcinfo_record(filename, info)
    record.rec_headers.replace_header("WARC-Record-ID", segment)
    writer.write_record(record)
    return member(out.getvalue())


def member(block: bytes) -> bytes:
    """The bytes as a gzip member."""
    compressor = isal_zlib.compressobj(LEVEL, isal_zlib.DEFLATED, -15)
    data = compressor.compress(block) + compressor.flush()
    head = _HEAD.pack(MAGIC, _HEAD.size + len(data) + _TAIL.size, len(block))
    return head + data + _TAIL.pack(zlib.crc32(block), len(block))


def length_of(start: bytes) -> int:
    """How long the member is that begins so; 0 if none does."""
    if len(start) < _HEAD.size or not start.startswith(MAGIC):
        return 0
    length: int = _HEAD.unpack_from(start)[1]
    return length if length > _HEAD.size + _TAIL.size else 0


def is_whole(start: bytes, end: bytes) -> bool:
    """Whether a member that begins and ends so was written to its end."""
    held: int = _HEAD.unpack_from(start)[2]
    return len(end) == _TAIL.size and held == _TAIL.unpack(end)[1]


def block_of(record: bytes) -> bytes:
    """What a member holds. Raises Damaged."""
    try:
        return isal_zlib.decompress(record, 31)
    except _IsalError as error:
        raise Damaged(str(error)) from None


def head_of(start: bytes) -> Head:
    """What the index must know of the record that begins so. Raises Damaged, also where more of it is needed."""
    try:
        decompressor = isal_zlib.decompressobj(31)
        block = decompressor.decompress(start, _FIRST)
        if b"\r\n\r\n" not in block:
            block += decompressor.decompress(decompressor.unconsumed_tail)
    except _IsalError as error:
        raise Damaged(str(error)) from None
    fields, _ = _split(block, 0, "utf-8")
    known = dict(fields)
    try:
        kind = known["WARC-Type"]
        if kind == "warcinfo":
            return Head(kind, known["WARC-Record-ID"], b"", b"", 0, 0)
        address: Item = b""
        if kind == "response":
            key = bytes.fromhex(known.get(_KEY, ""))
            address = address_of(key) if key else known["WARC-Target-URI"]
            fingerprint = fingerprint_of(address)
        else:
            fingerprint = bytes.fromhex(known[_DELETED])
        sequence, at = int(known[_SEQUENCE]), micros(_parse_date(known["WARC-Date"]))
        if not 0 < sequence < _MOST_SEQUENCE or len(fingerprint) != _FINGERPRINT_BYTES:
            raise Damaged("its numbers can't be")
        return Head(kind, known[_SEGMENT], fingerprint, address, sequence, at)
    except (KeyError, ValueError, TypeError) as error:
        raise Damaged(f"a record that tbloom did not write ({error})") from None


def details_of(record: bytes) -> str:
    """What ``of_segment`` was told. Raises Damaged."""
    for line in block_of(record).decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(": ")
        if name == "tbloom":
            return value
    raise Damaged("no segment of tbloom")


def page_of(record: bytes) -> Page:
    """The page of a record. Raises Damaged."""
    block = block_of(record)
    fields, begin = _split(block, 0, "utf-8")
    known = dict(fields)
    headers, body = _split(block, begin, "latin-1")
    try:
        end = begin + int(known["Content-Length"])
        if len(block) != end + 4 or known["WARC-Type"] != "response":
            raise Damaged("its lengths contradict each other")
        key = known.get(_KEY)
        return Page(
            known["WARC-Target-URI"],
            int(block[begin : begin + 12].split()[1]),
            tuple((name.removeprefix(_ORIGINAL), value) for name, value in headers),
            block[body:end],
            _parse_date(known["WARC-Date"]),
            None if key is None else bytes.fromhex(key),
            tuple(pair for pair in fields if not is_own(pair[0])),
        )
    except (KeyError, ValueError, IndexError) as error:
        raise Damaged(f"a record that tbloom did not write ({error})") from None


class _Http(StatusAndHeaders):  # type: ignore[misc]
    """HTTP headers as bytes that are given back as they were; warcio would percent-encode them."""

    def to_ascii_bytes(self, filter_func: Any = None) -> bytes:
        """What a record has of them."""
        return self.to_bytes(filter_func, "latin-1")  # type: ignore[no-any-return]


def _build(
    kind: str, uri: str, payload: bytes, fields: dict[str, str], http: _Http | None = None
) -> bytes:
    out = BytesIO()
    writer = WARCWriter(out, gzip=False, warc_version=_WARC)
    record = writer.create_warc_record(
        uri,
        kind,
        payload=BytesIO(payload),
        length=len(payload),
        warc_headers_dict=fields,
        http_headers=http,
    )
    writer.write_record(record)
    return member(out.getvalue())


def _fields(at: datetime, sequence: int, segment: str) -> dict[str, str]:
    date = at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {"WARC-Date": date, _SEGMENT: segment, _SEQUENCE: f"{sequence}"}


def _split(block: bytes, begin: int, encoding: str) -> tuple[Pairs, int]:
    """The named fields that follow the first line, and where what they describe begins."""
    end = block.find(b"\r\n\r\n", begin)
    if end < 0:
        raise Damaged("its headers have no end")
    try:
        _, *lines = block[begin:end].decode(encoding).split("\r\n")
    except UnicodeDecodeError as error:
        raise Damaged(str(error)) from None
    return tuple(_field(line) for line in lines), end + 4


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name, value.strip(" \t")


def _parse_date(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _stored(name: str, value: str, body: bytes) -> str:
    """The name that a header is stored by."""
    is_kept = is_true(name, value, body) and not name.lower().startswith(_ORIGINAL.lower())
    return name if is_kept else _ORIGINAL + name
