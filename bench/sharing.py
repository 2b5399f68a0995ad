"""Measures how crawlers share a crawl that begins with one start page: a site of generated pages, which take their time to answer.

bench/pushing.py and bench/hosts.py crawl this site, too.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from statistics import mean, median
from typing import Any, NamedTuple
from urllib.request import urlopen

from bench.crawls import Site, answered, page
from bench.delay import child
from bench.fleet import DONE, SCRAPY_REDIS, Pages, counts_when_idle, ready, seconds_of, spent
from bench.progress import shown
from bench.serving import Server
from bench.tables import Table

WAYS = SCRAPY_REDIS, "scrapy-redis-bloomfilter", DONE
SETTINGS = {"CONCURRENT_REQUESTS": 8, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}
#: Links of a page. The first ones lead to pages that no earlier page links in this way, so that all are reached.
LINKS, BRANCHES = 8, 4
#: The path that answers with what was asked for since it was asked last.
_ASKED = b"/asked"


class Asked(NamedTuple):
    """A request for a page: when (s), of which host, and by whom."""

    at: float
    host: str
    agent: str


class Generated(Site):
    """Numbered pages, on one host or on several."""

    #: The time that each page takes (s), by its path.
    delays: dict[bytes, float]
    asked: list[Asked]

    def answer(self, request: bytes, path: bytes) -> None:
        """Send the answer once its time has come."""
        if path == _ASKED:
            self._transport.write(answered(json.dumps(self.asked)))
            self.asked.clear()
            return
        [agent] = re.findall(rb"(?i)\r\nuser-agent: ([^\r]*)", request)
        host, _ = self._transport.get_extra_info("sockname")
        self.asked.append(Asked(time.monotonic(), host, agent.decode()))
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
def generated(
    count: int, *, hosts: int = 1, links: int = LINKS, delays: tuple[float, float] = (0, 0)
) -> Iterator[Pages]:
    """Yield so many pages, spread over so many hosts, while a separate process serves them.

    Each takes a time between the two ``delays`` (s), always the same.
    """
    words = map(str, (count, hosts, links, *delays))
    with child("-m", "bench.sharing", *words) as port:
        names = [_name(number, hosts, port) for number in range(count)]
        yield Pages("http://127.0.0.", "", names[:1], {*names}, [links] * count)


def asked_for(pages: Pages) -> list[Asked]:
    """Return the requests that the site has received since this was called last."""
    [host, *_] = pages.first[0].split("/")
    with urlopen(f"{pages.site}{host}{_ASKED.decode()}") as answer:  # noqa: S310 - it is ours
        return [Asked(*each) for each in json.loads(answer.read())]


def _name(number: int, hosts: int, port: int) -> str:
    """Return a page's URL without its beginning, which all pages share."""
    return f"{1 + number % hosts}:{port}/{number}.html"


async def _serve(count: int, hosts: int, links: int, low: float, high: float) -> None:
    Generated.answers, Generated.delays, Generated.asked = {}, {}, []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Generated, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if hosts > 1:
        await loop.create_server(Generated, [f"127.0.0.{n}" for n in range(2, 1 + hosts)], port)
    for number in range(count):
        random, path = Random(number), f"/{number}.html".encode()
        first = range(BRANCHES * number + 1, BRANCHES * (number + 1) + 1)
        found = [linked for linked in first if linked < count][:links]
        found += random.choices(range(count), k=links - len(found))
        # With a fragment, the spider does not see that two links of a page are the same.
        Generated.answers[path] = page(
            f"http://127.0.0.{_name(linked, hosts, port)}#{n}" for n, linked in enumerate(found)
        )
        Generated.delays[path] = random.uniform(low, high)
    print(port, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def measure(
    server: Server,
    *,
    pages: int = 2000,
    fleets: Sequence[int] = (4, 8),
    sites: Sequence[tuple[tuple[float, float], Sequence[str], int]] = (
        ((0.05, 0.1), WAYS, 3),
        ((0.4, 0.8), (SCRAPY_REDIS, DONE), 1),
    ),
) -> list[Table]:
    """Measure crawls of so many pages with so many crawlers, and with one of tbloom.

    A site is the times of which a page takes one (s), the ways to crawl it, and the number of rounds.
    """
    rows, idle = [], counts_when_idle(server)
    for delays, ways, rounds in sites:
        jobs = [(DONE, 1), *((way, count) for count in fleets for way in ways)]
        found = defaultdict[tuple[str, int], list[Figures]](list)
        with generated(pages, delays=delays) as site:
            for way, count in shown(rounds * jobs, f"crawls of {pages} pages"):
                found[way, count].append(_crawl(server, idle, way, count, site))
                server.empty()
        rows += [[milliseconds(delays), *row] for row in _rows(found)]
    columns = {"a page takes (ms)": "", "": "", "crawlers": "d", "time (s)": ".1f"}
    columns |= {"x scrapy-redis' time": ".2f", "x ideal": ".2f"}
    columns |= {"least busy, % of the mean": ".0f", "pages of each": ""}
    columns |= {"calls per page": ".2f", "server time per page (us)": ",.0f"}
    columns |= {"x scrapy-redis' server time": ".2f", "bytes per page": ",.0f"}
    columns |= {"fetched again": ",d", "never fetched": ",d"}
    return [Table("sharing", columns, rows)]


def milliseconds(delays: tuple[float, float]) -> str:
    """Return the times for a reader."""
    return " to ".join(f"{1000 * delay:g}" for delay in sorted({*delays}))


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
    servers = {job: median(of.server for of in some) for job, some in found.items()}
    return [
        [
            way,
            count,
            walls[way, count],
            _ratio(walls, way, count),
            walls[way, count] * count / walls[DONE, 1],
            median(100 * of.shares[0] / mean(of.shares) for of in some),
            f"{min(of.shares[0] for of in some)} to {max(of.shares[-1] for of in some)}",
            median(of.calls for of in some),
            servers[way, count],
            _ratio(servers, way, count),
            median(of.transferred for of in some),
            max(of.again for of in some),
            max(of.missed for of in some),
        ]
        for (way, count), some in found.items()
    ]


def _ratio(costs: dict[tuple[str, int], float], way: str, count: int) -> float | None:
    """Return the cost beside that of as many crawlers with scrapy-redis, if it was measured."""
    reference = costs.get((SCRAPY_REDIS, count))
    return reference and costs[way, count] / reference


def main() -> None:
    """Serve the site."""
    count, hosts, links, *delays = sys.argv[1:]
    asyncio.run(_serve(int(count), int(hosts), int(links), *map(float, delays)))


if __name__ == "__main__":
    main()
