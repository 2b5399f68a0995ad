"""From an item to its bits: fixed for ever, uniform, independent."""

from __future__ import annotations

import math
import struct
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbloom.bloom.hasher import (
    columns_of,
    digest,
    packed,
    shard_of,
)
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


#: The columns of two digests, the block of 1,000,003, and the shard of 16,384.
GOLDEN: dict[str | bytes, tuple[str, int, int]] = {
    "hello": (
        "029bbd41b3a7d8cb191dae486a901e5bd1c837656936960d2bd523d7debde14d",
        67525,
        12687,
    ),
    "https://example.com/": (
        "9f348cc2269b0ab5bd415398b25dcba47b17b2b60bc2890770a2a1d6d3ad9d20",
        270840,
        2833,
    ),
    b"\x00": (
        "b55cff6ee5ab10468335f878aa2d62514a4f228e68ad3a892029eabe466387d4",
        254157,
        15480,
    ),
}


@pytest.mark.parametrize("item", GOLDEN)
def test_layout_never_changes(item: str | bytes) -> None:
    """An item's columns, block and shard are those it had in the first release: stored filters depend on it."""
    known = digest(item)
    places = columns_of(known, 2).hex(), block_of(known, 1_000_003), shard_of(known, 16_384)
    assert GOLDEN[item] == places


_sizes = st.tuples(st.integers(1, 2**15), st.integers(1, 64).map(lambda rows: 32 * rows))


@given(
    st.lists(st.binary(min_size=1), max_size=5),
    st.integers(1, 4),
    st.lists(_sizes, min_size=1, max_size=3),
)
def test_packed_items_are_columns_and_where_their_blocks_begin(
    items: list[bytes], count: int, sizes: list[tuple[int, int]]
) -> None:
    """Each item has as many bytes: a column a row, and for each size of part the byte of ``block_of``."""
    known = [digest(item) for item in items]
    size, data = 16 * count + 4 * len(sizes), packed(known, count, sizes)
    assert len(items) * size == len(data)
    for number, each in enumerate(known):
        item = data[number * size : (number + 1) * size]
        assert columns_of(each, count) == item[: 16 * count]
        starts = struct.unpack(f"<{len(sizes)}I", item[16 * count :])
        assert starts == tuple(
            8 + block_of(each, blocks) * block_bytes for blocks, block_bytes in sizes
        )


def test_columns_block_and_shard_are_independent() -> None:
    """One of them says nothing about another: of each pair, sixteenths by sixteenths."""
    places = [
        [column >> 4 for column in columns_of(each, 2)] + [block_of(each, 16), shard_of(each, 16)]
        for each in DIGESTS
    ]
    for one, other in combinations(zip(*places, strict=True), 2):
        assert chi_square([16 * a + b for a, b in zip(one, other, strict=True)]) < BOUND
