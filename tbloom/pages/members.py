"""The bytes of a record in a file: one gzip member of a ``.warc.gz``, or one frame of a ``.warc.zst``."""

from __future__ import annotations

import os
import re
import sys
from typing import cast

from isal import igzip_lib, isal_zlib

from tbloom.errors import ConfigError

if sys.version_info >= (3, 14):
    from compression import zstd as zstd  # noqa: PLC0414 - other modules have it from here
else:
    from backports import zstd as zstd  # noqa: PLC0414

#: ISA-L's levels are 0 to 3. For pages of 96 KB, zlib takes 3 times as long for its fastest level, whose output is larger.
LEVEL = 2
ZSTD_LEVEL = 3
#: The suffix of the files that hold a codec's records.
SUFFIXES = {"gzip": ".warc.gz", "zstd": ".warc.zst"}
_GZIP, _ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
#: The start of any member.
MAGIC = re.compile(re.escape(_GZIP) + b"|" + re.escape(_ZSTD))
_OPTIONS: dict[int, int] = {
    zstd.CompressionParameter.compression_level: ZSTD_LEVEL,
    zstd.CompressionParameter.checksum_flag: 1,
}
#: A frame of 1 KB may ask for a window of a GB. Those that tbloom writes ask for 2 MB at most.
_WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}
#: The errors of decompressors for bytes that can not be decompressed.
ERRORS: tuple[type[Exception], ...] = (
    cast("type[Exception]", isal_zlib.error),  # isal's types declare an instance
    cast("type[Exception]", zstd.ZstdError),
)
#: So many bytes of a file are read at a time.
_CHUNK = 1 << 17
#: So many bytes of a member are read first for the headers at its start, and so many are decompressed.
_START = 4096


class Damaged(Exception):
    """The bytes are no record."""


class Torn(Damaged):
    """The bytes end before the record does."""


def check_codec(codec: str) -> None:
    """Raise ConfigError if there is no codec of this name."""
    if not isinstance(codec, str) or codec not in SUFFIXES:
        raise ConfigError("codec", codec, " or ".join(SUFFIXES))


def member(codec: str, content: bytes) -> bytes:
    """Return the member with this content."""
    if codec == "zstd":
        return zstd.compress(content, options=_OPTIONS)
    return isal_zlib.compress(content, LEVEL, 31)


def content_at(fd: int, offset: int, end: int, most: int) -> tuple[bytes, int]:
    """Return the content of the member at this offset of a file, and where the member ends.

    Raise Torn if it does not end before ``end``. Raise Damaged if it can't be read, or has more than ``most`` bytes.
    """
    decompressor, parts, at = None, list[bytes](), offset
    while decompressor is None or not decompressor.eof:
        data = os.pread(fd, min(_CHUNK, end - at), at)
        if not data:
            raise Torn("it is cut")
        decompressor = decompressor or _decompressor(data)
        try:
            parts.append(decompressor.decompress(data))
        except ERRORS as error:
            raise Damaged(str(error)) from None
        at += len(data)
        most -= len(parts[-1])
        if most < 0:
            raise Damaged("it is longer than a record may be")
    return b"".join(parts), at - len(decompressor.unused_data)


def start_at(fd: int, offset: int) -> bytes:
    """Return the first KBs of the content of the member at this offset."""
    data = os.pread(fd, _START, offset)
    try:
        return _decompressor(data).decompress(data, _START)
    except ERRORS as error:
        raise Damaged(str(error)) from None


def _decompressor(start: bytes) -> igzip_lib.IgzipDecompressor | zstd.ZstdDecompressor:
    """Return a decompressor for a member with this start, which may be a part of a member's magic bytes."""
    if _GZIP.startswith(start[: len(_GZIP)]):
        return igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP)
    if _ZSTD.startswith(start[: len(_ZSTD)]):
        return zstd.ZstdDecompressor(options=_WINDOW)
    raise Damaged("it is no gzip member or zstd frame")
