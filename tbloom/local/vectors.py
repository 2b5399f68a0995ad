"""Many items at once, by numpy: their offsets, and which of them a part holds.

The offsets are those of ``Hasher.offsets``, to the bit. There a digest is multiplied by one long
number; here both are cut into limbs of 32 bits, the limbs are multiplied for all digests together,
and the columns of the products are added up, with their carries. Measured in batches of 1,000: 0.3 us an
item, and 1.8 us one by one; an ``add_many`` in 7 slices takes 2.0 us an item, and 4.5 us without numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbloom.bloom.hasher import Hasher
from tbloom.local.parts import Part
from tbloom.local.shard import Shard

Indices = NDArray[np.intp]
Words = NDArray[np.uint64]
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_DIGEST_LIMBS = 3  # the 4th, the highest, chooses the shard
_BIT = np.array([128 >> bit for bit in range(8)], np.uint8)


class Places:
    """The bits of some items in parts of one size: a column for each item, a row for each hash."""

    __slots__ = ("bits", "bytes")

    def __init__(self, offsets: Words) -> None:
        #: Each bit's byte, and the bit's value in it.
        self.bytes = (offsets >> np.uint64(3)).astype(np.intp)
        self.bits = _BIT[(offsets & np.uint64(7)).astype(np.intp)]

    def held_by(self, part: NDArray[np.uint8], items: Indices) -> Indices:
        """Those of the items that the part holds."""
        for own_bytes, own_bits in zip(self.bytes, self.bits, strict=True):
            if not len(items):
                break
            items = items[part[own_bytes[items]] & own_bits[items] != 0]
        return items

    def set_in(self, part: NDArray[np.uint8], items: Indices) -> None:
        """Sets the items' bits in the part."""
        np.bitwise_or.at(part, self.bytes[:, items].ravel(), self.bits[:, items].ravel())


def limbs_of(digests: Sequence[int]) -> Words:
    """The digests' limbs of 32 bits, the lowest first: a column for each digest."""
    joined = b"".join([digest.to_bytes(16, "little") for digest in digests])
    rows = np.frombuffer(joined, "<u4").reshape(len(digests), 4)
    return np.ascontiguousarray(rows.T[:_DIGEST_LIMBS]).astype(np.uint64)


@lru_cache(maxsize=1024)
def _factor_limbs(hasher: Hasher) -> Any:
    return np.frombuffer(hasher.multiplier.to_bytes(8 * hasher.hashes, "little"), "<u4").astype(
        np.uint64
    )[:, None]


def offsets_of(hasher: Hasher, limbs: Words) -> Words:
    """The offsets of the items with these digests: a column for each item, a row for each hash.

    The hasher's part has fewer than 2**32 bits.
    """
    factor = _factor_limbs(hasher)
    count = len(factor)
    sums = np.zeros((count + _DIGEST_LIMBS, limbs.shape[1]), np.uint64)
    for shift, limb in enumerate(limbs):
        products = factor * limb
        sums[shift : shift + count] += products & _LOW
        products >>= _32
        sums[shift + 1 : shift + 1 + count] += products
    # A column has six terms of 32 bits at most, and a carry.
    for column in range(1, count + 2):
        sums[column] += sums[column - 1] >> _32
    low, high = sums[2 : count + 2 : 2] & _LOW, sums[3 : count + 2 : 2] & _LOW
    bits = np.uint64(hasher.bits)
    return (high * bits + (low * bits >> _32)) >> _32


class VectorLook:
    """A look at all items together."""

    def __init__(self, shard: Shard, digests: list[int], within: int) -> None:
        limbs = limbs_of(digests)
        unseen, is_new = np.arange(len(digests)), np.ones(len(digests), np.bool_)
        self._places = places = Places(offsets_of(shard.hasher, limbs))
        for group in shard.groups(within):
            if group.parts and group.hasher is not shard.hasher:
                places = Places(offsets_of(group.hasher, limbs))
            for part in group.parts:
                held = places.held_by(_array(part), unseen)
                if len(held):
                    is_new[held] = False
                    unseen = unseen[is_new[unseen]]
        self._unseen = unseen
        self.new: list[int] = unseen.tolist()

    def add(self, count: int, current: Part) -> None:
        """Sets the bits of the first ``count`` new items."""
        self._places.set_in(_array(current), self._unseen[:count])


def _array(part: Part) -> NDArray[np.uint8]:
    """A part's bytes, as they are in memory."""
    return np.frombuffer(part.buffer, np.uint8)
