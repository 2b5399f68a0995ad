"""What docs/comparison.md says that other software does, by itself. If a new version does it no more, change the row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
from cachetools import LRUCache
from crawlee import Request as CrawleeRequest
from redis.backoff import NoBackoff
from redis.retry import Retry
from scrapy import Request, Spider
from scrapy.utils.test import get_crawler
from scrapy_redis.queue import PriorityQueue
from scrapy_redis.spiders import RedisSpider
from w3lib.url import url_query_cleaner

from tbloom import LocalBloom

pytestmark = pytest.mark.check
URL = "https://example.com/"


def test_a_field_of_scrapy_redis_json_replaces_the_query() -> None:
    spider: Any = RedisSpider("shop", redis_encoding="utf-8")
    make = spider.make_request_from_data
    assert f"{URL}?job=7" == make(b'{"url": "https://example.com/?page=2", "job": "7"}').url
    with pytest.raises(TypeError):
        make(b'{"url": "https://example.com/", "job": 7}')


def test_scrapy_redis_queue_gives_the_shortest_request_first(url: str, name: str) -> None:
    spider = get_crawler(Spider)._create_spider("shop")
    urls = [f"{URL}{'a' * length}" for length in (3, 2, 1)]
    with redis.Redis.from_url(url) as client:
        queue = PriorityQueue(client, spider, name)
        for each in urls:
            queue.push(Request(each))
        assert urls[::-1] == [queue.pop().url for _ in urls]


def test_w3lib_drops_a_parameter_that_comes_twice() -> None:
    """w3lib#137, in another of its functions. The recipe keeps both."""
    url = f"{URL}?tag=a&tag=b&utm_source=c"
    assert f"{URL}?tag=a" == url_query_cleaner(url, ["utm_source"], remove=True)
    kept = url_query_cleaner(url, ["utm_source"], remove=True, unique=False)
    assert f"{URL}?tag=a&tag=b" == kept


def test_crawlee_takes_urls_in_small_and_capital_letters_for_one() -> None:
    urls = [f"{URL}A?q=B%2FC", f"{URL}a?q=b%2Fc"]
    assert 1 == len({CrawleeRequest.from_url(url).unique_key for url in urls})
    assert 2 == len({CrawleeRequest.from_url(url, unique_key=url).unique_key for url in urls})


@pytest.mark.parametrize(("name", "kept"), [("", 0), ("shop", 1)])
def test_crawlee_empties_a_queue_without_a_name_at_the_next_start(
    tmp_path: Path, name: str, kept: int
) -> None:
    code = """
import asyncio, sys
from crawlee.configuration import Configuration
from crawlee.storage_clients import FileSystemStorageClient
from crawlee.storages import RequestQueue

async def main(name, folder):
    where = {"configuration": Configuration(storage_dir=folder)}
    queue = await RequestQueue.open(name=name or None, storage_client=FileSystemStorageClient(), **where)
    print((await queue.get_metadata()).total_request_count)
    await queue.add_request("https://example.com/")

asyncio.run(main(*sys.argv[1:]))
"""
    command = [sys.executable, "-c", code, name, str(tmp_path)]
    found = [int(subprocess.check_output(command)) for _ in range(2)]
    assert [0, kept] == found


def test_redis_py_gives_up_a_call_that_blocks_for_longer_than_its_time_out(url: str) -> None:
    assert 5 == redis.Redis().connection_pool.connection_kwargs["socket_timeout"]
    impatient = {"socket_timeout": 0.2, "retry": Retry(NoBackoff(), 1)}
    with (
        redis.Redis.from_url(url, **impatient) as client,
        pytest.raises(redis.TimeoutError),
    ):
        client.blpop(["none"], timeout=1)
    with redis.Redis.from_url(url, socket_timeout=None) as client:
        assert client.blpop(["none"], timeout=1) is None


def test_an_lru_cache_that_is_asked_by_in_forgets_the_page_that_all_link_to() -> None:
    cache, seen, new = LRUCache[str, bool](100), LocalBloom(slices=7), [0, 0]
    for page in map(str, range(1_000)):
        for url in ("home", page):
            new[0] += url == "home" and url not in cache
            if url not in cache:
                cache[url] = True
            new[1] += seen.add(url) and url == "home"
    assert [10, 1] == new
