"""Crawls with an HTTP cache, and storages of such a cache by themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.misc import load_object
from scrapy.utils.request import RequestFingerprinter
from typing_extensions import Self

from tests.helpers import forked

DOCUMENTATION = Path("/usr/share/doc/python3.11/html")
OURS = "tbloom.scrapy.PageCacheStorage"
THEIRS = "scrapy.extensions.httpcache.FilesystemCacheStorage"


def run(*rounds: list[dict[str, Any]], **job: Any) -> tuple[list[dict[str, Any]], str]:
    """Runs the crawls, round by round; returns their results and the log."""
    given = json.dumps({"rounds": rounds, **job})
    done = forked.run("tests.helpers.cachecrawl", stdin=given)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["crawls"], found["log"]


def a_crawl(folder: Path, urls: list[str], **settings: Any) -> dict[str, Any]:
    """A crawl with our cache in a folder."""
    own = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_STORAGE": OURS, "TBLOOM_PAGES_PATH": str(folder)}
    name = settings.pop("name", "tests")
    return {"name": name, "settings": own | settings, "requests": [{"url": url} for url in urls]}


def comparable(result: dict[str, Any]) -> list[str]:
    """The items that must be the same, sorted."""
    for item in result["got"]:
        if item["url"].endswith("/undated") and "error" not in item:
            assert item["headers"].pop("Date")  # Scrapy's, when it came
        # From 2.19 on Scrapy's storage gives back more of a response.
        for name in ("flags", "ip", "protocol", "encoding", "stamped"):
            item.pop(name, None)
    return sorted(json.dumps(item, sort_keys=True) for item in result["got"])


class Idle(Spider):
    name = "tests"


class Opened:
    """A storage, with the crawler of a spider that does not run."""

    def __init__(
        self, folder: Path, fingerprinter: Any = None, storage: str = OURS, **settings: Any
    ) -> None:
        own = {"TBLOOM_PAGES_PATH" if storage == OURS else "HTTPCACHE_DIR": str(folder)}
        given = Settings({**own, **settings})
        self.storage = load_object(storage)(given)
        crawler = Crawler(Idle, given)
        crawler.stats = MemoryStatsCollector(crawler)
        crawler.request_fingerprinter = fingerprinter or RequestFingerprinter(crawler)
        self.spider = Idle.from_crawler(crawler)
        self.storage.open_spider(self.spider)

    def store(self, request: Request | str, response: Response | None = None) -> None:
        request = request if isinstance(request, Request) else Request(request)
        self.storage.store_response(self.spider, request, response or Response(request.url))

    def retrieve(self, request: Request | str) -> Response | None:
        request = request if isinstance(request, Request) else Request(request)
        return self.storage.retrieve_response(self.spider, request)

    @property
    def stats(self) -> dict[str, int]:
        return self.spider.crawler.stats.get_stats()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.storage.close_spider(self.spider)
