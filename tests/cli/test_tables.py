"""Tables for people, on terminals of several widths; and numbers as they type them."""

from __future__ import annotations

import click
import pytest

from tbloom import TimeBloom
from tbloom.cli.kit import numbers
from tests.helpers.commands import screen


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
