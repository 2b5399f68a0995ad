"""Measures work that is pushed: how fast crawlers that wait fetch URLs of ``tbloom push``, beside start requests with the same URLs.

The crawlers fetch generated pages without links (bench/sharing.py).
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from statistics import median

from scrapy.settings import Settings

from bench.fleet import DONE, WAYS, Pages, arguments_of, begin, ended, ready, reports, seconds_of
from bench.serving import Server
from bench.sharing import SETTINGS, generated, milliseconds
from bench.tables import Table
from tbloom.scrapy.extras.pushing import SpiderQueue, open_queue

CRAWLERS = 4
#: Lines in a call, as ``tbloom push`` has them.
_BATCH = 1000
#: Seconds between two looks at the queue.
_PAUSE = 0.2


def measure(
    server: Server,
    *,
    jobs: Sequence[tuple[int, int, tuple[float, float]]] = (
        (1000, 3, (0.05, 0.1)),
        (100_000, 1, (0, 0)),
    ),
    seconds: float = 300,
) -> list[Table]:
    """Measure so many URLs in so many rounds, of pages that each take a time between two (s).

    Crawls of start requests, which may take much longer, are cut off after so many seconds.
    """
    rows = []
    for urls, rounds, delays in jobs:
        pushed, started = list[float](), list[float]()
        with generated(urls, links=0, delays=delays) as pages:
            for number in range(1, rounds + 1):
                pushed.append(_push(server, pages))
                started.append(_start(server, pages, seconds))
                _show(
                    f"{urls:,} URLs, {number} of {rounds}: {pushed[-1]:.0f} and {started[-1]:.0f}/s"
                )
        one, other = median(pushed), median(started)
        rows.append([urls, milliseconds(delays), one, other, one / other])
    columns = {"URLs": ",d", "a page takes (ms)": "", "pushed, pages/s": ",.0f"}
    columns |= {"start requests, pages/s": ",.0f", "x start requests": ".2f"}
    return [Table("pushing", columns, rows)]


def _push(server: Server, pages: Pages) -> float:
    """Return the pages a second of waiting crawlers, from the first push until the last page."""
    server.empty()
    none = pages._replace(first=[])
    settings = {**SETTINGS, "TBLOOM_WHEN_IDLE": "wait"}
    known = {**WAYS[DONE], "REDIS_URL": server.url, "SPIDER_MODULES": ["bench.fleet"]}
    with (
        ready(DONE, CRAWLERS, server.url, none, settings=settings) as crawlers,
        open_queue(Settings(known), "fleet", arguments_of(DONE, none, [])) as queue,
    ):
        begin(crawlers)
        while queue.info()[0].waiting < CRAWLERS:
            time.sleep(_PAUSE)
        lines = [*enumerate(pages.site + name for name in pages.reached)]
        began = time.monotonic()
        for at in range(0, len(lines), _BATCH):
            batch = lines[at : at + _BATCH]
            assert queue.push(batch) == len(batch)
        _wait(queue)
        for crawler in crawlers:
            crawler.send_signal(signal.SIGINT)
        reported = ended(crawlers)
    fetched = [page for report in reported for page in report["fetched"]]
    assert sorted(fetched) == sorted(pages.reached)
    return len(fetched) / (max(report["last"] for report in reported) - began)


def _start(server: Server, pages: Pages, seconds: float) -> float:
    """Return the pages a second of crawlers that all begin with all URLs, until the last page or for so many seconds."""
    server.empty()
    numbered = pages._replace(first=[pages.first[0].replace("/0.", "/{}.")])
    times = len(pages.reached)
    with ready(
        DONE, CRAWLERS, server.url, numbered, settings=SETTINGS, times=times, seconds=seconds
    ) as crawlers:
        reported = reports(crawlers)
    return sum(len(report["fetched"]) for report in reported) / seconds_of(reported)


def _wait(queue: SpiderQueue) -> None:
    """Return once all pages are fetched."""
    shown = time.monotonic()
    while (left := queue.info()[0].left) or any(of.claimed for of in queue.info()[2]):
        if time.monotonic() > shown + 10:
            shown = time.monotonic()
            _show(f"{left:,} left")
        time.sleep(_PAUSE)


def _show(progress: str) -> None:
    print(progress, file=sys.stderr, flush=True)
