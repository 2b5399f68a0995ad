"""What docs/comparison.md and docs/recipes.md say that other software does, by itself. If a new version does it no more, change them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cachetools import LRUCache
from scrapy.utils.misc import load_object
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


def test_w3lib_drops_a_parameter_that_comes_twice() -> None:
    """w3lib#137, in another of its functions. The recipe keeps both."""
    url = f"{URL}?tag=a&tag=b&utm_source=c"
    assert f"{URL}?tag=a" == url_query_cleaner(url, ["utm_source"], remove=True)
    kept = url_query_cleaner(url, ["utm_source"], remove=True, unique=False)
    assert f"{URL}?tag=a&tag=b" == kept


def test_crawlee_takes_urls_in_small_and_capital_letters_for_one() -> None:
    from crawlee import Request  # noqa: PLC0415 - slow, and only needed here

    urls = [f"{URL}A?q=B%2FC", f"{URL}a?q=b%2Fc"]
    assert 1 == len({Request.from_url(url).unique_key for url in urls})
    assert 2 == len({Request.from_url(url, unique_key=url).unique_key for url in urls})


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


def test_an_lru_cache_that_is_asked_by_in_forgets_the_page_that_all_link_to() -> None:
    cache, seen, new = LRUCache[str, bool](100), LocalBloom(slices=7), [0, 0]
    for page in map(str, range(1_000)):
        for url in ("home", page):
            new[0] += url == "home" and url not in cache
            if url not in cache:
                cache[url] = True
            new[1] += seen.add(url) and url == "home"
    assert [10, 1] == new


@pytest.mark.parametrize("kind", ["moka_py.Moka", "theine.Cache"])
def test_a_tinylfu_cache_that_is_full_does_not_take_new_urls(kind: str) -> None:
    """spiceai#12938. Whose URLs are all set once: nearly all of the last ones are missing, and would be fetched again."""
    cache, seen, last = load_object(kind)(1_000), LocalBloom(slices=7), range(9_500, 10_000)
    for page in map(str, range(10_000)):
        cache.set(page, "seen")
        seen.add(page)
    # theine gives a pair.
    assert sum(cache.get(str(page)) in ("seen", ("seen", True)) for page in last) < 100
    assert all(str(page) in seen for page in last)


def test_a_rocksdb_with_a_ttl_drops_all_once_it_is_opened_again(tmp_path: Path) -> None:
    """RocksDict#56. However young it is, at a compaction, which comes by itself."""
    import rocksdict  # noqa: PLC0415 - only needed here

    def compacted(name: str, openings: int) -> bool:
        ttl = rocksdict.AccessType.with_ttl(604_800)
        for opening in range(openings):
            database = rocksdict.Rdict(str(tmp_path / name), access_type=ttl)
            if not opening:
                database[URL] = "seen"
            if opening == openings - 1:
                database.compact_range(None, None)
            found = URL in database
            database.close()
        return found

    assert [True, False] == [compacted("once", 1), compacted("again", 3)]
