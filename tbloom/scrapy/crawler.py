"""What tbloom asks of Scrapy's crawler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.utils.defer import deferred_from_coro

if TYPE_CHECKING:
    import logging

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

#: The reason with which a spider is closed when Redis fails and TBLOOM_ON_ERROR is "raise".
ERROR_REASON = "tbloom_error"


def spider_of(crawler: Crawler) -> Spider:
    """The spider of a running crawl."""
    assert crawler.spider is not None  # noqa: S101 - the crawl is running
    return crawler.spider


def fingerprint(crawler: Crawler, request: Request) -> bytes:
    """The request's fingerprint in a running crawl."""
    assert crawler.request_fingerprinter is not None  # noqa: S101 - the crawl is running
    return crawler.request_fingerprinter.fingerprint(request)


def count(crawler: Crawler | None, stat: str, times: int = 1) -> None:
    """Adds to one of the crawl's stats, if there is a crawl."""
    if crawler and crawler.stats:
        crawler.stats.inc_value(stat, times)


class CrawlEnd:
    """The end of a crawl by an error. (After a mere exception Scrapy would lose the request and end as "finished".)"""

    def __init__(self, crawler: Crawler | None) -> None:
        self._crawler = crawler
        #: True if the crawl ends: no request is asked for any more, or marked or released.
        self.has_begun = False

    def begin(self) -> None:
        """Ends the crawl, if there is one."""
        if self._crawler is None or self.has_begun:
            return
        self.has_begun = True
        engine = self._crawler.engine
        if engine and engine.spider:
            deferred_from_coro(engine.close_spider_async(reason=ERROR_REASON))


class OnceLogger:
    """Logs each message once in a crawl, whatever its values are."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._logged: set[str] = set()

    def log(self, level: int, message: str, *values: object, **options: Any) -> None:
        """Logs the message, as ``Logger.log`` does, unless it was logged before."""
        if message not in self._logged:
            self._logged.add(message)
            self._logger.log(level, message, *values, **options)
