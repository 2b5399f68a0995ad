"""A record's bytes in a file, compressed: one member of a ``.warc.gz``, or some frames of a ``.warc.zst``.

Both begin with fixed bytes, the length of the member, and the length of its content. So a file's records are found
without decompressing their bodies.

In a ``.warc.gz``, the lengths are in gzip's extra field "sl" (skip lengths, as in WARC 0.9). With the codec ``identity``, the
content is in deflate's stored blocks, so that other tools read it too.

In a ``.warc.zst``, they are in a skippable frame, with the checksum of the last frame. An empty frame precedes it, because
a file may not begin with a skippable frame. Then each part of the content has a frame.

RFC 1952 (gzip), RFC 1951 (deflate); RFC 8878 (zstd), Zstandard Compression for WARC Files 1.0.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Sequence
from struct import Struct
from typing import cast

from isal import igzip_lib, isal_zlib

from tbloom.errors import ConfigError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

#: ISA-L's levels are 0 to 3. Measured (docs/benchmarks.md): 3 takes twice the time, and 4 % fewer bytes.
LEVEL = 2
#: zstd's level, measured there too.
ZSTD_LEVEL = 3
GZ, ZST = ".warc.gz", ".warc.zst"
#: The suffix of the files that hold a codec's records.
SUFFIXES = {"gzip": GZ, "identity": GZ, "zstd": ZST}

#: A gzip header (deflate) with 12 bytes of extra fields: "sl", of 8 bytes.
GZIP_MAGIC = bytes.fromhex("1f8b0804 00000000 00ff 0c00 736c 0800")
#: An empty frame, and a skippable frame of 12 bytes.
ZSTD_MAGIC = bytes.fromhex("28b52ffd 24000100 0099e9d8 51") + bytes.fromhex("502a4d18 0c000000")
#: The start of any member.
MAGIC = re.compile(b"|".join(map(re.escape, (GZIP_MAGIC, ZSTD_MAGIC))))
MAGIC_BYTES = max(len(GZIP_MAGIC), len(ZSTD_MAGIC))
#: The lengths of the member and of its content; in zstd, the checksum follows.
_LENGTHS, _CHECKSUM_BYTES = Struct("<II"), 4
_GZIP_HEAD = len(GZIP_MAGIC) + _LENGTHS.size
_ZSTD_HEAD = len(ZSTD_MAGIC) + _LENGTHS.size + _CHECKSUM_BYTES
#: In gzip: the CRC-32 and the length of the content.
_TAIL = Struct("<II")
#: So many bytes of a content are searched first for the end of its headers.
_FIRST = 4096

_LevelOf = zstd.CompressionParameter
_OPTIONS: dict[int, int] = {_LevelOf.compression_level: ZSTD_LEVEL, _LevelOf.checksum_flag: 1}
#: A frame of 1 KB may ask for a window of a GB. Those that tbloom writes ask for 2 MB at most.
_WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}
_GzipError = cast("type[Exception]", isal_zlib.error)  # isal's types declare an instance
ZstdError: type[Exception] = zstd.ZstdError
ERRORS = (_GzipError, ZstdError, EOFError)


class Damaged(Exception):
    """The bytes are no record."""


def check_codec(codec: str) -> None:
    """Raise ConfigError if there is no codec of this name."""
    if not isinstance(codec, str) or codec not in SUFFIXES:
        raise ConfigError("codec", codec, " or ".join(SUFFIXES))


def member(codec: str, start: bytes, *rest: bytes) -> bytes:
    """Return the member with this content. Its start can be read alone (see ``start_of``)."""
    if codec == "zstd":
        return _frames([start, b"".join(rest)] if rest else [start])
    content = b"".join((start, *rest))
    if codec == "gzip":
        deflated = isal_zlib.compress(content, LEVEL, -15)
    else:
        stored = zlib.compressobj(0, wbits=-15)
        deflated = stored.compress(content) + stored.flush()
    tail = _TAIL.pack(isal_zlib.crc32(content), len(content))
    length = _GZIP_HEAD + len(deflated) + len(tail)
    return b"".join([GZIP_MAGIC, _LENGTHS.pack(length, len(content)), deflated, tail])


def _frames(parts: Sequence[bytes]) -> bytes:
    frames = [zstd.compress(part, options=_OPTIONS) for part in parts]
    length, held = _ZSTD_HEAD + sum(map(len, frames)), sum(map(len, parts))
    checksum = frames[-1][-_CHECKSUM_BYTES:]
    return b"".join([ZSTD_MAGIC, _LENGTHS.pack(length, held), checksum, *frames])


def gzip_decompressor() -> igzip_lib.IgzipDecompressor:
    """Return a decompressor for one member of a gzip file."""
    return igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP)


def zstd_decompressor(dictionary: bytes = b"") -> zstd.ZstdDecompressor:
    """Return a decompressor for one frame. Raise ValueError or ZstdError if the dictionary is none."""
    return zstd.ZstdDecompressor(zstd_dict=zstd.ZstdDict(dictionary) if dictionary else None)


def begins_member(start: bytes) -> bool:
    """Return True if a member may begin with these bytes, which may be fewer than its fixed start."""
    return any(start[: len(magic)] == magic[: len(start)] for magic in (GZIP_MAGIC, ZSTD_MAGIC))


def length_of(start: bytes) -> int:
    """Return the length of the member with this start; 0 if it is no member's start."""
    head, lengths = _lengths(start)
    return lengths[0] if lengths[0] > head + _TAIL.size else 0


def is_torn(start: bytes, size: int) -> bool:
    """Return True if a member begins with these bytes, but is longer than ``size``."""
    return begins_member(start) and (len(start) < _ZSTD_HEAD or length_of(start) > size)


def _lengths(start: bytes) -> tuple[int, tuple[int, int]]:
    """Return where the content begins, and the lengths of the member and of its content; zeros if it is no member's start."""
    for magic, head in ((GZIP_MAGIC, _GZIP_HEAD), (ZSTD_MAGIC, _ZSTD_HEAD)):
        if start.startswith(magic) and len(start) >= head:
            length, held = _LENGTHS.unpack_from(start, len(magic))
            return head, (length, held)
    return 0, (0, 0)


def content_of(data: bytes, limit: int) -> bytes:
    """Return the content of a member. Raise Damaged if it can't be read, or is longer than ``limit``."""
    _, (_, held) = _lengths(data)
    if held > limit:
        raise Damaged(f"its content has {held} bytes, more than it may have")
    parts, size, rest = [], 0, _compressed(data)
    try:
        while rest and size <= held:
            decompressor = _decompressor(data)
            parts.append(decompressor.decompress(rest, held + 1))
            size += len(parts[-1])
            if size <= held and not decompressor.eof:
                raise Damaged("it is cut")
            rest = decompressor.unused_data
    except ERRORS as error:
        raise Damaged(str(error)) from None
    if size != held:
        raise Damaged(f"its content does not have {held} bytes")
    return b"".join(parts)


def start_of(data: bytes, mark: bytes, most: int) -> bytes:
    """Return the beginning of a member's content, from the member's start: up to the first ``mark`` or for ``most`` bytes, if
    the given bytes suffice. Raise Damaged if it can't be read."""
    if data.startswith(b"WARC/"):  # another program has decompressed the file
        return data
    decompressor = _decompressor(data)
    try:
        content = decompressor.decompress(_compressed(data), _FIRST)
        if mark not in content and not decompressor.eof:
            content += decompressor.decompress(b"", most)
    except ERRORS as error:
        raise Damaged(str(error)) from None
    return content


def _decompressor(data: bytes) -> igzip_lib.IgzipDecompressor | zstd.ZstdDecompressor:
    if data.startswith(ZSTD_MAGIC[:4]):
        return zstd.ZstdDecompressor(options=_WINDOW)
    return gzip_decompressor()


def _compressed(data: bytes) -> bytes:
    """Return the bytes for the decompressor: in zstd without the empty frame, after which it would end."""
    return data[_ZSTD_HEAD:] if data.startswith(ZSTD_MAGIC) else data
