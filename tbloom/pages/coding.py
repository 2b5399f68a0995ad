"""Content codings of bodies (RFC 9110): their decoders, and how to tell whether a body has one."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable

import brotli

from tbloom.errors import TBloomError
from tbloom.pages.members import zstd


def _inflate(body: bytes) -> bytes:
    """Decode "deflate", with zlib's header and checksum as the standard has it, or without, as some servers send it."""
    try:
        return zlib.decompress(body)
    except zlib.error:
        return zlib.decompress(body, -15)


#: What servers send where there is no coding, such as the name of a charset. Browsers ignore it.
_NONE = ("", "identity", "none", "null", "binary", "7bit", "8bit", "utf-8", "utf8", "iso-8859-1", "windows-1252")  # fmt: skip
#: The decoder of each coding.
_DECODERS: dict[str, Callable[[bytes], bytes]] = {
    **dict.fromkeys(_NONE, bytes),
    **dict.fromkeys(("gzip", "x-gzip"), gzip.decompress),
    "deflate": _inflate,
    "br": brotli.decompress,
    "zstd": zstd.decompress,
}
#: How encoded bodies begin, where that can be told. A frame of zstd may be one that is to be skipped.
_STARTS: dict[str, tuple[bytes, ...]] = {
    **dict.fromkeys(("gzip", "x-gzip"), (b"\x1f\x8b",)),
    "zstd": (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + n]) + b"\x2a\x4d\x18" for n in range(16))),
}
_NAMED = "gzip, deflate, br and zstd"
#: Errors of gzip, zlib and zstd for bytes that are cut, or are encoded otherwise.
_ERRORS = (OSError, EOFError, zlib.error, zstd.ZstdError, brotli.error)


def codings_in(headers: Iterable[tuple[str, str]]) -> list[str]:
    """Return the codings that the headers name, in the order in which they were applied."""
    named = [value for name, value in headers if name.lower() == "content-encoding"]
    return [one.strip().lower() for one in ",".join(named).split(",")] if named else []


def unknown_in(codings: Iterable[str]) -> str | None:
    """Return the first coding that can't be decoded; None if all can."""
    return next((coding for coding in codings if coding not in _DECODERS), None)


def may_have(body: bytes, codings: list[str], *, is_cut: bool = False) -> bool:
    """Return False if the start of the body shows that the last coding is not there: tools decode bodies and leave the header.

    :param is_cut: True: the body may be a piece, even of the start.
    """
    starts = _STARTS.get(codings[-1]) if codings else None
    return starts is None or any(
        body.startswith(start[: len(body)] if is_cut else start) for start in starts
    )


def decoded(body: bytes, codings: list[str]) -> bytes:
    """Return the body without its codings. Raise TBloomError if one is unknown, or the body is not encoded so, or is cut."""
    for coding in reversed(codings):
        if coding not in _DECODERS:
            raise TBloomError(
                f"the Content-Encoding is {coding!r}, and only {_NAMED} are decoded here"
            )
        try:
            body = _DECODERS[coding](body)
        except _ERRORS as error:
            why = f"the Content-Encoding is {coding!r}, and the body is not: {error}"
            raise TBloomError(why) from None
    return body
