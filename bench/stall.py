"""Crawls with Redis at some distance: how long the event loop stands still, and how fast they are.

Each crawl is a process of its own, ``python -m bench.stall SETTINGS PAGES``, in which pages cost nothing to download.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.http import Response, TextResponse

from bench.delay import delayed
from bench.serving import Server
from bench.tables import Table

#: A round trip (s).
DELAYS = 0, 0.005, 0.05
#: New links of a page.
LINKS = 100
_ADDON = {"ADDONS": {"tbloom.scrapy.Addon": 500}}
WAYS: dict[str, dict[str, Any]] = {
    "Scrapy's filter, in memory": {},
    "scrapy-redis' filter": {"DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter"},
    "`DUPEFILTER_CLASS`": {"DUPEFILTER_CLASS": "tbloom.scrapy.DupeFilter"},
    **{
        f'add-on, `"{mark}"`': {**_ADDON, "TBLOOM_MARK": mark}
        for mark in ("scheduled", "parsed", "done")
    },
}


class Downloads:
    """Answers every request at once."""

    lazy = False

    async def download_request(self, request: Request) -> Response:
        return TextResponse(request.url, request=request)

    async def close(self) -> None:
        pass


class Numbers(Spider):
    """Each page has ``LINKS`` new links, until there are enough pages, and one item."""

    name = "stall"
    pages: int
    began = ended = longest = 0.0
    parsed = 0

    async def start(self) -> AsyncIterator[Request]:
        self.watching = asyncio.ensure_future(self.watch())
        yield Request("http://site.example/0")

    async def watch(self) -> None:
        """Measures how late the event loop comes back."""
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            if self.began and self.parsed < self.pages:
                self.longest = max(self.longest, time.perf_counter() - before)

    def parse(self, response: Response) -> Iterator[Any]:
        self.began = self.began or time.perf_counter()
        number = int(response.url.rpartition("/")[2])
        for link in range(LINKS * number + 1, min(LINKS * (number + 1) + 1, self.pages)):
            yield response.follow(f"/{link}")
        yield {"page": number}
        self.parsed += 1
        self.ended = time.perf_counter()


def measure(server: Server, *, pages: int, rounds: int) -> list[Table]:
    """The longest stall and the rate of each way at each delay; the best of some rounds."""
    rows = {name: [name] for name in WAYS}
    for delay in DELAYS:
        with delayed(server.port, delay / 2) as url:
            for name, settings in WAYS.items():
                found = []
                for _ in range(rounds):
                    found.append(_crawl({"REDIS_URL": url, **settings}, pages))
                    server.empty()
                rows[name] += [min(stall for stall, _ in found), max(rate for _, rate in found)]
    columns = {"": ""}
    for delay in DELAYS:
        columns |= {f"{1000 * delay:g} ms: stall s": ".2f", f"{1000 * delay:g} ms: pages/s": ",.0f"}
    return [Table("stall", columns, [*rows.values()])]


def _crawl(settings: dict[str, Any], pages: int) -> tuple[float, float]:
    """The longest stall (s), and pages a second."""
    command = [sys.executable, "-m", "bench.stall", json.dumps(settings), str(pages)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    parsed, longest, seconds = json.loads(done.stdout)
    assert parsed == pages, f"{settings}: {parsed} of {pages} pages"
    return longest, pages / seconds


def main() -> None:
    """One crawl."""
    handlers = {"DOWNLOAD_HANDLERS": {"http": Downloads}, "LOG_LEVEL": "ERROR"}
    process = AsyncCrawlerProcess({**handlers, **json.loads(sys.argv[1])})
    crawler = process.create_crawler(Numbers)
    process.crawl(crawler, pages=int(sys.argv[2]))
    process.start()
    spider: Any = crawler.spider
    print(json.dumps([spider.parsed, spider.longest, spider.ended - spider.began]))


if __name__ == "__main__":
    main()
