"""Spiders and spider middlewares with the methods by which crawls began before Scrapy 2.13: a Scrapy that never calls these fetches
nothing, and says nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tbloom.scrapy.hooks.starts import CALLS_OLD
from tests.helpers.folders import Folder

pytestmark = pytest.mark.skipif(CALLS_OLD, reason="this Scrapy calls them, and warns")

HEAD = """
import functools, scrapy, scrapy_redis.spiders, tbloom.scrapy
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware
class Old(scrapy.Spider):
    def start_requests(self): return [scrapy.Request("http://127.0.0.1:1/")]
class New(scrapy.Spider):
    async def start(self): yield scrapy.Request("http://127.0.0.1:1/")
class Calls(scrapy.Spider):
    async def start(self):
        for each in self.start_requests(): yield each
class OldMiddleware:
    def process_start_requests(self, start, spider): return start
class Both(OldMiddleware):
    async def process_start(self, start):
        async for each in start: yield each
class OldBase(BaseSpiderMiddleware):
    def process_start_requests(self, start, spider): return start
class Starts:
    async def process_start(self, start):
        for each in self.spider.start_requests(): yield each
class Mixin:
    def start_requests(self): yield scrapy.Request("http://127.0.0.1:1/")
def kept(function):
    @functools.wraps(function)
    async def started(self):
        async for each in function(self): yield each
    return started
"""
#: Each spider, and whose method is never called; "": it works.
CASES = {
    "class S(Old)": "spiders.Old.start_requests()",
    "class S(Mixin, scrapy.Spider)": "spiders.Mixin.start_requests()",
    "class S(Mixin, New)": "",
    "class S(Mixin, scrapy.spiders.SitemapSpider)": "spiders.Mixin.start_requests()",
    "class S(Mixin, tbloom.scrapy.SitemapSpider)": "spiders.Mixin.start_requests()",
    "class S(Mixin, scrapy_redis.spiders.RedisSpider)": "spiders.Mixin.start_requests()",
    "class S(New)": "",
    "class S(New, Mixin)": "",
    "class S(Old):\n    async def start(self): yield scrapy.Request('http://127.0.0.1:1/')": "",
    "class S(Mixin, Calls)": "",
    "class S(Mixin, Calls):\n    start = kept(Calls.start)": "",
    "class S(Old):\n    async def start(self):\n        async for each in super().start(): yield each": "",
    "class S(Old):\n    @classmethod\n    def from_crawler(cls, crawler):\n        made = super().from_crawler(crawler)\n"
    "        made.first = getattr(made, 'start_requests')\n        return made": "",
    "class S(scrapy_redis.spiders.RedisSpider)": "",
    "class S(tbloom.scrapy.SitemapSpider)": "",
    "class S(New):\n    custom_settings = {'SPIDER_MIDDLEWARES': {'spiders.OldMiddleware': 1}}": "spiders.OldMiddleware.process_start_requests()",
    "class S(New):\n    custom_settings = {'SPIDER_MIDDLEWARES': {'spiders.OldBase': 1}}": "spiders.OldBase.process_start_requests()",
    "class S(New):\n    custom_settings = {'SPIDER_MIDDLEWARES': {'spiders.Both': 1}}": "",
    "class S(New):\n    custom_settings = {'SPIDER_MIDDLEWARES': {'spiders.OldMiddleware': None}}": "",
    "class S(Old):\n    custom_settings = {'SPIDER_MIDDLEWARES': {'spiders.Starts': 1}}": "",
}


@pytest.mark.parametrize("spider", CASES)
def test_a_spider_that_begins_by_an_old_method_is_noted(
    spider: str, own_url: str, tmp_path: Path
) -> None:
    """And no other one (scrapy#7490, alltheplaces#16157)."""
    body = f"{HEAD}\n{spider}" + (":\n" if "\n" not in spider else "\n") + "    name = 's'\n"
    code, lines = Folder(tmp_path, body, REDIS_URL=own_url).doctor()
    notes = [line for line in lines if "never calls" in line]
    assert (0, bool(CASES[spider])) == (code, bool(notes)), lines
    assert CASES[spider] in "".join(notes)


@pytest.mark.parametrize("spider", ["Old", "Calls"])
def test_a_crawl_that_begins_by_an_old_method_warns(
    spider: str, own_url: str, tmp_path: Path
) -> None:
    body = f"{HEAD}\nclass S(Mixin, {spider}): name = 's'\n"
    folder = Folder(tmp_path, body, REDIS_URL=own_url, RETRY_ENABLED=False)
    words = [sys.executable, "-m", "scrapy", "crawl", "s"]
    log = subprocess.run(words, cwd=folder.path, capture_output=True, text=True, check=True).stderr
    assert (spider == "Old") == (
        "Scrapy " in log
        and "never calls spiders.Mixin.start_requests(): add 'async def start" in log
    )
