"""One part in a stretch of memory: the count of its items, and their bits in blocks (docs/format.md).

The count is raised before the bits are set: a process that is killed in between has counted an item that it never
answered, and has answered none that is not counted.
"""

from __future__ import annotations

from tbloom.bloom.sizing import HEADER_BITS

#: The bytes before the first block: the count, in the machine's own byte order.
HEADER = HEADER_BITS // 8
_COUNT_BYTES = 1 << 16


class Part:
    """One part of a slice, where its bits are kept."""

    __slots__ = ("_count", "buffer", "expires")

    def __init__(self, buffer: memoryview, expires: int) -> None:
        #: When its slice leaves the window (ms).
        self.expires = expires
        #: All its bytes.
        self.buffer = buffer
        self._count = buffer[:HEADER].cast("Q")

    @property
    def items(self) -> int:
        """The number of items added."""
        return self._count[0]

    def raise_count(self, items: int) -> None:
        """Counts this many more items, which are added next."""
        self._count[0] += items

    def set_bits(self) -> int:
        """The number of bits that are 1."""
        own = self.buffer
        return sum(
            int.from_bytes(own[start : start + _COUNT_BYTES], "little").bit_count()
            for start in range(HEADER, len(own), _COUNT_BYTES)
        )
