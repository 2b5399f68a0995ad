"""A crawler process of the demo: ``python -m tbloom.demo.crawler SETTINGS``, Scrapy settings as a JSON object.

The crawlers of a run share only a filter. At its end, a crawler writes its stats to stdout as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.crawler import CrawlerProcess

from tbloom.demo.site import links

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.http import Response

_SETTINGS: dict[str, Any] = {
    "ADDONS": {"tbloom.scrapy.Addon": 500},
    # Few, so that each crawler of a small site finds a share of its pages.
    "CONCURRENT_REQUESTS": 4,
    "RETRY_ENABLED": False,
    # The site is on the loopback.
    "HTTPPROXY_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "LOG_LEVEL": "ERROR",
}


class PageSpider(Spider):
    """Follow all links within a site."""

    name = "tbloom-demo"

    async def start(self) -> AsyncIterator[Any]:
        """Yield the request of the start page."""
        yield Request(self.settings["DEMO_START"])

    def parse(self, response: Response, **_kwargs: Any) -> Iterator[Request]:
        """Yield a request for each link."""
        for url in links(response, self.settings["DEMO_SITE"]):
            yield Request(url)


if __name__ == "__main__":
    process = CrawlerProcess({**_SETTINGS, **json.loads(sys.argv[1])})
    crawler = process.create_crawler(PageSpider)
    process.crawl(crawler)
    process.start()
    sys.stdout.write(json.dumps(crawler.stats and crawler.stats.get_stats(), default=str))
