"""The classic formulas are those of the printed table."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pytest

from tbloom.cli.kit.classic import classic_hashes, classic_rate

with (Path(__file__).parents[1] / "data" / "bloom_fpr_table_14_1.csv").open(
    encoding="utf-8"
) as file:
    TABLE = list(csv.DictReader(file))


def last_digit(printed: str) -> float:
    """What one unit of the last printed digit is worth."""
    return 10.0 ** int(Decimal(printed).as_tuple().exponent)


@pytest.mark.parametrize(
    "cell", TABLE, ids=[f"{row['bits_per_item']}bits-{row['hashes']}hashes" for row in TABLE]
)
def test_rate_is_that_of_the_printed_table(cell: dict[str, str]) -> None:
    """Each rate of table 14-1 is ours: to half of its last digit, and to 0.5 %."""
    printed = cell["false_positive_rate"]
    rate = classic_rate(1, int(cell["bits_per_item"]), int(cell["hashes"]))
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
    assert classic_hashes(bits_per_item, 1) in {math.floor(optimum), math.ceil(optimum)}


def test_best_hashes_have_the_lowest_printed_rate() -> None:
    """In every row of the table that shows its optimum, our number of hashes has the lowest rate."""
    rows = defaultdict(dict)
    for cell in TABLE:
        rows[int(cell["bits_per_item"])][int(cell["hashes"])] = float(cell["false_positive_rate"])
    with_optimum = {bits: row for bits, row in rows.items() if bits * math.log(2) < max(row)}
    assert set(range(2, 12)) <= with_optimum.keys()
    for bits_per_item, row in with_optimum.items():
        assert min(row.values()) == row[classic_hashes(bits_per_item, 1)]


def test_rate_of_the_older_package_s_default() -> None:
    """BLOOMFILTER_BIT=30 with 6 hashes: (1 - e^(-6e8/2^30))^6 = 0.62 % at 10^8 items."""
    assert pytest.approx(0.00615573, rel=1e-6) == classic_rate(10**8, 1 << 30, 6)
