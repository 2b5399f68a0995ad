"""Crawls of small projects, one after the other, on one filter and a site that answers as it is told."""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
import scrapy
from scrapy.http import Response

from tests.helpers import crawl
from tests.helpers.schedulers import DONE, SCHEDULED
from tests.helpers.website import Handler, Server, served

SHARED = "scrapy_redis.scheduler.Scheduler"
#: A crawl that would spin ends by these. (On a busy machine, a good one may need a minute.)
LIMITS = {"CLOSESPIDER_PAGECOUNT": 300, "CLOSESPIDER_TIMEOUT": 300}

#: What a path is answered with, time after time, and then as the last time: a status, a body (with SITE for its address), the URL
#: that it redirects to (with PORT for the site's), or None, where the connection is cut; in a tuple behind the seconds that it takes.
#: Without an entry, as the path "": 200. Or a function that answers, which is called with the ``Site`` and the path.
Answers = Mapping[str, Sequence[Any]] | Callable[[Any, str], None]


class Site(Handler):
    """The site of some projects. It knows the number of the crawl; of crawls at the same time, by the User-Agent. A body is noted
    behind the path."""

    def get(self) -> None:
        path = urlsplit(self.path).path
        length = int(self.headers.get("Content-Length", 0))
        if length:
            path += f" {self.rfile.read(length).decode()}"
        before = sum(asked == path for _, asked in self.server.asked)
        number, place = self.server.number, len(self.server.asked)
        self.server.asked.append((self.headers["User-Agent"] if number is None else number, path))
        self.server.hold(path, place)
        if callable(self.server.answers):
            return self.server.answers(self, path)
        answers = self.server.answers.get(path) or self.server.answers.get("") or [200]
        answer = answers[min(before, len(answers) - 1)]
        if isinstance(answer, tuple):
            time.sleep(answer[0])
            answer = answer[1]
        if answer is None:
            self.close_connection = True
        elif isinstance(answer, str):
            url = answer.replace("PORT", str(self.server.server_port))
            self.answer(308 if length else 302, Location=url)  # a body goes along
        elif isinstance(answer, bytes):
            is_xml = answer.startswith(b"<?xml")
            answer = answer.replace(b"SITE", self.server.url.encode())
            self.answer(200, answer, Content_Type="text/xml" if is_xml else "text/html")
        else:
            self.answer(answer, path.encode())
        return None


@contextmanager
def site_of(
    answers: Answers = MappingProxyType({}),
    hold: Callable[[str, int], object] = lambda *_: None,
    **known: Any,
) -> Iterator[Server]:
    """A site in this process. It answers once ``hold`` returns, which is called with the path and the number of requests before, and
    may wait until the site is ``opened``."""
    opened = threading.Event()
    own = {"number": None, "asked": [], "opened": opened}
    with served(Site, **{**own, **known}, answers=answers, hold=hold) as site:
        try:
            yield site
        finally:
            opened.set()


def asked(site: Server) -> Counter[str]:
    """How often a site was asked for each path (without its slash)."""
    return Counter(path[1:] for _, path in site.asked)


class Project(scrapy.Spider):
    """Asks for the pages in ``pages``, or in the setting PAGES; each one is an item. A test changes what it wants to."""

    name = "project"
    site: str
    #: The crawl's number, from 0 on.
    number: int
    #: What the crawl has stored.
    items: list[Any]
    #: What a test wants to know.
    said: list[Any]
    pages: Sequence[str] = ()

    async def start(self) -> AsyncIterator[Any]:
        for request in self.links():
            yield request

    def links(self) -> Iterator[Any]:
        """What the crawl begins with."""
        yield from map(self.request, self.settings.get("PAGES", self.pages))

    def request(self, path: str, **more: Any) -> scrapy.Request:
        return scrapy.Request(f"{self.site}{path}", **more)

    def parse(self, response: Response) -> Any:
        yield {"page": path_of(response)}


class InOrder(Project):
    """Fetches its pages one after the other, in the order in which they are linked."""

    custom_settings: ClassVar[Any] = {
        "CONCURRENT_REQUESTS": 1,
        "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
    }
    pages = tuple("abcdefgh")


class Versions(Project):
    """Asks for pages in what VERSIONS has for the crawl: a version of "a", or a list of such, or of pairs of pages and versions (None:
    without one). Each item has the version of its page."""

    def links(self) -> Iterator[Any]:
        asked = self.settings["VERSIONS"][self.number]
        for each in asked if isinstance(asked, list) else [asked]:
            path, version = each if isinstance(each, tuple) else ("a", each)
            yield self.request(path, meta={} if version is None else {"tbloom_version": version})

    def parse(self, response: Response) -> Any:
        yield {"page": path_of(response), "version": response.meta.get("tbloom_version")}


@dataclass
class End:
    """What has become of a crawl."""

    #: The paths that it has asked for, in order, and its items as they passed the pipelines.
    fetched: list[str]
    items: list[Any]
    said: list[Any]
    reason: str
    stats: dict[str, Any]
    #: "LEVEL logger: message", from WARNING on; of all crawls of the round.
    log: list[str] = field(default_factory=list)

    @property
    def pages(self) -> str:
        """The paths without their slashes, sorted."""
        return "".join(sorted(path.strip("/") for path in self.fetched))

    def warnings(self, *words: str) -> list[str]:
        """The lines of tbloom from WARNING on that have all of these words."""
        ours = [line for line in self.log if line.split()[1].startswith("tbloom")]
        return [line for line in ours if all(word in line for word in words)]


def path_of(source: Any) -> str:
    """The path of a request or response, without its slash."""
    return urlsplit(source.url).path[1:]


class Log(logging.Handler):
    """Keeps the lines of each crawl, from WARNING on."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines = list[list[str]]()

    def emit(self, record: logging.LogRecord) -> None:
        if self.lines:
            self.lines[-1].append(f"{record.levelname} {record.name}: {record.getMessage()}")


def crawl_in_turn(
    rounds: Sequence[Any], answers: Answers, settings: Mapping[str, Any], port: int = 0
) -> list[End]:
    """Crawls with each of these spiders, one after the other; those of a tuple at the same time.

    ``port``: the site's, which is a part of its pages' fingerprints; 0: any.
    """
    warnings.simplefilter("ignore")  # scrapy-redis' scheduler uses what Scrapy has deprecated
    log, given, places = Log(), list[dict[str, Any]](), list[int]()
    logging.getLogger().addHandler(log)

    with site_of(answers, port=port, number=0) as site:

        def begin() -> Iterator[list[tuple[type[scrapy.Spider], dict[str, Any]]]]:
            for spiders in rounds:
                log.lines.append([])
                crawls = []
                is_alone = not isinstance(spiders, tuple)
                # (A request that is taken over may have an earlier crawl's User-Agent.)
                site.number = str(len(given)) if is_alone else None
                for kind in (spiders,) if is_alone else spiders:
                    number = len(given)
                    own = {**(kind.custom_settings or {}), "USER_AGENT": str(number)}
                    spider = type(kind.__name__, (kind,), {"custom_settings": own})
                    known = {"site": f"{site.url}/", "number": number, "items": [], "said": []}
                    given.append(known)
                    places.append(len(log.lines) - 1)
                    crawls.append((spider, known))
                yield crawls

        keep = {"EXTENSIONS": {**settings.get("EXTENSIONS", {}), KeepsItems: 1}}
        ends = crawl.run(begin(), **{**LIMITS, **settings, **keep})  # type: ignore[arg-type]
        fetched = list(site.asked)
    return [
        End(
            [path for agent, path in fetched if agent == str(number)],
            known["items"],
            known["said"],
            end["finish_reason"],
            end["stats"],
            log.lines[place],
        )
        for number, (known, place, end) in enumerate(zip(given, places, ends, strict=True))
    ]


class KeepsItems(crawl.Part):
    """An extension: notes what has passed the pipelines."""

    def __init__(self, crawler: Any) -> None:
        super().__init__(crawler)
        crawler.signals.connect(self.scraped, scrapy.signals.item_scraped)

    def scraped(self, item: Any) -> None:
        self.crawler.spider.items.append(item)


#: Of marks without a server, `make test` has what differs (test_without_a_server.py); `make check` has all else.
LOCAL = pytest.param("done, local", marks=pytest.mark.check)


def marked(mark: str, folder: Path) -> dict[str, Any]:
    """The settings of a mark, "scheduled" or "done"; with ", local" without a server."""
    local = {"TBLOOM_STORE": "local", "TBLOOM_PATH": str(folder / "seen"), "TBLOOM_KEY": None}
    settings = SCHEDULED if mark.startswith("scheduled") else DONE
    return {**settings, **(local if mark.endswith("local") else {})}


def queued(queue: str, folder: Path) -> dict[str, Any]:
    """The settings of a queue: "memory", "JOBDIR" or "scrapy-redis"."""
    queues: dict[str, dict[str, Any]] = {
        "memory": {},
        "JOBDIR": {"JOBDIR": str(folder / "job")},
        "scrapy-redis": {"SCHEDULER": SHARED, "SCHEDULER_PERSIST": True},
    }
    return queues[queue]


def by_mark_and_queue(
    marks: Sequence[str],
    queues: Sequence[str] = ("memory", "JOBDIR", "scrapy-redis"),
    long: Sequence[str] = ("JOBDIR", "scrapy-redis", "scheduled, local", "done, local"),
) -> Any:
    """Parametrises a test by ``mark`` and ``queue``; ``long``: those that only `make check` has. "done" needs no queue in Redis."""
    return pytest.mark.parametrize(
        ("mark", "queue"),
        [
            pytest.param(mark, queue, marks=[pytest.mark.check] if {mark, queue} & {*long} else [])
            for mark in marks
            for queue in queues
            if queue != "scrapy-redis" or not mark.startswith("done")
        ],
    )


def times(ends: Sequence[End]) -> dict[str, list[int]]:
    """How often each crawl has asked for each path (without its slash)."""
    counts = [Counter(path.strip("/") for path in end.fetched) for end in ends]
    return {path: [count[path] for count in counts] for path in sorted({*sum(counts, Counter())})}
