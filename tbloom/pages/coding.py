"""Bodies without their Content-Encoding."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable

from tbloom.errors import TBloomError

#: What gzip, and zlib, raise of bytes that are not theirs, or not all of them.
_ERRORS = (OSError, EOFError, zlib.error)


def decoded(body: bytes, codings: Iterable[str]) -> bytes:
    """The body without these, the last of which was applied last. Raises TBloomError."""
    for coding in reversed([*codings]):
        if coding in {"", "identity"}:
            continue
        decode = {"gzip": gzip.decompress, "x-gzip": gzip.decompress, "deflate": _inflate}.get(
            coding
        )
        if decode is None:
            raise TBloomError(
                f"the Content-Encoding is {coding!r}, and only gzip and deflate are decoded here"
            )
        try:
            body = decode(body)
        except _ERRORS as error:
            raise TBloomError(
                f"the Content-Encoding is {coding!r}, and the body is not: {error}"
            ) from None
    return body


def _inflate(body: bytes) -> bytes:
    """As the standard has it, or without zlib's head and checksum, as some servers send it."""
    try:
        return zlib.decompress(body)
    except zlib.error:
        return zlib.decompress(body, -15)
