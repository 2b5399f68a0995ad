"""Measures how crawlers share a crawl that begins with one start page: a site of generated pages, which take their time to answer."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from statistics import median
from typing import Any, NamedTuple

from bench.javadoc import DONE, SCRAPY_REDIS, Pages, counts_when_idle, ready, seconds_of, spent
from bench.onecrawler import Site, page
from bench.progress import shown
from bench.serving import Server, child
from bench.tables import Table

WAYS = SCRAPY_REDIS, "scrapy-redis-bloomfilter", DONE
SETTINGS = {"CONCURRENT_REQUESTS": 8, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}
#: Links of a page. The first ones lead to pages that no earlier page links in this way, so that all are reached.
LINKS, BRANCHES = 8, 4


class Generated(Site):
    """Numbered pages."""

    #: The time that each page takes (s), by its path.
    delays: dict[bytes, float]

    def answer(self, path: bytes) -> None:
        """Send the answer once its time has come."""
        loop = asyncio.get_running_loop()
        loop.call_later(self.delays[path], self._transport.write, self.answers[path])


class Figures(NamedTuple):
    """What was measured of a crawl."""

    #: Seconds from the first request until the last page.
    wall: float
    #: The pages of each crawler.
    shares: list[int]
    #: For each page: calls to the server, its processor time (us), and bytes in both directions.
    calls: float
    server: float
    transferred: float
    #: How many requests fetched a page again, and how many pages no crawler fetched.
    again: int
    missed: int


@contextmanager
def generated(count: int, delays: tuple[float, float]) -> Iterator[Pages]:
    """Yield so many pages, while a separate process serves them.

    Each takes a time between the two ``delays`` (s), always the same.
    """
    with child("-m", "bench.startpage", *map(str, (count, *delays))) as port:
        names = [f"/{number}.html" for number in range(count)]
        yield Pages(f"http://127.0.0.1:{port}", "", names[:1], {*names}, [LINKS] * count)


async def _serve(count: int, low: float, high: float) -> None:
    Generated.answers, Generated.delays = {}, {}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Generated, "127.0.0.1", 0)
    for number in range(count):
        random, path = Random(number), f"/{number}.html".encode()
        first = range(BRANCHES * number + 1, BRANCHES * (number + 1) + 1)
        found = [linked for linked in first if linked < count]
        found += random.choices(range(count), k=LINKS - len(found))
        # With a fragment, the spider does not see that two links of a page are the same.
        Generated.answers[path] = page(f"/{linked}.html#{n}" for n, linked in enumerate(found))
        Generated.delays[path] = random.uniform(low, high)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def measure(
    server: Server,
    *,
    pages: int = 2000,
    crawlers: int = 8,
    sites: Sequence[tuple[tuple[float, float], Sequence[str], int]] = (
        ((0.05, 0.1), WAYS, 1),
        ((0.4, 0.8), (SCRAPY_REDIS, DONE), 1),
    ),
) -> Table:
    """Measure crawls of so many pages with so many crawlers, and with one of tbloom.

    A site is the times of which a page takes one (s), the ways to crawl it, and the number of rounds.
    """
    rows, idle = [], counts_when_idle(server)
    for delays, ways, rounds in sites:
        jobs = [(DONE, 1), *((way, crawlers) for way in ways)]
        found = defaultdict[tuple[str, int], list[Figures]](list)
        with generated(pages, delays) as site:
            for way, count in shown(rounds * jobs, f"crawls of {pages} pages"):
                found[way, count].append(_crawl(server, idle, way, count, site))
                server.empty()
        takes = "-".join(f"{1000 * delay:g}" for delay in delays)
        rows += [[takes, *row] for row in _rows(found)]
    columns = {"a page takes (ms)": "", "": "", "crawlers": "d", "x ideal": ".2f"}
    columns |= {"time (s)": ".1f", "pages per crawler": "", "calls per page": ".2f"}
    columns |= {"server time per page (us)": ",.0f", "bytes per page": ",.0f"}
    columns |= {"fetched again": ",d", "never fetched": ",d"}
    return Table("fleet-start", columns, rows)


def _crawl(server: Server, idle: Sequence[float], way: str, count: int, pages: Pages) -> Figures:
    with ready(way, count, server.url, pages, settings=SETTINGS) as crawlers:
        (cpu, calls, received, _, sent), reported = spent(server, idle, crawlers)
    fetched = [page for report in reported for page in report["fetched"]]
    distinct = {*fetched}
    each = len(distinct)
    return Figures(
        seconds_of(reported),
        sorted(len(report["fetched"]) for report in reported),
        *(calls / each, cpu / each, (received + sent) / each),
        again=len(fetched) - each,
        missed=len(pages.reached - distinct),
    )


def _rows(found: dict[tuple[str, int], list[Figures]]) -> list[list[Any]]:
    """Return the medians, and of what must not happen, the worst."""
    walls = {job: median(of.wall for of in some) for job, some in found.items()}
    return [
        [
            way,
            count,
            walls[way, count] * count / walls[DONE, 1],
            walls[way, count],
            _span(some),
            median(of.calls for of in some),
            median(of.server for of in some),
            median(of.transferred for of in some),
            max(of.again for of in some),
            max(of.missed for of in some),
        ]
        for (way, count), some in found.items()
    ]


def _span(some: list[Figures]) -> str:
    """Return the least and the most pages of a crawler."""
    ends = {min(of.shares[0] for of in some), max(of.shares[-1] for of in some)}
    return "-".join(map(str, sorted(ends)))


def main() -> None:
    """Serve the site."""
    count, *delays = sys.argv[1:]
    asyncio.run(_serve(int(count), *map(float, delays)))


if __name__ == "__main__":
    main()
