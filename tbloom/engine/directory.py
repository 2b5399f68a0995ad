"""The directory of a store's buckets: extendible hashing.

R. Fagin et al., "Extendible hashing: a fast access method for dynamic files", 1979. When bucket 1 gets too large, it is split
into the buckets 2 and 3, its halves; these are split into 4, 5, 6 and 7, and so on. Each level uses one more of the
fingerprint's last 48 bits. The layout has a bit for each bucket, which is set if the bucket has been split.
``lua/shared/buckets.lua`` does the same on the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tbloom.engine.flow import Call, Flow, request, text
from tbloom.errors import TBloomError

#: The last bucket that may be split. It limits the size of the layout, even if someone makes items that share one bucket.
LAST_BUCKET = 1 << 26
#: The layout begins with the digits of the generation. One command reads at most this many bytes.
_GENERATION, _READ_AT_ONCE = 16, 1 << 20
_LONGEST = _GENERATION + LAST_BUCKET // 8
#: How many of a fingerprint's last bits choose its bucket. (Its first bits choose its shard.)
BITS = 48
_MASK = (1 << BITS) - 1


class Directory:
    """The last known buckets of a shard or a mapping.

    ``generation`` is the time at which these buckets began (us), in 16 digits.
    """

    __slots__ = ("_level", "_splits", "generation")

    def __init__(self, generation: str, splits: bytes = b"") -> None:
        self.generation: str = generation
        self._splits = bytearray(splits)
        self._level = 0  # the last search ended here; the next one ends nearby

    def note_splits(self, buckets: Iterable[int]) -> None:
        """Note that these buckets have been split."""
        for bucket in buckets:
            missing = bucket // 8 + 1 - len(self._splits)
            if missing > 0:
                self._splits.extend(bytes(missing))
            self._splits[bucket // 8] |= 0x80 >> bucket % 8

    def half_of(self, fingerprint: int) -> int:
        """Return the number of the half that the item would go to if its bucket were split."""
        path = (1 << BITS) | (fingerprint & _MASK)
        level = self._level
        while level and not self._is_split(path >> (BITS + 1 - level)):
            level -= 1
        while self._is_split(path >> (BITS - level)):
            level += 1
        self._level = level
        return path >> (BITS - 1 - level)

    def bucket_after(self, position: int) -> tuple[int, int]:
        """Return the bucket at this position (0 to 2^48 - 1), and the position of the next bucket (0 after the last one)."""
        bucket = self.half_of(position) >> 1
        width = 1 << (BITS + 1 - bucket.bit_length())
        return bucket, (position - position % width + width) & _MASK

    def buckets(self) -> Iterator[int]:
        """Yield all buckets."""
        position = 0
        while True:
            bucket, position = self.bucket_after(position)
            yield bucket
            if not position:
                return

    def _is_split(self, bucket: int) -> bool:
        splits = self._splits
        return bucket // 8 < len(splits) and bool(splits[bucket // 8] & (0x80 >> bucket % 8))


def read_directory(name: str, key: str, remedy: str = "clear()") -> Flow[Directory]:
    """Return the directory that is stored in a layout's key. If the key is missing, the directory has no generation.

    Raise TBloomError if the key is no layout. The error has the store's ``name``, and the call ``remedy`` that repairs it.
    """
    layout, is_whole = b"", False
    while not is_whole and len(layout) <= _LONGEST:
        last = len(layout) + _READ_AT_ONCE - 1
        [some] = yield from request([Call(("GETRANGE", key, str(len(layout)), str(last)))])
        layout, is_whole = layout + some, len(some) < _READ_AT_ONCE
    generation = text(layout[:_GENERATION])
    if layout and (
        not re.fullmatch(rf"[0-9]{{{_GENERATION}}}", generation) or len(layout) > _LONGEST
    ):
        raise TBloomError(
            f"{name!r}: key {key!r} holds {generation!r}..., which tbloom did not "
            f"write; {remedy} it"
        )
    return Directory(generation, layout[_GENERATION:])
