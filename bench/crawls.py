"""Whole crawls over loopback, by Scrapy's own filter and with the add-on: processor time, memory, stalls, requests.

``python -m bench.crawls cpu --rounds 3`` measures one of the tables on a Redis of its own. Each crawl is a process of its
own, and so is the site: a crawl's processor time is the crawl's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.exceptions import CloseSpider
from scrapy.http import TextResponse

from bench.delay import delayed
from bench.tables import Table

if TYPE_CHECKING:
    from bench.serving import Server

#: Links of a page: one leads to the next page, the others to pages here and there.
LINKS = 11
#: A round trip to Redis (s).
AWAY = 0.05
OWN = "Scrapy's own filter"
_ADDON = {"ADDONS": {"tbloom.scrapy.Addon": 500}, "TBLOOM_KEY": "crawls"}
WAYS: dict[str, dict[str, Any]] = {
    OWN: {},
    **{f'`"{mark}"`': {**_ADDON, "TBLOOM_MARK": mark} for mark in ("scheduled", "parsed", "done")},
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
            self._transport.write(self.answers[request.split(b" ", 2)[1]])


def _answer(number: int, pages: int) -> bytes:
    links = [number + 1, *(number * n + 7 * n * n + 1 for n in range(2, LINKS + 1))]
    body = "".join(f'<a href="/{link % pages}">a page</a>\n' for link in links)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
    return f"{head}{body}".encode()


class Pipeline:
    def process_item(self, item: Any) -> Any:
        return item


class Pages(Spider):
    """Follows all links; each page is an item. With ``queued`` requests, it is measured from when all of them wait until
    that many pages more have been fetched, and then closes; else from its first request on."""

    name = "crawls"
    site: str
    pages: int
    queued: int
    parsed = 0
    longest = 0.0
    began: tuple[int, float, float] | None = None
    figures: Figures | None = None

    async def start(self) -> AsyncIterator[Request]:
        self._watching = asyncio.ensure_future(self._watch())
        if not self.queued:
            self._begin()
        yield Request(f"{self.site}/0")

    async def _watch(self) -> None:
        """Measures how late the event loop comes back."""
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.005)
            if self.began:
                self.longest = max(self.longest, time.perf_counter() - before - 0.005)
            elif self.crawler.stats.get_value("scheduler/enqueued", 0) >= self.queued:
                self._begin()

    def _begin(self) -> None:
        self.began = self.parsed, _cpu(), time.perf_counter()

    def end(self) -> None:
        """Measures what there has been since it began, unless that is done."""
        if self.figures is None:
            assert self.began, f"{self.queued} requests were never queued"
            parsed, cpu, start = self.began
            pages = self.parsed - parsed
            self.figures = {
                "cpu": 1000 * (_cpu() - cpu) / pages,
                "rate": pages / (time.perf_counter() - start),
                "stall": 1000 * self.longest,
            }

    def parse(self, response: TextResponse) -> Iterator[Any]:
        yield {"url": response.url}
        links = response.css("a::attr(href)").getall()
        if self.queued and not self.parsed:
            links = [f"/{number}" for number in range(1, self.queued + LINKS)]
        self.parsed += 1
        for link in links:
            yield response.follow(link)
        if self.queued and self.began and self.parsed == self.began[0] + self.pages:
            self.end()
            raise CloseSpider("enough")


def crawl(job: dict[str, Any]) -> Figures:
    """One crawl in this process."""
    settings = {
        "LOG_LEVEL": "ERROR",
        "LOG_VERSIONS": [],
        "TELNETCONSOLE_ENABLED": False,
        "ITEM_PIPELINES": {Pipeline: 300},
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    }
    process = AsyncCrawlerProcess({**settings, **job["settings"]})
    crawler = process.create_crawler(Pages)
    process.crawl(crawler, **job["arguments"])
    process.start()
    spider: Any = crawler.spider
    spider.end()
    assert crawler.stats
    stats = crawler.stats.get_stats()
    return {
        **spider.figures,
        "memory": _peak(),
        "requests": stats["downloader/request_count"],
        "errors": stats.get("log_count/ERROR", 0),
        "marked": stats.get("tbloom/done", 0),
    }


def _cpu() -> float:
    """Processor time of this process (s), the system's part in it included."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime


def _peak() -> float:
    """The most memory that this process has had (MB). (In getrusage's, that of the process that started it counts too.)"""
    [line] = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return int(line) * 1024 / 1e6


@contextmanager
def site(pages: int) -> Iterator[str]:
    """The URL of a site in a process of its own, which ends when its standard input does."""
    command = [sys.executable, "-m", "bench.crawls", "site", str(pages)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.communicate(timeout=10)


async def _serve(pages: int) -> None:
    loop = asyncio.get_running_loop()
    Site.answers = {f"/{number}".encode(): _answer(number, pages) for number in range(pages)}
    server = await loop.create_server(Site, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def _figures(
    server: Server, ways: dict[str, Any], pages: int, rounds: int, queued: int = 0
) -> dict[str, Figures]:
    """The medians of crawls by turns; ``ways``: their settings."""
    found: dict[str, list[Figures]] = {way: [] for way in ways}
    with site(queued + LINKS if queued else pages) as address:
        arguments = {"site": address, "pages": pages, "queued": queued}
        for number in range(rounds):
            for way in [*ways] if number % 2 else reversed(ways):
                job = {"settings": ways[way], "arguments": arguments}
                command = [sys.executable, "-m", "bench.crawls", "crawl", json.dumps(job)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                found[way].append(json.loads(done.stdout))
                assert not found[way][-1]["errors"], f"{way}: the log has errors"
                server.empty()
    return {
        way: {name: median(one[name] for one in crawls) for name in crawls[0]}
        for way, crawls in found.items()
    }


def cpu(server: Server, pages: int, rounds: int) -> Table:
    """What a crawl costs the machine that it runs on."""
    return _costs("crawls", _figures(server, _ways(server.url), pages, rounds))


def queued(server: Server, pages: int, rounds: int, requests: int = 30_000) -> Table:
    """The same while many requests wait."""
    figures = _figures(server, _ways(server.url), pages // 3, rounds, requests)
    return _costs("crawls-queued", figures)


def _ways(url: str) -> dict[str, Any]:
    return {way: {"REDIS_URL": url, **settings} for way, settings in WAYS.items()}


def _costs(name: str, figures: dict[str, Figures]) -> Table:
    columns = {"": "", "CPU ms a page": ".2f", "x": ".2f", "memory MB": ".0f", "x memory": ".2f"}
    columns |= {"stall ms": ".0f", "requests": ",.0f", "marked": ",.0f"}
    rows = []
    for way, of in figures.items():
        cpu, memory = of["cpu"] / figures[OWN]["cpu"], of["memory"] / figures[OWN]["memory"]
        row = [way, of["cpu"], cpu, of["memory"], memory, of["stall"], of["requests"]]
        rows.append([*row, of["marked"] or None])
    return Table(name, columns, rows)


def away(server: Server, pages: int, rounds: int) -> Table:
    """How fast crawls are while Redis is far away."""
    with delayed(server.port, AWAY / 2) as url:
        away = {f"far {way}": settings for way, settings in _ways(url).items()}
        figures = _figures(server, {**_ways(server.url), **away}, pages, rounds)
    rows, own = [], figures[f"far {OWN}"]["rate"]
    for way in WAYS:
        near, far = figures[way]["rate"], figures[f"far {way}"]["rate"]
        rows.append([way, near, far, near / far, own / far, figures[f"far {way}"]["stall"]])
    columns = {"": "", "pages/s": ".0f", "far away": ".0f", "x time": ".2f"}
    return Table("crawls-away", {**columns, "x Scrapy's": ".2f", "stall ms": ".0f"}, rows)


def setups(server: Server, names: Sequence[str]) -> Table:
    """How many requests the site of each set-up got, and how many pages were marked of those that succeeded."""
    from tests.helpers import setupcrawl as crawls  # noqa: PLC0415 - a crawl's memory is that of what it imports
    from tests.helpers.setups import SETUPS  # noqa: PLC0415

    chosen = {name: SETUPS[name] for name in names or SETUPS}
    own = crawls.run(chosen, crawls.OWN, server.url)
    rows = {name: [name, result.requests.total()] for name, result in own.items()}
    for mark in crawls.MARKS:
        its = {name: setup for name, setup in chosen.items() if mark in setup.marks}
        found = crawls.run(its, mark, server.url)
        for name, row in rows.items():
            row.append(found[name].requests.total() if name in found else None)
            if mark == "done":
                setup, marked = chosen[name], len(found[name].marked)
                succeeded = {*setup.paths()} - setup.not_marked(mark)
                row.append(marked if setup.partial else f"{marked} of {len(succeeded)}")
        server.empty()
    columns = {"": "", OWN: ",", **{f'`"{mark}"`': "," for mark in crawls.MARKS}, "marked": ""}
    return Table("crawls-setups", columns, [*rows.values()])


TABLES: dict[str, Callable[[Server, int, int], Table]] = {
    "cpu": cpu,
    "queued": queued,
    "away": away,
    "setups": lambda server, *_: setups(server, ()),
}


def measure(
    server: Server, *, pages: int, rounds: int, requests: int, names: Sequence[str]
) -> list[Table]:
    """All tables; the last one of these set-ups, or of all."""
    costs = [cpu(server, pages, rounds), queued(server, pages, rounds, requests)]
    return [*costs, away(server, pages, rounds), setups(server, names)]


def main() -> None:
    """A table, a crawl, or the site."""
    if sys.argv[1] == "site":
        asyncio.run(_serve(int(sys.argv[2])))
    elif sys.argv[1] == "crawl":
        print(json.dumps(crawl(json.loads(sys.argv[2]))))
    else:
        parser = argparse.ArgumentParser(prog="python -m bench.crawls", description=__doc__)
        parser.add_argument("table", choices=TABLES)
        parser.add_argument("--pages", type=int, default=3000)
        parser.add_argument("--rounds", type=int, default=3)
        arguments = parser.parse_args()
        from bench.serving import fresh  # noqa: PLC0415 - as above

        with fresh() as server:
            table = TABLES[arguments.table](server, arguments.pages, arguments.rounds)
        print(table.markdown())


if __name__ == "__main__":
    main()
