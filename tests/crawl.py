"""One crawl in a process of its own: settings and the spider's arguments come as JSON.

    python tests/crawl.py '{"spider": "ten_and_hundred", "site": "http://...", "settings": {...}}'

Prints one JSON line: the pages fetched, the stats, and the log.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response
from scrapy_redis.spiders import RedisSpider


class Fetching:
    """Notes each page that is fetched."""

    name = "tests"
    site: str
    fetched: list[str]

    def note(self, response: Response) -> None:
        self.fetched.append(response.url.removeprefix(self.site))


class TenAndHundred(Fetching, scrapy.Spider):
    """The sources' spider: asks for 10 pages, then for 100 that include those 10."""

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for i in range(10):
            yield scrapy.Request(f"{self.site}{i}", self.parse_ten)

    def parse_ten(self, response: Response) -> Iterator[scrapy.Request]:
        self.note(response)
        if len(self.fetched) == 10:
            for i in range(100):
                yield scrapy.Request(f"{self.site}{i}", self.note)


class Pages(Fetching, scrapy.Spider):
    """Asks for the pages that it is given, with their meta; after a pause of so many seconds each."""

    pages: list[list[Any]]
    pause: float

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for page, meta in self.pages:
            if self.pause:
                await asyncio.sleep(self.pause)
            yield scrapy.Request(f"{self.site}{page}", self.note, meta=meta)


class FromRedis(Fetching, RedisSpider):
    """A RedisSpider: start URLs come from a list in Redis; each page leads to two more and to itself."""

    redis_key = "tests:start_urls"

    def parse(self, response: Response) -> Iterator[scrapy.Request]:
        self.note(response)
        number = int(response.url.removeprefix(self.site))
        for next_number in (number, 2 * number, 2 * number + 1):
            if next_number < 16:
                yield response.follow(f"/{next_number}", self.parse)


SPIDERS = {"ten_and_hundred": TenAndHundred, "pages": Pages, "from_redis": FromRedis}


def main() -> None:
    job = json.loads(sys.argv[1])
    log = io.StringIO()
    logging.basicConfig(stream=log, level=logging.DEBUG)
    settings = {"TELNETCONSOLE_ENABLED": False, "LOG_ENABLED": False, "RETRY_ENABLED": False}
    process = CrawlerProcess({**settings, **job["settings"]}, install_root_handler=False)
    crawler = process.create_crawler(SPIDERS[job["spider"]])
    fetched: list[str] = []
    spider = {"pages": job.get("pages"), "pause": job.get("pause", 0)}
    outcome = process.crawl(crawler, site=job["site"], fetched=fetched, **spider)
    failures: list[str] = []
    outcome.addErrback(lambda failure: failures.append(f"{failure.type.__name__}: {failure.value}"))
    process.start()
    stats = {
        name: value for name, value in crawler.stats.get_stats().items() if isinstance(value, int)
    }
    print(
        json.dumps(
            {
                "fetched": fetched,
                "stats": stats,
                "finish_reason": crawler.stats.get_value("finish_reason"),
                "failures": failures,
                "log": log.getvalue(),
            }
        )
    )


if __name__ == "__main__":
    main()
