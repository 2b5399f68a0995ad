"""The downloader and its middlewares."""

from __future__ import annotations

from functools import cached_property
from types import SimpleNamespace
from typing import Any

from scrapy import Request
from scrapy.core.downloader.middleware import DownloaderMiddlewareManager
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.request import RequestFingerprinterProtocol


class _Engine:
    """The engine of a crawl that does not run: in it, add-ons' fingerprinters look for downloader middlewares."""

    def __init__(self, crawler: Any) -> None:
        self._crawler = crawler
        crawler.engine = self

    @cached_property
    def downloader(self) -> SimpleNamespace:
        """The middlewares, made only for a fingerprinter that asks for them."""
        self._crawler.engine = None  # as in a crawl, until they are made
        made = DownloaderMiddlewareManager.from_crawler(self._crawler)
        self._crawler.engine = self
        return SimpleNamespace(middleware=made)


def make_fingerprinter(crawler: Crawler) -> RequestFingerprinterProtocol:
    """Return the fingerprinter of a crawl, for a crawler that does not run. What it counts, nobody reads.

    Without it, scrapy-poet's fingerprinter, and others that ask the crawler for its engine or its stats, raise an error.
    """
    crawler.stats = MemoryStatsCollector(crawler)
    kind = load_object(crawler.settings["REQUEST_FINGERPRINTER_CLASS"])
    made: RequestFingerprinterProtocol = build_from_crawler(kind, crawler)
    crawler.request_fingerprinter = made
    _Engine(crawler)
    return made


def is_forbidden(error: BaseException, request: Request, crawler: Crawler) -> bool:
    """Return whether Scrapy's own middlewares for robots.txt and for other sites have raised this IgnoreRequest.

    Without it (they say so in the exception's text only), such a page has failed.
    """
    return str(error) == "Forbidden by robots.txt" or is_offsite(request, crawler)


def is_offsite(request: Request, crawler: Crawler) -> bool:
    """Return whether Scrapy's middleware for other sites drops the request. Without it, such a page has failed."""
    middleware = crawler.get_downloader_middleware(OffsiteMiddleware)
    if middleware is None or request.dont_filter or request.meta.get("allow_offsite"):
        return False
    assert crawler.spider is not None  # noqa: S101 - the crawl is running
    return not middleware.should_follow(request, crawler.spider)
