"""Scrapy's stats, and the log: those of docs/scrapy.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tbloom import TimeBloom
from tests.helpers.schedulers import ADDON, SETTINGS, WAYS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scrapy.md").read_text(encoding="utf-8")
STATS = {
    stat
    for cell in re.findall(r"^\| (`\w+/[^|]*) \|", PAGE, re.MULTILINE)
    for stat in re.findall(r"`([^`]+)`", cell)
}


@pytest.mark.parametrize("way", [*WAYS, pytest.param("add-on, scheduled", marks=pytest.mark.check)])
def test_the_sources_spider_fetches_100_pages_and_filters_10(
    crawl: Any, url: str, name: str, way: str
) -> None:
    """10 requests, then 100 that include those 10; its stats, those that are set at the end, too."""
    result = crawl("ten_and_hundred", SETTINGS[way])
    assert sorted(map(str, range(100))) == sorted(result["fetched"])
    assert "redis.connection" not in result["log"]
    stats = result["stats"]
    ours = {stat for stat in stats if stat.startswith(("tbloom/", "bloomfilter/", "dupefilter/"))}
    assert ours <= STATS
    if way == "add-on":  # it knows its own claims, and the pages that it has marked meanwhile
        assert 10 == stats["tbloom/busy"] + stats.get("tbloom/seen", 0)
    else:  # what is known is not asked for again
        assert (10, 10) == (stats["tbloom/cache_hits"], stats["tbloom/seen"])
    assert (10, None) == (stats["dupefilter/filtered"], stats.get("bloomfilter/filtered"))
    assert 100 == stats["tbloom/new"]
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        info = seen.info()
    window = [stats[f"tbloom/window/{what}"] for what in ("items", "bytes", "error_rate")]
    assert [100, info.bytes, info.error_rate] == window


@pytest.mark.parametrize("setting", [{"BLOOMFILTER_BIT": 20}, {"BLOOMFILTER_HASH_NUMBER": 6}])
def test_a_crawl_with_scrapy_redis_bloomfilters_settings_counts_its_stat(
    crawl: Any, setting: dict[str, int]
) -> None:
    stats = crawl("ten_and_hundred", {**ADDON, "TBLOOM_CAPACITY": None, **setting})["stats"]
    assert (10, 10) == (stats["bloomfilter/filtered"], stats["dupefilter/filtered"])
