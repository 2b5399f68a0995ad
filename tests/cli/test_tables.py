"""Tables for people, on terminals of several widths, and for programs; ``tbloom plan``'s table of error rates; and numbers as people
type them."""

from __future__ import annotations

import csv
import json
import re
from decimal import Decimal
from pathlib import Path

import pytest
import redis
from pyarrow import ipc, parquet

from tbloom import TimeBloom
from tbloom.cli.commands.lookup import interval
from tbloom.cli.commands.plan import classic_rate
from tbloom.cli.kit import numbers, output
from tbloom.distinct import DistinctCounter
from tests.helpers.commands import tbloom, tbloom_bytes

TABLE = Path(__file__).parents[1] / "data" / "bloom_fpr_table_14_1.csv"


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


def test_the_table_is_the_sources_table() -> None:
    """Each printed rate and optimum of table 14-1 is in it, to half of its last digit; and is printed with its digits."""
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
    printed = tbloom("plan", "--table").stdout.replace("*", "").splitlines()
    cells_of = {line.split()[0]: line.split() for line in printed[1:32]}
    assert (["0.393", "0.400"], "2.50e-05") == (cells_of["2"][1:3], cells_of["32"][6])


def test_wide_characters_keep_columns_aligned() -> None:
    """As a terminal shows them: an ideograph takes two columns, a combining accent none."""
    names = ["news", "ニュース", "新闻🚀", "e\u0301te\u0301"]
    rows = [{"name": name, "next": "x"} for name in names]
    lines = output.table(rows, left=["name"]).splitlines()[1:]
    assert {13} == {output.columns_of(line[:-1]) for line in lines}


@pytest.mark.parametrize(
    ("terminal", "is_styled"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), (None, False)],
)
def test_styles_are_for_terminals_that_take_them(
    terminal: dict[str, str] | None, *, is_styled: bool
) -> None:
    done = tbloom_bytes(
        "plan", is_terminal=terminal is not None, **{"TERM": "xterm", **(terminal or {})}
    )
    assert is_styled is (b"\x1b" in done.stdout)


def test_plan_takes_the_sources_words() -> None:
    """A number of bits and of hashes: so many items, at this rate."""
    words = ["--bits", "2^30", "--hashes", "6", "--json"]
    found = json.loads(tbloom("plan", *words).stdout)
    assert (6, 1e-4) == (found["hashes"], found["error_rate"])
    better = json.loads(tbloom("plan", *words, "--error-rate", "1e-6").stdout)
    assert 0 < better["capacity"] < found["capacity"]


def test_rate_measures_what_is_predicted(url: str, name: str, client: redis.Redis) -> None:
    """Beside the promise, with an interval; it changes nothing."""
    with TimeBloom.from_url(url, name, capacity=1000, error_rate=0.05, slices=1) as seen:
        seen.add_many(map(str, range(1000)))
        before, stored = seen.info(), [*map(client.dump, seen.keys())]
        found = json.loads(tbloom("rate", name, "--url", url, "--sample", "50k", "--json").stdout)
        assert stored == [*map(client.dump, seen.keys())]
    low, high = found["interval"]
    assert (50_000, 0.05) == (found["sample"], found["promised"])
    assert found["predicted"] == before.error_rate
    assert 0 < low < found["rate"] == found["false_positives"] / 50_000 < high < 0.07
    assert found["rate"] == pytest.approx(found["predicted"], rel=0.25)
    text = tbloom("rate", name, "--url", url, "--sample", "1k").stdout
    assert re.search(r"measured +\S+  \S+ to \S+ \(95 %\)\n", text)


def test_the_interval_is_wilsons() -> None:
    """Newcombe 1998 (Statistics in Medicine 17), table I."""
    for found, sample, expected in (
        (81, 263, (0.2553, 0.3662)),
        (0, 20, (0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ):
        assert expected == pytest.approx(interval(found, sample), abs=0.0001)


READ = {
    "parquet": parquet.read_table,
    "arrow": lambda file: ipc.open_file(file).read_all(),
}


def test_ids_and_members_are_a_table(own_url: str, tmp_path: Path) -> None:
    """As CSV, and by pyarrow."""
    pages = DistinctCounter.from_url(own_url, "pages", keep_members=True)
    members = ["plain", "ü", 'a "quoted", one', "two words", *(f"{i}" for i in range(20_000))]
    pages.add_many(members)
    expected = sorted(pages.members().pairs())
    assert sorted(members) == sorted(member for _, member in expected)
    for suffix in ("csv", *READ):
        words = ["pages", "--members", tmp_path / f"pages.{suffix}"]
        assert tbloom("count", "export", "--url", own_url, *words).returncode == 0
    text = (tmp_path / "pages.csv").read_bytes().decode()
    assert "\r" not in text
    head, *rows = csv.reader(text.splitlines())
    assert ["id", "member"] == head
    assert expected == sorted((int(id), member) for id, member in rows)
    for suffix, read in READ.items():
        found = read(str(tmp_path / f"pages.{suffix}"))
        assert ["uint32", "string"] == [str(field.type) for field in found.schema]
        columns = (found[column].to_pylist() for column in ("id", "member"))
        assert expected == sorted(zip(*columns, strict=True))
