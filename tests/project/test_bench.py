"""The benchmarks: one file has all figures, the documents show these, and each section of the page has its command."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from bench import largest, paper, results, serving
from bench.__main__ import SECTIONS
from tbloom.bloom.config import configure
from tbloom.cli.commands.plan import _SET_BYTES
from tbloom.cli.kit.costs import PROBE, ROUND_TRIP, costs

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", results.PAGES, ids=lambda page: page.name)
def test_documents_show_the_figures_of_the_file(page: Path) -> None:
    """``python -m bench --fill`` puts them there."""
    text = page.read_text(encoding="utf-8")
    assert results.filled(text, results.read()) == text


def test_each_table_of_the_file_is_shown() -> None:
    shown = {name for page in results.PAGES for name in results.marked(page.read_text("utf-8"))}
    assert shown == results.read().keys()


def test_each_table_has_its_command_beside_it() -> None:
    """The last command before it measures the section that its name begins with."""
    named, command = set(), ""
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    for only, table in re.findall(r'--only (\w+)"|<!--(?:table|figure):([a-z-]+?)(?:-->|;)', text):
        command = only or command
        if table not in ("", "versions"):
            assert command == table.partition("-")[0]
            named.add(command)
    assert SECTIONS.keys() == named


def test_plan_predicts_what_was_measured() -> None:
    written = results.read()["written"].table
    for name, size in {"add": 1, "add_many of 500": 500}.items():
        planned = costs(configure("plan", capacity=1_000_000), size, 1)
        assert planned.log_bytes == pytest.approx(written.row(name)["bytes"], rel=0.05)
    measured = results.read()["footprint"].table.row("scrapy-redis: SADD")["bytes per item"]
    assert _SET_BYTES == pytest.approx(measured, rel=0.03)


def test_plan_computes_with_the_server_s_time_that_was_measured() -> None:
    """To a quarter: of new items one by one and in batches, and of mostly seen ones, which were all in the current slice."""
    found = results.read()
    for name, size in {"add": 1, "add_many of 500": 500}.items():
        measured = found["written"].table.row(name)["server time (us)"]
        assert costs(configure("plan", capacity=10**6), size, 1).server_us == pytest.approx(
            measured, rel=0.25
        )
        mostly = [row for row in found["race-seen"].table.records() if row["% seen"] == 95]
        [seen] = [row["command time (us)"] for row in mostly if row[""].replace("`", "") == name]
        # One slice makes a seen item cost what it costs in the current one, and a new one what six probes less do.
        planned = (
            costs(configure("plan", capacity=10**6, slices=1), size, 0.05).server_us
            - ROUND_TRIP / size
            + 0.05 * 6 * PROBE
        )
        assert planned == pytest.approx(seen, rel=0.25)


def test_plan_knows_what_shards_and_masters_cost() -> None:
    """A batch has a call for each shard, and a round trip for each master that has some of them."""
    one, many = (configure("plan", capacity=10**9, shards=shards) for shards in (120, 460))
    assert costs(one, 50, 0.05).server_us < costs(many, 50, 0.05).server_us
    assert costs(many, 50, 0.05).server_us < costs(many, 50, 0.05, 30).server_us


@pytest.mark.check
@pytest.mark.timeout(1500)
def test_the_paper_is_repeated() -> None:
    """Crawls within a window share no page, others may; one process is told "new"; rates are the union's."""
    with serving.fresh() as server:
        tables = paper.measure(server, **SECTIONS["paper"])
    found = {table.name.removeprefix("paper-"): table for table in tables}
    for noun, slices in {"hour": 2, "day": 3}.items():
        rows = found[f"{noun}s"].rows
        overlaps = [row[1:-1] for row in rows]
        numbers = range(len(rows))
        for one, other in product(numbers, repeat=2):
            if 0 < abs(one - other) < slices:
                assert overlaps[one][other] == 0
        # An error of the filter may hide a page.
        assert all(95 <= overlaps[n][n] <= 100 for n in numbers)
        for n, row in enumerate(rows):
            live = range(max(1, n - slices + 2), n + 2)
            assert row[-1] == ", ".join(f"{noun} {number}" for number in live)
    # 300 pages last for three days: the fourth has only those of the first.
    assert all(found["days"].rows[n][n + 4] >= 95 for n in range(3))
    assert all(found["hours"].rows[n][n + 3] > 0 for n in range(2))
    papers, ours = (row["too many"] for row in found["raced"].records())
    assert 0 == ours < papers
    measured, union, _ = found["rates"].records()
    assert measured["the daily crawls'"] < 1e-4
    assert measured["overfilled"] == pytest.approx(union["overfilled"], rel=0.15)
    assert all(20 < row["set / window"] < 40 for row in found["memory"].records())


@pytest.mark.check
def test_the_largest_figure_is_measured_at_any_size() -> None:
    """Two processes fill three slices, of which an RDB loses nothing."""
    with serving.fresh() as server:
        [table] = largest.measure(server, items=30_000)
    found = dict(row.values() for row in table.records())
    assert 29_990 <= int(found["items called new"].replace(",", "")) <= 30_000
    assert "bytes an item" in found["memory of the keys"]
    assert {
        "longest script call",
        "p99 of a single `add` meanwhile",
        "restart with it",
    } <= found.keys()
