"""Tables for people, on terminals of several widths; and numbers as they type them."""

from __future__ import annotations

import re
from unittest.mock import patch

import click
import pytest

from tbloom import FilterInfo, TimeBloom
from tbloom.cli.commands.watch import Rates
from tbloom.cli.commands.watch import screen as frame
from tbloom.cli.kit import numbers
from tests.helpers.commands import screen, tbloom


@pytest.mark.parametrize("granularity", ["d", "h", "w", "15min", None])
def test_info_and_watch_fit(url: str, name: str, granularity: str | None) -> None:
    """On 40, 60, 80 and 120 columns, no number is cut off, and no row is wrapped. A slice that grows is no warning."""
    with TimeBloom.from_url(url, name, capacity=10_000, granularity=granularity) as seen:
        seen.add_many(map(str, range(10_200)))
        info = seen.info()
    rates = Rates(60)
    for second in range(70):
        rates.tick(second, {"a": second * 123_456})
    shown = screen("info", "--url", url, name, width=40) + screen(
        "plan", "--capacity", "1.5G", width=40
    )
    if granularity == "15min":  # its labels are too long for 40
        shown = []
    assert [] == [line for line in shown if re.search(r"\d *…", line) or len(line) > 40]
    for width in (60, 80, 120):
        for lines in (
            screen("info", "--url", url, name, width=width),
            _watched(info, rates, width),
        ):
            text = "\n".join(lines)
            assert max(map(len, lines)) <= width, text
            [row] = [line.split() for line in lines if line.startswith(info.slices[-1].label)]
            assert {f"{info.items:,}", "102", "%", "KB"} <= {*row}, text
            assert ("…" in text, "warning" in text) == (False, False), text
            assert ("empty slices not shown (--all)" in text) is (granularity is not None)
        assert "123,456.0 items/s" in text


def _watched(info: FilterInfo, rates: Rates, width: int) -> list[str]:
    """The lines of a frame."""
    terminal = {"COLUMNS": str(width), "LINES": "30"}
    with patch.dict("os.environ", terminal), patch("sys.stdout.isatty", lambda: True):
        return click.unstyle(frame(info, rates, empty=False)).splitlines()


def test_all_shows_empty_slices(url: str, name: str) -> None:
    """The current slice is always shown."""
    with TimeBloom.from_url(url, name, capacity=1000, slices=3) as seen:
        seen.keys()
        labels = [slice.label for slice in seen.info().slices]
    for option, shown in ((["--all"], labels), ([], labels[-1:])):
        seen.add("a")
        lines = tbloom("info", "--url", url, name, *option).stdout.splitlines()
        assert shown == [line.split()[0] for line in lines if line[:8] in labels]
        assert ("2 empty slices" in " ".join(lines)) is (not option)


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
