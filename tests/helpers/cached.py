"""Storages of Scrapy's HTTP cache, with the crawler of a spider that does not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from scrapy import Request
from scrapy.downloadermiddlewares.httpcache import HttpCacheMiddleware
from scrapy.http import Response
from scrapy.utils.test import get_crawler

OURS = "tbloom.scrapy.PageCacheStorage"
THEIRS = "scrapy.extensions.httpcache.FilesystemCacheStorage"


def caching(folder: Path, storage: str = OURS) -> dict[str, Any]:
    """The settings of a crawl with a cache in this folder."""
    place = "TBLOOM_PAGES_PATH" if storage == OURS else "HTTPCACHE_DIR"
    return {"HTTPCACHE_ENABLED": True, "HTTPCACHE_STORAGE": storage, place: str(folder)}


class Opened:
    """Scrapy's middleware, whose storage is open."""

    def __init__(
        self, folder: Path, fingerprinter: Any = None, storage: str = OURS, **settings: Any
    ) -> None:
        crawler: Any = get_crawler(None, {**caching(folder, storage), **settings})
        crawler.request_fingerprinter = fingerprinter or crawler.request_fingerprinter
        crawler.spider = self.spider = crawler._create_spider("tests")
        self.middleware = HttpCacheMiddleware.from_crawler(crawler)
        self.storage: Any = self.middleware.storage
        self.storage.open_spider(self.spider)

    def store(self, request: Request | str, response: Response | None = None) -> None:
        request = request if isinstance(request, Request) else Request(request)
        self.storage.store_response(self.spider, request, response or Response(request.url))

    def retrieve(self, request: Request | str) -> Any:
        request = request if isinstance(request, Request) else Request(request)
        return self.storage.retrieve_response(self.spider, request)

    @property
    def stats(self) -> dict[str, int]:
        return self.spider.crawler.stats.get_stats()  # type: ignore[no-any-return]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.storage.close_spider(self.spider)
