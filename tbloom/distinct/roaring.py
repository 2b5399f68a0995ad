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
#: How the format begins, with and without containers of runs.
_WITH_RUNS, _WITHOUT_RUNS = 12347, 12346
#: What comes before the bytes of a container, if it is the only one: the number of containers (less 1), which are runs, the
#: chunk and its number of ids less 1; or the number, chunk and ids, and where the bytes begin.
_ONE_OF_RUNS, _ONE = struct.Struct("<HHBHH"), struct.Struct("<IIHHI")
_BITS = [[bit for bit in range(8) if byte >> bit & 1] for byte in range(256)]
_SIZE = struct.Struct("<H")


def bitmaps() -> type[BitMap]:
    """Return pyroaring's class. Raise ModuleNotFoundError, with advice, if it is not installed."""
    try:
        from pyroaring import BitMap  # noqa: PLC0415 - it is optional
    except ModuleNotFoundError as error:
        if error.name != "pyroaring":
            raise
        message = f"sets of ids need {error.name}: pip install 'tbloom[distinct]'"
        raise ModuleNotFoundError(message, name=error.name) from None
    return BitMap


def bitmap_of(containers: Mapping[int, bytes]) -> BitMap:
    """Return the ids of the containers, by chunk number. Raise ValueError if one is not a container."""
    parts = []
    for chunk, container in containers.items():
        size, data = _checked(container)
        if container[:1] == b"r":
            head = _ONE_OF_RUNS.pack(_WITH_RUNS, 0, 1, chunk, size - 1)
        else:
            head = _ONE.pack(_WITHOUT_RUNS, 1, chunk, size - 1, _ONE.size)
        # Since 1.0.1 pyroaring looks at every container.
        parts.append(bitmaps().deserialize(head + data))
    return bitmaps()().union(*parts)


def containers_of(ids: BitMap) -> dict[int, bytes]:
    """Return the containers of a bitmap, by chunk number."""
    found, at, last = dict[int, bytes](), 0, ids.max() if ids else -1
    while at <= last:
        chunk = ids.next_set_bit(at) // CHUNK
        part = ids & bitmaps()(range(chunk * CHUNK, (chunk + 1) * CHUNK))
        part.run_optimize()  # in its smallest form, so runs are fewer than 2,048
        data, size = part.serialize(), len(part)
        if data.startswith(_SIZE.pack(_WITH_RUNS)):
            found[chunk] = b"r" + data[_ONE_OF_RUNS.size :]
        else:
            kind = b"a" if size <= MAX_SORTED else b"b" + _SIZE.pack(size - 1)
            found[chunk] = kind + data[_ONE.size :]
        at = (chunk + 1) * CHUNK
    return found


def imported(data: bytes) -> BitMap:
    """Return the bitmap in these bytes, in the portable format for 32 bits."""
    expected = "the bytes of a Roaring bitmap in the portable format, with ids of 0 .. 2^32-1"
    if not isinstance(data, bytes):
        raise ConfigError("data", data, expected)
    try:
        found = bitmaps().deserialize(data)
    except (ValueError, IndexError):
        raise ConfigError("data", data[:20], expected) from None
    try:
        # Pyroaring ignores bytes behind a bitmap. Without its last byte, a bitmap that ends there is not whole.
        bitmaps().deserialize(data[:-1])
    except (ValueError, IndexError):
        return found
    raise ConfigError("data", data[:20], f"{expected}, and no bytes after them")


def _checked(container: bytes) -> tuple[int, bytes]:
    """Return the number of a container's ids, and its bytes in the format. Raise ValueError if the two can't agree."""
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
