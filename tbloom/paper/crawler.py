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

from tbloom.demo.crawler import crawl, say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.http import Response
    from twisted.python.failure import Failure

_ENQUEUED = "scheduler/enqueued/redis"


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
    sys.exit(crawl(ListSpider, json.loads(sys.argv[1])))
