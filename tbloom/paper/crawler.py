"""A crawler process of the paper's crawls: ``python -m tbloom.paper.crawler SETTINGS``, a JSON object.

The crawlers share a filter and scrapy-redis' queue. A crawler says ``{"ready": true}``; for each line on stdin
it makes a crawl: it asks for the pages of a list in random order until as many were new as it
shall fetch, and says ``{"asked": number}``. ``{"page": URL}`` or ``{"failed": URL, "reason": ...}`` is said of
each, by the crawler that got it from the queue.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import CrawlerProcess
from scrapy_redis.queue import FifoQueue
from scrapy_redis.scheduler import Scheduler

from tbloom.scrapy import DupeFilter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.http import Response
    from twisted.python.failure import Failure

_ENQUEUED = "scheduler/enqueued/redis"


_SETTINGS: dict[str, Any] = {
    "SCHEDULER": Scheduler,
    # The default queue, a sorted set, would hide duplicate requests.
    "SCHEDULER_QUEUE_CLASS": FifoQueue,
    # The crawler that ends first must not delete the queue.
    "SCHEDULER_PERSIST": True,
    "DUPEFILTER_CLASS": DupeFilter,
    "CONCURRENT_REQUESTS": 4,
    "RETRY_ENABLED": False,
    "HTTPPROXY_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "LOG_LEVEL": "ERROR",
}


def say(**message: Any) -> None:
    """Sends a message to the parent."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class ListSpider(Spider):
    """Fetches new pages of a list."""

    name = "tbloom-paper"

    async def start(self) -> AsyncIterator[Any]:
        """Yields the requests of each crawl."""
        say(ready=True)
        urls, pages = self.settings.getlist("PAPER_URLS"), self.settings.getint("PAPER_PAGES")
        while await asyncio.to_thread(sys.stdin.readline):
            before = self._enqueued()
            for url in random.sample(urls, len(urls)):
                # The scheduler has answered for each request before the next one is asked for.
                if self._enqueued() - before == pages:
                    break
                yield Request(url, errback=self.failed)
            say(asked=self._enqueued() - before)

    def parse(self, response: Response, **_kwargs: Any) -> None:
        """Reports the page."""
        say(page=response.url)

    def failed(self, failure: Failure) -> None:
        """Reports a page that could not be fetched."""
        request: Request = failure.request  # type: ignore[attr-defined]
        say(failed=request.url, reason=failure.getErrorMessage())

    def _enqueued(self) -> int:
        stats = self.crawler.stats
        return stats.get_value(_ENQUEUED, 0) if stats else 0


if __name__ == "__main__":
    # An idle engine looks into its queue every 5 s; Scrapy has no setting for that.
    ExecutionEngine._SLOT_HEARTBEAT_INTERVAL = 0.05  # noqa: SLF001
    process = CrawlerProcess({**_SETTINGS, **json.loads(sys.argv[1])})
    process.crawl(ListSpider)
    process.start()
