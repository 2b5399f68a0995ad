"""A record of a segment, readable by any WARC tool, as one gzip member.

A member's header has gzip's extra field "sl" (skip lengths, as in WARC 0.9): the length of the member, and
the length of its content. So a segment's records are found without decompressing their bodies.

Records are written with warcio. They are read here, because a page must come back byte for byte: warcio takes header
bytes beyond ASCII for UTF-8 where it can.

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

from isal import igzip, isal_zlib
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from tbloom.items import Item
from tbloom.pages.page import (
    MAX_BYTES,
    MAX_HEAD_BYTES,
    Page,
    Pairs,
    address_of,
    fingerprint_of,
    is_own,
    is_true,
    micros,
)
from tbloom.version import __version__

#: ISA-L's levels are 0 to 3. Measured (docs/benchmarks.md): 3 takes twice the time, and 4 % fewer bytes.
LEVEL = 2
#: The start of every member: deflate, with an extra field of 12 bytes, which is "sl", 8 bytes.
MAGIC = bytes.fromhex("1f8b0804 00000000 00ff 0c00 736c 0800")
_IsalError = cast("type[Exception]", isal_zlib.error)  # its types have it as an instance
_HEAD = Struct("<16sII")
_TAIL = Struct("<II")
TAIL_BYTES = _TAIL.size
_WARC = "1.1"
#: Bytes of a member's content that are searched for the end of its headers first.
_FIRST = 4096
#: The limit of a record's fields, with those that are written here; and of a record. (A deflated record of 1 MB may
#: claim to hold a GB.)
MAX_HEAD = MAX_HEAD_BYTES + (1 << 16)
_MAX_BLOCK = MAX_BYTES + 8 * MAX_HEAD
_PIECE = 1 << 20
_SEGMENT = "WARC-Warcinfo-ID"
_SEQUENCE, _KEY, _DELETED = "X-Tbloom-Sequence", "X-Tbloom-Key", "X-Tbloom-Deleted"
_MAX_SEQUENCE, _FINGERPRINT_BYTES = 1 << 62, 16
#: Prefix of headers that are not true of the stored body: a reader would believe them.
_ORIGINAL = "X-Archive-Orig-"


class Damaged(Exception):
    """The bytes are no record."""


class Head(NamedTuple):
    """The fields of a record for the index."""

    #: ``response`` (a page), ``metadata`` (a page was deleted), ``warcinfo`` (a segment begins).
    kind: str
    #: The ID of its segment. It can't be known before, so bytes in a page's body can't pass for a record.
    segment: str
    #: The key of its address in the index; empty for a warcinfo.
    fingerprint: bytes
    #: A page's address.
    address: Item
    #: Sequence number of the put or delete; the higher wins.
    sequence: int
    #: The time when the page was fetched (microseconds since the epoch).
    at: int


def new_segment() -> str:
    """The ID of a new segment."""
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
    """The record of a deletion."""
    fields = _fields(datetime.now(timezone.utc), sequence, segment)
    fields[_DELETED] = fingerprint.hex()
    return _build("metadata", f"urn:tbloom:{fingerprint.hex()}", b"deleted: yes\r\n", fields)


def of_segment(filename: str, details: str, segment: str) -> bytes:
    """The first record of a segment."""
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
    """The length of the member with this start; 0 where it is no member's."""
    if len(start) < _HEAD.size or not start.startswith(MAGIC):
        return 0
    length: int = _HEAD.unpack_from(start)[1]
    return length if length > _HEAD.size + _TAIL.size else 0


def is_whole(start: bytes, end: bytes) -> bool:
    """True: a member with this start and end was written to its end."""
    held: int = _HEAD.unpack_from(start)[2]
    return len(end) == _TAIL.size and held == _TAIL.unpack(end)[1]


def block_of(record: bytes, limit: int = _MAX_BLOCK) -> bytes:
    """The content of a member. Raises Damaged, also where it is longer than ``limit``."""
    if len(record) < _HEAD.size:
        raise Damaged("it is cut")
    held = _HEAD.unpack_from(record)[2]
    if held > limit:
        raise Damaged(f"its content has {held} bytes, more than it may have")
    try:
        decompressor = isal_zlib.decompressobj(31)
        block = decompressor.decompress(record, held + 1)
    except _IsalError as error:
        raise Damaged(str(error)) from None
    if len(block) != held or not decompressor.eof:
        raise Damaged(f"its content has not {held} bytes")
    return block


def check(record: bytes) -> None:
    """Raises Damaged where a member can't be read to its end. Keeps nothing of its content."""
    try:
        with igzip.open(BytesIO(record)) as file:  # type: ignore[no-untyped-call]
            while file.read(_PIECE):
                pass
    except (_IsalError, EOFError, OSError) as error:
        raise Damaged(str(error)) from None


def head_of(start: bytes) -> Head:
    """The fields for the index of the record with this start. Raises Damaged, also where the start is too short."""
    try:
        decompressor = isal_zlib.decompressobj(31)
        block = decompressor.decompress(start, _FIRST)
        if b"\r\n\r\n" not in block:
            block += decompressor.decompress(decompressor.unconsumed_tail, MAX_HEAD)
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
        if not 0 < sequence < _MAX_SEQUENCE or len(fingerprint) != _FINGERPRINT_BYTES:
            raise Damaged("its numbers are out of range")
        return Head(kind, known[_SEGMENT], fingerprint, address, sequence, at)
    except (KeyError, ValueError, TypeError) as error:
        raise Damaged(f"a record that tbloom did not write ({error})") from None


def details_of(record: bytes) -> str:
    """The ``details`` given to ``of_segment``. Raises Damaged."""
    for line in block_of(record, MAX_HEAD).decode("utf-8", "replace").splitlines():
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
    """HTTP headers that keep their bytes; warcio would percent-encode them."""

    def to_ascii_bytes(self, filter_func: Any = None) -> bytes:
        """The headers in Latin-1."""
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
    """The named fields after the first line, and the offset of what they describe."""
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
    """The name under which a header is stored."""
    is_kept = is_true(name, value, body) and not name.lower().startswith(_ORIGINAL.lower())
    return name if is_kept else _ORIGINAL + name
