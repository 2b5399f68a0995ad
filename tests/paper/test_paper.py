"""``tbloom paper``: what it computes and measures, and its page."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import redis

from tbloom.bloom.sizing import rate_at, whole_blocks, window_rate
from tbloom.cli.kit.classic import classic_hashes
from tbloom.cli.kit.progress import Reporter
from tbloom.paper import memory, page, rates
from tbloom.paper.crawls import DAYS, HOURS, Crawls, Plan
from tbloom.paper.figures import Figures
from tbloom.paper.memory import Memory, Size
from tbloom.paper.racing import PaperFilter, Race, fingerprints
from tbloom.paper.rates import Best, WindowRate
from tests.helpers.commands import process, refused, tbloom
from tests.helpers.localredis import find_binary
from tests.helpers.making import missing

QUIET = Reporter(stderr=True, quiet=True)
ABOUT = {"quick": True, "redis": "Redis 7", "packages": {"tbloom": "1"}, "seconds": 100}
FILES = {"paper.md", *(f"paper-{name}.svg" for name in ("hours", "days", "rate", "memory"))}


def crawls(plan: Plan, common: int) -> Crawls:
    """What the crawls fetch where all goes well."""
    numbers = range(plan.crawls)
    overlaps = [
        [100 if one == other else common * (abs(one - other) >= plan.slices) for other in numbers]
        for one in numbers
    ]
    kept = [list(range(max(1, n - plan.slices + 1), n + 1)) for n in range(1, plan.crawls + 1)]
    return Crawls(plan, 4, overlaps, 0, kept)


def figures() -> Figures:
    """Figures as they should be."""
    return Figures(
        crawls(HOURS, 50),
        crawls(DAYS, 100),
        WindowRate(3, 100, 4608, 5e-6, 1.5e-5, 1e-16, 100_000, 2),
        Race(500, 1039, 500),
        WindowRate(3, 100_000, 846_336, 0.0178, 0.0525, 5.7e-6, 100_000, 5280),
        [rates.best(items)._replace(asked=1000, seen=16) for items in rates.SIZES],
        Memory(
            [Size(10**5, 9 << 20, 1 << 19, 1 << 19), Size(10**8, None, None, 1 << 29)], 363.0, 9
        ),
    )


@pytest.mark.parametrize("items", rates.SIZES)
def test_the_best_size_for_six_hashes(items: int) -> None:
    """8.66 bits per item; the lowest classic rate, 2^-6, whatever the number of items; blocks add a little."""
    found = rates.best(items)
    assert found.bits / items == pytest.approx(8.6562, rel=1e-3)
    assert classic_hashes(found.bits, items) == 6
    assert found.classic == pytest.approx(2**-6, rel=5e-3)
    assert found.tbloom == pytest.approx(0.01626, rel=5e-3)


def test_the_papers_formula_is_wrong_by_far() -> None:
    """Of three overfilled slices: 0.0525 as the union has it, 5.7e-6 as the product."""
    rate = rate_at(100_000, whole_blocks(845_000, 6), 6)
    assert window_rate([rate] * 3) == pytest.approx(0.0525, rel=1e-3)
    assert rate**3 == pytest.approx(5.66e-6, rel=1e-3)


def test_the_measured_rate_of_a_window_is_the_unions(own: redis.Redis) -> None:
    """Not the product's. The window is a real one, with smaller slices."""
    found = rates.measure_window(own, 10_000, 84_500, 100_000, QUIET)
    assert own.dbsize() >= found.slices == 3
    assert found.measured == pytest.approx(found.union, rel=0.15)
    assert found.product < found.measured / 1000


def test_the_measured_rate_of_the_best_size(own: redis.Redis) -> None:
    """Measured up to the given number of items, computed for more."""
    found = list(rates.measure_best(own, 10**5, 100_000, QUIET))
    assert [one.items for one in found] == list(rates.SIZES)
    assert [bool(one.asked) for one in found] == [True, False, False, False, False]
    assert found[0].seen / found[0].asked == pytest.approx(found[0].tbloom, rel=0.15)


def test_the_memory_of_a_window_is_as_computed(own: redis.Redis) -> None:
    """Measured up to the given number of items, computed beyond; the set is larger by far."""
    found = memory.measure(own, 10**5, 1000, QUIET)
    assert [size.items for size in found.sizes] == list(memory.SIZES)
    assert found.sizes[0].window == pytest.approx(found.sizes[0].window_model, rel=0.01)
    for size in found.sizes:
        assert 20 < found.set(size) / found.window(size) < 40
    assert [(size.set, size.window) for size in found.sizes[1:]] == [(None, None)] * 5
    assert 60 < found.set_item < 130
    assert 200 < found.request < 800
    assert own.dbsize() == 0


def test_the_papers_code_is_right_alone_and_wrong_in_a_race(own: redis.Redis) -> None:
    """Two that ask before one has inserted both get "new"."""
    own.flushall()
    one, other = PaperFilter(own), PaperFilter(own)
    items = fingerprints(100)
    assert [one.add(item) for item in items] == [True] * 100
    assert [other.add(item) for item in items] == [False] * 100
    new = fingerprints(101)[-1]
    assert [racer.exists(new) for racer in (one, other)] == [False, False]
    for racer in (one, other):
        racer.insert(new)
    assert one.exists(new)


def test_the_page_has_the_figures() -> None:
    """Every table and plot, and no promise that was broken."""
    made = figures()
    assert made.broken() == []
    assert made.as_dict()["memory"]["sizes"][0]["set"] == 9 << 20
    found = page.files(made, ABOUT)
    assert found.keys() == FILES
    text = found["paper.md"]
    assert not re.findall(r"[{}]|None", text)
    for name in FILES - {"paper.md"}:
        assert f"]({name})" in text
        ET.fromstring(found[name])  # noqa: S314 - our own text
    for words in (
        "`tbloom paper --quick` wrote this page",
        "Hour 4 fetched 50 pages of hour 1 and 50 pages of hour 2 again.",
        "| day 4 | 100 | day 2, day 3, day 4 |",
        "called 2 of 100,000 items seen",
        "| the paper's code | 500 | 1,039 | 539 |",
        "| in any slice | 1 - (1 - p)^L | 0.0525 |",
        "| the paper: in all slices | p^L | 5.7e-6 |",
        "| 10^9 | 8,656,171,008 | 1.0 GB | 0.0156 | 0.0163 | 0.0160 |",
        "| 10^8 | 8.8 GB* | 512.0 MB* | 18 |",
    ):
        assert words in text
    matrix = "100 0 50 50  0 100 0 50  50 0 100 0  50 50 0 100"
    assert re.findall(r">(\d+)</text>", found["paper-hours.svg"]) == matrix.split()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"race": Race(500, 1039, 501)}, "501 times"),
        ({"overfilled": WindowRate(3, 1, 1, 0.02, 0.05, 1e-6, 1000, 20)}, "0.0200"),
        ({"best": [Best(10, 10, 0.016, 0.016, 1000, 50)]}, "0.0500"),
        ({"full": WindowRate(3, 1, 1, 1e-5, 1e-5, 1e-15, 10_000, 1)}, "0.0001"),
        ({"days": crawls(Plan("day", 2, 3), 1)}, "day 2 and day 3"),
    ],
)
def test_broken_promises_are_named(change: dict[str, Any], words: str) -> None:
    made = figures()
    if "days" in change:
        change["days"].overlaps[1][2] = 7
    broken = Figures(
        **{**{name: getattr(made, name) for name in made.__slots__}, **change}
    ).broken()
    assert len(broken) == 1
    assert words in broken[0]


def test_crawls_that_fetch_twice_or_never_expire_are_named() -> None:
    days = crawls(DAYS, 100)
    days.twice = 3
    days.kept[3] = [1, 2, 3, 4]
    assert len(days.broken) == 2


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    refused(tbloom("paper", "--out", str(tmp_path / "taken")), "--out", "taken")


@pytest.mark.check
@pytest.mark.timeout(1500)
def test_the_paper_is_reproduced(tmp_path: Path) -> None:
    """The page is written; pairs of crawls within a window share nothing, others may; rates are the union's."""
    if find_binary() is None:
        missing("A redis-server")
    done = process("paper", "--quick", "--json", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == FILES
    found = json.loads(done.stdout)
    for name, plan in (("hours", HOURS), ("days", DAYS)):
        overlaps = found[name]["overlaps"]
        for one, other in product(range(plan.crawls), repeat=2):
            if 0 < abs(one - other) < plan.slices:
                assert overlaps[one][other] == 0
        # An error of the filter may hide a page.
        assert all(95 <= overlaps[n][n] <= 100 for n in range(plan.crawls))
        assert found[name]["twice"] == 0
        assert found[name]["kept"] == crawls(plan, 0).kept
    # 300 pages last for three days: the fourth has only those of the first.
    assert all(found["days"]["overlaps"][n][n + 3] >= 95 for n in range(3))
    assert all(found["hours"]["overlaps"][n][n + 2] > 0 for n in range(2))
    assert found["race"]["tbloom"] == found["race"]["urls"] < found["race"]["paper"]
    assert found["full"]["seen"] < found["full"]["asked"] / 10_000
    assert found["overfilled"]["seen"] / found["overfilled"]["asked"] == pytest.approx(
        0.0525, rel=0.1
    )
    assert [size["set"] is None for size in found["memory"]["sizes"]][:2] == [False, False]
