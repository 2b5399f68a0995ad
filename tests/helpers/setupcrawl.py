"""Crawls of a small site on this machine, by Scrapy's own filter or with the add-on, and what became of its pages."""

from __future__ import annotations

import json
import logging
import secrets
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import scrapy
from scrapy.core.engine import ExecutionEngine
from scrapy.http import Response, TextResponse
from scrapy.utils.request import fingerprint

from tbloom import TimeBloom
from tests.helpers import crawl
from tests.helpers.crawl import Part
from tests.helpers.forked import Started
from tests.helpers.schedulers import ADDON
from tests.helpers.website import Handler, served

#: The page that something befalls.
TARGET = "/p/3"
#: scrapy-redis' parts, whose queue several crawlers may share.
SHARED, SHARED_FILTER = "scrapy_redis.scheduler.Scheduler", "scrapy_redis.dupefilter.RFPDupeFilter"
#: The duplicate filters: Scrapy's own, and the add-on's with each TBLOOM_MARK.
OWN, MARKS = "own", ("scheduled", "parsed", "done")
ERROR_RATE = 1e-9
_LINKS = 12
_SETTINGS = {
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "REDIRECT_MAX_TIMES": 3,
    "RETRY_ENABLED": True,
    "RETRY_TIMES": 1,
    # An endless crawl ends, and so does one that hangs.
    "CLOSESPIDER_PAGECOUNT": 1000,
    "CLOSESPIDER_TIMEOUT": 60,
}


class Keep(Part):
    """The last pipeline: writes each item's page to a file at once, so that it is there whatever becomes of the crawl."""

    def process_item(self, item: Any) -> Any:
        with Path(self.crawler.spider.items).open("a", encoding="utf-8") as file:
            file.write(f"{item['page']}\n")
        return item


class Follows(scrapy.Spider):
    """Follows all links from page 0 on; each page is an item. A set-up changes what is done with the target."""

    name = "setups"
    site: str
    items: str
    #: Where the log's errors are noted while it runs.
    errors: list[str]
    noting: _Log
    #: The errback of all requests.
    failed: Any = None
    #: How often the target has been parsed.
    visits = 0

    async def start(self) -> AsyncIterator[Any]:
        self.noting.errors = self.errors
        yield self.request("/p/0")

    def request(self, path: str, **more: Any) -> scrapy.Request:
        return scrapy.Request(f"{self.site}{path}", errback=self.failed, **more)

    def parse(self, response: Response) -> Any:
        if not response.url.endswith(TARGET):
            return self.page(response)
        self.visits += 1
        return self.target(response)

    def page(self, response: Response) -> Iterator[Any]:
        yield {"page": urlsplit(response.url).path}
        yield from self.links(response)

    def links(self, response: Response) -> Iterator[scrapy.Request]:
        if isinstance(response, TextResponse):
            yield from map(self.request, response.css("a::attr(href)").getall())

    def target(self, response: Response) -> Any:
        return self.page(response)


@dataclass(frozen=True)
class Setup:
    """What a project may have, and what becomes of the pages of a small site."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    spider: type[Follows] = Follows
    #: What the site answers a path with, time after time, and from then on with the last one: a status, the path that it
    #: redirects to, or None, where the connection is lost.
    surprises: Mapping[str, list[Any]] = field(default_factory=dict)
    pages: int = 12
    #: How long an answer takes (seconds).
    seconds: float = 0.0
    #: The pages that are left to the next crawl, and those that are only because of their items (not with "parsed").
    left: Iterable[str] = ()
    unstored: Iterable[str] = ()
    #: How many lines of tbloom's the log has with the level ERROR, with "done".
    errors: int = 0
    #: How many crawlers there are at a time.
    crawlers: int = 1
    #: With the add-on, a signal that the crawler gets after some pages; another one comes after it.
    stop: str = ""
    #: How often a page may be asked for beyond what Scrapy's own filter does.
    again: int = 0
    #: The crawl ends before it has fetched all: which pages it has fetched depends.
    partial: bool = False
    #: The marks with which it is tried.
    marks: tuple[str, ...] = MARKS

    @property
    def is_alone(self) -> bool:
        """Whether its crawls need processes of their own."""
        return bool(self.stop) or self.crawlers > 1 or self.partial

    def paths(self) -> list[str]:
        """The pages that links lead to."""
        return [f"/p/{number}" for number in range(self.pages)]

    def not_marked(self, mark: str) -> set[str]:
        """The pages that are not marked, because they or their items failed."""
        return {*{"parsed": self.left, "done": (*self.left, *self.unstored)}.get(mark, ())}


@dataclass(frozen=True)
class Result:
    """What has become of a set-up's crawls."""

    #: How often the site was asked for each path.
    requests: Counter[str]
    items: list[str]
    #: The pages that the filter has seen.
    marked: list[str]
    #: What the log of the last crawl has with the level ERROR: tbloom's lines, and for others the logger and the type of the
    #: exception.
    errors: list[str]


def complaints(setup: Setup, how: str, own: Result, result: Result) -> list[str]:
    """What is worse than with Scrapy's own filter, and what else is wrong."""
    wrong = []

    def compare(what: str, expected: Any, actual: Any) -> None:
        if expected != actual:
            wrong.append(f"{what}: expected {expected or 'none'}, got {actual or 'none'}")

    again = Counter(dict.fromkeys(own.requests, setup.again))
    if setup.partial:
        twice = {path for path, times in result.requests.items() if times > 1}
        compare("requested twice", set(), twice)
    else:
        compare("requests too many", {}, dict(result.requests - own.requests - again))
        compare("pages not fetched", set(), {*own.requests} - {*result.requests})
        if setup.again:
            compare("items missing", set(), {*own.items} - {*result.items})
        else:
            compare("items", sorted(own.items), sorted(result.items))
    if not (setup.partial and how == "scheduled"):
        left = setup.not_marked(how)
        fetched = {*result.items} if setup.partial else {*setup.paths()}
        compare("pages not marked", set(), fetched - left - {*result.marked})
        compare("pages marked", set(), {*result.marked} & left)
    ours = [error for error in result.errors if error.startswith("tbloom.")]
    if len(ours) != (setup.errors if how == "done" else 0):
        wrong.append(f"errors: {ours}")
    others = [error for error in result.errors if error not in ours]
    compare("others' errors", sorted(own.errors), sorted(others))
    return wrong


class Site(Handler):
    """The site of a set-up: page 0 has links to all pages, and each other page to the first ones.

    (HTTP 1.0, which ends each connection: Twisted would try again by itself on one that was kept.)
    """

    def get(self) -> None:
        setup, path = (
            self.server.setup,
            urlsplit(self.path).path,
        )  # a proxy is asked for a whole URL
        asked = self.path.removeprefix("http://").removeprefix(self.headers["Host"])
        self.server.asked.append(asked)
        time.sleep(setup.seconds)
        if path == "/robots.txt":
            rules = f"User-agent: *\nDisallow: {TARGET}\n"
            self.answer(200, rules.encode(), Content_Type="text/plain")
            return
        answers = setup.surprises.get(path, [200])
        answer = answers[min(self.server.asked.count(asked), len(answers)) - 1]
        if isinstance(answer, str):
            self.answer(302, Location=answer.format(port=self.server.server_port))
        elif answer:
            paths = setup.paths() if path == "/p/0" else setup.paths()[:_LINKS]
            links = "".join(f"<a href='{link}'>a page</a>\n" for link in paths)
            self.answer(answer, links.encode(), Set_Cookie="visit=1")


class _Log(logging.Handler):
    """Notes errors, for the crawl that runs."""

    errors: list[str]

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        what = kind.__name__ if kind else ""
        is_ours = record.name.startswith("tbloom.")
        self.errors.append(f"{record.name}: {record.getMessage() if is_ours else what}")


def crawl_all(setups: Mapping[str, Setup], jobs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Crawls in this process, one after the other; how each ended, as ``crawl.run`` tells it, and with its errors."""
    warnings.simplefilter("ignore")  # scrapy-redis' scheduler uses what Scrapy has deprecated
    ExecutionEngine._SLOT_HEARTBEAT_INTERVAL = 0.1  # an idle engine looks into its queue every 5 s
    log = _Log(logging.ERROR)
    logging.getLogger().addHandler(log)
    rounds = []
    for job in jobs:
        setup = setups[job["name"]]
        settings = {**_SETTINGS, **setup.settings, **job["settings"]}
        for name, value in settings.items():
            if isinstance(value, str):
                settings[name] = value.replace("FOLDER", job["folder"])
        settings["ITEM_PIPELINES"] = {**settings.get("ITEM_PIPELINES", {}), Keep: 900}
        spider = type("OfSetup", (setup.spider,), {"custom_settings": settings})
        arguments = {"site": job["site"], "items": job["items"], "noting": log, "errors": []}
        rounds.append([(spider, arguments)])
    ends = crawl.run(rounds)
    return [
        {**end, "errors": arguments["errors"]}
        for end, [(_, arguments)] in zip(ends, rounds, strict=True)
    ]


@dataclass
class _Run:
    """The crawls of a set-up's site."""

    name: str
    setup: Setup
    how: str
    url: str
    site: Any
    folder: str

    def __post_init__(self) -> None:
        self._key = f"test-{secrets.token_hex(6)}"
        self._items = Path(self.folder) / "items"
        self.job = {
            "name": self.name,
            "site": self.site.url,
            "folder": self.folder,
            "items": str(self._items),
            "settings": self._settings(),
        }

    def _settings(self) -> dict[str, Any]:
        queue = {
            "SCHEDULER_QUEUE_KEY": f"{self._key}:requests",
            "SCHEDULER_DUPEFILTER_KEY": f"{self._key}:seen",
            "REDIS_URL": self.url,
        }
        if self.how == OWN:
            is_shared = self.setup.settings.get("SCHEDULER") == SHARED
            return {**queue, **({"DUPEFILTER_CLASS": SHARED_FILTER} if is_shared else {})}
        return {
            **queue,
            **ADDON,
            "TBLOOM_KEY": self._key,
            "TBLOOM_MARK": self.how,
            "TBLOOM_ERROR_RATE": ERROR_RATE,
            **({"TBLOOM_SESSION_TTL": 3} if self.setup.stop else {}),
        }

    def crawl_alone(self) -> dict[str, Any]:
        """By processes of their own; how the last crawl ended."""
        crawlers = [_started([self.job]) for _ in range(self.setup.crawlers)]
        if self.setup.stop and self.how != OWN:
            [crawler] = crawlers
            while crawler.poll() is None and len(self.site.asked) < self.setup.pages // 5:
                time.sleep(0.01)
            crawler.send_signal(signal.Signals[self.setup.stop])
            crawler.communicate()
            crawlers = [_started([self.job])]
        return [end for crawler in crawlers for end in crawler.result()][-1]  # type: ignore[no-any-return]

    def result(self, end: dict[str, Any]) -> Result:
        """What has become of the pages."""
        stored = self._items.read_text(encoding="utf-8").split() if self._items.exists() else []
        errors = end["errors"] + end["failures"]
        return Result(Counter(self.site.asked), stored, self._marked(), errors)

    def _marked(self) -> list[str]:
        if self.how == OWN:
            return []
        with TimeBloom.from_url(self.url, self._key, error_rate=ERROR_RATE) as seen:
            requests = [scrapy.Request(f"{self.site.url}{path}") for path in self.setup.paths()]
            answers = seen.contains_many([fingerprint(request) for request in requests])
        return [path for path, is_seen in zip(self.setup.paths(), answers, strict=True) if is_seen]


def _started(jobs: list[dict[str, Any]]) -> Started:
    return Started("tests.helpers.setups", json.dumps(jobs))


def run(setups: Mapping[str, Setup], how: str, url: str) -> dict[str, Result]:
    """Crawls by this filter, most of them in one process; ``url``: of the Redis."""
    with ExitStack() as stack:
        runs = {}
        for name, setup in setups.items():
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tbloom-setup-"))
            site = stack.enter_context(served(Site, asked=[], setup=setup))
            runs[name] = _Run(name, setup, how, url, site, folder)
        jobs = [run.job for run in runs.values() if not run.setup.is_alone]
        ends = iter(_started(jobs).result() if jobs else [])
        return {
            name: run.result(run.crawl_alone() if run.setup.is_alone else next(ends))
            for name, run in runs.items()
        }
