"""Measures how politely a fleet crawls many hosts (``TBLOOM_SHARE``), as the hosts see it. The pages are those of bench/sharing.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from bench.fleet import DONE, Pages, ready, reports, seconds_of
from bench.progress import shown
from bench.serving import Server
from bench.sharing import Asked, asked_for, generated
from bench.tables import Table
from tbloom.scrapy.settings import SHARE

#: The values with which crawlers share.
SHARES = [value for value in SHARE.choices if value]
SETTINGS = {
    "DOWNLOAD_DELAY": 0.1,
    "RANDOMIZE_DOWNLOAD_DELAY": False,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
}


def measure(
    server: Server,
    *,
    shares: Sequence[bool | str] = SHARES,
    fleets: Sequence[int] = (1, 4, 8),
    hosts: int = 16,
    pages: int = 3200,
) -> list[Table]:
    """Measure fleets with each value of ``TBLOOM_SHARE``, that crawl so many pages of so many hosts."""
    rows = []
    with generated(pages, hosts=hosts) as site:
        jobs = [(share, count) for share in shares for count in fleets]
        for share, count in shown(jobs, f"crawls of {hosts} hosts"):
            rows.append(_row(server, share, count, site))
            server.empty()
    columns = {"`TBLOOM_SHARE`": "", "crawlers": "d", "requests/s of a host": ".1f"}
    columns |= {"most of a host in a second": "d", "shortest gap (ms)": ".0f"}
    columns |= {"hosts with two crawlers in a second": "d", "most crawlers at a host": "d"}
    return [Table("hosts", {**columns, "time (s)": ".1f"}, rows)]


def _row(server: Server, share: bool | str, count: int, pages: Pages) -> list[Any]:
    settings = {**SETTINGS, "TBLOOM_SHARE": share}
    with ready(DONE, count, server.url, pages, settings=settings) as crawlers:
        reported = reports(crawlers)
    fetched = [page for report in reported for page in report["fetched"]]
    assert len(fetched) == len(pages.reached)
    by_host = defaultdict[str, list[Asked]](list)
    for asked in asked_for(pages):
        by_host[asked.host].append(asked)
    assert sum(map(len, by_host.values())) == len(fetched)
    seconds = [[*_seconds(some)] for some in by_host.values()]
    crawlers_at = [max(len({asked.agent for asked in each}) for each in of) for of in seconds]
    return [
        f"`{share!r}`".replace("'", '"'),
        count,
        median((len(some) - 1) / (some[-1].at - some[0].at) for some in by_host.values()),
        max(len(each) for of in seconds for each in of),
        1000 * min(two.at - one.at for some in by_host.values() for one, two in pairwise(some)),
        sum(each > 1 for each in crawlers_at),
        max(crawlers_at),
        seconds_of(reported),
    ]


def _seconds(some: Sequence[Asked]) -> Iterable[Sequence[Asked]]:
    """Yield for each request the requests of the second that it begins."""
    end = 0
    for begin, asked in enumerate(some):
        while end < len(some) and some[end].at < asked.at + 1:
            end += 1
        yield some[begin:end]
