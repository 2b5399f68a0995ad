"""The classic formulas (Bloom 1970), of a filter without blocks, for comparison."""

from __future__ import annotations

import math


def classic_rate(items: float, bits: int, hashes: int) -> float:
    """The rate of a classic Bloom filter: (1-e^(-kn/m))^k."""
    return float((-math.expm1(-hashes * items / bits)) ** hashes)


def classic_hashes(bits: int, capacity: int) -> int:
    """The number of hashes with the lowest rate in a classic Bloom filter: (m/n) ln 2, one of its two whole neighbours."""
    low = max(1, math.floor(bits / capacity * math.log(2)))
    return min((low, low + 1), key=lambda hashes: classic_rate(capacity, bits, hashes))
