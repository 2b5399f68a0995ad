"""Containers as Redis keeps them, the Roaring portable format, and pyroaring's bitmaps.

A container is the set of ids of one chunk, 65,536 ids: a character for its type, and its bytes as in the format
(RoaringFormatSpec): ``a`` sorted ids of two bytes, at most 4,096; ``b`` the number of ids - 1, and a bitmap of 8,192 bytes;
``r`` the number of runs, and for each its first id and its length - 1. Numbers have two bytes, little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tbloom.errors import ConfigError

if TYPE_CHECKING:
    from pyroaring import BitMap

#: The ids of one chunk.
CHUNK = 1 << 16
MAX_SORTED, BITMAP_BYTES = 4096, CHUNK // 8
#: How the format begins where there may be containers of runs.
_WITH_RUNS = 12347
#: With runs and fewer containers than this there are no offsets.
_LEAST_WITH_OFFSETS = 4
_BITS = [[bit for bit in range(8) if byte >> bit & 1] for byte in range(256)]
_SIZE = struct.Struct("<H")


def bitmaps() -> type[BitMap]:
    """Pyroaring's class."""
    try:
        from pyroaring import BitMap  # noqa: PLC0415 - it is optional
    except ModuleNotFoundError as error:
        message = f"sets of ids need {error.name}: pip install 'tbloom[distinct]'"
        raise ModuleNotFoundError(message, name=error.name) from None
    return BitMap


def bitmap_of(containers: Mapping[int, bytes]) -> BitMap:
    """The ids of the containers, by chunk number; raises ValueError for what is no container."""
    if not containers:
        return bitmaps()()
    chunks, count = sorted(containers), len(containers)
    parts = [_checked(containers[chunk]) for chunk in chunks]
    runs = sum(1 << i for i, chunk in enumerate(chunks) if containers[chunk][:1] == b"r")
    described = [
        half for chunk, (size, _) in zip(chunks, parts, strict=True) for half in (chunk, size - 1)
    ]
    head = struct.pack("<HH", _WITH_RUNS, count - 1) + runs.to_bytes((count + 7) // 8, "little")
    head += struct.pack(f"<{2 * count}H", *described)
    if count >= _LEAST_WITH_OFFSETS:
        head += bytes(4 * count)  # needed only by those who skip containers
    # Since 1.0.1 pyroaring looks at every container.
    return bitmaps().deserialize(b"".join([head, *(data for _, data in parts)]))


def containers_of(ids: BitMap) -> dict[int, bytes]:
    """The containers of a bitmap, by chunk number."""
    if not ids:
        return {}
    ids.run_optimize()  # each in its smallest form, so runs are fewer than 2,048
    data = ids.serialize()
    [cookie] = struct.unpack_from("<I", data)
    has_runs, at = cookie & 0xFFFF == _WITH_RUNS, 8
    count = (cookie >> 16) + 1 if has_runs else struct.unpack_from("<I", data, 4)[0]
    runs = 0
    if has_runs:
        at = 4 + (count + 7) // 8
        runs = int.from_bytes(data[4:at], "little")
    descriptions = struct.unpack_from(f"<{2 * count}H", data, at)
    at += 4 * count
    if not has_runs or count >= _LEAST_WITH_OFFSETS:
        at += 4 * count
    found = {}
    for i in range(count):
        chunk, size = descriptions[2 * i], descriptions[2 * i + 1] + 1
        if runs >> i & 1:
            kind, length = b"r", 2 + 4 * struct.unpack_from("<H", data, at)[0]
        elif size <= MAX_SORTED:
            kind, length = b"a", 2 * size
        else:
            kind, length = b"b" + _SIZE.pack(size - 1), BITMAP_BYTES
        found[chunk] = kind + data[at : at + length]
        at += length
    return found


def imported(data: bytes) -> BitMap:
    """The bitmap that these bytes describe, in the portable format for 32 bits."""
    expected = "the bytes of a Roaring bitmap in the portable format, with ids of 0 .. 2^32-1"
    if not isinstance(data, bytes):
        raise ConfigError("data", data, expected)
    try:
        return bitmaps().deserialize(data)
    except (ValueError, IndexError):
        raise ConfigError("data", data[:20], expected) from None


def _checked(container: bytes) -> tuple[int, bytes]:
    """The number of a container's ids, and its bytes in the format; raises ValueError where the two can't agree."""
    kind, data = container[:1], container[1:]
    length = len(data)
    if kind == b"a" and length % 2 == 0 and 0 < length <= 2 * MAX_SORTED:
        return length // 2, data
    if kind == b"b" and length == _SIZE.size + BITMAP_BYTES:
        [last] = _SIZE.unpack_from(data)
        data = data[_SIZE.size :]
        if last >= MAX_SORTED:
            return last + 1, data
        # After discards; the format has no such bitmaps.
        ids = [8 * i + bit for i, byte in enumerate(data) if byte for bit in _BITS[byte]]
        if len(ids) == last + 1:
            return len(ids), struct.pack(f"<{len(ids)}H", *ids)
    if kind == b"r" and length >= 6:  # noqa: PLR2004 - one run
        count, *pairs = struct.unpack(f"<{length // 2}H", data[: length // 2 * 2])
        size = sum(pairs[1::2]) + count
        if length == 2 + 4 * count and size <= CHUNK:
            return size, data
    raise ValueError("not a container")
