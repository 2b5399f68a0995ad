"""Looks at many items together, by numpy."""

from __future__ import annotations

import numpy as np
from mmh3 import mmh3_32_digest
from numpy.typing import NDArray

from tbloom.bloom.hasher import columns_of
from tbloom.local.parts import HEADER, Part
from tbloom.local.shard import ROW, Group, Shard

#: Rows that are looked at together: most items that a part does not hold show it in the first one.
_STAGES = (slice(0, 1), slice(1, 4), slice(4, None))


class VectorLook:
    """A look at all items together."""

    def __init__(self, shard: Shard, digests: list[bytes], within: int) -> None:
        hashes = np.frombuffer(b"".join(map(mmh3_32_digest, digests)), "<u4").astype(np.uint64)
        own, *others = shard.groups(within)
        self._places = _Places(own, digests, hashes)
        unseen = self._places.unseen(own, np.arange(len(digests)))
        for group in others:
            if group.buffers:
                unseen = _Places(group, digests, hashes).unseen(group, unseen)
        self._unseen = unseen
        self.new: list[int] = unseen.tolist()

    def add(self, count: int, current: Part) -> None:
        """Sets the bits of the first ``count`` new items."""
        self._places.set_in(current, self._unseen[:count])


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
        self._bytes = (columns >> 3) + (blocks * (group.hashes * ROW) + HEADER) + rows
        self._bits = np.uint8(128) >> (columns & 7)

    def unseen(self, group: Group, items: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of the items that no part of the group holds."""
        for buffer in group.buffers:
            part, held = np.frombuffer(buffer, np.uint8), items
            for rows in _STAGES:
                if len(held):
                    set = part[self._bytes[rows].take(held, 1)] & self._bits[rows].take(held, 1)
                    held = held[set.all(0)]
            if len(held):
                is_new = np.ones(self._bytes.shape[1], np.bool_)
                is_new[held] = False
                items = items[is_new[items]]
        return items

    def set_in(self, part: Part, items: NDArray[np.intp]) -> None:
        """Sets the items' bits in the part."""
        np.bitwise_or.at(
            np.frombuffer(part.buffer, np.uint8),
            self._bytes.take(items, 1).ravel(),
            self._bits.take(items, 1).ravel(),
        )
