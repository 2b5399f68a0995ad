"""``TBLOOM_STORE``: the dupefilter on other stores."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from scrapy import Request
from scrapy.utils.test import get_crawler

from tbloom import ExactFilter
from tbloom.scrapy import DupeFilter
from tests.helpers.schedulers import SCRAPY, STORES

BLOOM = {"TBLOOM_STORE": "bloom"}  # test_dupefilter.py has its crawls


def test_a_request_limits_how_long_it_is_remembered(
    crawl: Any, client: redis.Redis, name: str
) -> None:
    """Half a second in place of an hour."""
    settings = {**SCRAPY, **STORES["exact"]}
    pages = [["short", {"tbloom_ttl": 0.5}], "long"]
    assert ["long", "short"] == sorted(crawl("pages", settings, pages)["fetched"])
    seen = ExactFilter(client, name)
    while seen.info().items > 1:
        time.sleep(0.05)
    assert ["short"] == crawl("pages", settings, ["short", "long"])["fetched"]


def test_the_lifetime_of_all_requests_is_a_setting(
    crawl: Any, client: redis.Redis, name: str
) -> None:
    settings = {**SCRAPY, **STORES["exact"], "TBLOOM_TTL": "86400", "TBLOOM_SHARDS": 2}
    crawl("pages", settings, ["a"])
    buckets = [*client.scan_iter(f"{{{name}:*}}:exact:*")]
    assert len(buckets) == 1
    assert 86_000_000 < client.pttl(buckets[0]) <= 86_401_000  # a second more


@pytest.mark.parametrize(
    ("settings", "meta", "expected"),
    [
        (STORES["exact"], {"tbloom_ttl": -1}, "seconds, or a timedelta"),
        (STORES["exact"], {"tbloom_within": 1}, "to be left out with TBLOOM_STORE = 'exact'"),
        (STORES["exact"], {"tbloom_keep": 1}, "to be left out with TBLOOM_STORE = 'exact'"),
        (STORES["local"], {"tbloom_within": 8}, "a whole number of slices from 1 to 7"),
        (STORES["local"], {"tbloom_ttl": 60}, "to be left out with TBLOOM_STORE = 'local'"),
        (BLOOM, {"tbloom_ttl": 60}, "to be left out with TBLOOM_STORE = 'bloom'"),
    ],
)
def test_wrong_meta_is_named_and_ends_the_crawl(
    *,
    url: str,
    name: str,
    settings: dict[str, Any],
    meta: dict[str, Any],
    expected: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = {"REDIS_URL": url, "TBLOOM_KEY": name, **settings}
    crawler = get_crawler(None, own)
    crawler.engine = SimpleNamespace(spider=None)  # before the crawl begins
    dupefilter = DupeFilter(crawler)
    [(key, value)] = meta.items()
    request = Request("https://a.example/", meta=meta)
    assert dupefilter.request_seen(request)
    [said] = caplog.messages
    assert said.startswith(
        f"The crawl ends: meta[{key!r}] of <GET https://a.example/>: expected {expected}"
    )
    assert said.endswith(f", got {value}")
    assert dupefilter.request_seen(Request("https://b.example/"))  # it has ended
