"""The paper's crawls: one in each slice, by two Scrapy processes that share a filter with slices of some seconds.

A process is ``python -m bench.paper.crawls SETTINGS``, Scrapy settings as a JSON object. For each line on stdin it crawls
once, and prints the URLs of the pages that it has fetched as JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from scrapy import Request, Spider
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response

from bench.paper.rates import HASHES
from bench.serving import Server
from bench.tables import Table
from tbloom import TimeBloom
from tbloom.engine.server import server_time

CRAWLERS = 2
#: The pages of the site, and those of a crawl, which fill a slice.
SITE_PAGES, PAGES = 300, 100
#: A slice has 2^BIT bits, as scrapy-redis-bloomfilter has it.
BIT = 12


class Plan(NamedTuple):
    """Crawls, one in each slice, and what they had in common."""

    noun: str
    slices: int
    #: Seconds of a slice.
    period: int
    #: How many pages each pair of crawls has in common.
    overlaps: list[list[int]]
    #: For each crawl, those whose slices are on the server at its end.
    kept: list[list[int]]


def measure(server: Server, noun: str, slices: int, crawls: int, period: int = 4) -> Plan:
    """Make the crawls. If one takes longer than its slice, make all of them again with longer slices."""
    server.empty()
    pages, kept, in_time = _crawls(server, slices, crawls, period)
    if not in_time:
        print(f"a crawl took longer than {period} s: all again, with longer slices")
        return measure(server, noun, slices, crawls, 2 * period)
    overlaps = [[len({*one} & {*other}) for other in pages] for one in pages]
    return Plan(noun, slices, period, overlaps, kept)


def kept(plan: Plan) -> Table:
    """Return a table of which slices are on the server at the end of each crawl."""
    rows = [
        [f"day {n}", plan.overlaps[n - 1][n - 1], ", ".join(f"day {day}" for day in days)]
        for n, days in enumerate(plan.kept, 1)
    ]
    return Table("kept", {"": "", "pages": "d", "slices on the server at its end": ""}, rows)


def _crawls(
    server: Server, slices: int, crawls: int, period: int
) -> tuple[list[list[str]], list[list[int]], bool]:
    """Return the pages of each crawl, the crawls whose slices are kept, and whether each crawl ended within its slice."""
    sizes: dict[str, Any] = {"capacity": PAGES, "bits": 1 << BIT, "hashes": HASHES}
    seen = TimeBloom(server.client, "paper", granularity=f"{period}s", slices=slices, **sizes)
    config = seen.config

    def now() -> int:
        return seen.run(server_time(config))

    settings = {
        "REDIS_URL": server.url,
        "DUPEFILTER_CLASS": "tbloom.scrapy.DupeFilter",
        "TBLOOM_KEY": config.name,
        "TBLOOM_GRANULARITY": config.window.granularity,
        "TBLOOM_SLICES": slices,
        "TBLOOM_CAPACITY": PAGES,
        "TBLOOM_ERROR_RATE": config.error_rate,
        "BLOOMFILTER_BIT": BIT,
        "BLOOMFILTER_HASH_NUMBER": HASHES,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "ERROR",
    }
    command = [sys.executable, "-m", "bench.paper.crawls", json.dumps(settings)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    crawlers = [subprocess.Popen(command, text=True, **pipes) for _ in range(CRAWLERS)]
    pages: list[list[str]] = []
    kept, in_time = [], True
    try:
        _answers(crawlers)  # they are ready
        past = [config.window.slice_at(now())]
        for _ in range(crawls):
            past.append(config.window.slice_at(past[-1].end))
            time.sleep(max(0, past[-1].start + 100 - now()) / 1000)
            for crawler in crawlers:
                print("go", file=crawler.stdin, flush=True)
            pages.append(_answers(crawlers))
            on_server = [bool(server.client.exists(config.keys.slice(s.label))) for s in past]
            kept.append([n for n, exists in enumerate(on_server) if exists])  # 0 had no crawl
            in_time = in_time and now() < past[-1].end
    finally:
        for crawler in crawlers:
            crawler.kill()
            crawler.communicate()
    return pages, kept, in_time


def _answers(crawlers: list[subprocess.Popen[str]]) -> list[str]:
    """Return the pages that the crawlers have fetched, once all have."""
    lines = [crawler.stdout.readline() for crawler in crawlers if crawler.stdout]
    return [page for line in lines for page in json.loads(line)]


class ListSpider(Spider):
    """Request pages in random order until its share of a crawl's pages was new."""

    name = "paper"

    async def start(self) -> AsyncIterator[Any]:
        """Yield the requests of each crawl."""
        urls = [f"data:,page-{n}" for n in range(SITE_PAGES)]  # they need no web server
        print("[]", flush=True)  # ready
        while await asyncio.to_thread(sys.stdin.readline):
            self.fetched, before = list[str](), self._enqueued()
            for url in random.sample(urls, len(urls)):
                # The scheduler has answered for each request before the next one is asked for.
                if self._enqueued() - before == PAGES // CRAWLERS:
                    break
                yield Request(url)
            while len(self.fetched) < self._enqueued() - before:  # noqa: ASYNC110 - nothing to wait for
                await asyncio.sleep(0.01)
            print(json.dumps(self.fetched), flush=True)

    def parse(self, response: Response, **_: Any) -> None:
        """Note the page."""
        self.fetched.append(response.url)

    def _enqueued(self) -> int:
        assert self.crawler.stats
        return int(self.crawler.stats.get_value("scheduler/enqueued", 0))


if __name__ == "__main__":
    process = CrawlerProcess(json.loads(sys.argv[1]))
    process.crawl(ListSpider)
    process.start()
