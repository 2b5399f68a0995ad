"""Probes for many items together, by numpy."""

from __future__ import annotations

import numpy as np
from mmh3 import mmh3_32_digest
from numpy.typing import NDArray

from tbloom.bloom.hasher import columns_of
from tbloom.local.shard import HEADER, ROW, Group, Part, Shard

#: Rows that are probed together: most items that a part does not hold show it in the first one.
_FIRST, *_STAGES = 0, slice(1, 3), slice(3, None)


class VectorProbes:
    """Probes for all items together."""

    def __init__(self, shard: Shard, digests: list[bytes], within: int) -> None:
        hashes = np.frombuffer(b"".join(map(mmh3_32_digest, digests)), "<u4").astype(np.uint64)
        own, *others = shard.groups(within)
        self._places = _Places(own, digests, hashes)
        is_new = np.ones(len(digests), np.bool_)
        self._places.find_in(own, is_new)
        for group in others:
            if group.buffers:
                _Places(group, digests, hashes).find_in(group, is_new)
        self._new = is_new.nonzero()[0]
        self.new: list[int] = self._new.tolist()

    def add(self, count: int, current: Part) -> None:
        """Sets the bits of the first ``count`` new items."""
        self._places.set_in(current, self._new[:count])


class _Places:
    """The bits of some items in parts of one size: a column for each item, a row for each hash."""

    __slots__ = ("_bits", "_bytes")

    def __init__(self, group: Group, digests: list[bytes], hashes: NDArray[np.uint64]) -> None:
        if group.digests > 1:
            digests = [columns_of(digest, group.digests) for digest in digests]
        columns = np.frombuffer(b"".join(digests), np.uint8).reshape(len(digests), -1)
        columns = np.ascontiguousarray(columns.T[: group.hashes])
        blocks = (hashes * np.uint64(group.blocks) >> np.uint64(32)).astype(np.intp)
        rows = np.arange(group.hashes)[:, None] * ROW
        #: Each bit's byte, and the bit's value in it.
        self._bytes = (columns >> 3) + (blocks * group.block_bytes + HEADER) + rows
        self._bits = np.uint8(128) >> (columns & 7)

    def find_in(self, group: Group, is_new: NDArray[np.bool_]) -> None:
        """Takes the items that a part of the group holds from ``is_new``."""
        for buffer in group.buffers:
            part = np.frombuffer(buffer, np.uint8)
            held = (part.take(self._bytes[_FIRST]) & self._bits[_FIRST]).nonzero()[0]
            for rows in _STAGES:
                set = part.take(self._bytes[rows].take(held, 1)) & self._bits[rows].take(held, 1)
                held = held[set.all(0)]
            is_new[held] = False

    def set_in(self, part: Part, items: NDArray[np.intp]) -> None:
        """Sets the items' bits in the part."""
        own = np.frombuffer(part.buffer, np.uint8)
        at, bits = self._bytes.take(items, 1).ravel(), self._bits.take(items, 1).ravel()
        while len(at):
            own[at] |= bits
            # Of several bits of one byte, only one was set. (This takes half the time of np.bitwise_or.at.)
            lost = own[at] & bits == 0
            at, bits = at[lost], bits[lost]
