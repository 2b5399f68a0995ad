"""Tables for people, on terminals of several widths; ``tbloom plan``'s table of error rates; and numbers as people type them."""

from __future__ import annotations

import csv
import json
import re
from decimal import Decimal
from pathlib import Path

import click
import pytest

from tbloom import TimeBloom
from tbloom.cli.kit import numbers
from tbloom.cli.kit.error_rates import classic_rate
from tests.helpers.commands import screen, tbloom

TABLE = Path(__file__).parents[1] / "data" / "bloom_fpr_table_14_1.csv"


@pytest.mark.parametrize("granularity", ["d", "h", "w", "15min", None])
def test_info_fits(url: str, name: str, granularity: str | None) -> None:
    """On 60, 80 and 120 columns, no row is wrapped. A slice that grows is no warning."""
    with TimeBloom.from_url(url, name, capacity=10_000, granularity=granularity) as seen:
        seen.add_many(map(str, range(10_200)))
        info = seen.info()
    for width in (60, 80, 120):
        lines = screen("info", "--url", url, name, width=width)
        text = "\n".join(lines)
        assert max(map(len, lines)) <= width, text
        [row] = [line.split() for line in lines if line.startswith(info.slices[-1].label)]
        assert {f"{info.items:,}", "102", "%", "KB"} <= {*row}, text
        assert "warning" not in text
        assert ("empty slices not shown (--all)" in text) is (granularity is not None)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5M", 5_000_000), ("10k", 10_000), ("1.5G", 1_500_000_000), ("1.005m", 1_005_000),
        ("1e6", 10**6), ("1_000_000", 10**6), ("1.5k", 1500),
    ],
)  # fmt: skip
def test_counts(text: str, number: int) -> None:
    assert numbers.count(text) == numbers.bits(text) == number
    assert (number, 1 << 20) == (numbers.count(f"{number}"), numbers.bits("2^20"))


@pytest.mark.parametrize(
    "text", ["", "k", "M5", "5MB", "0k", "1.5", "0.0001k", "1e400", "nanM", "5 M"]
)
def test_no_counts(text: str) -> None:
    with pytest.raises(click.BadParameter):
        numbers.count(text)


def test_the_table_is_the_sources_table() -> None:
    """Each printed rate and optimum of table 14-1 is in it, to half of its last digit."""
    rows = {
        row["bits_per_item"]: row for row in json.loads(tbloom("plan", "--table", "--json").stdout)
    }
    with TABLE.open(encoding="utf-8") as file:
        cells = list(csv.DictReader(file))
    assert {int(cell["bits_per_item"]) for cell in cells} == rows.keys()
    for cell in cells:
        row = rows[int(cell["bits_per_item"])]
        rate = row["rates"][int(cell["hashes"]) - 1]
        printed = Decimal(cell["false_positive_rate"])
        last_digit = 10.0 ** int(printed.as_tuple().exponent)
        assert float(printed) == pytest.approx(rate, rel=0, abs=last_digit / 2)
        assert float(printed) == pytest.approx(rate, rel=0.005)
        assert abs(float(cell["optimal_hashes"]) - row["best_hashes"]) < 1
        assert rate >= classic_rate(1, row["bits_per_item"], row["best_hashes"])


def test_the_table_marks_tblooms_choice() -> None:
    """One mark a row, in the column of the number at its end, which a filter of this size has."""
    done = tbloom("plan", "--table")
    lines = [line.split() for line in done.stdout.splitlines() if re.match(r" *\d+ ", line)]
    assert [str(bits) for bits in range(2, 33)] == [line[0] for line in lines]
    marks = {line[0]: [k for k in range(1, 9) if line[k].startswith("*")] for line in lines}
    own = {line[0]: int(line[10]) for line in lines}
    assert marks == {bits: [hashes] * (hashes <= 8) for bits, hashes in own.items()}
    for bits, hashes in own.items():
        rate = float(next(line[11] for line in lines if line[0] == bits))
        one = ["--slices", "1", "--no-grow", "--capacity", "1e6", "--error-rate", str(rate)]
        planned = json.loads(tbloom("plan", *one, "--json").stdout)
        assert abs(planned["hashes"] - hashes) <= 1  # the rate is rounded
        # Of the items of the table, those that are wrongly called seen count for nothing in a plan.
        assert planned["bits_per_item"] == pytest.approx(int(bits) / (1 - rate), rel=0.05)
