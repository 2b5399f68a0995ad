"""A crawler of the demo: ``python -m tbloom.demo.crawler SETTINGS``, Scrapy settings as a JSON object.

As in any project with tbloom, only the settings tell that it is one of several.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.crawler import CrawlerProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.http import Response

_SETTINGS: dict[str, Any] = {
    "ADDONS": {"tbloom.scrapy.Addon": 500},
    # Few, so that each crawler of a small site finds a share of its pages.
    "CONCURRENT_REQUESTS": 4,
    # The site is on the loopback.
    "HTTPPROXY_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "LOG_LEVEL": "ERROR",
}


class SiteSpider(Spider):
    """Follow all links of a site."""

    name = "tbloom-demo"

    async def start(self) -> AsyncIterator[Any]:
        """Yield the request of the start page."""
        yield Request(self.settings["SITE"])

    def parse(self, response: Response, **_kwargs: Any) -> Iterator[Request]:
        """Yield a request for each link."""
        yield from response.follow_all(css="a")  # type: ignore[call-arg]


if __name__ == "__main__":
    process = CrawlerProcess({**_SETTINGS, **json.loads(sys.argv[1])})
    process.crawl(SiteSpider)
    process.start()
