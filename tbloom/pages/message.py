"""The HTTP message in a record of any tool: its digests, headers and body.

FastWARC's parser is not used for it: it takes an interim response for the response, and the body for headers where lines end
without CR; and it refuses chunks with extensions, and those that are cut.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b32encode, urlsafe_b64encode
from collections.abc import Callable
from typing import NamedTuple

from tbloom.pages.coding import codings_in, may_have
from tbloom.pages.page import Pairs

#: The limit of HTTP headers (bytes). Parsed, short ones take a hundred times as much memory.
MAX_HEADERS = 1 << 18
_FOLDED = re.compile(rb"\r?\n[ \t]+")
_SPACE = " \t\r"
#: Empty lines, and interim responses (1xx): servers send them before the response, and tools store both.
_INTERIM = re.compile(
    rb"(?:\r?\n)*(?:HTTP/[\d.]+[ \t]+1\d\d\b[^\n]*\n(?:[^\r\n][^\n]*\n)*(?:\r?\n)+(?=HTTP/))*",
    re.IGNORECASE,
)
#: NCSA's server sent no version.
_STATUS = re.compile(rb"HTTP(?:/[\d.]+)?[ \t]+(\d{3})\b", re.IGNORECASE)
_BLANK_LINE = re.compile(rb"\n\r?\n")
#: The beginning of a chunk, perhaps with an extension, and its end. Either may be cut.
_CHUNK, _CHUNK_END = (
    re.compile(rb"([0-9A-Fa-f]{1,32})[ \t]*(?:;[^\r\n]*)?(?:\r\n|\r?\Z)"),
    re.compile(rb"\r\n|\r?\Z"),
)
#: Longer ones are no length.
_LENGTH = re.compile(r"[0-9]{1,18}")
#: From base64's alphabet to the one for URLs.
_URLSAFE = str.maketrans("+/", "-_")


class Message(NamedTuple):
    """A response."""

    status: int
    headers: Pairs
    body: bytes
    #: True: it ends before its headers, its last chunk or its Content-Length.
    is_cut: bool


def message_of(block: bytes, *, is_plain: bool) -> Message | str:
    """Return the response in a block, without the lengths of chunks; or why there is none.

    :param is_plain: True: there are neither interim responses nor chunks, and a length may be that of another body.
    """
    start = 0 if is_plain else _begin(block)
    status = _STATUS.match(block, start)
    if status is None:
        return "not HTTP"
    blank = _BLANK_LINE.search(block, start, start + MAX_HEADERS)
    begin = blank.end() if blank else len(block)
    if begin - start > MAX_HEADERS:
        return "long headers"
    _, *lines = _FOLDED.sub(b" ", block[start:begin]).decode("latin-1").split("\n")
    pairs = (line.partition(":") for line in lines)
    headers = tuple((name.strip(_SPACE), value.strip(_SPACE)) for name, colon, value in pairs if colon)  # fmt: skip
    body = block[begin:]
    if is_plain:
        return Message(int(status[1]), headers, body, is_cut=False)
    if _is_chunked(headers):
        body, is_cut = without_chunks(body)
    else:
        is_cut = is_short(headers, body)
    return Message(int(status[1]), headers, body, is_cut or blank is None)


def _begin(block: bytes) -> int:
    """Return the offset behind interim responses."""
    interim = _INTERIM.match(block, 0, MAX_HEADERS)
    return interim.end() if interim else 0


def without_chunks(body: bytes) -> tuple[bytes, bool]:
    """Return the body without the lengths of its chunks, and True if it is cut; unchanged if a tool has removed them.

    What begins as chunks do, and ends before the last one, is cut, whatever its digest: wget makes that of the piece.
    """
    joined = bytearray()
    at, size = 0, -1
    while at < len(body) and size:
        chunk = _CHUNK.match(body, at)
        if chunk is None:
            return body, False
        # Without its line's end, a length may be the first digits of another one.
        size = int(chunk[1], 16) if chunk[0].endswith(b"\n") else -1
        at = min(chunk.end() + max(size, 0), len(body))
        joined += body[chunk.end() : at]
        end = _CHUNK_END.match(body, at)
        if size and end is None:
            return body, False
        at = end.end() if end else at
    return bytes(joined), size != 0


def _is_chunked(headers: Pairs) -> bool:
    return any(
        name.lower() == "transfer-encoding" and "chunked" in value.lower()
        for name, value in headers
    )


def is_short(headers: Pairs, body: bytes) -> bool:
    """Return True if the body is shorter than its Content-Length, and not because a tool has decoded it.

    Of Brotli and deflate, whose bodies have no sign at their start, a decoded one is hardly ever shorter.
    """
    lengths = [value for name, value in headers if name.lower() == "content-length"]
    if not lengths or not all(_LENGTH.fullmatch(length) for length in lengths):
        return not body and _is_chunked(headers)  # a page in chunks that has none is cut as well
    return len(body) < min(map(int, lengths)) and may_have(body, codings_in(headers), is_cut=True)


def digests_of(field: Callable[[str], str], block: bytes, kind: str) -> tuple[bool | None, bool]:
    """Return what the digests of a record of this type say: if it is whole (None: they don't tell), and if its payload's is wrong.

    One that is right is enough: ``warcio recompress`` writes headers anew, and keeps the block's digest. That of the payload alone
    does not tell of damage: tools disagree about what a payload is. The payload of a revisit is that of another record.

    :param field: returns the value of a field of the record.
    """
    digest, is_payload = field("WARC-Payload-Digest"), None
    if kind == "resource":
        is_payload = is_digest(digest, block)
    elif kind == "response" and digest and (blank := _BLANK_LINE.search(block, _begin(block))):
        is_payload = is_digest(digest, memoryview(block)[blank.end() :])
        if is_payload is False:  # some tools hash a chunked body with the lengths, others without
            is_payload = is_digest(digest, without_chunks(block[blank.end() :])[0])
    return is_payload or is_digest(field("WARC-Block-Digest"), block), is_payload is False


def is_digest(digest: str, data: bytes | memoryview) -> bool | None:
    """Return True if the digest is that of the data, in any notation that WARC files use; None if it can't be compared."""
    algorithm, _, value = digest.partition(":")
    try:
        found = hashlib.new(algorithm.replace("-", ""), data, usedforsecurity=False).digest()
    except (ValueError, TypeError):  # TypeError: an algorithm whose digests have any length
        return None
    value = value.rstrip("=")
    for encoded, given in (
        (found.hex(), value.lower()),
        (b32encode(found).decode(), value.upper()),
        (urlsafe_b64encode(found).decode(), value.translate(_URLSAFE)),
    ):
        if len(given) == len(encoded.rstrip("=")):
            return given == encoded.rstrip("=")
    return None  # it is cut, or was made by another algorithm
