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
#: From base64's alphabet to the one for URLs.
_URLSAFE = str.maketrans("+/", "-_")


class Message(NamedTuple):
    """A response."""

    status: int
    headers: Pairs
    body: bytes


def message_of(block: bytes, digest: str, *, is_plain: bool) -> Message | str:
    """Return the response in a block, without the lengths of chunks; or why there is none.

    :param digest: the payload's.
    :param is_plain: True: there are neither interim responses nor chunks.
    """
    interim = None if is_plain else _INTERIM.match(block, 0, MAX_HEADERS)
    start = interim.end() if interim else 0
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
    if not is_plain and any(
        name.lower() == "transfer-encoding" and "chunked" in value.lower()
        for name, value in headers
    ):
        body = without_chunks(body, digest)
    return Message(int(status[1]), headers, body)


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
        at = min(chunk.end() + size, len(body))
        joined += body[chunk.end() : at]
        end = _CHUNK_END.match(body, at)
        if size and end is None:
            return body
        at = end.end() if end else at
    is_cut = size != 0
    return body if is_cut and joined != body and is_digest(digest, body) else bytes(joined)


def is_whole(field: Callable[[str], str], block: bytes) -> bool | None:
    """Return True if the digest of the block or of the payload is right, False if the block's is wrong; None: it has none.

    One is enough: ``warcio recompress`` writes headers anew, and keeps the block's digest.

    :param field: returns the value of a field of the record.
    """
    is_block = is_digest(field("WARC-Block-Digest"), block)
    if is_block:
        return True
    digest, blank = field("WARC-Payload-Digest"), _BLANK_LINE.search(block)
    body = block[blank.end() :] if blank and digest else b""
    is_payload = any(is_digest(digest, one) for one in (body, without_chunks(body, "")))
    return is_payload or is_block


def is_digest(digest: str, data: bytes) -> bool | None:
    """Return True if the digest is that of the data, in any notation that WARC files use; None if it can't be compared."""
    algorithm, _, value = digest.partition(":")
    try:
        found = hashlib.new(algorithm.replace("-", ""), data, usedforsecurity=False).digest()
    except (ValueError, TypeError):  # TypeError: an algorithm whose digests have any length
        return None
    value, bits = value.rstrip("="), 8 * len(found)
    if len(value) == -(-bits // 5):
        return value.upper() == b32encode(found).decode().rstrip("=")
    if len(value) == bits // 4:
        return value.lower() == found.hex()
    if len(value) == -(-bits // 6):
        return value.translate(_URLSAFE) == urlsafe_b64encode(found).decode().rstrip("=")
    return None  # it is cut, or was made by another algorithm
