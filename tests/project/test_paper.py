"""``make paper``: what it computes and measures, and its page."""

from __future__ import annotations

from itertools import product

import pytest
import redis

from bench.contest import fingerprints
from bench.paper import __main__ as paper
from bench.paper import full, racing
from bench.results import marked


@pytest.mark.check
def test_the_papers_code_is_right_alone_and_wrong_in_a_race(own: redis.Redis) -> None:
    """Two that ask before one has inserted both get "new"."""
    own.flushall()
    *items, new = fingerprints("paper", 101)
    assert [racing.add(own, item) for item in items] == [True] * 100
    assert [racing.add(own, item) for item in items] == [False] * 100
    assert [racing.exists(own, new) for _ in range(2)] == [False, False]
    for _ in range(2):
        racing.insert(own, new)
    assert racing.exists(own, new)


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
