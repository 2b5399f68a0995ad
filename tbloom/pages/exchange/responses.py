"""Turns records of any WARC tool into pages."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from tbloom.pages.members import Damaged
from tbloom.pages.page import Page, Pairs, as_fields, as_headers, as_url
from tbloom.pages.record import END, KEY, ORIGINAL, is_digest

#: The kind of a record that can't be read.
DAMAGED = "damaged"
#: The kind of a page whose body is longer than the limit.
TOO_LONG = "longer than max_body"
#: The kind of a record whose HTTP or WARC headers are longer than the limit: parsed, they take far more memory.
LONG_HEAD = "longer than max_head"
#: Responses without the whole page: partial content, not modified.
_PARTIAL = {206, 304}
#: The most days of a month.
_DAYS = 31
#: Lengths have fewer digits.
_DIGITS = 18
#: So many characters of a wrong value are shown in an error.
_SHOWN = 40
_KINDS = {"continuation", "conversion", "metadata", "request", "resource", "revisit", "warcinfo"}
_SAME_PAYLOAD = "identical-payload-digest"
_BLANK_LINE = re.compile(rb"\n\r?\n")
_ONCE = ("warc-type", "warc-record-id", "warc-target-uri", "warc-date", "content-length")
_FOLDED = re.compile(rb"\r?\n[ \t]+")
_SPACE = " \t\r"
#: Empty lines, and interim responses (1xx) before the response.
_INTERIM = re.compile(
    rb"(?:\r?\n)*(?:HTTP/[\d.]+[ \t]+1\d\d\b[^\n]*\n(?:[^\r\n][^\n]*\n)*(?:\r?\n)+(?=HTTP/))*",
    re.IGNORECASE,
)
#: A date in any precision that WARC/1.1 allows. It may have an offset instead of the Z.
_DATE = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d{2,3})(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?([Zz]|[+-]\d\d:?\d\d)?)?)?)?",
    re.ASCII,
)
_STATUS = re.compile(rb"HTTP/[\d.]+[ \t]+(\d{3})\b", re.IGNORECASE)
_HTTP_LENGTH = re.compile(
    rb"^Content-Length:[ \t]*(\d{1,18})[ \t\r]*$", re.IGNORECASE | re.MULTILINE
)
#: The beginning and the end of a chunk of a body. Either may be cut.
_CHUNK, _CHUNK_END = (
    re.compile(rb"([0-9A-Fa-f]{1,32})[ \t]*(?:;[^\r\n]*)?(?:\r\n|\r?\Z)"),
    re.compile(rb"\r\n|\r?\Z"),
)


class Skipped(NamedTuple):
    """A part of a source that is not imported."""

    #: The kind under which it is counted: "request", "revisit", ``DAMAGED``, ...
    kind: str
    #: Of damage: the file, the offset, and what is wrong; of a file that can't be read, why.
    where: str = ""


class Response(NamedTuple):
    """A response in a source."""

    page: Page
    #: The digest of its payload, as written in its record.
    digest: str = ""
    #: Of a revisit, whose page has no body: the URL of the record that has it.
    refers_to: str | None = None
    #: Of a page that was repaired: the file, the offset, and what was wrong.
    where: str = ""
    #: Of a page in a segment of a store: the fingerprint of its address, and the sequence number of its put.
    change: tuple[bytes, int] | None = None


class Limits(NamedTuple):
    """The longest body and HTTP headers (bytes) that are imported."""

    body: int
    head: int


class Fields:
    """The named fields of a record."""

    def __init__(self, head: bytes) -> None:
        """Parse the fields. Raise Damaged if they can't be those of one record."""
        try:
            self.pairs: Pairs = _pairs(head, "utf-8")
        except UnicodeDecodeError:
            self.pairs = _pairs(head, "latin-1")
        self._known = dict[str, str]()
        for name, value in self.pairs:
            known = name.lower()
            if self._known.setdefault(known, value) != value and known in _ONCE:
                # A head that is cut, followed by another record's.
                raise Damaged("it has a field twice, with two values")
        length = self.get("Content-Length")
        if not (length.isascii() and length.isdigit() and len(length) < _DIGITS):
            raise Damaged(f"its Content-Length is {length[:_SHOWN]!r}")
        self.length: int = int(length)

    def get(self, name: str) -> str:
        """Return the value of a field; empty if there is none."""
        return self._known.get(name.lower(), "")

    @property
    def url(self) -> str:
        """The URL of the record."""
        return _bare(self.get("WARC-Target-URI"))

    @property
    def refers_to(self) -> str:
        """The URL of the record that a revisit refers to."""
        return _bare(self.get("WARC-Refers-To-Target-URI"))

    @property
    def is_revisit(self) -> bool:
        """Whether the body is that of another record."""
        is_same = _SAME_PAYLOAD in self.get("WARC-Profile")
        return is_same and self.get("WARC-Type").lower() == "revisit"

    @property
    def concurrent(self) -> list[str]:
        """The ID of the record, and those of the records of the same request and response."""
        names = {"warc-record-id", "warc-concurrent-to"}
        return [value for name, value in self.pairs if name.lower() in names and value]

    def skipped(self, limits: Limits) -> Skipped | None:
        """Return why the record can't be a page; None if it may be one."""
        kind = self.get("WARC-Type").lower()
        if kind != "response" and not self.is_revisit:
            return Skipped(kind if kind in _KINDS else "other")
        if not self.url.lower().startswith(("http://", "https://")):
            return Skipped("not HTTP")
        if self.get("WARC-Segment-Number"):
            return Skipped("in several records")
        return Skipped(TOO_LONG) if self.length > sum(limits) else None


def whole(fields: Fields, block: bytes, end: bytes) -> bytes:
    """Return the block of a record, without bytes of the record's end if the Content-Length counts these too.

    Some tools write a length that is 1 to 4 bytes too long. Digests show whether it is, or else the length in the HTTP headers.
    If there is neither, the bytes are cut off. Raise Damaged if neither the block's digest nor the payload's fits.
    (``warcio recompress`` rewrites headers, and keeps the block's old digest.)
    """
    digest, over = fields.get("WARC-Block-Digest"), len(END) - len(end)
    if not END.endswith(end) or not block.endswith(END[:over]):
        over = 0
    is_block = is_digest(digest, block)
    if is_block or (is_block is None and not over) or _has_payload(fields, block):
        return block
    shorter = block[: len(block) - over]
    is_shorter = is_digest(digest, shorter) or _has_payload(fields, shorter)
    if over and (is_shorter or is_block is None):
        return shorter if is_shorter or not _has_http_length(block) else block
    raise Damaged("its digest does not match its content")


def _has_http_length(block: bytes) -> bool:
    """Return True if the body has the length that the HTTP headers say."""
    blank = _BLANK_LINE.search(block)
    length = _HTTP_LENGTH.search(block, 0, blank.end()) if blank else None
    return bool(blank and length and int(length[1]) == len(block) - blank.end())


def _has_payload(fields: Fields, block: bytes) -> bool:
    """Return True if the payload's digest is that of the body, with its chunks' lengths or without."""
    digest, blank = fields.get("WARC-Payload-Digest"), _BLANK_LINE.search(block)
    body = block[blank.end() :] if blank and digest else b""
    return any(is_digest(digest, one) for one in (body, without_chunks(body, "")))


def page_of(fields: Fields, block: bytes, limits: Limits, *, is_ours: bool) -> Page | Skipped:
    """Return the page of a record. Raise Damaged if it can't be read. ``is_ours``: tbloom wrote the record.

    A revisit without HTTP headers has the status 0: headers and body are those of the record that it refers to.
    """
    if fields.is_revisit and not block:
        return _page(fields, 0, (), b"")
    interim = None if is_ours else _INTERIM.match(block, 0, limits.head)
    start = interim.end() if interim else 0
    status = _STATUS.match(block, start)
    if status is None:
        return Skipped("not HTTP")
    if not is_ours and int(status[1]) in _PARTIAL:
        return Skipped(f"status {int(status[1])}")
    blank = _BLANK_LINE.search(block, start, start + limits.head)
    begin = blank.end() if blank else len(block)
    if begin - start > limits.head:
        return Skipped(LONG_HEAD)
    headers = as_headers(_pairs(block[start:begin], "latin-1"))
    body = block[begin:]
    if any(
        name.lower() == "transfer-encoding" and "chunked" in value.lower()
        for name, value in headers
    ):
        body = without_chunks(body, fields.get("WARC-Payload-Digest"))
    if len(body) > limits.body:
        return Skipped(TOO_LONG)
    if is_ours:
        headers = tuple((name.removeprefix(ORIGINAL), value) for name, value in headers)
    return _page(fields, int(status[1]), headers, body)


def _page(fields: Fields, status: int, headers: Pairs, body: bytes) -> Page:
    try:
        key = bytes.fromhex(fields.get(KEY)) or None
        at = _time(fields.get("WARC-Date"))
    except (ValueError, OverflowError):
        date = fields.get("WARC-Date")[:_SHOWN]
        raise Damaged(f"its key, or its date {date!r}, can't be read") from None
    return Page(fields.url, status, headers, body, at, key, as_fields(fields.pairs))


def _bare(url: str) -> str:
    """Return the URL, quoted, without the angle brackets of Wget before 1.21."""
    return as_url(url[1:-1] if url.startswith("<") and url.endswith(">") else url)


def _time(date: str) -> datetime:
    if re.fullmatch(r"\d{14}", date, re.ASCII):  # as in ARC files and CDX
        return datetime.strptime(f"{date}+0000", "%Y%m%d%H%M%S%z")
    found = _DATE.fullmatch(date)
    if found is None:
        raise ValueError
    year, month, day, hour, minute, second, fraction, offset = found.groups()
    zone = f"{offset[:3]}:{offset[-2:]}" if offset and offset not in "Zz" else "+00:00"
    time = f"{hour or '00'}:{minute or '00'}:{second or '00'}.{(fraction or '')[:6]:0<6}{zone}"
    if int(day or 1) > _DAYS:  # a day of the year: ClueWeb09 has 2009-03-65
        at = datetime.fromisoformat(f"{year}-01-01T{time}") + timedelta(days=int(day) - 1)
    else:
        at = datetime.fromisoformat(f"{year}-{month or '01'}-{day or '01'}T{time}")
    return at.astimezone(UTC)


def without_chunks(body: bytes, digest: str) -> bytes:
    """Return the body without the lengths of its chunks, even if it is cut; unchanged if a tool has removed them.

    A body may only look like chunks, without a last one. Then it stays unchanged if the digest is that of the body as it is.
    (Some tools compute the digest of a chunked body with the lengths, others without.)
    """
    joined = bytearray()
    at, size = 0, -1
    while at < len(body) and size:
        chunk = _CHUNK.match(body, at)
        if chunk is None or not (joined or chunk[0].endswith(b"\n")):
            return body
        size = int(chunk[1], 16)
        at = chunk.end() + size
        joined += body[chunk.end() : at]
        end = _CHUNK_END.match(body, at)
        if size and end is None:
            return body
        at = end.end() if end else at
    is_cut = size != 0
    return body if is_cut and joined != body and is_digest(digest, body) else bytes(joined)


def _pairs(head: bytes, encoding: str) -> Pairs:
    """Return the names and values after the first line. Lines without a name are left out."""
    _, *lines = _FOLDED.sub(b" ", head).decode(encoding).split("\n")
    found = (line.partition(":") for line in lines)
    pairs = ((name.strip(_SPACE), value.strip(_SPACE)) for name, colon, value in found if colon)
    return tuple(pair for pair in pairs if pair[0])
