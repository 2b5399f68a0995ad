"""Crawls one after the other on one filter: what one leaves, the next one fetches, and then it is done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.exceptions import CloseSpider
from scrapy.http import Response, TextResponse

from tbloom import TimeBloom
from tbloom.bloom.claims.fleet import Pages, numbers_of
from tbloom.scrapy.done import taking
from tests.helpers import crawl as crawls
from tests.helpers.forked import Forked, in_turn
from tests.helpers.schedulers import ADDON, DONE, SCHEDULED, SCRAPY


@dataclass
class Case:
    """A site, a spider, and which pages three crawls fetch (in all, if they are stopped: sooner or later)."""

    fetched: list[str]
    #: How a page is answered, time after time, and then with 200: a status, or the page that it redirects to.
    answers: dict[str, list[int | str]] = field(default_factory=dict)
    #: The errors that its callback raises, time after time.
    errors: dict[str, list[type[Exception]]] = field(default_factory=dict)
    #: The pages that the first crawl asks for, and those for which it asks while it closes; and the crawl whose start raises
    #: CloseSpider.
    pages: str = "a"
    late: str = ""
    closes: int | None = None
    #: The first two crawls end after a page.
    stops: bool = False


class Site(crawls.Part):
    """A download handler."""

    lazy = False

    async def download_request(self, request: Request) -> Response:
        spider: Any = self.crawler.spider
        page = request.url[-1]
        spider.fetched.append(page)
        left = spider.case.answers.get(page)
        answer = left.pop(0) if left else 200
        status, headers = (answer, {}) if isinstance(answer, int) else (302, {"Location": answer})
        return TextResponse(request.url, status, headers)

    async def close(self) -> None:
        pass


class Later(Spider):
    """The spider of a case."""

    name = "later"
    case: Case
    number: int

    async def start(self) -> AsyncIterator[Request]:
        self.closes = asyncio.Event()
        for page in "" if self.number else self.case.pages + self.case.late:
            if page in self.case.late:
                await self.closes.wait()
            yield Request(f"http://site/{page}", priority=-ord(page))
        if self.number == self.case.closes:
            raise CloseSpider

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"page": response.url}
        if errors := self.case.errors.get(response.url[-1]):
            raise errors.pop(0)

    async def closed(self, reason: str) -> None:  # noqa: ARG002 - Scrapy gives it
        """Takes its time, as others do that then have ended."""
        await asyncio.sleep(0.05)
        self.closes.set()
        await asyncio.sleep(0.05)


def crawl_all(case: Case, settings: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What each crawl has fetched; and the errors in the log that are not about a page."""
    errors, log = list[str](), logging.Handler(logging.ERROR)
    log.emit = lambda record: errors.append(f"{record.name}: {record.getMessage()}")  # type: ignore[method-assign]
    logging.getLogger().addHandler(log)
    stop = {"CLOSESPIDER_PAGECOUNT": 1, "CONCURRENT_REQUESTS": 1, "RETRY_PRIORITY_ADJUST": -1000}
    stopping = type("Stopping", (Later,), {"custom_settings": stop}) if case.stops else Later
    given: list[Any] = [{"case": case, "number": i, "fetched": []} for i in range(3)]
    crawls.run(
        [[each] for each in zip((stopping, stopping, Later), given, strict=True)], **settings
    )
    fetched = ["".join(each["fetched"]) for each in given]
    fetched = ["".join(sorted("".join(fetched)))] if case.stops else fetched
    return fetched, [error for error in errors if not error.startswith("scrapy.")]


CASES = {
    "retries run out": Case(["aaa", "aa", ""], {"a": [503] * 4}),
    "redirected to itself, and fails": Case(
        ["aa", "aa", ""], {"a": ["a", 200, "a"]}, {"a": [KeyError]}
    ),
    "redirected to one that is redirected to itself": Case(
        ["abb", "", ""], {"a": ["b"], "b": ["b"]}
    ),
    "ends the crawl on purpose": Case(["a", "a", "a"], errors={"a": [CloseSpider] * 3}),
    "stopped while one waits to be tried again": Case(
        ["abbcd"], {"b": [503]}, pages="abcd", stops=True
    ),
    "closed while it takes requests over": Case(["abc"], pages="abc", closes=1, stops=True),
    "asks for pages while it closes": Case(["a"], late="b", stops=True),
}


@pytest.mark.parametrize("case", CASES)
def test_the_next_crawl_fetches_the_pages_that_a_crawl_leaves(
    url: str, name: str, case: str
) -> None:
    """Without a link to it. No page closes all later crawls, or is fetched once by each of them; and no crawl that was stopped has died."""
    settings = {**DONE, "REDIS_URL": url, "TBLOOM_KEY": name, "RETRY_ENABLED": True}
    settings |= {"DOWNLOAD_HANDLERS": {"http": Site}}
    assert (CASES[case].fetched, []) == in_turn(crawl_all, CASES[case], settings)
    with TimeBloom.from_url(url, name) as seen:
        numbers = numbers_of(seen)
    assert numbers is None or Pages() == numbers.pages._replace(given_up=0)


@pytest.mark.parametrize(
    ("settings", "fetched"),
    [
        (ADDON, ["a", "a", ""]),
        ({**ADDON, "TBLOOM_MARK": None}, ["a", "a", ""]),
        (SCHEDULED, ["a", "", ""]),
        (SCRAPY, ["a", "", ""]),
    ],
    ids=["the add-on", "None", "scheduled", "the class alone"],
)
def test_the_next_crawl_fetches_a_failed_page_unless_it_was_marked_when_it_was_scheduled(
    url: str, name: str, settings: dict[str, Any], fetched: list[str]
) -> None:
    """The add-on's own mark is "done"."""
    own = {**settings, "REDIS_URL": url, "TBLOOM_KEY": name, "DOWNLOAD_HANDLERS": {"http": Site}}
    case = Case(fetched, errors={"a": [KeyError]})
    assert (fetched, []) == in_turn(crawl_all, case, own)


class Prepared(Spider):
    """Its start needs some pages of its own. ``ends``: it comes to its end."""

    name = "prepared"
    site: str
    pages: list[str]
    ends: bool
    fetched: list[str]

    async def start(self) -> AsyncIterator[Request]:
        self.logged_in, self.fetched_all = asyncio.Event(), asyncio.Event()
        yield Request(f"{self.site}login", self.login, dont_filter=True)
        if not self.ends:
            await self.logged_in.wait()
        for page in self.pages:
            yield Request(f"{self.site}{page}")
        if not self.ends:
            await self.fetched_all.wait()

    def login(self, _: Response) -> Iterator[Request]:
        yield Request(f"{self.site}table", self.get_table, dont_filter=True)

    def get_table(self, _: Response) -> None:
        self.fetched.append("ready")
        self.logged_in.set()

    def parse(self, response: Response) -> None:
        self.fetched.append(response.url[-1])
        if response.url.endswith("c"):
            taking._START_PATIENCE = 0.1
        if len(self.fetched) == 3:
            self.fetched_all.set()
        if self.pages and response.url.endswith("a"):
            raise ZeroDivisionError


def crawl_prepared(site: str, settings: Mapping[str, Any], *, ends: bool) -> list[list[str]]:
    taking._START_PATIENCE = 3600.0
    given: list[Any] = [{"pages": "ab", "ends": True}, {"pages": "" if ends else "c", "ends": ends}]
    for each in given:
        each |= {"site": site, "fetched": []}
    rarely = {"EXTENSIONS": {crawls.LooksRarely: 1}} if ends else {}
    crawls.run([[(Prepared, each)] for each in given], **settings, **rarely)
    return [each["fetched"] for each in given]


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("store", ["bloom", pytest.param("local", marks=pytest.mark.check)])
def test_left_pages_wait_until_the_spider_is_ready(
    url: str,
    name: str,
    site: str,
    store: str,
    tmp_path: Path,
    *,
    ends: bool,
) -> None:
    """It may have to log in first. If its start does not come to an end, they are fetched after some time without other pages."""
    settings = {**DONE, "REDIS_URL": url, "TBLOOM_KEY": name, "TBLOOM_STORE": store}
    settings |= {"TBLOOM_PATH": str(tmp_path / "seen")} if store == "local" else {}
    first, second = Forked(crawl_prepared, site, settings, ends=ends).result()
    assert ["a", "b", "ready"] == sorted(first)
    assert (["ready", "a"] if ends else ["ready", "c", "a"]) == second


def crawl_around_a_jobdir(
    case: Case, settings: Mapping[str, Any], jobdir: str
) -> list[tuple[str, str]]:
    """What three crawls have fetched, and how they ended: the first is stopped while a page waits to be tried again in its JOBDIR, another one without
    the JOBDIR fetches that page, and the third has the JOBDIR again."""
    stop = {"CLOSESPIDER_PAGECOUNT": 1, "CONCURRENT_REQUESTS": 1, "RETRY_PRIORITY_ADJUST": -1000}
    kinds = [{"JOBDIR": jobdir, **stop}, {}, {"JOBDIR": jobdir}]
    rounds, given = [], []
    for number, own in enumerate(kinds):
        spider = type("Later", (Later,), {"custom_settings": own})
        given.append({"case": case, "number": number, "fetched": []})
        rounds.append([(spider, given[-1])])
    ends = [end["finish_reason"] for end in crawls.run(rounds, **settings)]
    return [("".join(each["fetched"]), end) for each, end in zip(given, ends, strict=True)]


def test_a_page_in_a_jobdir_that_another_crawl_has_fetched_is_not_fetched_again(
    url: str, name: str, tmp_path: Path
) -> None:
    """Scrapy marks a page that is tried again with dont_filter, so that its scheduler does not ask the filter."""
    settings = {**DONE, "REDIS_URL": url, "TBLOOM_KEY": name, "RETRY_ENABLED": True}
    settings |= {"DOWNLOAD_HANDLERS": {"http": Site}}
    case = Case([], {"a": [503]}, pages="ab")
    fetched = in_turn(crawl_around_a_jobdir, case, settings, str(tmp_path / "job"))
    assert [("ab", "closespider_pagecount"), ("a", "finished"), ("", "finished")] == fetched
