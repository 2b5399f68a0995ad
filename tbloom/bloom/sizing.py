"""The size of a filter's slices, and the error rate of a given size.

``bits`` is m, ``hashes`` is k, ``items`` is n, all of one slice. A slice is a partitioned, blocked Bloom
filter (Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007): it has B blocks
of k rows of 256 columns, and an item sets one column in each row of one block. The number of items in a
block is Poisson distributed with the mean L = n/B, the *load*. After j items a column is set with probability
1-(1-1/256)^j, so an item that was never added is called seen with probability

    sum over j of Poisson(L; j) * (1 - (1 - 1/256)^j)^k
"""

from __future__ import annotations

import math
from functools import lru_cache

#: The header of a slice's key: a u48 count of the items in it, and 16 bits in reserve.
HEADER_BITS = 64
#: The columns of a row: one byte of a digest.
COLUMNS = 256
ROW_BYTES = COLUMNS // 8
MAX_HASHES = 64
#: A key is at most 32 MB, its header and the rest of its last block. A Redis string may have 512 MB, but the server is
#: busy while it allocates one (measured: 12 ms for 32 MB, 24 ms for 63 MB, 0.8 s for 504 MB).
MAX_BITS_PER_KEY = 2**28
#: The number of hashes for a rate, per bit of it. The least memory takes 0.9 to 1.0 of them; this takes 1 to 3 % more
#: memory, and a sixth fewer rows (measured for rates from 1e-3 to 1e-8).
_HASHES_PER_BIT = 0.82
#: A digest has columns for 16 rows. A few rows more would save at most 5 % of memory, and an item would take 36 bytes
#: in a request in place of 20.
_ONE_DIGEST, _WORTH_TWO = 16, 21

# A slice that grows gives half of its rate to its first part. Each further part gets 0.8 times the
# share of the one before it, so all of them together stay below the other half. (A filter that
# was made 100 times too small takes 1.61 x the memory; other series that were tried take 1.59 to 1.64 x.)
_FIRST_SHARE = 0.5
_SHARE_DECAY = 0.8
#: The least capacity of a slice that follows another one, and the sizes per power of two from there on.
_LEAST_AFTER, _STEPS = 1000, 16
#: With this load all columns are set, to the precision of a float.
_FULL = 1 << 14


def key_bytes(bits: int) -> int:
    """The size (bytes) of a key with this number of bits."""
    return (HEADER_BITS + bits + 7) // 8


def whole_blocks(bits: int, hashes: int) -> int:
    """The bits of the fewest whole blocks that have at least ``bits``."""
    return -(-bits // (hashes * COLUMNS)) * hashes * COLUMNS


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
    none = math.fsum(math.log1p(-rate) if rate < 1 else -math.inf for rate in rates)
    return 0.0 - math.expm1(none)  # an empty window's rate is 0.0, not -0.0


def choose(capacity: int, rate: float, hashes: int | None = None) -> tuple[int, int]:
    """The fewest whole blocks, in bits, that keep ``rate`` at ``capacity`` items, and their hashes.

    ``hashes`` None: a good number of them.
    """
    if hashes is None:
        hashes = hashes_for(rate)
    return math.ceil(capacity / load_at(rate, hashes)) * hashes * COLUMNS, hashes


def hashes_for(rate: float) -> int:
    """A good number of hashes for this rate."""
    hashes = max(1, round(_HASHES_PER_BIT * math.log2(1 / rate)))
    if hashes < _WORTH_TWO:
        hashes = min(hashes, _ONE_DIGEST)
    return min(hashes, MAX_HASHES)


def capacity_after(items: int) -> int:
    """The capacity of a slice that follows one of ``items``: enough for a chance variation (2 standard deviations), and one
    of 16 sizes per power of two, because a call has 4 bytes an item for each size of part."""
    needed = max(_LEAST_AFTER, items + 2 * math.sqrt(items))
    return round(
        _LEAST_AFTER * 2 ** (math.ceil(_STEPS * math.log2(needed / _LEAST_AFTER)) / _STEPS)
    )


def rate_at(items: float, bits: int, hashes: int) -> float:
    """The chance that an item never added is called seen, after ``items``."""
    return rate_of_load(items * hashes * COLUMNS / bits, hashes) if items else 0.0


def items_at(rate: float, bits: int, hashes: int) -> int:
    """The number of items that fit before the error rate exceeds ``rate``."""
    return math.floor(bits // (hashes * COLUMNS) * load_at(rate, hashes))


def rate_of_load(load: float, hashes: int) -> float:
    """The rate of blocks that have ``load`` items on average."""
    if load > _FULL:
        return 1.0
    unset = 1 - 1 / COLUMNS
    # The terms far below the mean are too small to count.
    j = max(1, math.floor(load - 10 * math.sqrt(load)))
    poisson = math.exp(j * math.log(load) - load - math.lgamma(j + 1)) if load else 0.0
    total = 0.0
    while True:
        term = poisson * (1 - unset**j) ** hashes
        total += term
        if j > load and term <= total * 1e-17:
            return min(total, 1.0)
        j += 1
        poisson *= load / j


@lru_cache(maxsize=1024)
def load_at(rate: float, hashes: int) -> float:
    """The load (items per block) at which blocks have this rate; by bisection."""
    high = 1.0
    while high < _FULL and rate_of_load(high, hashes) <= rate:
        high *= 2
    while rate_of_load(high / 2, hashes) > rate:
        high /= 2
    low = high / 2
    # To a millionth: all machines come to the same load, though their logarithms differ in the last bit.
    for _ in range(20):
        middle = (low + high) / 2
        if rate_of_load(middle, hashes) <= rate:
            low = middle
        else:
            high = middle
    return low


def allocated(size: int) -> int:
    """The memory that jemalloc, Redis' allocator, takes for ``size`` bytes: it has four sizes per power of two."""
    step = 1 << max(3, (size - 1).bit_length() - 3)
    return -(-size // step) * step


def shards_for(bits: int, masters: int = 1) -> int:
    """The fewest shards whose keys are small enough, in a multiple of ``masters``."""
    # Bits are whole blocks: the last one may go beyond the limit.
    fewest = -(-bits // (MAX_BITS_PER_KEY + MAX_HASHES * COLUMNS))
    return -(-fewest // masters) * masters
