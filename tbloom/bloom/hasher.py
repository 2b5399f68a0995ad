"""The hashes that choose an item's columns, block and shard (docs/format.md).

An item's digest is its 128-bit mmh3, or, with a secret, its BLAKE2b with that key. Each byte of the digest is for one row of the
block: its upper 6 bits are the item's column. (More than 16 rows need further digests, which are digests of the digest.) Two
32-bit mmh3 hashes of the digest choose the block and the shard, by multiply-and-shift (Lemire, "Fast random integer generation
in an interval", 2019): floor(hash * n / 2^32) is uniform over 0 .. n-1, for any n that is small compared to 2^32.
"""

from __future__ import annotations

from codecs import charmap_decode, utf_16_le_encode
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from struct import Struct

from mmh3 import mmh3_32_uintdigest, mmh3_x64_128_digest

from tbloom.arguments import Item, encode, encode_all
from tbloom.bloom.sizing import COLUMNS
from tbloom.errors import ConfigError

#: The names of the hashes. They are stored with a filter, because its bits are useless with another hash.
HASH_NAME, SECRET_HASH_NAME = "mmh3_x64_128", "blake2b_16_keyed"
#: The limits of a secret (bytes). BLAKE2b takes a key of at most 64 bytes. A short key could be guessed from its check value.
_LEAST_SECRET, _MOST_SECRET = 16, 64
#: The number of columns in one digest.
COLUMNS_PER_DIGEST = 16
_BLOCK_SEED, _SHARD_SEED = 0, 1
_U32 = Struct("<I").pack
#: The column of each byte of a digest.
_COLUMN_OF_BYTE = bytes(byte * COLUMNS >> 8 for byte in range(256))
#: The two bytes of that column in a packed item, as a character of UTF-16: the byte of the row, and the bit in it. (Redis counts
#: bits from the highest one.) Codecs are the fastest way to make two bytes of each byte.
_PAIR_OF_BYTE = "".join(chr(column // 8 + (128 >> column % 8 << 8)) for column in _COLUMN_OF_BYTE)


def digest(item: Item) -> bytes:
    """Return the item's digest: its 128-bit mmh3 (x64 variant, seed 0)."""
    try:
        data = item.encode() if type(item) is str else item
    except UnicodeEncodeError:
        data = b""
    return mmh3_x64_128_digest(data if type(data) is bytes and data else encode(item))


def digests_of(items: Iterable[Item]) -> list[bytes]:
    """Return the digest of each item."""
    return [*map(mmh3_x64_128_digest, encode_all(items))]


class Secret:
    """The key of a filter's digests, and its check value, which clients compare. The key may be unknown.

    Its repr, errors and pickles do not contain the key.
    """

    __slots__ = ("_key", "check")

    def __init__(self, key: bytes | None, check: str = "") -> None:
        """Raise ConfigError if the key can't be right. If it is None, ``check`` is the check value of the unknown key."""
        if key is not None:
            if not isinstance(key, bytes) or not _LEAST_SECRET <= len(key) <= _MOST_SECRET:
                given = f"{len(key)} bytes" if isinstance(key, bytes) else type(key)
                expected = f"{_LEAST_SECRET} to {_MOST_SECRET} bytes"
                raise ConfigError("secret", given, expected)
            check = blake2b(b"tbloom: check value", digest_size=8, key=key).hexdigest()
        self._key = key
        self.check: str = check

    def digest(self, item: Item) -> bytes:
        """Return the item's digest: its 128-bit BLAKE2b with this key."""
        return self._digest(encode(item))

    def digests_of(self, items: Iterable[Item]) -> list[bytes]:
        """Return the digest of each item."""
        return [*map(self._digest, encode_all(items))]

    def _digest(self, data: bytes) -> bytes:
        if self._key is None:
            raise ConfigError("secret", None, "the secret of the stored filter")
        return blake2b(data, digest_size=16, key=self._key).digest()

    def __reduce__(self) -> tuple[type, tuple[None, str]]:
        return Secret, (None, self.check)


def digests_for(hashes: int) -> int:
    """Return the number of digests that are needed for ``hashes`` rows."""
    return -(-hashes // COLUMNS_PER_DIGEST)


def packed(
    digests: Sequence[bytes],
    count: int,
    sizes: Sequence[tuple[int, int]],
    *,
    with_digests: bool = False,
) -> bytes:
    """Return the items in the format of the scripts (``lua/shared/blocks.lua``).

    Each item has its columns in ``32 * count`` bytes, and for each size of part the byte at which its block begins, in 4 bytes,
    the lowest first. ``with_digests`` appends the digest. A size is the number of blocks, and the bytes from one block to the
    next.
    """
    words: list[bytes] = []
    for digest in digests:
        # Most items need one digest, and are spared a call.
        source = digest if count == 1 else _lengthened(digest, count)
        columns, _ = charmap_decode(source, "strict", _PAIR_OF_BYTE)
        words.append(utf_16_le_encode(columns)[0])
        hash = mmh3_32_uintdigest(digest, _BLOCK_SEED)
        for blocks, step in sizes:
            words.append(_U32((hash * blocks >> 32) * step))
        if with_digests:
            words.append(digest)
    return b"".join(words)


def columns_of(digest: bytes, count: int) -> bytes:
    """Return the item's column in each row, from ``count`` digests."""
    # Most items need one digest, and are spared a call.
    source = digest if count == 1 else _lengthened(digest, count)
    return source.translate(_COLUMN_OF_BYTE)


def _lengthened(digest: bytes, count: int) -> bytes:
    """Return ``count`` digests, the first of which is the item's."""
    return digest + b"".join(mmh3_x64_128_digest(digest, seed) for seed in range(1, count))


def neighbours(digests: list[bytes], most: int) -> list[bytes]:
    """Return the digests sorted by their blocks, ``most`` at a time: scripts read neighbouring blocks together.

    A part that becomes full among sorted items has more items in some of its blocks, and a higher error rate. So few are sorted
    at a time, and each time the order begins at another block, that of the first digest, and goes round.
    """
    ordered: list[bytes] = []
    for first in range(0, len(digests), most):
        # The block follows from this hash (with the default seed) in parts of any size.
        some = sorted(digests[first : first + most], key=mmh3_32_uintdigest)
        begin = some.index(digests[first])
        ordered += some[begin:] + some[:begin]
    return ordered


def shard_of(digest: bytes, shards: int) -> int:
    """Return the item's shard, 0 .. shards-1."""
    return mmh3_32_uintdigest(digest, _SHARD_SEED) * shards >> 32
