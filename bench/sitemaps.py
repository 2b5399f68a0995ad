"""Sitemaps whose 50,000 pages were all seen, beside Scrapy's own spider and filter: time per link, stalls, memory."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy import spiders as scrapys
from scrapy.http import Response
from scrapy.utils.request import fingerprint

from bench import onecrawler
from bench.onecrawler import OWN, WAYS, Figures, Site, answered, figures_of, started
from bench.progress import shown
from bench.serving import child
from bench.tables import Table
from tbloom import TimeBloom
from tbloom.scrapy import SitemapSpider
from tbloom.scrapy.links import look_of, version_of
from tbloom.scrapy.settings import VERSION

if TYPE_CHECKING:
    from bench.serving import Server

SPIDER = "`SitemapSpider`"


class _Measured(onecrawler.Pages):
    """Read the sitemaps, and measure from the first one to the end."""

    files: int
    sitemap_urls: tuple[str, ...] = ()

    async def start(self) -> AsyncIterator[Any]:
        self.sitemap_urls = tuple(f"{self.site}/map{number}.xml" for number in range(self.files))
        self._watching = asyncio.ensure_future(self._watch())
        self._cpu = time.process_time()
        for url in self.sitemap_urls:
            yield Request(url, self._parse_sitemap, dont_filter=True)

    def parse(self, response: Response) -> Iterator[Any]:
        self.parsed += 1
        yield {"url": response.url}

    def figures(self) -> Figures:
        return {
            "cpu": time.process_time() - self._cpu,
            "stall": 1000 * self.longest,
            "fetched": self.parsed,
        }


class Own(_Measured, scrapys.SitemapSpider):
    """Scrapy's."""


class Ours(_Measured, SitemapSpider):
    """tbloom's."""


def measure(server: Server, *, urls: int = 50_000, rounds: int = 3) -> Table:
    """Return what crawls of one file and of twenty cost: the medians of rounds in which the ways take turns."""
    rows = []
    for files in (1, 20):
        with (
            child("-m", "bench.sitemaps", "site", str(files), str(urls)) as port,
            TemporaryDirectory() as folder,
        ):
            _fill(server, folder, [*_entries(int(port), range(urls))])
            found: dict[str, list[Figures]] = {OWN: [], SPIDER: []}
            settings = {"REDIS_URL": server.url, **WAYS['`"done"`'], "TBLOOM_CAPACITY": 2 * urls}
            given = {OWN: {"JOBDIR": folder}, SPIDER: settings}
            for number in shown(range(rounds), f"crawls of {files} sitemaps"):
                for way in [*found] if number % 2 else reversed(found):
                    arguments = {"site": f"http://127.0.0.1:{port}", "files": files}
                    job = {"settings": given[way], "arguments": arguments, "way": way}
                    figures = figures_of(way, started(job, "bench.sitemaps"))
                    assert not figures["fetched"], f"{way}: {figures['fetched']:.0f} pages are new"
                    found[way].append(figures)
            server.empty()
        for way, crawls in found.items():
            cpu, stall, memory = (
                median(each[what] for each in crawls) for what in ("cpu", "stall", "memory")
            )
            rows.append([way, files, 1e6 * cpu / urls, stall, memory])
    columns = {"": "", "files": "d", "processor time per link (us)": ".0f", "stall (ms)": ".0f"}
    return Table("fleet-sitemaps", {**columns, "memory (MB)": ".0f"}, rows)


def _fill(server: Server, folder: str, entries: list[tuple[str, str]]) -> None:
    """Let both filters have seen the pages."""
    requests = [Request(url, meta={VERSION: lastmod}) for url, lastmod in entries]
    fingerprints = [*map(fingerprint, requests)]
    stored = b"".join(len(each).to_bytes(2, "big") + each for each in fingerprints)
    Path(folder, "requests.seen").write_bytes(stored)
    with TimeBloom.from_url(server.url, "crawls", capacity=2 * len(entries)) as seen:
        looks = [
            look_of(item, version_of(request), seen.config)
            for item, request in zip(fingerprints, requests, strict=True)
        ]
        seen.add_many([*fingerprints, *looks])


def _entries(port: int, numbers: range) -> Iterator[tuple[str, str]]:
    for number in numbers:
        url = f"http://127.0.0.1:{port}/catalogue/page-{number}.html"
        yield url, f"2026-11-{number % 28 + 1:02}T10:00:00+00:00"


async def _serve(files: int, urls: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Site, "127.0.0.1", 0)
    port, each = server.sockets[0].getsockname()[1], urls // files
    Site.answers = defaultdict(partial(answered, "<html>"))
    for file in range(files):
        entries = "".join(
            f"<url><loc>{url}</loc><lastmod>{lastmod}</lastmod></url>"
            for url, lastmod in _entries(port, range(file * each, (file + 1) * each))
        )
        Site.answers[b"/map%d.xml" % file] = answered(
            f'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'
        )
    print(port, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    if sys.argv[1] == "site":
        asyncio.run(_serve(*map(int, sys.argv[2:])))
    else:
        given = json.loads(sys.argv[2])
        print(json.dumps(onecrawler.crawl(given, Own if given["way"] == OWN else Ours)))
