"""Pages of 500 links that were all seen, as in a recrawl: processor time per link, beside Scrapy's own filter with a JOBDIR."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.http import TextResponse

from bench import onecrawler
from bench.onecrawler import OWN, WAYS, Figures, figures_of, site, started
from bench.progress import shown
from bench.tables import Table

if TYPE_CHECKING:
    from bench.serving import Server

REDIS = "scrapy-redis"
VERSION = '`"done"`, with a version'
_SCRAPY_REDIS = {
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
    "SCHEDULER_PERSIST": True,
}


class Lists(onecrawler.Pages):
    """Follow the links of list pages. Measure from the first list page to the end."""

    #: The number of list pages, and of the links of each; and the version of all pages ("": none).
    lists: int
    each: int
    version: str
    _cpu = 0.0

    async def start(self) -> AsyncIterator[Request]:
        for number in range(self.lists):
            yield Request(
                f"{self.site}/{number}",
                self.parse_list,
                dont_filter=True,
                cb_kwargs={"at": number},
            )

    def parse_list(self, response: TextResponse, at: int) -> Iterator[Any]:  # noqa: ARG002 - it has other links
        self._cpu = self._cpu or time.process_time()
        meta = {"tbloom_version": self.version} if self.version else {}
        for number in range(at * self.each, (at + 1) * self.each):
            yield Request(f"{self.site}/{number}", meta=dict(meta))

    def parse(self, response: TextResponse) -> Iterator[Any]:
        yield {"url": response.url}
        self.parsed += 1

    def figures(self) -> Figures:
        """Return the processor time per link (us), and the number of links that were fetched."""
        spent = time.process_time() - self._cpu
        return {"cpu": 1e6 * spent / (self.lists * self.each), "fetched": self.parsed}


def measure(server: Server, *, lists: int = 10, each: int = 500, rounds: int = 7) -> Table:
    """Return what seen links cost: the medians of the rounds, in which the ways take turns."""
    with site(lists * each) as address, TemporaryDirectory() as folder:
        ways = {**WAYS, OWN: {"JOBDIR": folder}, REDIS: _SCRAPY_REDIS}
        jobs = {
            way: _job(server, way, given, site=address, lists=lists, each=each)
            for way, given in ways.items()
        }
        jobs[VERSION] = _job(
            server,
            VERSION,
            WAYS['`"done"`'],
            site=address,
            lists=lists,
            each=each,
            version="2026-11-20",
        )
        spent: dict[str, list[float]] = {way: [] for way in jobs}
        for number in shown(range(rounds + 1), f"crawls of {lists * each} links, which were seen"):
            for way in [*jobs] if number % 2 else reversed(jobs):
                found = figures_of(way, started(jobs[way], "bench.seenlinks"))
                if number:
                    assert not found["fetched"], f"{way}: {found['fetched']:.0f} links are new"
                    spent[way].append(found["cpu"])
    server.empty()
    own = median(spent[OWN])
    rows = [[way, median(times) / own, median(times)] for way, times in spent.items()]
    return Table("fleet-seen", {"": "", "x": ".2f", "processor time per link (us)": ".0f"}, rows)


def _job(server: Server, way: str, given: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    settings = {"REDIS_URL": server.url, **given}
    if "ADDONS" in given:
        settings["TBLOOM_KEY"] = f"seen:{way}"
    return {"settings": settings, "arguments": {"version": "", **arguments}}


if __name__ == "__main__":
    print(json.dumps(onecrawler.crawl(json.loads(sys.argv[2]), Lists)))
