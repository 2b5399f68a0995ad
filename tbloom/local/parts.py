"""The bits of one part, and the count of its items, in a stretch of memory.

As in Redis, the first 64 bits belong to no item: they are the count. Then come the bits, the highest
of each byte first. The count is raised before the bits are set: a process that is killed in between
has counted an item that it never answered, and has answered none that is not counted.

Single bits are read through bitarray where that is installed: measured in 7 slices of 1,000,000, an ``add``
takes 5.6 us with it and 8.2 us with ``PlainBits``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tbloom.bloom.sizing import HEADER_BITS

_HEADER = HEADER_BITS // 8
_COUNT_BYTES = 1 << 16


class PlainBits:
    """A row of bits by their offsets, as bitarray has it. It is only ever set to 1."""

    __slots__ = ("_bytes",)

    def __init__(self, buffer: memoryview) -> None:
        self._bytes = buffer

    def __getitem__(self, offset: int) -> int:
        return self._bytes[offset >> 3] & (128 >> (offset & 7))

    def __setitem__(self, offsets: Sequence[int], value: int) -> None:
        own = self._bytes
        for offset in offsets:
            own[offset >> 3] |= 128 >> (offset & 7)


def _choose_bits() -> Callable[[memoryview], PlainBits]:
    try:
        from bitarray import bitarray  # noqa: PLC0415 - optional
    except ImportError:
        return PlainBits
    return lambda buffer: bitarray(buffer=buffer, endian="big")  # type: ignore[return-value]


make_bits = _choose_bits()


class Part:
    """One part of a slice, where its bits are kept."""

    __slots__ = ("_count", "bits", "buffer", "expires")

    def __init__(self, buffer: memoryview, expires: int) -> None:
        #: When its slice leaves the window (ms).
        self.expires = expires
        #: The bytes after the header.
        self.buffer = buffer[_HEADER:]
        self.bits = make_bits(self.buffer)
        self._count = buffer[:_HEADER].cast("Q")

    @property
    def size(self) -> int:
        """In bytes, the header included."""
        return _HEADER + len(self.buffer)

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
            for start in range(0, len(own), _COUNT_BYTES)
        )
