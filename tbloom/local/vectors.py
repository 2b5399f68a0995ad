"""Looks at many items together, by numpy."""

from __future__ import annotations

import numpy as np
from mmh3 import mmh3_32_digest
from numpy.typing import NDArray

from tbloom.local.parts import HEADER, Part
from tbloom.local.shard import BITS, BYTES, ROW, Group, Shard

#: Rows that are looked at together: most items that a part does not hold show it in the first one.
_STAGES = (slice(0, 1), slice(1, 4), slice(4, None))


class VectorLook:
    """A look at all items together."""

    def __init__(self, shard: Shard, digests: list[bytes], within: int) -> None:
        columns = b"".join(map(shard.columns, digests))
        hashes = np.frombuffer(b"".join(map(mmh3_32_digest, digests)), "<u4").astype(np.uint64)
        own, *others = shard.groups(within)
        self._places, self._bits = _places(own, hashes, columns)
        unseen = _unseen(own, np.arange(len(digests)), self._places, self._bits)
        for group in others:
            if group.buffers:
                unseen = _unseen(group, unseen, *_places(group, hashes, columns))
        self._unseen = unseen
        self.new: list[int] = unseen.tolist()

    def add(self, count: int, current: Part) -> None:
        """Sets the bits of the first ``count`` new items."""
        new, part = self._unseen[:count], np.frombuffer(current.buffer, np.uint8)
        np.bitwise_or.at(part, self._places.take(new, 1).ravel(), self._bits.take(new, 1).ravel())


def _places(
    group: Group, hashes: NDArray[np.uint64], columns: bytes
) -> tuple[NDArray[np.intp], NDArray[np.uint8]]:
    """The items' bytes in a part of the group, and their bits there: a column for each item, a row for each hash."""
    starts = (hashes * np.uint64(group.blocks) >> np.uint64(32)).astype(np.intp)
    rows = np.arange(HEADER, HEADER + group.size, ROW)
    shape = len(hashes), -1
    places = np.frombuffer(columns.translate(BYTES), np.uint8).reshape(shape).T[: len(rows)]
    bits = np.frombuffer(columns.translate(BITS), np.uint8).reshape(shape).T[: len(rows)]
    return places + (starts * group.size) + rows[:, None], np.ascontiguousarray(bits)


def _unseen(
    group: Group, items: NDArray[np.intp], places: NDArray[np.intp], bits: NDArray[np.uint8]
) -> NDArray[np.intp]:
    """Those of the items that no part of the group holds."""
    for buffer in group.buffers:
        part, held = np.frombuffer(buffer, np.uint8), items
        for rows in _STAGES:
            if len(held):
                set = part[places[rows].take(held, 1)] & bits[rows].take(held, 1)
                held = held[set.all(0)]
        if len(held):
            is_new = np.ones(places.shape[1], np.bool_)
            is_new[held] = False
            items = items[is_new[items]]
    return items
