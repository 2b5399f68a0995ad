"""The records of a segment, which any tool for WARC/1.1 can read (ISO 28500:2017). For their bytes in the file, see ``members``.

They are written and read here, because a page must come back byte for byte, with headers that libraries change.
"""

from __future__ import annotations

import hashlib
from base64 import b32encode
from collections.abc import Iterable
from datetime import datetime
from http.client import responses
from typing import NamedTuple
from uuid import uuid4

from tbloom.pages import clock
from tbloom.pages.members import Damaged, member
from tbloom.pages.page import (
    MAX_BYTES,
    MAX_HEAD_BYTES,
    Page,
    Pairs,
    address_of,
    fingerprint_of,
    header_matches_body,
    is_reserved,
    micros,
)
from tbloom.version import __version__

#: The limits of a record's fields, those of tbloom included, and of a record. (A compressed record of 1 MB may hold a GB.)
MAX_HEAD = MAX_HEAD_BYTES + (1 << 16)
MAX_BLOCK = MAX_BYTES + 8 * MAX_HEAD
_SEGMENT = "WARC-Warcinfo-ID"
#: Fields of a segment's warcinfo: the store's parameters, and the start of its slice (ms).
PARAMETERS, START = "X-Tbloom-Parameters", "X-Tbloom-Start"
SEQUENCE, KEY, DELETED = "X-Tbloom-Sequence", "X-Tbloom-Key", "X-Tbloom-Deleted"
MAX_SEQUENCE, _FINGERPRINT_BYTES = 1 << 62, 16
#: Prefix for headers that do not match the stored body, which would mislead a reader.
ORIGINAL = "X-Archive-Orig-"
#: How a warcinfo names the program that wrote the file.
SOFTWARE = "tbloom/"
_WARC = "WARC/1.1"
_BLANK = END = b"\r\n\r\n"


class Head(NamedTuple):
    """The fields of a record that the index needs."""

    #: ``response`` (a page), ``metadata`` (a page was deleted), ``warcinfo`` (a segment begins).
    kind: str
    #: The ID of its segment. Nobody can guess it, so bytes in a page's body can't pass for a record.
    segment: str
    #: The length of the record, decompressed.
    size: int
    #: The key of its address in the index; empty for a warcinfo.
    fingerprint: bytes = b""
    #: Sequence number of the put or delete; the higher wins.
    sequence: int = 0
    #: The time when the page was fetched (microseconds since the epoch).
    at: int = 0


class First(NamedTuple):
    """The fields of a segment's first record; None if they can't be read, or tbloom did not write them."""

    #: The ID of the segment.
    segment: str | None = None
    #: The store's parameters.
    parameters: str | None = None
    #: The start of its slice (ms).
    start: int | None = None


def new_id() -> str:
    """Return the ID for a new record. A segment has the ID of its first record."""
    return f"<urn:uuid:{uuid4()}>"


def of_page(page: Page, sequence: int | None, segment: str, codec: str) -> bytes:
    """Return the record of a page. In a file that is no segment of a store, it has no sequence number."""
    body = page.body
    headers = [(_stored_name(name, value, body), value) for name, value in page.headers]
    http = http_head(page.status, headers)
    number = () if sequence is None else ((SEQUENCE, f"{sequence}"),)
    key = () if page.key is None else ((KEY, page.key.hex()),)
    fields = [
        *_fields("response", new_id(), page.at),
        ("WARC-Target-URI", page.url),
        *page.fields,
        (_SEGMENT, segment),
        *number,
        *key,
        ("WARC-Payload-Digest", _digest(body)),
        ("Content-Type", "application/http; msgtype=response"),
        ("Content-Length", f"{len(http) + len(body)}"),
    ]
    return member(codec, b"".join((_lines(_WARC, fields).encode(), http, body, END)))


def http_head(status: int, headers: Iterable[tuple[str, str]]) -> bytes:
    """Return the status line and the headers, as ``curl -i`` prints them."""
    first = f"HTTP/1.1 {status} {responses.get(status, '')}".rstrip()
    return _lines(first, headers).encode("latin-1")


def of_deletion(fingerprint: bytes, sequence: int, segment: str, codec: str) -> bytes:
    """Return the record of a deletion."""
    fields = [
        *_fields("metadata", new_id(), clock.now()),
        ("WARC-Target-URI", f"urn:tbloom:{fingerprint.hex()}"),
        (_SEGMENT, segment),
        (SEQUENCE, f"{sequence}"),
        (DELETED, fingerprint.hex()),
    ]
    return _of_values(fields, (("deleted", "yes"),), codec)


def of_info(identity: str, codec: str, fields: Pairs = ()) -> bytes:
    """Return the first record of a file."""
    values = ("software", SOFTWARE + __version__), ("format", "WARC File Format 1.1")
    return _of_values([*_fields("warcinfo", identity, clock.now()), *fields], values, codec)


def _of_values(fields: list[tuple[str, str]], values: Pairs, codec: str) -> bytes:
    block = "".join(f"{name}: {value}\r\n" for name, value in values).encode()
    fields += [
        ("WARC-Block-Digest", _digest(block)),
        ("Content-Type", "application/warc-fields"),
        ("Content-Length", f"{len(block)}"),
    ]
    return member(codec, _lines(_WARC, fields).encode() + block + END)


def _fields(kind: str, identity: str, at: datetime) -> Pairs:
    date = at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return ("WARC-Type", kind), ("WARC-Record-ID", identity), ("WARC-Date", date)


def _lines(first: str, pairs: Iterable[tuple[str, str]]) -> str:
    return "\r\n".join([first, *[f"{name}: {value}" for name, value in pairs], "", ""])


def _digest(data: bytes) -> str:
    return f"sha1:{b32encode(hashlib.sha1(data, usedforsecurity=False).digest()).decode()}"


def head_of(content: bytes) -> Head:
    """Return the fields that the index needs, from the start of a record. Raise Damaged if it is none of tbloom's."""
    fields, begin = _split(content, 0, "utf-8")
    known = dict(fields)
    try:
        kind, size = known["WARC-Type"], begin + int(known["Content-Length"]) + len(END)
        if kind == "warcinfo":
            return Head(kind, known["WARC-Record-ID"], size)
        deleted = kind != "response" and known[DELETED]
        fingerprint = bytes.fromhex(deleted) if deleted else fingerprint_of(_address(known))
        sequence, at = int(known[SEQUENCE]), micros(datetime.fromisoformat(known["WARC-Date"]))
        if not 0 < sequence < MAX_SEQUENCE or len(fingerprint) != _FINGERPRINT_BYTES:
            raise Damaged("its numbers are out of range")
        return Head(kind, known[_SEGMENT], size, fingerprint, sequence, at)
    except (KeyError, ValueError, TypeError) as error:
        raise Damaged(f"a record that tbloom did not write ({error})") from None


def address_in(content: bytes) -> str | bytes:
    """Return the address of a page, from the start of its record. Raise Damaged if it can't be read."""
    try:
        return _address(dict(_split(content, 0, "utf-8")[0]))
    except (KeyError, ValueError) as error:
        raise Damaged(f"a record that tbloom did not write ({error})") from None


def first_of(content: bytes) -> First:
    """Return the fields of a segment's first record, as far as tbloom wrote them."""
    try:
        known = dict(_split(content, 0, "utf-8")[0])
        return First(known["WARC-Record-ID"], known[PARAMETERS], int(known[START]))
    except (Damaged, KeyError, ValueError):
        return First()


def page_of(content: bytes) -> Page:
    """Return the page of a record. Raise Damaged if it can't be read."""
    fields, begin = _split(content, 0, "utf-8")
    known = dict(fields)
    headers, body = _split(content, begin, "latin-1")
    try:
        end = begin + int(known["Content-Length"])
        if len(content) != end + len(END) or known["WARC-Type"] != "response":
            raise Damaged("its lengths contradict each other")
        key = known.get(KEY)
        return Page(
            known["WARC-Target-URI"],
            int(content[begin : begin + 12].split()[1]),
            tuple((name.removeprefix(ORIGINAL), value) for name, value in headers),
            content[body:end],
            datetime.fromisoformat(known["WARC-Date"]),
            None if key is None else bytes.fromhex(key),
            tuple(pair for pair in fields if not is_reserved(pair[0])),
        )
    except (KeyError, ValueError, IndexError) as error:
        raise Damaged(f"a record that tbloom did not write ({error})") from None


def _address(known: dict[str, str]) -> str | bytes:
    key = bytes.fromhex(known.get(KEY, ""))
    return address_of(key) if key else known["WARC-Target-URI"]


def _split(content: bytes, begin: int, encoding: str) -> tuple[Pairs, int]:
    """Return the fields after the first line, and the offset after the empty line that ends them."""
    end = content.find(_BLANK, begin)
    if end < 0:
        raise Damaged("its headers have no end")
    try:
        _, *lines = content[begin:end].decode(encoding).split("\r\n")
    except UnicodeDecodeError as error:
        raise Damaged(str(error)) from None
    parted = [line.partition(":") for line in lines]
    return tuple([(name, value.strip(" \t")) for name, _, value in parted]), end + len(_BLANK)


def _stored_name(name: str, value: str, body: bytes) -> str:
    """Return the name under which a header is stored."""
    is_like_original = name[0] in "Xx" and name.lower().startswith(ORIGINAL.lower())
    return (
        name if header_matches_body(name, value, body) and not is_like_original else ORIGINAL + name
    )
