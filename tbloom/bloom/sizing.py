"""The size of a Bloom filter, and the error rate of a given size.

``bits`` is m, ``hashes`` is k, ``items`` is n, all of one slice. The formula
behind everything here is Bloom's (1970): after n items a bit is still 0 with
probability e^(-kn/m), so an item that was never added is called seen with
probability (1 - e^(-kn/m))^k.
"""

from __future__ import annotations

import math
from typing import NamedTuple

#: The header of a slice's key: a u48 count of the items in it, and 16 bits in reserve.
HEADER_BITS = 64
#: A key is at most 32 MB and its header. A Redis string may have 512 MB, but the server is busy while it allocates one
#: (measured: 12 ms for 32 MB, 24 ms for 63 MB, 0.8 s for 504 MB).
MAX_BITS_PER_KEY = 2**28
#: In smaller filters the real rate is above the formula's, which is an average.
MIN_BITS = 1024
#: The share of memory that fewer hashes may cost. Each hash is a GETBIT on the server, and the last ones save
#: almost nothing (12 instead of 17 hashes: +4 % bits).
EXTRA_MEMORY = 0.05
MAX_HASHES = 64
# From this rate on one hash is the best number, but not within EXTRA_MEMORY of the least possible bits.
_ONE_HASH_RATE = 0.5


# A slice that grows gives half of its rate to its first part. Each further part gets 0.8 times the
# share of the one before it, so all of them together stay below the other half. (Among the series
# tried, this one costs the least memory for a filter that was made 100 times too small: 1.53 x.)
_FIRST_SHARE = 0.5
_SHARE_DECAY = 0.8


def key_bytes(bits: int) -> int:
    """The size (bytes) of a key with this number of bits."""
    return (HEADER_BITS + bits + 7) // 8


class Size(NamedTuple):
    """The size of one slice."""

    bits: int
    hashes: int


def slice_rate(error_rate: float, slices: int) -> float:
    """The error rate that each of ``slices`` slices may have, so that the window keeps ``error_rate``.

    An item is called seen if *any* slice holds it, so the window's rate is
    1-(1-p)^slices; this is that formula, solved for p.
    """
    return -math.expm1(math.log1p(-error_rate) / slices)


def part_share(part: int) -> float:
    """The share of a slice's rate that its ``part``-th part (0, 1, ...) may have if it grows."""
    if part == 0:
        return _FIRST_SHARE
    return float((1 - _FIRST_SHARE) * (1 - _SHARE_DECAY) * _SHARE_DECAY ** (part - 1))


def window_rate(rates: list[float]) -> float:
    """The rate of a window whose slices have these rates: 1 - (1-p1)(1-p2)..."""
    return -math.expm1(math.fsum(math.log1p(-rate) if rate < 1 else -math.inf for rate in rates))


def bits_for(capacity: int, rate: float, hashes: int | None = None) -> int:
    """The fewest bits that keep ``rate`` at ``capacity`` items.

    With ``hashes`` None, for the best number of them, which need not be whole:
    ceil(n * log2(e) * log2(1/p)). Otherwise for that number.
    """
    if hashes is None:
        return math.ceil(capacity * math.log2(math.e) * math.log2(1 / rate))
    return math.ceil(-hashes * capacity / math.log1p(-(rate ** (1 / hashes))))


def best_hashes(bits: int, capacity: int) -> int:
    """The number of hashes with the lowest rate: (m/n) ln 2, one of its two whole neighbours."""
    exact = bits / capacity * math.log(2)
    low = max(1, math.floor(exact))
    return min((low, low + 1), key=lambda hashes: rate_at(capacity, bits, hashes))


def choose(capacity: int, rate: float, hashes: int | None = None) -> Size:
    """A size that keeps ``rate`` at ``capacity`` items.

    Without ``hashes``, it takes the fewest whose bits are within ``EXTRA_MEMORY`` of the least
    possible.
    """
    if hashes is None:
        budget = bits_for(capacity, rate) * (1 + EXTRA_MEMORY)
        hashes = 1
        while (
            rate < _ONE_HASH_RATE
            and hashes < MAX_HASHES
            and bits_for(capacity, rate, hashes) > budget
        ):
            hashes += 1
    return Size(max(MIN_BITS, bits_for(capacity, rate, hashes)), hashes)


def rate_at(items: float, bits: int, hashes: int) -> float:
    """The chance that an item never added is called seen, after ``items``: (1-e^(-kn/m))^k."""
    return float((-math.expm1(-hashes * items / bits)) ** hashes)


def items_at(rate: float, bits: int, hashes: int) -> int:
    """The number of items that fit before the error rate exceeds ``rate``: -(m/k) ln(1 - rate^(1/k))."""
    return math.floor(-bits / hashes * math.log1p(-(rate ** (1 / hashes))))


def allocated(size: int) -> int:
    """The memory that jemalloc, Redis' allocator, takes for ``size`` bytes: it has four sizes per power of two."""
    step = 1 << max(3, (size - 1).bit_length() - 3)
    return -(-size // step) * step


def shards_for(bits: int, masters: int = 1) -> int:
    """The fewest shards whose keys are small enough, in a multiple of ``masters``."""
    fewest = -(-bits // MAX_BITS_PER_KEY)
    return -(-fewest // masters) * masters
