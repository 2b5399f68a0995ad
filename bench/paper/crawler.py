"""A crawler process of the paper's crawls: ``python -m bench.paper.crawler SETTINGS``, a JSON object.

For each line on stdin it makes a crawl: it asks for the pages of a list in random order until as many were new as it
shall fetch, and prints their URLs as JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response


class ListSpider(Spider):
    """Fetches new pages of a list."""

    name = "paper"

    async def start(self) -> AsyncIterator[Any]:
        """Yields the requests of each crawl."""
        urls, count = self.settings.getlist("PAPER_URLS"), self.settings.getint("PAPER_PAGES")
        print("[]", flush=True)  # it is ready
        while await asyncio.to_thread(sys.stdin.readline):
            self.fetched, before = list[str](), self._enqueued()
            for url in random.sample(urls, len(urls)):
                # The scheduler has answered for each request before the next one is asked for.
                if self._enqueued() - before == count:
                    break
                yield Request(url)
            while len(self.fetched) < self._enqueued() - before:  # noqa: ASYNC110 - nothing to wait for
                await asyncio.sleep(0.01)
            print(json.dumps(self.fetched), flush=True)

    def parse(self, response: Response, **_: Any) -> None:
        """Notes the page."""
        self.fetched.append(response.url)

    def _enqueued(self) -> int:
        assert self.crawler.stats
        return int(self.crawler.stats.get_value("scheduler/enqueued", 0))


if __name__ == "__main__":
    process = CrawlerProcess(json.loads(sys.argv[1]))
    process.crawl(ListSpider)
    process.start()
