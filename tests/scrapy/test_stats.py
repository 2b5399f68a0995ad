"""Scrapy's stats, and the log: those of docs/monitoring.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tbloom import Claim, TimeBloom
from tbloom.scrapy.counts.extension import KINDS
from tbloom.scrapy.outage import Guess
from tests.helpers.schedulers import SETTINGS, UNREACHABLE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
STATS = {
    stat
    for cell in re.findall(r"^\| (`\w+/[^|]*) \|", PAGE, re.MULTILINE)
    for stat in re.findall(r"`([^`]+)`", cell)
}


def test_the_page_has_every_stat_and_no_other() -> None:
    """Those whose names are in the code of tbloom.scrapy."""
    answers = [answer.value for answer in (*Claim, *Guess)]
    kinds = ("asked", "unanswered", "new", "seen", "agreed", "lost", "again")
    distinct = [f"{of}{what}" for of in KINDS for what in ("", "/window", "/new", "/lost")]
    in_code = {
        stat.replace("{answer.value}", answer)
        .replace("{name}", name)
        .replace("{what}", kind)
        .replace("{page.failed}", "{reason}")
        for path in (ROOT / "tbloom" / "scrapy").rglob("*.py")
        for stat in re.findall(r"\"((?:tbloom|bloomfilter|dupefilter)/[^\"]+)\"", path.read_text())
        for answer in answers
        for kind in kinds
        for name in distinct
    }
    assert in_code | {"dupefilter/filtered"} == STATS  # that one is Scrapy's


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_crawl_s_stats_are_in_the_table(crawl: Any, url: str, name: str, settings: str) -> None:
    """Under each scheduler those that are set at the end, too."""
    stats = crawl("ten_and_hundred", SETTINGS[settings])["stats"]
    ours = {stat for stat in stats if stat.startswith(("tbloom/", "bloomfilter/", "dupefilter/"))}
    assert ours <= STATS
    assert {"tbloom/new", "tbloom/seen", "tbloom/cache_hits", "dupefilter/filtered"} < ours
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        info = seen.info()
    assert (info.items, info.bytes, info.error_rate) == (
        stats["tbloom/window/items"],
        stats["tbloom/window/bytes"],
        stats["tbloom/window/error_rate"],
    )
    assert info.items == 100


SCRIPT = """
import logging, sys
from tbloom.scrapy.stores import CrawlBloom
if sys.argv[3:]:
    logging.basicConfig(level=logging.INFO)
with CrawlBloom.from_url(sys.argv[1], sys.argv[2], granularity="1s", slices=3, capacity=100, retry_for=0) as seen:
    try:
        [seen.add_many([str(i)]) for i in range(300)]
    except Exception:
        pass
"""


def test_a_script_prints_nothing_until_it_configures_logging(url: str, name: str) -> None:
    """The log, under ``tbloom``, tells of a slice that grows, and of an outage."""

    def run(*arguments: str) -> tuple[str, list[str]]:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *arguments],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout, done.stderr.splitlines()

    assert ("", []) == run(url, name) == run(UNREACHABLE, name)
    printed, [line] = run(UNREACHABLE, name, "log")
    assert printed == ""
    start = f"ERROR:tbloom.scrapy.stores:filter {name!r}: the server does not answer"
    assert line.startswith(start)
