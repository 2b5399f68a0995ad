"""``tbloom.scrapy.DistinctCounts``: what real crawls count, and when the members reach Redis."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.test import get_crawler
from w3lib.url import canonicalize_url

from tbloom.distinct import DistinctCounter
from tbloom.scrapy import DistinctCounts
from tests.helpers.schedulers import ADDON, STORES, UNREACHABLE

pytestmark = pytest.mark.usefixtures("away_from_midnight")
EXTENSION = {"EXTENSIONS": {"tbloom.scrapy.DistinctCounts": 500}}
WAYS = {
    "alone": {},
    "without asyncio": {"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"},
    "add-on": ADDON,
    "exact store": {
        **ADDON, **STORES["exact"], "TBLOOM_TIMEZONE": "Asia/Tokyo", "TBLOOM_RETRY_FOR": 3,
    },
}  # fmt: skip


@pytest.fixture
def own_counters(name: str) -> dict[str, Any]:
    """The settings for the test's own counters."""
    return {**EXTENSION, "TBLOOM_COUNT_KEY": f"{name}-%(spider)s"}


def counted(result: dict[str, Any]) -> dict[str, int]:
    """The extension's stats."""
    start = "tbloom/distinct/"
    return {key[len(start) :]: n for key, n in result["stats"].items() if key.startswith(start)}


def expected(urls: set[str], new: set[str], hosts_new: int = 0) -> dict[str, int]:
    """The stats of the last of the crawls that have fetched these URLs; ``new`` are those that it was the first to fetch."""
    hosts = {urlsplit(url).hostname for url in urls} - {None}
    stats = {
        "urls": len(urls), "urls/window": len(urls), "urls/new": len(new),
        "hosts": len(hosts), "hosts/window": len(hosts), "hosts/new": hosts_new,
    }  # fmt: skip
    return {key: n for key, n in stats.items() if n or not key.endswith("new")}


@pytest.mark.check
@pytest.mark.parametrize("way", WAYS)
def test_crawls_count_what_sets_do(
    crawl: Any, site: str, name: str, own_counters: dict[str, Any], way: str
) -> None:
    """Each crawl has its own filter, so that it fetches all of its pages."""
    fetched: set[str] = set()
    hosts_new = 1
    for number, pages in enumerate(
        (["a", "b", "a", "c?y=2&x=1", "b#part"], ["a", "d", "c?x=1&y=2"])
    ):
        own = {**own_counters, **WAYS[way], "TBLOOM_KEY": f"{name}-{number}"}
        urls = {canonicalize_url(f"{site}{page}") for page in pages}
        result = crawl("pages", own, pages, alone=way == "without asyncio")
        assert ([], "finished") == (result["failures"], result["finish_reason"])
        assert expected(fetched | urls, urls - fetched, hosts_new) == counted(result)
        assert f"'tbloom/distinct/urls': {len(fetched | urls)}," in result["log"]  # Scrapy's dump
        fetched |= urls
        hosts_new = 0


@pytest.mark.parametrize(
    ("settings", "pages", "urls"),
    [
        ({}, ["to/to/a", "b"], {"a", "b"}),
        ({}, ["status/404", "status/500"], {"status/404", "status/500"}),
        ({"RETRY_ENABLED": True, "RETRY_TIMES": 1}, ["status/503", "cut/always"], {"status/503"}),
        ({"ROBOTSTXT_OBEY": True}, ["a", "robots.txt"], {"a", "robots.txt"}),
    ],
)
def test_only_the_last_response_to_a_request_is_counted(
    crawl: Any, own_counters: dict[str, Any], settings: dict[str, Any], pages: Any, urls: set[str]
) -> None:
    """The last answer counts; redirects, failures and Scrapy's own requests don't."""
    stats = counted(crawl("pages", {**own_counters, **settings}, pages))
    assert (len(urls), len(urls), 1) == (stats["urls"], stats["urls/new"], stats["hosts"])


def test_a_signal_while_the_spider_closes_loses_no_count(
    crawl: Any, own_counters: dict[str, Any]
) -> None:
    """Without tbloom's filter, too. A feed is stored meanwhile, and the crawler gets a SIGINT."""
    feeds = {
        "FEED_STORAGES": {"up": "tests.helpers.crawl.Uploads"},
        "FEEDS": {"up://interrupted": {"format": "jsonlines"}},
    }
    items = {"request": {"cb_kwargs": {"fates": ["stored"]}}}
    result = crawl("outcomes", {**own_counters, **feeds}, [["a", items]], alone=True)
    stats = counted(result)
    assert (1, 1, 1) == (stats["urls"], stats["urls/new"], stats["hosts"])


def test_without_redis_the_crawl_goes_on(crawl: Any, own_counters: dict[str, Any]) -> None:
    settings = {**own_counters, "REDIS_URL": UNREACHABLE, "TBLOOM_RETRY_FOR": 0}
    result = crawl("pages", settings, ["a", "b", "a"])
    assert ["a", "b"] == sorted(result["fetched"])
    assert {"urls/lost": 2, "hosts/lost": 1} == counted(result)
    assert "finished" == result["finish_reason"]
    assert 1 == result["log"].count("Up to 2 URLs and 1 hosts of this crawl are not counted")
    assert 1 == result["log"].count("can't be counted now")


def test_a_crawl_goes_on_when_the_mapping_is_full(crawl: Any, own_counters: dict[str, Any]) -> None:
    result = crawl("ten_and_hundred", {**own_counters, "TBLOOM_COUNT_MAX_MEMBERS": 30})
    assert (100, "finished") == (len(result["fetched"]), result["finish_reason"])
    assert counted(result)["urls/lost"] >= 70
    assert 1 == result["log"].count("which is max_members")


def test_urls_of_all_kinds(
    client: redis.Redis, url: str, name: str, own_counters: dict[str, Any]
) -> None:
    """``data:`` and ``file:`` have no host; an invalid URL is lost, and the others are counted, in the settings' time zone."""
    given = {"REDIS_URL": url, "TBLOOM_TIMEZONE": "Asia/Tokyo"}
    crawler = get_crawler(None, {**own_counters, **given})
    crawler.crawling = True  # it is about to run
    extension = DistinctCounts.from_crawler(crawler)
    urls = {"data:,a", "file:///a", "https://B.example:8080/", "http://[::1]/", "http://b.example/"}
    for one in [*urls, "http://[::1/", "http://b.example/\ud800"]:
        extension.response_received(Response(one), Request("https://a.example/"))
    extension._end()
    assert 2 == extension._stats["urls/lost"]
    window = {"granularity": "d", "slices": 30, "tz": "Asia/Tokyo"}
    for kind, number in (("urls", 5), ("hosts", 2)):
        kept = DistinctCounter(client, f"{name}-default:{kind}", f"{name}-default:ids", **window)
        assert number == kept.count()
