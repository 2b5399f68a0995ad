"""One crawler over loopback, with Scrapy's own filter and with the add-on: processor time, memory, stalls.

Each crawl and the site are processes of their own, so that a crawl's processor time is its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.http import TextResponse

from bench.progress import shown
from bench.serving import child
from bench.tables import Table

if TYPE_CHECKING:
    from bench.serving import Server

#: Links of a page: one leads to the next page, the others lead to scattered pages.
LINKS = 11
OWN = "Scrapy's own filter"
_ADDON = {"ADDONS": {"tbloom.scrapy.Addon": 500}, "TBLOOM_KEY": "crawls"}
WAYS: dict[str, dict[str, Any]] = {
    OWN: {},
    **{f'`"{mark}"`': {**_ADDON, "TBLOOM_MARK": mark} for mark in ("scheduled", "done")},
}
Figures = dict[str, float]


class Site(asyncio.Protocol):
    """Numbered pages with links."""

    #: The answers by path.
    answers: dict[bytes, bytes]

    def connection_made(self, transport: Any) -> None:
        self._transport, self._received = transport, b""

    def data_received(self, data: bytes) -> None:
        *requests, self._received = (self._received + data).split(b"\r\n\r\n")
        for request in requests:
            self.answer(request.split(b" ", 2)[1])

    def answer(self, path: bytes) -> None:
        """Send the answer to a request."""
        self._transport.write(self.answers[path])


def answered(body: str) -> bytes:
    """Return the answer with this body."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
    return f"{head}{body}".encode()


def page(links: Iterable[str]) -> bytes:
    """Return the answer with a page that has these links."""
    return answered("".join(f'<a href="{link}">a page</a>\n' for link in links))


def _answer(number: int, pages: int) -> bytes:
    links = [number + 1, *(number * n + 7 * n * n + 1 for n in range(2, LINKS + 1))]
    return page(f"/{link % pages}" for link in links)


class Pipeline:
    def process_item(self, item: Any) -> Any:
        return item


class Pages(Spider):
    """Follow all links, and yield an item for each page. Measure from the first request to the end."""

    name = "crawls"
    site: str
    parsed = 0
    longest = 0.0

    async def start(self) -> AsyncIterator[Request]:
        self._watching = asyncio.ensure_future(self._watch())
        self._cpu, self._begun = time.process_time(), time.perf_counter()
        yield Request(f"{self.site}/0")

    async def _watch(self) -> None:
        """Measure how late the event loop comes back."""
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.005)
            self.longest = max(self.longest, time.perf_counter() - before - 0.005)

    def figures(self) -> Figures:
        """Return the figures since the first request."""
        return {
            "cpu": 1000 * (time.process_time() - self._cpu) / self.parsed,
            "rate": self.parsed / (time.perf_counter() - self._begun),
            "stall": 1000 * self.longest,
        }

    def parse(self, response: TextResponse) -> Iterator[Any]:
        yield {"url": response.url}
        self.parsed += 1
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)


def crawl(job: dict[str, Any], kind: type[Pages] = Pages) -> Figures:
    """Crawl in this process, on the job's core if it names one, and return the spider's figures."""
    if "core" in job:
        os.sched_setaffinity(0, {job["core"]})
    settings = {
        "LOG_LEVEL": "ERROR",
        "LOG_VERSIONS": [],
        "TELNETCONSOLE_ENABLED": False,
        "ITEM_PIPELINES": {Pipeline: 300},
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    }
    process = AsyncCrawlerProcess({**settings, **job["settings"]})
    crawler = process.create_crawler(kind)
    process.crawl(crawler, **job["arguments"])
    process.start()
    spider: Any = crawler.spider
    assert crawler.stats
    errors = crawler.stats.get_value("log_count/ERROR", 0)
    return {**spider.figures(), "memory": peak(), "errors": errors}


def peak() -> float:
    """Return the most memory that this process has had (MB). ``getrusage`` would count its parent's, too."""
    [line] = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return int(line) * 1024 / 1e6


@contextmanager
def site(pages: int) -> Iterator[str]:
    """Yield the URL of a site in a process of its own."""
    with child("-m", "bench.onecrawler", "site", str(pages)) as port:
        yield f"http://localhost:{port}"


async def _serve(pages: int) -> None:
    loop = asyncio.get_running_loop()
    Site.answers = {f"/{number}".encode(): _answer(number, pages) for number in range(pages)}
    server = await loop.create_server(Site, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def measure(server: Server, *, pages: int = 1500, rounds: int = 2) -> Table:
    """Return what crawls cost beside Scrapy's own filter."""
    return _costs(_by_turns(server, pages, rounds), _beside(server, pages, rounds))


def _by_turns(server: Server, pages: int, rounds: int) -> dict[str, Figures]:
    """Return the fastest crawl of each way. The ways take turns."""
    found: dict[str, list[Figures]] = {way: [] for way in WAYS}
    with site(pages) as address:
        for number in shown(range(rounds), f"crawls of {pages} pages"):
            for way in [*WAYS] if number % 2 else reversed(WAYS):
                settings = {"REDIS_URL": server.url, **WAYS[way]}
                job = {"settings": settings, "arguments": {"site": address}}
                found[way].append(figures_of(way, started(job)))
                server.empty()
    return {way: max(crawls, key=itemgetter("rate")) for way, crawls in found.items()}


def _beside(server: Server, pages: int, rounds: int) -> dict[str, float]:
    """Return the processor time of each way (ms a page). The crawls run at the same time on one core.

    On a virtual machine, the speed of a core changes by a half within a minute: this way it changes for all of them.
    """
    spent: dict[str, list[float]] = {way: [] for way in WAYS}
    core = min(os.sched_getaffinity(0))
    with site(pages) as address:
        arguments = {"site": address}
        for _ in shown(range(rounds), f"crawls of {pages} pages beside each other"):
            crawls = {}
            for way, given in WAYS.items():
                settings = {"REDIS_URL": server.url, **given, "TBLOOM_KEY": f"crawls:{way}"}
                job = {"settings": settings, "arguments": arguments, "core": core}
                crawls[way] = started(job)
            for way, crawling in crawls.items():
                spent[way].append(figures_of(way, crawling)["cpu"])
            server.empty()
    return {way: mean(times) for way, times in spent.items()}


def started(job: dict[str, Any], module: str = "bench.onecrawler") -> subprocess.Popen[str]:
    """Begin a crawl in a process of its own."""
    command = [sys.executable, "-m", module, "crawl", json.dumps(job)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def figures_of(way: str, crawling: subprocess.Popen[str]) -> Figures:
    """Return the figures of a crawl that has begun."""
    with crawling:
        printed, _ = crawling.communicate()
    assert not crawling.returncode, f"{way}: the crawl failed"
    figures: Figures = json.loads(printed)
    assert not figures["errors"], f"{way}: the log has errors"
    return figures


def _costs(figures: dict[str, Figures], spent: dict[str, float]) -> Table:
    columns = {"": "", "x": ".2f", "processor time per page (ms)": ".2f", "memory (MB)": ".0f"}
    rows = [
        [way, cpu / spent[OWN], cpu, figures[way]["memory"], figures[way]["stall"]]
        for way, cpu in spent.items()
    ]
    return Table("fleet-one", {**columns, "stall (ms)": ".0f"}, rows)


def main() -> None:
    """Serve the site, or crawl and print the figures."""
    if sys.argv[1] == "site":
        asyncio.run(_serve(int(sys.argv[2])))
    else:
        print(json.dumps(crawl(json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()
