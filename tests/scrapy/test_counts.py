"""``tbloom.scrapy.DistinctCounts``: what real crawls count, and when the members reach Redis."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.http import Response
from scrapy.statscollectors import MemoryStatsCollector
from w3lib.url import canonicalize_url

from tbloom import DistinctCounter
from tbloom.scrapy import DistinctCounts
from tbloom.scrapy.counts.counters import KINDS
from tbloom.scrapy.counts.extension import MAX_PENDING
from tests.helpers.proxy import LossyProxy
from tests.helpers.schedulers import ADDON, SCRAPY, UNREACHABLE, refusal

pytestmark = pytest.mark.usefixtures("away_from_midnight")
EXTENSION = {"EXTENSIONS": {"tbloom.scrapy.DistinctCounts": 500}}
WAYS = {
    "alone": {},
    "without asyncio": {"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"},
    "scrapy-redis": {**SCRAPY, "SCHEDULER": "scrapy_redis.scheduler.Scheduler"},
    "add-on": ADDON,
    "exact store": {
        **ADDON, "TBLOOM_STORE": "exact", "TBLOOM_CAPACITY": None,
        "TBLOOM_TIMEZONE": "Asia/Tokyo", "TBLOOM_RETRY_FOR": 3,
    },
    "local store": {**ADDON, "TBLOOM_STORE": "local", "TBLOOM_RETRY_FOR": 3},
}  # fmt: skip
DOWN = {"REDIS_URL": UNREACHABLE, "TBLOOM_RETRY_FOR": 0}


@pytest.fixture
def own_counters(name: str) -> dict[str, Any]:
    """The settings for the test's own counters."""
    return {
        **EXTENSION,
        "TBLOOM_COUNT_KEY": f"{name}-%(spider)s",
        "TBLOOM_COUNT_MAPPING": f"{name}:ids",
    }


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
        result = crawl("pages", own, pages)
        assert ([], "finished") == (result["failures"], result["finish_reason"])
        assert expected(fetched | urls, urls - fetched, hosts_new) == counted(result)
        assert f"'tbloom/distinct/urls': {len(fetched | urls)}," in result["log"]  # Scrapy's dump
        fetched |= urls
        hosts_new = 0


def test_the_add_on_does_not_turn_it_on(crawl: Any) -> None:
    assert {} == counted(crawl("pages", ADDON, ["a"]))


def test_two_crawlers_at_once_share_the_counters(
    crawl: Any, client: redis.Redis, site: str, name: str, own_counters: dict[str, Any]
) -> None:
    """One of the two is the first with a URL that both fetch."""
    pages = [[str(i) for i in range(80)], [str(i) for i in range(40, 120)]]
    with ThreadPoolExecutor(2) as pool:
        results = [*pool.map(lambda some: counted(crawl("pages", own_counters, some)), pages)]
    urls = {f"{site}{page}" for some in pages for page in some}
    assert len(urls) == sum(result["urls/new"] for result in results)
    assert 1 == sum(result.get("hosts/new", 0) for result in results)
    assert len(urls) == max(result["urls"] for result in results)
    more = {"granularity": "d", "slices": 30}
    kept = DistinctCounter(client, f"{name}-tests:urls", f"{name}:ids", **more)
    assert len(urls) == kept.count()
    assert [False] * len(urls) == kept.add_many(sorted(urls))  # exactly these


@pytest.mark.parametrize(
    ("settings", "pages", "urls"),
    [
        ({}, ["to/to/a", "b"], {"a", "b"}),
        ({}, ["status/404", "status/500"], {"status/404", "status/500"}),
        ({"RETRY_ENABLED": True, "RETRY_TIMES": 1}, ["status/503", "cut/always"], {"status/503"}),
        ({"ROBOTSTXT_OBEY": True}, ["a"], {"a"}),
        ({"ROBOTSTXT_OBEY": True}, ["a", "robots.txt"], {"a", "robots.txt"}),
    ],
)
def test_what_counts(
    crawl: Any, own_counters: dict[str, Any], settings: dict[str, Any], pages: Any, urls: set[str]
) -> None:
    """The last answer counts; redirects, failures and Scrapy's own requests don't."""
    stats = counted(crawl("pages", {**own_counters, **settings}, pages))
    assert (len(urls), len(urls), 1) == (stats["urls"], stats["urls/new"], stats["hosts"])


def test_a_redirect_to_another_host_counts_there(
    crawl: Any, site: str, own_counters: dict[str, Any]
) -> None:
    found = {f"{site}a", f"{site.replace('127.0.0.1', 'localhost')}other"}
    result = crawl("pages", own_counters, ["a", "offsite"])
    assert expected(found, found, 2) == counted(result)


def test_a_response_from_the_cache_counts(
    crawl: Any, site: str, name: str, tmp_path: Path, own_counters: dict[str, Any]
) -> None:
    settings = {**own_counters, "HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path)}
    crawl("pages", settings, ["a"])
    again = crawl("pages", {**settings, "TBLOOM_COUNT_KEY": f"{name}-again"}, ["a"])
    assert 1 == again["stats"]["httpcache/hit"]
    assert expected({f"{site}a"}, {f"{site}a"}, 1) == counted(again)


@pytest.mark.parametrize("on_error", ["raise", "schedule"])
def test_without_redis_the_crawl_goes_on(
    crawl: Any, own_counters: dict[str, Any], on_error: str
) -> None:
    """Whatever TBLOOM_ON_ERROR says to a filter."""
    settings = {**own_counters, **DOWN, "TBLOOM_ON_ERROR": on_error}
    result = crawl("pages", settings, ["a", "b", "a"])
    assert ["a", "b"] == sorted(result["fetched"])
    assert {"urls/lost": 2, "hosts/lost": 1} == counted(result)
    assert "finished" == result["finish_reason"]
    assert 1 == result["log"].count("Up to 2 URLs and 1 hosts of this crawl are not counted")
    assert 1 == result["log"].count("can't be counted now")


def test_a_redis_that_fails_in_the_middle_does_not_stop_the_crawl(
    crawl: Any, url: str, own_counters: dict[str, Any]
) -> None:
    """It answers at the start, when the counters are read; then no script call is answered."""
    with LossyProxy(url, lambda _: True) as proxy:
        settings = {**own_counters, "REDIS_URL": proxy.url, "TBLOOM_RETRY_FOR": 0}
        result = crawl("ten_and_hundred", settings)
        assert proxy.lost
    assert 100 == len(result["fetched"])
    assert {"urls/lost": 100, "hosts/lost": 1} == counted(result)
    assert "finished" == result["finish_reason"]
    assert 1 == result["log"].count("can't be counted now")


def test_lost_replies_change_no_count(
    crawl: Any, url: str, site: str, own_counters: dict[str, Any]
) -> None:
    """Every second one."""
    with LossyProxy(url, lambda number: number % 2 == 0) as proxy:
        result = crawl("ten_and_hundred", {**own_counters, "REDIS_URL": proxy.url})
        assert proxy.lost
    urls = {f"{site}{i}" for i in range(100)}
    assert expected(urls, urls, 1) == counted(result)


def test_other_parameters_than_the_stored_stop_the_crawl_at_the_start(
    crawl: Any, own_counters: dict[str, Any]
) -> None:
    crawl("pages", own_counters, ["a"])
    result = crawl("pages", {**own_counters, "TBLOOM_COUNT_SLICES": 3}, ["b"])
    expected = (
        "TBLOOM_COUNT_SLICES is 3, the stored counter has 30: another TBLOOM_COUNT_KEY, or 30"
    )
    assert expected == refusal(result)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"TBLOOM_COUNT_KEY": ""}, "TBLOOM_COUNT_KEY: expected a str that is not empty"),
        ({"TBLOOM_COUNT_KEY": "{a}"}, "TBLOOM_COUNT_KEY: expected a str that is not empty"),
        ({"TBLOOM_COUNT_KEY": "%(day)s"}, "TBLOOM_COUNT_KEY: expected a str in which only"),
        ({"TBLOOM_COUNT_MAPPING": "{a}"}, "TBLOOM_COUNT_MAPPING: expected a str that is not"),
        ({"TBLOOM_COUNT_MAPPING": "%d"}, "TBLOOM_COUNT_MAPPING: expected a str in which only"),
        ({"TBLOOM_COUNT_GRANULARITY": "y"}, "TBLOOM_COUNT_GRANULARITY: expected 'h', 'd', 'w'"),
        ({"TBLOOM_COUNT_SLICES": 0}, "TBLOOM_COUNT_SLICES: expected a whole number from 1"),
        ({"TBLOOM_COUNT_SLICES": "many"}, "TBLOOM_COUNT_SLICES: expected a whole number, got"),
        ({"TBLOOM_COUNT_MAX_MEMBERS": 0}, "TBLOOM_COUNT_MAX_MEMBERS: expected a whole number from"),
        ({"TBLOOM_TIMEZONE": "Mars/Olympus"}, "TBLOOM_TIMEZONE: expected an IANA time zone"),
        ({"TBLOOM_RETRY_FOR": -1}, "TBLOOM_RETRY_FOR: expected a number of seconds"),
        (
            {"TBLOOM_COUNT_SLICE": 4},
            "TBLOOM_COUNT_SLICE: expected TBLOOM_COUNT_SLICES (there is no",
        ),
        ({"REDIS_URL": "http://127.0.0.1"}, "REDIS_URL: expected a URL that starts with redis:"),
        ({"REDIS_PARAMS": {"foo": 1}}, "REDIS_PARAMS: expected what redis-py takes"),
        (
            {"REDIS_PARAMS": {"redis_cls": "redis.asyncio.Redis"}},
            "REDIS_PARAMS: expected a redis-py",
        ),
    ],
)
def test_a_wrong_setting_is_named(
    caplog: pytest.LogCaptureFixture, wrong: dict[str, Any], message: str
) -> None:
    """Also without Redis."""
    with pytest.raises(NotConfigured):
        made({**DOWN, **wrong})
    assert [True] == [said.startswith(message) for said in caplog.messages]


def test_a_wrong_setting_stops_the_crawl_at_the_start(
    crawl: Any, own_counters: dict[str, Any], client: redis.Redis, name: str
) -> None:
    """And the filter is left alone."""
    wrong = {**SCRAPY, **own_counters, "TBLOOM_COUNT_SLICES": 0, "SCHEDULER_FLUSH_ON_START": True}
    client.set(f"{{{name}}}:fingerprinter", "kept", ex=60)
    assert refusal(crawl("pages", wrong, ["a"])).startswith("TBLOOM_COUNT_SLICES: expected")
    assert [f"{{{name}}}:fingerprinter"] == [*client.scan_iter(f"*{name}*")]


class Idle(Spider):
    name = "tests"


class Other(Spider):
    name = "other"


def made(settings: dict[str, Any], spider: type[Spider] = Idle) -> DistinctCounts:
    """The extension of a crawler that is about to run."""
    crawler = Crawler(spider, settings)
    crawler.crawling = True
    crawler.stats = MemoryStatsCollector(crawler)
    return DistinctCounts.from_crawler(crawler)


def receive(extension: DistinctCounts, url: str) -> None:
    extension.response_received(Response(url), Request("https://a.example/"))


def closed(extension: DistinctCounts) -> dict[str, int]:
    """The extension's stats at the end."""
    asyncio.run(extension.spider_closed())
    return counted({"stats": extension._crawler.stats.get_stats()})


def test_members_that_were_not_counted_stay_pending(url: str, own_counters: dict[str, Any]) -> None:
    """The third reply is lost: the members that were counted are new all the same."""
    asked: list[int] = []
    with LossyProxy(url, lambda number: asked.append(number) or number == 3) as proxy:
        extension = made({**own_counters, "REDIS_URL": proxy.url, "TBLOOM_RETRY_FOR": 0})
        receive(extension, "https://a.example/a")
        while len(asked) < 4:
            time.sleep(0.01)
        receive(extension, "https://a.example/b")
        urls = {"https://a.example/a", "https://a.example/b"}
        assert expected(urls, urls, 1) == closed(extension)


def test_a_call_that_fails_while_the_spider_closes_is_the_last_one(
    url: str, own_counters: dict[str, Any]
) -> None:
    """The first script call is the thread's; the reply is lost once the spider closes."""
    asked = []

    def lose(number: int) -> bool:
        asked.append(number)
        extension._closing.set()
        return True

    with LossyProxy(url, lose) as proxy:
        extension = made({**own_counters, "REDIS_URL": proxy.url, "TBLOOM_RETRY_FOR": 0})
        receive(extension, "https://a.example/a")
        extension._thread.join()
        receive(extension, "https://a.example/b")
        assert {"urls/lost": 2, "hosts/lost": 1} == closed(extension)
    assert [1] == asked


@pytest.mark.parametrize("refusal", ["password", "rights"])
def test_a_redis_that_refuses_us_stops_the_crawl_at_the_start(
    caplog: pytest.LogCaptureFixture, own: redis.Redis, own_counters: dict[str, Any], refusal: str
) -> None:
    """It would refuse us later, too."""
    port = own.connection_pool.connection_kwargs["port"]
    own.acl_setuser("reader", enabled=True, passwords=["+right"], keys=["*"], commands=["+get"])
    try:
        password = "wrong" if refusal == "password" else "right"
        settings = {**own_counters, "REDIS_URL": f"redis://reader:{password}@127.0.0.1:{port}/0"}
        with pytest.raises(NotConfigured):
            made(settings)
        assert [True] == [said.startswith("REDIS_URL: ") for said in caplog.messages]
    finally:
        own.acl_deluser("reader")


def test_a_full_mapping_does_not_stop_the_crawl(
    url: str, own_counters: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Members with an id are counted, whatever comes with them; others are lost, and none stays pending."""
    full = {**own_counters, "REDIS_URL": url, "TBLOOM_COUNT_MAX_MEMBERS": "4"}
    first = made(full)
    for page in "ab":
        receive(first, f"https://{page}.example/")
    assert 2 == closed(first)["hosts/new"]
    for key, new in (("other", {"urls/new": 2, "hosts/new": 2}), ("other", {})):
        caplog.clear()
        again = made({**full, "TBLOOM_COUNT_KEY": own_counters["TBLOOM_COUNT_KEY"] + key})
        for page in "abcde":
            receive(again, f"https://{page}.example/")
        stats = closed(again)
        assert {"urls": 2, "hosts": 2, "urls/lost": 3, "hosts/lost": 3} == {
            kind: stats[kind] for kind in ("urls", "hosts", "urls/lost", "hosts/lost")
        }
        assert new == {kind: n for kind, n in stats.items() if kind.endswith("new")}
        assert {"urls": {}, "hosts": {}} == again._pending
        assert 1 == caplog.text.count("TBLOOM_COUNT_MAX_MEMBERS")


def test_a_crawl_goes_on_when_the_mapping_is_full(crawl: Any, own_counters: dict[str, Any]) -> None:
    result = crawl("ten_and_hundred", {**own_counters, "TBLOOM_COUNT_MAX_MEMBERS": 30})
    assert (100, "finished") == (len(result["fetched"]), result["finish_reason"])
    stats = Counter(counted(result))
    assert 30 == stats["urls"] + stats["hosts"]
    assert 100 == stats["urls"] + stats["urls/lost"]
    assert 1 == result["log"].count("are not counted any more")


def test_spiders_that_share_a_key_count_together(client: redis.Redis, url: str, name: str) -> None:
    """They share the mapping, too."""
    settings = {"REDIS_URL": url, "TBLOOM_COUNT_KEY": name}
    for spider, pages, urls in ((Idle, "ab", 2), (Other, "bc", 3)):
        extension = made(settings, spider)
        for page in pages:
            receive(extension, f"https://a.example/{page}")
        assert urls == closed(extension)["urls"]
    more = {"granularity": "d", "slices": 30}
    assert 3 == DistinctCounter(client, f"{name}:urls", f"{name}:ids", **more).count()


def test_members_reach_redis_during_the_crawl(
    client: redis.Redis, url: str, name: str, own_counters: dict[str, Any]
) -> None:
    extension = made({**own_counters, "REDIS_URL": url})
    receive(extension, "https://a.example/a")
    kept = DistinctCounter(client, f"{name}-tests:hosts", f"{name}:ids", granularity="d", slices=30)
    while kept.count() < 1:
        time.sleep(0.01)
    assert 1 == closed(extension)["hosts"]


def test_the_number_of_pending_members_is_limited(own_counters: dict[str, Any]) -> None:
    extension = made({**own_counters, **DOWN})
    members = [b"%d" % i for i in range(MAX_PENDING + 50)]
    for member in members:  # the thread does not run yet
        extension._gather("urls", member)
    assert (MAX_PENDING, 50) == (len(extension._pending["urls"]), extension._lost["urls"])
    batch = {"urls": dict.fromkeys([b"earlier", *members[:10]]), "hosts": {b"a.example": None}}
    extension._put_back(batch)
    assert (MAX_PENDING, 51) == (len(extension._pending["urls"]), extension._lost["urls"])
    assert b"earlier" in extension._pending["urls"]
    assert {"urls/lost": MAX_PENDING + 51, "hosts/lost": 1} == closed(extension)


def test_urls_of_all_kinds(url: str, own_counters: dict[str, Any]) -> None:
    """``data:`` and ``file:`` have no host; an invalid URL is lost, and the others are counted."""
    extension = made({**own_counters, "REDIS_URL": url})
    urls = {"data:,a", "file:///a", "https://B.example:8080/", "http://[::1]/", "http://b.example/"}
    for one in [*urls, "http://[::1/", "http://b.example/\ud800"]:
        receive(extension, one)
    stats = closed(extension)
    assert {"urls": 5, "hosts": 2} == {kind: stats[kind] for kind in KINDS}
    assert (2, None) == (stats["urls/lost"], stats.get("hosts/lost"))


def test_the_slices_are_those_of_the_settings(
    client: redis.Redis, url: str, name: str, own_counters: dict[str, Any]
) -> None:
    """Settings of the command line are strings."""
    texts = {"TBLOOM_COUNT_GRANULARITY": "h", "TBLOOM_COUNT_SLICES": "3"}
    zone = {"TBLOOM_TIMEZONE": "Asia/Tokyo", "REDIS_URL": url}
    extension = made({**own_counters, **texts, **zone})
    receive(extension, "https://a.example/a")
    closed(extension)
    kept = DistinctCounter(
        client, f"{name}-tests:urls", f"{name}:ids", granularity="h", slices=3, tz="Asia/Tokyo"
    )
    assert 1 == kept.count()
