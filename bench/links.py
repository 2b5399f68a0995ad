"""How long a crawler waits for Redis: the links of real pages, through dupefilters, over a longer line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol
from urllib.parse import urldefrag, urlsplit

import redis
from contenders import ERROR_RATE, SLICES
from delay import delayed
from scrapy import Request
from scrapy.http import HtmlResponse
from scrapy.settings import Settings
from scrapy.utils.request import RequestFingerprinter
from scrapy_redis.dupefilter import RFPDupeFilter
from tbloom.demo.links import is_page

from tbloom.demo.localredis import LocalRedis
from tbloom.demo.site import Folder, Gazette, Site
from tbloom.scrapy import DupeFilter
from tbloom.scrapy.dupefilter.prefetch import Prefetch

#: Debian's package python3.11-doc.
DOCS = Path("/usr/share/doc/python3.11/html")
_URL = "http://docs.example"
Pages = Sequence[Sequence[str]]


class Filter(Protocol):
    """The part of a dupefilter that is used here."""

    def request_seen(self, request: Request) -> bool:
        """Has the request been seen?"""

    def clear(self) -> None:
        """Forget all requests."""


class Way(NamedTuple):
    """A way to ask for the links of pages."""

    name: str
    open: Callable[[str], Filter]
    #: Asks for all links of the pages, and returns how many of them were new.
    run: Callable[[Filter, Pages], int]
    #: A call for each link: all wait alike, so some pages are enough. Else all pages are used.
    samples: bool


def call_per_link(dupefilter: Filter, pages: Pages) -> int:
    """As Scrapy's scheduler does, where nothing batches."""
    return sum(not dupefilter.request_seen(Request(link)) for page in pages for link in page)


def scrapy_redis(url: str) -> Filter:
    return RFPDupeFilter.from_settings(Settings({"REDIS_URL": url}))


def tbloom(url: str, **more: Any) -> Filter:
    settings = {
        "REDIS_URL": url,
        "TBLOOM_KEY": "links",
        "TBLOOM_SLICES": SLICES,
        "TBLOOM_ERROR_RATE": ERROR_RATE,
        **more,
    }
    return DupeFilter.from_settings(Settings(settings))


def tbloom_asking_always(url: str) -> Filter:
    return tbloom(url, TBLOOM_CACHE_SIZE=0)


def call_per_page(dupefilter: Filter, pages: Pages) -> int:
    """As with the add-on, whose middleware asks for all links of a page in one call."""
    assert isinstance(dupefilter, DupeFilter)
    # It uses only these parts of a crawler.
    crawler: Any = SimpleNamespace(request_fingerprinter=RequestFingerprinter())
    prefetch = dupefilter._prefetch = Prefetch(crawler, dupefilter.seen, None)
    new = 0
    for page in pages:
        requests = [Request(link) for link in page]
        prefetch.ask(requests)
        new += sum(not dupefilter.request_seen(request) for request in requests)
    return new


REFERENCE = "scrapy-redis, a call per link"
WAYS = [
    Way(REFERENCE, scrapy_redis, call_per_link, samples=True),
    Way("tbloom, a call per link", tbloom_asking_always, call_per_link, samples=True),
    Way("tbloom, local cache", tbloom, call_per_link, samples=False),
    Way("tbloom, local cache, a call per page", tbloom, call_per_page, samples=False),
]


def read_pages(folder: Path = DOCS) -> Pages:
    """The links within the site on each page, all of them, the pages in the order in which a crawler finds them."""
    site: Site = Folder(str(folder)) if folder.is_dir() else Gazette()
    found = [f"{_URL}{site.start}"]
    met = set(found)
    pages = []
    for address in found:  # grows as it is walked
        reply = site.reply(urlsplit(address).path)
        headers = {"Content-Type": reply.content_type}
        response = HtmlResponse(address, reply.status, headers, reply.body)
        if reply.status == 200 and is_page(response):
            links = map(response.urljoin, response.css("a::attr(href)").getall())
            pages.append([link for link in links if link.startswith(f"{_URL}/")])
            for link in pages[-1]:
                target = urldefrag(link).url
                if target not in met:
                    met.add(target)
                    found.append(target)
    return pages


def count_distinct(pages: Pages) -> int:
    """The number of different pages that the links lead to: a request's fingerprint has no fragment."""
    return len({urldefrag(link).url for page in pages for link in page})


def link_stream(
    server: LocalRedis, client: redis.Redis, *, delays: list[float], seconds: float
) -> dict[str, Any]:
    """Seconds that each way waits for all links, at each one-way delay (s).

    Ways with a call for each link are measured on evenly spread pages that take about ``seconds``, and
    scaled to all links.
    """
    pages = read_pages()
    links = sum(map(len, pages))
    lines, rows = [], []
    for delay in delays:
        with delayed(server.port, delay) as url:
            lines.append({"delay": delay, **round_trips(client, url)})
            step = max(1, round(links * (2 * delay + 1e-4) / seconds))
            for way in WAYS:
                waited = _wait(way, url, pages[::step] if way.samples else pages)
                rows.append({"way": way.name, "delay": delay, **waited})
                rows[-1]["waited"] *= links / waited["links"]
                client.flushall()
    return {
        "pages": len(pages),
        "links": links,
        "distinct": count_distinct(pages),
        "lines": lines,
        "rows": rows,
    }


def _wait(way: Way, url: str, pages: Pages) -> dict[str, Any]:
    """Waiting is elapsed time less the processor time of this process."""
    dupefilter = way.open(url)
    dupefilter.request_seen(Request(f"{_URL}/warms-up"))
    own, start = time.process_time(), time.perf_counter()
    new = way.run(dupefilter, pages)
    elapsed, own = time.perf_counter() - start, time.process_time() - own
    truth = count_distinct(pages)
    assert 0 <= truth - new <= truth / 1000 + 1, f"{way.name}: {new} of {truth} links new"
    return {"links": sum(map(len, pages)), "waited": elapsed - own}


def round_trips(client: redis.Redis, url: str) -> dict[str, float]:
    """The round trip (s) of a PING: straight, and over the longer line."""
    with redis.Redis.from_url(url) as far:
        return {"straight": _ping(client, 500), "round_trip": _ping(far, 100)}


def _ping(client: redis.Redis, times: int) -> float:
    return median(_seconds_of_ping(client, times))


def _seconds_of_ping(client: redis.Redis, times: int) -> Iterator[float]:
    for _ in range(times):
        start = time.perf_counter()
        client.ping()
        yield time.perf_counter() - start
