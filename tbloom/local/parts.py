"""One part in a stretch of memory: the count of its items, and their bits in blocks (docs/format.md).

The count is raised before the bits are set: a process that is killed in between has counted an item that it never
answered, and has answered none that is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable

from tbloom.bloom.sizing import HEADER_BITS

#: The bytes before the first block: the count, in the machine's own byte order.
HEADER = HEADER_BITS // 8
_COUNT_BYTES = 1 << 16


class Part:
    """One part of a slice, where its bits are kept."""

    __slots__ = ("buffer", "count", "expires")

    def __init__(self, buffer: memoryview, expires: int) -> None:
        #: When its slice leaves the window (ms).
        self.expires = expires
        #: All its bytes.
        self.buffer = buffer
        #: The number of items added, as its only element.
        self.count = buffer[:HEADER].cast("Q")

    @property
    def items(self) -> int:
        """The number of items added."""
        return self.count[0]

    def set(self, start: int, bits: Iterable[tuple[int, int]]) -> None:
        """Sets these bits (bytes, and the bit in each) in the block that begins at ``start``."""
        block = self.buffer[start:]
        for place, bit in bits:
            block[place] |= bit

    def set_bits(self) -> int:
        """The number of bits that are 1."""
        own = self.buffer
        return sum(
            int.from_bytes(own[start : start + _COUNT_BYTES], "little").bit_count()
            for start in range(HEADER, len(own), _COUNT_BYTES)
        )
