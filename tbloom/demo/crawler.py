"""A crawler process of the demo: ``python -m tbloom.demo.crawler SETTINGS``, a JSON object of Scrapy settings.

The crawlers of a run share a filter and, through scrapy-redis' scheduler, a queue. A crawler writes JSON
objects to stdout, one a line: ``{"ready": true}``, after which it waits for a line on stdin;
``{"page": URL}`` for each page; ``{"failed": URL, "reason": ...}``; and at its end
``{"done": reason, "links": requests checked, "duplicates": filtered, "errors": logged}``.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from typing import TYPE_CHECKING, Any

import redis
from scrapy import Request, Spider, signals
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.http import HtmlResponse, Response
from scrapy_redis.queue import FifoQueue
from scrapy_redis.scheduler import Scheduler
from w3lib.url import canonicalize_url

from tbloom.demo.links import follow, is_page
from tbloom.scrapy import DupeFilter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings
    from twisted.python.failure import Failure
    from typing_extensions import Self

USER_AGENT = "tbloom-demo (+https://github.com/tbloom/tbloom)"
_POLL_SECONDS = 0.05
_QUIET_SECONDS = 0.5
_KEY_SECONDS = 3600
_TIME_IS_UP = "time is up"
_ENDS = {"finished", "closespider_pagecount", _TIME_IS_UP}


def say(**message: Any) -> None:
    """Sends a message to the parent."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class PageSpider(Spider):
    """Follows all links of one host."""

    name = "tbloom-demo"

    def __init__(self, settings: BaseSettings) -> None:
        super().__init__()
        self._seconds = settings.getfloat("DEMO_MAX_SECONDS") or math.inf
        self._deadline = math.inf
        self.first = canonicalize_url(settings["DEMO_START"])
        self.site = "/".join(self.first.split("/")[:3])

    @classmethod
    def from_crawler(cls, crawler: Crawler, *_args: Any, **_kwargs: Any) -> Self:
        """Scrapy's constructor."""
        return super().from_crawler(crawler, crawler.settings)

    async def start(self) -> AsyncIterator[Any]:
        """Yields the start page once all crawlers of the run are ready."""
        say(ready=True)
        if not await asyncio.to_thread(sys.stdin.readline):
            reason = "abandoned"  # the parent has ended
            raise CloseSpider(reason)
        # CLOSESPIDER_TIMEOUT would count the wait too.
        self._deadline = time.monotonic() + self._seconds
        yield Request(self.first, errback=self.failed)

    def parse(self, response: Response, **_kwargs: Any) -> Iterator[Request]:
        """Reports the page, and yields requests for its links."""
        if not (isinstance(response, HtmlResponse) and is_page(response)):
            return
        say(page=response.url)
        self._check_time()
        # A redirect may have led to another site.
        if response.url.startswith(f"{self.site}/"):
            for url in follow(response, self.site):
                yield Request(url, errback=self.failed)

    def failed(self, failure: Failure) -> None:
        """Reports a dead link."""
        request: Request = failure.request  # type: ignore[attr-defined]
        say(failed=request.url, reason=failure.getErrorMessage() or str(failure.type))
        self._check_time()

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise CloseSpider(_TIME_IS_UP)


class CloseTogether:
    """Extension that closes a crawler when all crawlers of the run have been idle for a moment.

    Scrapy would close it as soon as the shared queue is empty, although another crawler may be about to
    fill the queue. So each crawler is a member of a Redis set while it has work.
    """

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        self._server = redis.Redis.from_url(settings["REDIS_URL"])
        self._key: str = settings["DEMO_BUSY_KEY"]
        self._name: str = settings["DEMO_CRAWLER"]
        self._busy = False
        self._quiet_since: float | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Scrapy's constructor."""
        extension = cls(crawler)
        crawler.signals.connect(extension.busy, signals.spider_opened)
        crawler.signals.connect(extension.busy, signals.request_reached_downloader)
        crawler.signals.connect(extension.idle, signals.spider_idle)
        crawler.signals.connect(extension.closed, signals.spider_closed)
        return extension

    def busy(self) -> None:
        """Adds this crawler to the set."""
        if not self._busy:
            self._busy = True
            self._server.sadd(self._key, self._name)
            self._server.expire(self._key, _KEY_SECONDS)

    def idle(self) -> None:
        """Removes this crawler from the set; raises DontCloseSpider while others work or may get work."""
        if self._busy:
            self._busy = False
            self._server.srem(self._key, self._name)
        now = time.monotonic()
        if self._server.scard(self._key):
            self._quiet_since = None
            raise DontCloseSpider
        self._quiet_since = self._quiet_since or now
        if now - self._quiet_since < _QUIET_SECONDS:
            raise DontCloseSpider

    def closed(self) -> None:
        """Removes this crawler from the set, so that the others don't wait for it."""
        self._server.srem(self._key, self._name)
        self._server.close()


def crawl(spider: type[Spider], settings: dict[str, Any]) -> int:
    """Crawls. Returns 0: the crawl came to its end; 1: it did not."""
    # An idle engine looks into its queue every 5 s. Scrapy has no setting for that, and its public
    # ways to wake up the engine all need a request or an item.
    ExecutionEngine._SLOT_HEARTBEAT_INTERVAL = _POLL_SECONDS  # noqa: SLF001
    process = CrawlerProcess({**_SETTINGS, **settings})
    crawler = process.create_crawler(spider)
    process.crawl(crawler)
    process.start()
    stats = crawler.stats.get_stats() if crawler.stats else {}
    reason = stats.get("finish_reason", "not started")
    say(
        done=reason,
        links=stats.get("tbloom/new", 0) + stats.get("tbloom/seen", 0),
        duplicates=stats.get("bloomfilter/filtered", 0),
        errors=stats.get("log_count/ERROR", 0),
    )
    return 0 if reason in _ENDS else 1


_SETTINGS: dict[str, Any] = {
    "SCHEDULER": Scheduler,
    # The default queue, a sorted set, would hide duplicate requests.
    "SCHEDULER_QUEUE_CLASS": FifoQueue,
    # The crawler that ends first must not delete the queue.
    "SCHEDULER_PERSIST": True,
    "DUPEFILTER_CLASS": DupeFilter,
    "USER_AGENT": USER_AGENT,
    "CONCURRENT_REQUESTS": 4,
    # Scrapy starts as many tasks for each page (100 otherwise).
    "CONCURRENT_ITEMS": 4,
    "DOWNLOAD_DELAY": 0,
    "ROBOTSTXT_OBEY": False,
    "RETRY_ENABLED": False,
    "RETRY_TIMES": 1,
    # A proxy is not for the loopback.
    "HTTPPROXY_ENABLED": False,
    "COOKIES_ENABLED": False,
    "METAREFRESH_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "LOG_LEVEL": "ERROR",
}


if __name__ == "__main__":
    sys.exit(crawl(PageSpider, {"EXTENSIONS": {CloseTogether: 0}, **json.loads(sys.argv[1])}))
