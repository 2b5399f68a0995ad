"""From an item to its shard and its bit offsets.

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

from collections.abc import Iterable, Sequence
from hashlib import blake2b, shake_256
from struct import Struct

from mmh3 import mmh3_x64_128_uintdigest

from tbloom.errors import ConfigError

#: Stored with a filter: another hash would make what it holds meaningless.
HASH_NAME = "mmh3_x64_128"

Item = str | bytes

#: The same of ``fingerprint``.
FINGERPRINT_NAME = "blake2b_16"

_OFFSET_MASK = (1 << 96) - 1
_MULTIPLIER_SEED = b"tbloom"  # never change it: see HASH_NAME


def encode(item: Item, argument: str = "item") -> bytes:
    """The bytes of an item; ``argument`` names it in the ConfigError if it has none."""
    if not isinstance(item, str | bytes):
        raise ConfigError(argument, item, "str or bytes")
    if not item:
        raise ConfigError(argument, item, "an item that is not empty")
    if isinstance(item, bytes):
        return item
    try:
        return item.encode()
    except UnicodeEncodeError:
        raise ConfigError(argument, item, "a str that UTF-8 can encode, or bytes") from None


def digest(data: bytes) -> int:
    """The 128-bit mmh3 (x64 variant, seed 0) of ``data``."""
    return mmh3_x64_128_uintdigest(data)


def fingerprint(data: bytes) -> int:
    """The 128-bit BLAKE2b of ``data``, for stores that promise never to take one item for another: of
    mmh3, which is not made to resist that, anyone can make collisions."""
    return int.from_bytes(blake2b(data, digest_size=16).digest(), "big")


def shard_of(digest: int, shards: int) -> int:
    """Which shard the item with this digest belongs to, 0 .. shards-1."""
    return (digest >> 96) * shards >> 32


def by_shard(digests: Iterable[int], shards: int) -> dict[int, list[int]]:
    """The distinct digests, in order, by the shard that they belong to."""
    found: dict[int, list[int]] = {}
    for key in dict.fromkeys(digests):
        found.setdefault(shard_of(key, shards), []).append(key)
    return found


class Hasher:
    """The bit offsets of an item in a slice of ``bits`` bits."""

    __slots__ = ("_words", "bits", "hashes", "multiplier")

    def __init__(self, bits: int, hashes: int) -> None:
        self.bits, self.hashes = bits, hashes
        words = shake_256(_MULTIPLIER_SEED).digest(8 * hashes)
        self.multiplier = int.from_bytes(words, "little")
        # The lowest word of the product knows only the low half of the digest: left out.
        self._words = Struct(f"<8x{hashes}Q8x")

    def offsets(self, digest: int) -> Sequence[int]:
        """The bit offsets of the item with this digest, each in 0 .. bits-1."""
        bits, words = self.bits, self._words
        product = (digest & _OFFSET_MASK) * self.multiplier
        return [word * bits >> 64 for word in words.unpack(product.to_bytes(words.size, "little"))]
