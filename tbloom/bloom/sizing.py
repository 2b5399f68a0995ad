"""The size of a filter's slices, and the error rate of a given size.

``bits`` is m, ``hashes`` is k, ``items`` is n, all of one slice. A slice is a partitioned, blocked Bloom
filter (Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007): an item sets one column in each
row of one block, which has k rows of 64 columns. Blocks overlap: each begins in the middle of the one before it, so that
its rows share different items with different blocks, and fewer blocks are much fuller than the mean. With B blocks the
number of items of a block is Poisson distributed with the mean L = n/B, the *load*. The first half of an item's block also has
the items of the block before it, the second half the items of the block after it. After j items a column is set with
probability f(j) = 1-(1-1/64)^j, so an item that was never added is called seen with probability

    sum over b of Poisson(L; b) * (sum over a of Poisson(L; a) * f(a+b)^floor(k/2))^2

For an odd k, each b has a further factor f(b): its block's middle row has no other block's items.
"""

from __future__ import annotations

import math
from functools import lru_cache
from operator import mul

#: The columns of a row. (With 256 columns, a new item would write three times as much to the append-only file.)
COLUMNS = 64
ROW_BYTES = COLUMNS // 8
MAX_HASHES = 64
#: A key has at most 32 MiB, plus the rest of its last block. tbloom makes keys of at most 8 MiB, because the server is busy
#: while it allocates one, and no call may take 5 ms (measured: 4.3 ms for 8 MiB, 8.7 for 16, 17 for 32). Keys are larger only
#: if fewer shards are given, or if the filter has the most shards already. A KiB is left for what Redis adds to a string: for
#: more than 8 MiB, its allocator takes 10.
MAX_BITS_PER_KEY, USUAL_BITS_PER_KEY = 2**28, 2**26 - 2**13
#: One shard for each slot of a cluster.
MAX_SHARDS = 1 << 14
#: The number of hashes divided by log2(1/rate). With 1.0 to 1.1, a filter would take the least memory; with this value, it takes
#: 2 to 9 % more, but has a third fewer rows. The number of hashes is even, because an odd number leaves one row unshared.
_HASHES_PER_BIT = 0.72

# A slice that grows gives half of its rate to its first part. Each further part gets 0.8 times the
# share of the part before it, so all of them together stay below the other half. (A filter that
# was made 100 times too small takes 1.70 x the memory.)
_FIRST_SHARE = 0.5
_SHARE_DECAY = 0.8
#: The smallest capacity of a slice that follows another one, and the number of sizes for each power of two above it.
_LEAST_AFTER, _STEPS = 1000, 16
#: With this load, all columns are set, to the precision of a float.
_FULL = 1 << 11


def key_bytes(bits: int) -> int:
    """Return the size (bytes) of a key with this number of bits."""
    return (bits + 7) // 8


def block_step(hashes: int) -> int:
    """Return the number of rows from the start of a block to the start of the next one."""
    return (hashes + 1) // 2


def bits_of(blocks: int, hashes: int) -> int:
    """Return the number of bits of this number of blocks."""
    return (blocks * block_step(hashes) + hashes // 2) * COLUMNS


def blocks_in(bits: int, hashes: int) -> int:
    """Return the number of blocks in ``bits``."""
    return (bits // COLUMNS - hashes // 2) // block_step(hashes)


def whole_blocks(bits: int, hashes: int) -> int:
    """Return ``bits``, rounded up to whole blocks."""
    rows = -(-bits // COLUMNS) - hashes // 2
    return bits_of(max(1, -(-rows // block_step(hashes))), hashes)


def slice_rate(error_rate: float, slices: int) -> float:
    """Return the error rate that each of ``slices`` slices may have, so that the window keeps ``error_rate``.

    An item is called seen if *any* slice holds it, so the window's rate is
    1-(1-p)^slices; this is that formula, solved for p.
    """
    return -math.expm1(math.log1p(-error_rate) / slices)


def part_share(part: int) -> float:
    """Return the share of a slice's rate that its ``part``-th part (0, 1, ...) may have if the slice grows."""
    if part == 0:
        return _FIRST_SHARE
    return float((1 - _FIRST_SHARE) * (1 - _SHARE_DECAY) * _SHARE_DECAY ** (part - 1))


def window_rate(rates: list[float]) -> float:
    """Return the rate of a window whose slices have these rates.

    It is 1 - (1-p1)(1-p2)...
    """
    none = math.fsum(math.log1p(-rate) if rate < 1 else -math.inf for rate in rates)
    return 0.0 - math.expm1(none)  # an empty window's rate is 0.0, not -0.0


def choose(capacity: int, rate: float) -> tuple[int, int]:
    """Return the fewest bits that keep ``rate`` with ``capacity`` items, and a good number of hashes for the rate."""
    hashes = hashes_for(rate)
    return bits_of(math.ceil(capacity / _counted_at(rate, hashes)), hashes), hashes


def hashes_for(rate: float) -> int:
    """Return a good number of hashes for this rate."""
    even = 2 * math.floor(_HASHES_PER_BIT / 2 * math.log2(1 / rate) + 0.65)
    return min(max(1, even), MAX_HASHES)


def capacity_after(items: int) -> int:
    """Return the capacity of a slice that follows a slice with ``items``.

    It has room for 2 standard deviations more. It is one of 16 sizes for each power of two, because a call has 4 bytes per item
    for each size of part.
    """
    needed = max(_LEAST_AFTER, items + 2 * math.sqrt(items))
    return round(
        _LEAST_AFTER * 2 ** (math.ceil(_STEPS * math.log2(needed / _LEAST_AFTER)) / _STEPS)
    )


def rate_at(items: float, bits: int, hashes: int) -> float:
    """Return the chance that an item that was never added is called seen, after ``items`` items were counted."""
    load = items / blocks_in(bits, hashes)
    # Items that were wrongly called seen are in the filter too, but are not counted (see ``_counted_at``).
    counted = 1 - rate_of_load(load, hashes)
    return rate_of_load(load / counted, hashes) if counted else 1.0


def items_at(rate: float, bits: int, hashes: int) -> int:
    """Return the number of items that fit before the error rate exceeds ``rate``."""
    return math.floor(blocks_in(bits, hashes) * _counted_at(rate, hashes))


def _counted_at(rate: float, hashes: int) -> float:
    """Return the number of items per block that are counted before the error rate exceeds ``rate``.

    An item that is wrongly called seen is not counted. At most one item in 1/rate is wrongly called seen.
    """
    return load_at(rate, hashes) * (1 - rate)


def rate_of_load(load: float, hashes: int) -> float:
    """Return the error rate of blocks that have ``load`` items on average."""
    if load > _FULL:
        return 1.0
    if not load:
        return 0.0
    # The terms farther from the mean are too small to count.
    deviation = 9 * math.sqrt(load)
    least, most = max(0, math.floor(load - deviation)), math.ceil(load + deviation) + hashes + 25
    poisson = [math.exp(j * math.log(load) - load - math.lgamma(j + 1)) for j in range(least, most)]
    column_set = [1 - (1 - 1 / COLUMNS) ** j for j in range(2 * most)]
    half_set = [chance ** (hashes // 2) for chance in column_set]
    total = 0.0
    for b, chance in enumerate(poisson, least):
        half = sum(map(mul, poisson, half_set[least + b : most + b]))
        total += chance * half * half * (column_set[b] if hashes % 2 else 1)
    return min(total, 1.0)


@lru_cache(maxsize=1024)
def load_at(rate: float, hashes: int) -> float:
    """Return the load (items per block) at which blocks have this error rate, found by bisection."""
    high = 1.0
    while high < _FULL and rate_of_load(high, hashes) <= rate:
        high *= 2
    while rate_of_load(high / 2, hashes) > rate:
        high /= 2
    low = high / 2
    # The load is exact to a millionth, so that all machines get the same one, although their logarithms may differ in the last bit.
    for _ in range(20):
        middle = (low + high) / 2
        if rate_of_load(middle, hashes) <= rate:
            low = middle
        else:
            high = middle
    return low


def allocated(size: int) -> int:
    """Return the memory that jemalloc, Redis' allocator, takes for ``size`` bytes. It has four sizes per power of two."""
    step = 1 << max(3, (size - 1).bit_length() - 3)
    return -(-size // step) * step


def shard_size(capacity: int, bits: int, hashes: int, shards: int) -> tuple[int, int]:
    """Return the capacity and the bits of one shard: an even share of the filter's, with room for an uneven one."""
    share = capacity
    if shards > 1:  # 4 standard deviations more
        share = math.ceil(capacity / shards + 4 * math.sqrt(capacity / shards))
    return share, bits_of(-(-blocks_in(bits, hashes) * share // capacity), hashes)


def shards_for(capacity: int, bits: int, hashes: int, masters: int = 1) -> int:
    """Return the fewest shards that keep each key at 8 MiB or less, rounded up to a multiple of ``masters``.

    It is at most ``MAX_SHARDS``, unless the bits or the masters need more keys.
    """
    most = max(MAX_SHARDS, least_shards(bits))
    least = min(most, -(-bits // USUAL_BITS_PER_KEY))
    # A few items are spread so unevenly that more shards take more memory.
    fewest = next(
        (
            shards
            for shards in range(least, min(most, 2 * least) + 1)
            if shard_size(capacity, bits, hashes, shards)[1] <= USUAL_BITS_PER_KEY
        ),
        least,
    )
    even = -(-fewest // masters) * masters
    return even if even <= max(MAX_SHARDS, masters) else fewest


def least_shards(bits: int) -> int:
    """Return the fewest shards that keep each key within ``MAX_BITS_PER_KEY``, but for the rest of its last block."""
    return -(-bits // (MAX_BITS_PER_KEY + MAX_HASHES * COLUMNS))
