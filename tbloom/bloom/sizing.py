"""How large a Bloom filter has to be, and what one of a given size can do.

``bits`` is m, ``hashes`` is k, ``items`` is n, all of one slice. The formula
behind everything here is Bloom's (1970): after n items a bit is still 0 with
probability e^(-kn/m), so an item that was never added is called seen with
probability (1 - e^(-kn/m))^k.
"""

from __future__ import annotations

import math
from typing import NamedTuple

#: A slice's key opens with this many bits that belong to no item: a u48 count of
#: the items in the slice, and 16 bits in reserve.
HEADER_BITS = 64
#: A key is at most 32 MB, and its header. Redis strings may have 512 MB, but the server is busy while it makes one:
#: measured 12 ms for 32 MB, 24 ms for 63 MB, 0.8 s for 504 MB.
MAX_BITS_PER_KEY = 2**28
#: Below this the formula, which is about averages, is too kind to tiny filters.
MIN_BITS = 1024
#: What fewer hashes may cost: each hash is a GETBIT on the server, and at the
#: optimum the last ones buy next to nothing (12 in place of 17: +4 % bits).
EXTRA_MEMORY = 0.05
MAX_HASHES = 64
# From here on one hash is the best, but never within EXTRA_MEMORY of the least possible.
_ONE_HASH_RATE = 0.5


# A slice that grows keeps half of its rate for its first part. The k-th further part gets 0.8 times
# what the one before it got, so that all of them together never use up the other half. (Of several
# series tried, this costs the least memory for a filter that was made 100 times too small: 1.53 x.)
_FIRST_SHARE = 0.5
_SHARE_DECAY = 0.8


def key_bytes(bits: int) -> int:
    """The size of a key with so many bits."""
    return (HEADER_BITS + bits + 7) // 8


class Size(NamedTuple):
    """The size of one slice."""

    bits: int
    hashes: int


def slice_rate(error_rate: float, slices: int) -> float:
    """The rate that each of ``slices`` filters may have, so that the window keeps ``error_rate``.

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

    With ``hashes`` None: for the best, not necessarily whole, number of them:
    ceil(n * log2(e) * log2(1/p)). Otherwise for just that many.
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

    Without ``hashes`` it takes the fewest whose bits stay within
    ``EXTRA_MEMORY`` of the least possible.
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
    """How many items fit before the rate passes ``rate``: -(m/k) ln(1 - rate^(1/k))."""
    return math.floor(-bits / hashes * math.log1p(-(rate ** (1 / hashes))))


def allocated(size: int) -> int:
    """What jemalloc, Redis' allocator, takes for so many bytes: it has four sizes from one power of two to the next."""
    step = 1 << max(3, (size - 1).bit_length() - 3)
    return -(-size // step) * step


def shards_for(bits: int, masters: int = 1) -> int:
    """The fewest shards whose keys are small enough, and that ``masters`` nodes share evenly."""
    fewest = -(-bits // MAX_BITS_PER_KEY)
    return -(-fewest // masters) * masters
