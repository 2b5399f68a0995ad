"""The links of real pages through dupefilters: how long a crawler waits for Redis."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from parsel import Selector
from scrapy import Request
from scrapy.settings import Settings
from scrapy.utils.test import get_crawler
from scrapy_redis.dupefilter import RFPDupeFilter

from bench.contenders import ERROR_RATE, SLICES
from bench.delay import delayed
from bench.serving import Server
from bench.tables import Table
from tbloom.scrapy import DupeFilter

#: Debian's package python3.11-doc.
DOCS = Path("/usr/share/doc/python3.11/html")
SITE = "http://docs.example/"
#: Round trips (s).
DELAYS = 0, 0.001, 0.01

Pages = Sequence[Sequence[str]]


def _tbloom(**more: Any) -> Callable[[str], DupeFilter]:
    settings = {"TBLOOM_KEY": "links", "TBLOOM_SLICES": SLICES, "TBLOOM_ERROR_RATE": ERROR_RATE}
    return lambda url: DupeFilter(get_crawler(None, {"REDIS_URL": url, **settings, **more}))


def _scrapy_redis(url: str) -> RFPDupeFilter:
    return RFPDupeFilter.from_settings(Settings({"REDIS_URL": url}))


#: Each dupefilter, and if some pages are enough, because all calls wait alike.
WAYS: dict[str, tuple[Callable[[str], Any], bool]] = {
    "scrapy-redis, a call per link": (_scrapy_redis, True),
    "tbloom, a call per link": (_tbloom(TBLOOM_CACHE_SIZE=0), True),
    "tbloom, local cache": (_tbloom(), False),
}


def read_pages(folder: Path = DOCS) -> Pages:
    """The links within the site on each page, all of them, the pages in the order in which a crawler finds them."""
    found = [f"{SITE}index.html"]
    met = set(found)
    pages = []
    for address in found:  # grows as it is walked
        path = folder / unquote(urlsplit(address).path).lstrip("/")
        if path.suffix != ".html" or not path.is_file():
            continue
        hrefs = Selector(path.read_text(encoding="utf-8")).css("a::attr(href)").getall()
        pages.append([link for href in hrefs if (link := urljoin(address, href)).startswith(SITE)])
        for link in pages[-1]:
            target = urldefrag(link).url
            if target not in met:
                met.add(target)
                found.append(target)
    return pages


def measure(server: Server, *, seconds: float = 12, every: int = 1) -> list[Table]:
    """Waiting at each delay, by ways that take about ``seconds``, on ``every``-th page."""
    pages = read_pages()
    if not pages:
        sys.exit(f"{DOCS} is missing: Debian's package python3.11-doc has it")
    return [_waiting(server, pages[::every], seconds)]


def _waiting(server: Server, pages: Pages, seconds: float) -> Table:
    links = sum(map(len, pages))
    waited: dict[str, list[float]] = {name: [] for name in WAYS}
    for delay in DELAYS:
        step = max(1, round(links * (delay + 1e-4) / seconds))
        with delayed(server.port, delay / 2) as url:
            for name, (make, samples) in WAYS.items():
                some = pages[::step] if samples else pages
                scale = links / sum(map(len, some))
                waited[name].append(scale * _seconds_waited(make(url), some))
                server.empty()
    columns = {"": "", **{f"{1000 * delay:g} ms away: s": ",.1f" for delay in DELAYS}}
    return Table("links", columns, [[name, *figures] for name, figures in waited.items()])


def _seconds_waited(dupefilter: Any, pages: Pages) -> float:
    """Elapsed time less the processor time of this process, which asks for each link, as Scrapy's scheduler does."""
    dupefilter.request_seen(Request(f"{SITE}warms-up"))
    cpu, start = time.process_time(), time.perf_counter()
    new = sum(not dupefilter.request_seen(Request(link)) for page in pages for link in page)
    elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
    # A request's fingerprint has no fragment.
    truth = len({urldefrag(link).url for page in pages for link in page})
    assert 0 <= truth - new <= truth / 1000 + 1, f"{new} of {truth} links new"
    return elapsed - cpu
