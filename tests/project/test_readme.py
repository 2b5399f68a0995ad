"""The README, and the guides that take it further, are true; test_docs.py runs their code blocks."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tbloom.bloom.config import configure
from tbloom.engine import client
from tbloom.scrapy import circuit
from tests.helpers.documents import ROOT


def text(document: str) -> str:
    """The document's text."""
    return (ROOT / document).read_text(encoding="utf-8")


README = text("README.md")
PYTHON, SCRAPY = text("docs/python.md"), text("docs/scrapy.md")


def test_the_readmes_links_work_in_a_clone() -> None:
    """Those into the project lead to a file, and to a heading where they name one."""
    own = re.findall(r"\]\((?!https:)([^)]+)\)", README)
    assert len(own) > 10
    for path, _, heading in (link.partition("#") for link in own):
        headings = re.findall(r"^#+ (.+)$", text(path), re.MULTILINE)
        anchors = [re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in headings]
        assert not heading or heading in anchors, heading


def test_each_guide_begins_with_the_same_settings() -> None:
    """For Scrapy; with ``TBLOOM_MARK``, because without it a page whose work fails is lost for the window."""
    guides = ("README.md", "docs/index.md", "docs/quickstart.md")
    first = {re.findall(r"# settings\.py\n.*?```", text(guide), re.DOTALL)[0] for guide in guides}
    assert len(first) == 1


@pytest.mark.parametrize("document", ["README.md", "docs/comparison.md", "docs/stores.md"])
def test_the_figures_of_the_comparison_are_measured(document: str) -> None:
    """Each is in docs/benchmarks.md."""
    figure = re.compile(r"(?<!in )(?<!Redis )(?<!Valkey )\b\d[\d,]*[.,]\d+\b")
    rows = "".join(re.findall(r"^\|.*\|$", text(document), re.MULTILINE))
    figures = set(figure.findall(rows))
    assert len(figures) > 5
    assert set() == figures - set(figure.findall(text("docs/benchmarks.md")))


def test_the_clock_times_of_the_table(clockwork: Any, name: str) -> None:
    """How long an item is remembered: daily slices, slices=3."""
    assert "| Wed 5 June, 23:59 |" in PYTHON
    with TimeBloom.from_url(clockwork.server.url, name, slices=3) as seen:
        clockwork.set("2019-06-03 09:00:00")
        assert seen.add("a") is True
        clockwork.set("2019-06-05 23:59:00")
        assert seen.add("a") is False
        clockwork.set("2019-06-06 00:00:01")
        with redis.Redis.from_url(clockwork.server.url) as client:
            assert client.exists(f"{{{name}}}:20190603") == 0
        assert seen.add("a") is True
        assert [0, 0, 1] == [slice.items for slice in seen.info().slices]


def test_a_key_holds_10_million_items_at_the_default_error_rate() -> None:
    assert "10 million items" in PYTHON
    assert [1, 2] == [configure("news", capacity=n).shards for n in (10_300_000, 10_500_000)]


def test_each_factor_of_ten_costs_five_to_seven_bits() -> None:
    assert "each factor of 10 costs 5 to 7 bits" in PYTHON
    bits = [configure("news", error_rate=rate).bits / 1e6 for rate in (1e-3, 1e-4, 1e-5, 1e-6)]
    assert all(5 < more - fewer < 7 for fewer, more in pairwise(bits))


def test_how_long_an_outage_is_waited_for() -> None:
    """5 s of resends, 40 s on a cluster, 2 s for a reply, and then one try every 10 s."""
    assert "calls are retried for 5 seconds (40 on a cluster)" in README
    assert "5 by default, and 40 on a cluster or through a Sentinel" in PYTHON
    assert "seconds: 5, enough for a restart, or 40 on a cluster or through a Sentinel" in SCRAPY
    assert "The time limit for a reply is 2 seconds" in SCRAPY
    assert "Redis is asked again every 10 seconds" in SCRAPY
    assert (5, 40) == (client.RETRY_FOR, client.RETRY_FOR_FAILOVER)
    assert "\nSOCKET_TIMEOUT = 2.0\n" in text(
        "tbloom/engine/urls.py"
    )  # tests/conftest.py changes it
    assert circuit.HOLD_OFF == 10


def test_the_first_example_is_within_the_first_30_lines() -> None:
    assert "seen.add(" in "\n".join(README.splitlines()[:30])


@pytest.mark.parametrize("command", ["demo", "test", "check"])
def test_the_readmes_commands_are_the_makefiles(command: str) -> None:
    assert f"**`make {command}`**" in README
    assert re.search(rf"^{command}:", text("Makefile"), re.MULTILINE)
