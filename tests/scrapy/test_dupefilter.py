"""The dupefilter under Scrapy's and scrapy-redis' schedulers, in real crawls."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import ExactFilter, LocalBloom, TimeBloom
from tests.helpers.proxy import Proxy
from tests.helpers.schedulers import (
    ADDON,
    DONE,
    SCRAPY,
    SCRAPY_REDIS,
    SETTINGS,
    STORES,
    WAYS,
    refusal,
)

SHARED = SETTINGS["add-on, scrapy-redis"]


@pytest.mark.parametrize("way", [*WAYS, *STORES])
def test_the_filter_outlives_the_crawl_until_it_is_flushed(
    crawl: Any, tmp_path: Path, way: str
) -> None:
    settings = SETTINGS.get(way) or {**SCRAPY, **STORES[way]}
    if way == "local":
        settings["TBLOOM_PATH"] = str(tmp_path / "%(spider)s.tbloom")
    first, again = crawl("pages", settings, ["a", "b"]), crawl("pages", settings, ["a", "c"])
    assert [["a", "b"], ["c"]] == [sorted(first["fetched"]), sorted(again["fetched"])]
    flushing = {**settings, "SCHEDULER_FLUSH_ON_START": True}
    assert ["a"] == crawl("pages", flushing, ["a", "a"])["fetched"]
    assert [] == crawl("pages", settings, ["a"])["fetched"]


@pytest.mark.parametrize("settings", [SCRAPY, SHARED])
def test_redis_url_may_be_valkeys(crawl: Any, url: str, settings: dict[str, Any]) -> None:
    """redis-py, which scrapy-redis uses unless it is told another class, does not know it."""
    own = {"REDIS_URL": url.replace("redis://", "valkey://")}
    first, second = (crawl("pages", {**settings, **own}, ["a", "b", "a"]) for _ in range(2))
    assert (["a", "b"], [], []) == (sorted(first["fetched"]), first["failures"], second["fetched"])


@pytest.mark.parametrize(
    "settings", [SCRAPY_REDIS, SHARED, DONE], ids=["alone", "add-on", "done, Scrapy's scheduler"]
)
def test_a_redis_spider_fetches_each_page_once(
    crawl: Any, client: redis.Redis, site: str, settings: dict[str, Any]
) -> None:
    """Its start request, which comes while the crawl is idle, carries dont_filter, and page 1 is also a link; all other
    requests are filtered."""
    client.rpush("tests:start_urls", json.dumps({"url": f"{site}1"}))
    result = crawl("from_redis", {**settings, "MAX_IDLE_TIME_BEFORE_CLOSE": 1})
    assert sorted([*map(str, range(1, 16)), "1"]) == sorted(result["fetched"])


@pytest.mark.parametrize("store", ["bloom", "local"])
def test_requests_may_be_kept_and_looked_for_more_briefly(
    crawl: Any, tmp_path: Path, url: str, name: str, store: str
) -> None:
    """RedisBloom#94, #115. (Only a filter on Redis looks into fewer.)"""
    path = {"TBLOOM_PATH": str(tmp_path / "seen")} if store == "local" else {}
    within = {} if path else {"tbloom_within": 1}
    pages = [["a", {"tbloom_keep": 2}], ["a", {}], ["b", {}], ["b", within]]
    result = crawl("pages", {**ADDON, "TBLOOM_STORE": store, **path}, pages)
    assert ["a", "b"] == sorted(result["fetched"])
    opened: Any = (
        LocalBloom(capacity=1000, path=path["TBLOOM_PATH"])
        if path
        else TimeBloom.from_url(url, name, capacity=1000)
    )
    with opened as seen:
        assert [0, 1, 0, 0, 0, 0, 1] == [slice.items for slice in seen.info().slices]


@pytest.mark.parametrize("rights", ["+get", "+@all -@sortedset"], ids=["none", "no queue"])
def test_a_crawl_that_redis_refuses_stops_at_the_start(
    crawl: Any, own: redis.Redis, own_url: str, name: str, rights: str
) -> None:
    """Also where only scrapy-redis' queue is refused; or is of another type (scrapy-redis#63, #192)."""
    own.execute_command("ACL", "SETUSER", "reader", "on", ">right", "~*", "+ping", *rights.split())
    port = own.connection_pool.connection_kwargs["port"]
    refused = {"REDIS_URL": f"redis://reader:right@127.0.0.1:{port}/0"}
    try:
        result = crawl("pages", {**SHARED, **refused}, ["a"])
    finally:
        own.acl_deluser("reader")
    assert "permissions" in refusal(result)
    own.rpush(f"{name}:requests", "what a FIFO queue has")
    result = crawl("pages", {**SHARED, "SCHEDULER_PERSIST": True, "REDIS_URL": own_url}, ["a"])
    assert [] == result["fetched"]
    wrong = (
        "SCHEDULER_QUEUE_KEY: the stored queue is not of the type that SCHEDULER_QUEUE_CLASS reads"
    )
    assert 1 == result["log"].count(f"ERROR:tbloom.scrapy.crawl:{wrong}")


@pytest.mark.parametrize("own_settings", [ADDON, DONE, {**ADDON, **STORES["exact"]}])
def test_a_crawl_needs_keys_with_its_prefix_only(
    crawl: Any, own: redis.Redis, own_url: str, own_settings: dict[str, Any]
) -> None:
    """Filters and counters have it."""
    own.execute_command("ACL", "SETUSER", "app1", "reset", "on", ">pw", "~app1:*", "+@all")
    settings = {
        **own_settings,
        "REDIS_URL": own_url.replace("//", "//app1:pw@"),
        "TBLOOM_KEY_PREFIX": "app1:",
        "EXTENSIONS": {"tbloom.scrapy.DistinctCounts": 500},
    }
    first, second = (crawl("pages", settings, ["a", "b", "a"]) for _ in range(2))
    assert (["a", "b"], [], []) == (sorted(first["fetched"]), first["failures"], second["fetched"])
    assert 2 == first["stats"]["tbloom/distinct/urls"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"TBLOOM_MARK": "never"},
        {"TBLOOM_MARK": "done"},
        {"EXTENSIONS": {"tbloom.scrapy.DistinctCounts": 500}, "TBLOOM_COUNT_MAX_MEMBERS": 0},
    ],
)
def test_a_crawl_that_does_not_begin_clears_nothing(
    crawl: Any, client: redis.Redis, url: str, name: str, wrong: dict[str, Any]
) -> None:
    """Though SCHEDULER_FLUSH_ON_START is set."""
    client.zadd(f"{name}:requests", {"of another crawler": 1})
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        seen.add("a")
        settings = {**SHARED, "SCHEDULER_FLUSH_ON_START": True}
        result = crawl("pages", {**settings, **wrong}, ["a"])
        assert ([], "tbloom_error") == (result["fetched"], result["finish_reason"])
        assert "a" in seen
    assert 1 == client.zcard(f"{name}:requests")
    client.delete(f"{name}:requests")


@pytest.mark.parametrize(
    "settings",
    [SCRAPY_REDIS, DONE],
    ids=["scheduled", "done"],
)
def test_a_full_filter_closes_the_spider(crawl: Any, settings: dict[str, Any]) -> None:
    full = {"TBLOOM_GROW": False, "TBLOOM_CAPACITY": 80, "CONCURRENT_REQUESTS": 1}
    result = crawl("ten_and_hundred", {**settings, **full})
    assert "tbloom_error" == result["finish_reason"]
    assert "the current slice is full" in result["log"]
    assert "Traceback" not in result["log"]


# Scrapy's stats


@pytest.mark.parametrize("way", [*WAYS, "add-on, scheduled"])
def test_the_sources_spider_fetches_100_pages_and_filters_10(
    crawl: Any, url: str, name: str, way: str
) -> None:
    """10 requests, then 100 that include those 10. Its stats say so, also those that are set at the end. A page costs few round trips:
    most calls are about many links, or about many pages that are done."""
    calls: list[int] = []
    with Proxy(url, calls.append) as proxy:
        result = crawl("ten_and_hundred", {**SETTINGS[way], "REDIS_URL": proxy.url})
    print(len(calls), "script calls")
    assert len(calls) < (50 if way in ("add-on", "add-on, scheduled") else 150)
    assert sorted(map(str, range(100))) == sorted(result["fetched"])
    assert "redis.connection" not in result["log"]
    stats = result["stats"]
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


# Other stores

BLOOM = {"TBLOOM_STORE": "bloom"}


def test_settings_and_requests_say_how_long_to_remember(
    crawl: Any, client: redis.Redis, name: str
) -> None:
    """A day in place of an hour, or half a second (scrapy-redis#84)."""
    settings = {**SCRAPY, **STORES["exact"], "TBLOOM_TTL": "86400"}
    pages = [["short", {"tbloom_ttl": 0.5}], "long"]
    assert ["long", "short"] == sorted(crawl("pages", settings, pages)["fetched"])
    seen = ExactFilter(client, name)
    while seen.info().items > 1:
        time.sleep(0.05)
    assert ["short"] == crawl("pages", settings, ["short", "long"])["fetched"]
    [bucket] = client.scan_iter(f"{{{name}}}:exact:*")
    assert 86_000_000 < client.pttl(bucket) <= 86_401_000  # a second more


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
def test_wrong_meta_is_named_and_costs_its_link(
    crawl: Any, site: str, settings: dict[str, Any], meta: dict[str, Any], expected: str
) -> None:
    result = crawl("pages", {**SCRAPY, **settings}, [["a", meta]])
    assert ([], "finished") == (result["fetched"], result["finish_reason"])
    [(key, value)] = meta.items()
    said = f"a request is dropped: meta[{key!r}] of <GET {site}a>: expected {expected}"
    assert re.search(f"{re.escape(said)}.*, got {value}\n", result["log"])
