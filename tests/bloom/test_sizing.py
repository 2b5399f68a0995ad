"""How large a filter has to be, and what one of a given size can do."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tbloom.bloom.sizing import (
    MIN_BITS,
    best_hashes,
    bits_for,
    choose,
    items_at,
    rate_at,
    shards_for,
    slice_rate,
    window_rate,
)

with (Path(__file__).parents[1] / "data" / "bloom_fpr_table_14_1.csv").open(
    encoding="utf-8"
) as file:
    TABLE = list(csv.DictReader(file))

#: What rounding of floats may do to a promise about rates; bits are whole, so usually nothing.
ROUNDING = 1 + 1e-9

capacities = st.integers(1, 10**9)
rates = st.floats(1e-9, 0.5)
bit_counts = st.integers(1024, 2**40)
hash_counts = st.integers(1, 64)


def last_digit(printed: str) -> float:
    """What one unit of the last printed digit is worth."""
    return 10.0 ** int(Decimal(printed).as_tuple().exponent)


@pytest.mark.parametrize(
    "cell", TABLE, ids=[f"{row['bits_per_item']}bits-{row['hashes']}hashes" for row in TABLE]
)
def test_rate_is_that_of_the_printed_table(cell: dict[str, str]) -> None:
    """Each rate of table 14-1 is ours: to half of its last digit, and to 0.5 %."""
    printed = cell["false_positive_rate"]
    rate = rate_at(1, int(cell["bits_per_item"]), int(cell["hashes"]))
    assert float(printed) == pytest.approx(rate, rel=0, abs=last_digit(printed) / 2)
    assert float(printed) == pytest.approx(rate, rel=0.005)


@pytest.mark.parametrize(
    ("bits_per_item", "printed"),
    sorted({(int(row["bits_per_item"]), row["optimal_hashes"]) for row in TABLE}),
)
def test_best_hashes_of_the_printed_table(bits_per_item: int, printed: str) -> None:
    """The printed optimum is m/n ln 2 (to one unit: 3.46 is cut, not rounded); ours is beside it."""
    optimum = bits_per_item * math.log(2)
    assert float(printed) == pytest.approx(optimum, rel=0, abs=last_digit(printed))
    assert best_hashes(bits_per_item, 1) in {math.floor(optimum), math.ceil(optimum)}


def test_best_hashes_have_the_lowest_printed_rate() -> None:
    """In every row of the table that shows its optimum, our number of hashes has the lowest rate."""
    rows = defaultdict(dict)
    for cell in TABLE:
        rows[int(cell["bits_per_item"])][int(cell["hashes"])] = float(cell["false_positive_rate"])
    with_optimum = {bits: row for bits, row in rows.items() if bits * math.log(2) < max(row)}
    assert set(range(2, 12)) <= with_optimum.keys()
    for bits_per_item, row in with_optimum.items():
        assert min(row.values()) == row[best_hashes(bits_per_item, 1)]


@pytest.mark.parametrize(
    ("capacity", "rate", "bits", "mib"),
    [
        (10**8, 0.01, 958_505_838, 114),
        (10**6, 0.01, 9_585_059, 1),
        (10**8, 1e-4, 1_917_011_676, 229),
    ],
)
def test_bits_of_the_sources_formula(capacity: int, rate: float, bits: int, mib: int) -> None:
    """Bits are ceil(n log2(e) log2(1/p)): 10^8 items at 1 % need 114 MB, not 958."""
    assert bits == bits_for(capacity, rate)
    assert mib == round(bits / 8 / 2**20)


def test_window_keeps_the_promised_rate() -> None:
    """Seven slices at their share of 1e-4 make 1e-4: the rates add up, they don't multiply."""
    rate = slice_rate(1e-4, 7)
    assert pytest.approx(1e-4, rel=1e-12) == window_rate([rate] * 7)
    assert pytest.approx(7 * rate, rel=1e-3) == window_rate([rate] * 7)
    assert window_rate([rate] * 7) > 1e24 * rate**7  # what the 2020 paper says it is


@pytest.mark.parametrize(
    ("slice_rates", "expected"),
    [([], 0), ([0.25], 0.25), ([0.5, 0.5], 0.75), ([0.01] * 7, 0.06793465209301), ([0.1, 1.0], 1)],
)
def test_window_rate(slice_rates: list[float], expected: float) -> None:
    """An item is called seen if any slice says so: 1 - (1-p1)(1-p2)..."""
    assert pytest.approx(expected, rel=1e-12) == window_rate(slice_rates)


def test_rate_of_the_older_package_s_default() -> None:
    """BLOOMFILTER_BIT=30 with 6 hashes: (1 - e^(-6e8/2^30))^6 = 0.62 % at 10^8 items."""
    assert pytest.approx(0.00615573, rel=1e-6) == rate_at(10**8, 1 << 30, 6)


def test_bits_per_item_of_the_default_filter() -> None:
    """A window of 7 slices at 1e-4 takes at most 26 bits per item and slice."""
    assert choose(10**6, slice_rate(1e-4, 7)).bits <= 26 * 10**6


@given(capacities, rates)
def test_choose_keeps_the_rate_for_little_more_than_the_least_bits(
    capacity: int, rate: float
) -> None:
    """At capacity the chosen size keeps the rate, on at most 10 % more bits than the least."""
    bits, hashes = choose(capacity, rate)
    assert rate_at(capacity, bits, hashes) <= rate * ROUNDING
    assert bits <= max(MIN_BITS, 1.1 * bits_for(capacity, rate))


@given(capacities, rates, hash_counts)
def test_choose_for_given_hashes(capacity: int, rate: float, hashes: int) -> None:
    """For a given number of hashes it takes the fewest bits that keep the rate."""
    bits, chosen = choose(capacity, rate, hashes)
    assert hashes == chosen
    assert rate_at(capacity, bits, hashes) <= rate * ROUNDING
    assert bits == MIN_BITS or rate_at(capacity, bits - 1, hashes) * ROUNDING > rate


@given(capacities, st.floats(1e-200, 1, exclude_max=True))
@example(10**6, 0.7)
@example(10**6, 1 - 2**-53)
def test_choose_never_takes_more_than_one_hash_would(capacity: int, rate: float) -> None:
    """However careless the rate, more hashes are taken only where they save bits."""
    assert choose(capacity, rate).bits <= max(MIN_BITS, bits_for(capacity, rate, 1))


@given(rates, bit_counts, hash_counts)
def test_items_at_is_the_most_that_keep_the_rate(rate: float, bits: int, hashes: int) -> None:
    """So many items keep the rate, and one more doesn't."""
    items = items_at(rate, bits, hashes)
    assert rate_at(items, bits, hashes) <= rate * ROUNDING
    assert rate < rate_at(items + 1, bits, hashes) * ROUNDING


@given(bit_counts, hash_counts, st.floats(0.01, 1))
def test_items_at_is_the_inverse_of_rate_at(bits: int, hashes: int, load: float) -> None:
    """The items that a filter's rate is asked for come back from that rate."""
    items = math.ceil(load * bits / hashes)
    assert items == pytest.approx(items_at(rate_at(items, bits, hashes), bits, hashes), 1e-9, 1)


@given(st.floats(1e-300, 1, exclude_max=True), st.integers(1, 1024))
def test_window_of_slice_rates(error_rate: float, slices: int) -> None:
    """Whatever the number of slices, their rates make up the window's."""
    assert pytest.approx(error_rate, rel=1e-9) == window_rate(
        [slice_rate(error_rate, slices)] * slices
    )


@pytest.mark.parametrize(
    ("bits", "masters", "shards"),
    [
        (1, 1, 1),
        (2**28, 1, 1),
        (2**28 + 1, 1, 2),
        (2**30, 1, 4),
        (1, 3, 3),
        (2**30, 3, 6),
        (2**40, 1, 4096),
    ],
)
def test_shards_keep_keys_small_and_masters_even(bits: int, masters: int, shards: int) -> None:
    """As many keys of 2^28 bits as it takes, in a multiple of the masters."""
    assert shards == shards_for(bits, masters)
