"""How large a filter has to be, and what one of a given size can do."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tbloom.bloom.sizing import (
    COLUMNS,
    bits_of,
    block_step,
    choose,
    items_at,
    load_at,
    rate_at,
    rate_of_load,
    shards_for,
)

#: What rounding of floats may do to a promise about rates; bits are whole, so usually nothing.
ROUNDING = 1 + 1e-9

capacities = st.integers(1, 10**9)
rates = st.floats(1e-9, 0.5)
hash_counts = st.integers(1, 64)


@given(capacities, rates)
def test_choose_keeps_the_rate_for_little_more_than_the_least_bits(
    capacity: int, rate: float
) -> None:
    """At capacity the chosen size keeps the rate, on at most 16 % more bits than the least, and a block."""
    bits, hashes = choose(capacity, rate)
    assert rate_at(capacity, bits, hashes) <= rate * ROUNDING
    least = min(
        block_step(k) * COLUMNS / load_at(rate, k) / (1 - rate)
        for k in range(max(1, hashes - 9), hashes + 12)
    )
    assert bits <= 1.16 * least * capacity + hashes * COLUMNS


@given(rates, st.integers(1, 10**7), hash_counts)
def test_items_at_is_the_most_that_keep_the_rate(rate: float, blocks: int, hashes: int) -> None:
    """The items keep the rate; a millionth more, and one more item, doesn't."""
    bits = bits_of(blocks, hashes)
    items = items_at(rate, bits, hashes)
    assert rate_at(items, bits, hashes) <= rate * ROUNDING
    more = (items * (1 + 2e-6) + 1) / (1 - rate)  # with those that are not counted
    assert rate < rate_of_load(more / blocks, hashes) * ROUNDING


@given(st.floats(1e-15, 1 - 1e-12), hash_counts)
@example(1e-15, 1)
@example(1e-100, 64)
@example(1 - 1e-12, 64)
def test_a_load_for_any_rate(rate: float, hashes: int) -> None:
    """The load is a number of 21 bits, so that all machines come to the same one."""
    load = load_at(rate, hashes)
    assert 0 < load
    assert rate_of_load(load, hashes) <= rate
    assert math.frexp(load)[0] * 2**21 % 1 == 0


@pytest.mark.parametrize(
    ("bits", "masters", "shards"),
    [
        (1, 1, 1),
        (2**26, 1, 1),
        (2**26 + 64 * 64, 1, 1),  # the last block may go beyond
        (2**26 + 64 * 64 + 1, 1, 2),
        (2**30, 1, 16),
        (1, 3, 3),
        (2**30, 3, 18),
        (2**40, 1, 16384),
        (2**42, 1, 16384),  # of 32 MB: there are no more shards
    ],
)
def test_shards_keep_keys_small_and_masters_even(bits: int, masters: int, shards: int) -> None:
    """As many keys of 2^26 bits, and the rest of a block, as it takes, in a multiple of the masters."""
    assert shards == shards_for(bits, masters)
