"""The benchmarks: their pages name a command for each table, and a run replaces its own tables only. And ``make paper``."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from bench.__main__ import PAGES, SECTIONS
from bench.paper import __main__ as paper
from bench.paper import full
from bench.tables import filled, marked

ROOT = Path(__file__).parents[2]


def test_each_table_has_its_command_beside_it() -> None:
    """The last command before it measures the section that its name begins with."""
    named = set()
    for page in PAGES:
        command = ""
        for only, table in re.findall(r'--only (\w+)"|<!--table:([\w-]+)-->', page.read_text()):
            command = only or command
            if table not in ("", "versions"):
                assert command == table.partition("-")[0]
                named.add(command)
    assert SECTIONS.keys() == named


def test_a_run_replaces_its_tables_and_nothing_else() -> None:
    page = PAGES[0].read_text(encoding="utf-8")
    assert len(marked(page)) == page.count("<!--end-->") == len(set(marked(page)))
    assert page == filled(page, {})
    new = filled(page, {"asyncio": "| new |", "of another page": "| other |"})
    before, after = page.split("<!--table:asyncio-->")
    assert new == f"{before}<!--table:asyncio-->\n\n| new |\n\n<!--end-->" + after.partition("<!--end-->")[2]  # fmt: skip
    assert new == filled(new, {"asyncio": "| new |"})


def test_the_steps_are_those_of_the_script() -> None:
    pytest.importorskip("scrapy_redis_bloomfilter", reason="needs the group bench")
    from bench import steps  # noqa: PLC0415 - see above

    texts = steps.scripts()
    assert len(texts) == len(set(texts.values()))


@pytest.mark.check
def test_a_quick_run_prints_and_writes_no_page() -> None:
    for module in ("scrapy_redis_bloomfilter", "rbloom"):
        pytest.importorskip(module, reason="needs the group bench")
    before = [page.read_bytes() for page in PAGES]
    command = [sys.executable, "-m", "bench", "--quick", "--only", "scaling", "footprint"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "\nscaling\n" in done.stdout
    assert "tbloom, 7 slices" in done.stdout
    assert before == [page.read_bytes() for page in PAGES]


@pytest.mark.check
@pytest.mark.timeout(1500)
def test_the_paper_is_reproduced() -> None:
    """Crawls within a window share no page, others may; one process is told "new"; rates are the union's."""
    _, plans, tables = paper.measure(quick=True)
    for plan in plans.values():
        overlaps = plan.overlaps
        numbers = range(len(overlaps))
        for one, other in product(numbers, repeat=2):
            if 0 < abs(one - other) < plan.slices:
                assert overlaps[one][other] == 0
        # An error of the filter may hide a page.
        assert all(95 <= overlaps[n][n] <= 100 for n in numbers)
        assert plan.kept == [[*range(max(1, n - plan.slices + 2), n + 2)] for n in numbers]
    # 300 pages last for three days: the fourth has only those of the first.
    assert all(plans["days"].overlaps[n][n + 3] >= 95 for n in range(3))
    assert all(plans["hours"].overlaps[n][n + 2] > 0 for n in range(2))
    found = {table.name: table.records() for table in tables}
    papers, ours = (row["too many"] for row in found["raced"])
    assert 0 == ours < papers
    measured, union, _ = found["rates"]
    assert measured["the daily crawls'"] < 1e-4
    assert measured["overfilled"] == pytest.approx(union["overfilled"], rel=0.15)
    assert all(20 < row["set / window"] < 40 for row in found["memory"])
    parts = {"about", "full", *found}
    assert parts == set(marked(paper.PAGE.read_text(encoding="utf-8")))


@pytest.mark.check
def test_the_largest_figure_is_measured_at_any_size() -> None:
    """Two processes fill three slices, of which an RDB loses nothing."""
    found = dict(row.values() for row in full.measure(30_000).records())
    assert 29_990 <= int(found["items called new"].replace(",", "")) <= 30_000
    assert "bytes an item" in found["memory of the keys"]
    assert {
        "longest script call",
        "p99 of a single `add` meanwhile",
        "restart with it",
    } <= found.keys()
