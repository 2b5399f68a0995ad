"""The bit offsets of an item.

One 128-bit mmh3 of the item decides both: the top 32 bits choose the shard,
the other 96 make the offsets, so that the items of one shard are as well
spread as all items are.

The offsets are the words of one long product. The 96 bits are multiplied by
``hashes`` fixed random 64-bit words, written one after the other as one long
number (multiply-shift hashing: Dietzfelbinger et al., "A reliable randomized
algorithm for the closest-pair problem", 1997, one multiplier per offset), and each 64-bit word w of
the result becomes the offset floor(w * bits / 2^64): uniform over any number
of bits. Unlike double hashing, which derives all offsets from two numbers,
this keeps the textbook false positive rate for filters of a few dozen items too.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import shake_256
from struct import Struct

_OFFSET_MASK = (1 << 96) - 1
_MULTIPLIER_SEED = b"tbloom"  # never change it: see HASH_NAME


class Hasher:
    """The bit offsets of an item in a slice of ``bits`` bits."""

    __slots__ = ("_words", "bits", "hashes", "multiplier")

    def __init__(self, bits: int, hashes: int) -> None:
        self.bits, self.hashes = bits, hashes
        words = shake_256(_MULTIPLIER_SEED).digest(8 * hashes)
        self.multiplier = int.from_bytes(words, "little")
        # The product's lowest word depends on the low half of the digest only: it is left out.
        self._words = Struct(f"<8x{hashes}Q8x")

    def offsets(self, digest: int) -> Sequence[int]:
        """The bit offsets of the item with this digest, each in 0 .. bits-1."""
        bits, words = self.bits, self._words
        product = (digest & _OFFSET_MASK) * self.multiplier
        return [word * bits >> 64 for word in words.unpack(product.to_bytes(words.size, "little"))]
