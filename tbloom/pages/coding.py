"""Bodies without their Content-Encoding."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable

from tbloom.errors import TBloomError

#: Errors of gzip and zlib for bytes that they did not write, or that are cut.
_ERRORS = (OSError, EOFError, zlib.error)


def decoded(body: bytes, codings: Iterable[str]) -> bytes:
    """The body without these codings, which were applied in this order. Raises TBloomError."""
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
    """Decodes "deflate" as in the standard, or without zlib's header and checksum, as some servers send it."""
    try:
        return zlib.decompress(body)
    except zlib.error:
        return zlib.decompress(body, -15)
