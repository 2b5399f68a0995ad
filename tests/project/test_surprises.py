"""What docs/comparison.md and docs/recipes.md say that other software does, by itself. If a new version does it no more, change them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scrapy_redis.spiders import RedisSpider
from w3lib.url import url_query_cleaner

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
def test_crawlee_empties_a_queue_without_a_name_at_a_start(
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
