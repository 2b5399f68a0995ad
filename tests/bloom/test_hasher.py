"""From an item to its bits: uniform, independent. (Fixed for ever: test_format.py.)"""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

from tbloom.bloom.hasher import columns_of, digest, shard_of
from tests.helpers.places import block_of

DIGESTS = [digest(f"https://example.com/{number}") for number in range(20_000)]
BUCKETS = 256
#: Chi-square over 256 buckets has a mean of 255 and a standard deviation of sqrt(2 * 255) = 22.6.
BOUND = 255 + 6 * math.sqrt(2 * 255)


def chi_square(buckets: list[int]) -> float:
    """How far counts over 256 buckets are from being equal."""
    expected, counts = len(buckets) / BUCKETS, Counter(buckets)
    assert all(0 <= bucket < BUCKETS for bucket in counts)
    return sum((counts[bucket] - expected) ** 2 / expected for bucket in range(BUCKETS))


def test_columns_block_and_shard_are_independent() -> None:
    """One of them says nothing about another: of each pair, sixteenths by sixteenths."""
    places = [
        [column >> 2 for column in columns_of(each, 2)] + [block_of(each, 16), shard_of(each, 16)]
        for each in DIGESTS
    ]
    for one, other in combinations(zip(*places, strict=True), 2):
        assert chi_square([16 * a + b for a, b in zip(one, other, strict=True)]) < BOUND
