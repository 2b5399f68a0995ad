"""Crawls one after the other on one filter: what one leaves, the next one fetches, and then it is done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from scrapy import Request
from scrapy.exceptions import CloseSpider
from scrapy.http import Response

from tbloom import TimeBloom
from tbloom.claims.fleet import Pages, numbers_of
from tbloom.scrapy.done import sharing as taking
from tests.helpers.crawl import LooksRarely
from tests.helpers.projects import LOCAL, Project, path_of, queued
from tests.helpers.schedulers import ADDON, SCHEDULED, SCRAPY


class Leaves(Project):
    """Its first crawl asks for ``PAGES``, and for those in ``LATE`` while it closes. ``RAISES``: what the callback of each crawl raises;
    ``CLOSES``: the crawl whose start raises CloseSpider."""

    async def start(self) -> AsyncIterator[Request]:
        self.closing, late = asyncio.Event(), self.settings.get("LATE", "")
        for page in "" if self.number else self.settings.get("PAGES", "a") + late:
            if page in late:
                await self.closing.wait()
            yield self.request(page, priority=-ord(page))
        if self.number == self.settings.get("CLOSES"):
            raise CloseSpider

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"page": response.url}
        for error in self.settings.get("RAISES", ())[self.number :][:1]:
            raise error

    async def closed(self, _: str) -> None:
        """Takes its time, as others do that then have ended."""
        await asyncio.sleep(0.05)
        self.closing.set()
        await asyncio.sleep(0.05)


class Stops(Leaves):
    """Ends after a page."""

    custom_settings: ClassVar[Any] = {
        "CLOSESPIDER_PAGECOUNT": 1,
        "CONCURRENT_REQUESTS": 1,
        "RETRY_PRIORITY_ADJUST": -1000,
    }


ALL, STOPPED = (Leaves,) * 3, (Stops, Stops, Leaves)
#: Which pages three crawls fetch (in all, if they are stopped: sooner or later), the crawls, and how the site answers.
CASES: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "retries run out": (["aaa", "aa", ""], ALL, {"/a": [*[503] * 4, 200]}, {}),
    "redirected to itself, and fails": (
        ["aa", "aa", ""],
        ALL,
        {"/a": ["/a", 200, "/a", 200]},
        {"RAISES": [KeyError]},
    ),
    "redirected to one that is redirected to itself": (
        ["abb", "", ""],
        ALL,
        {"/a": ["/b", 200], "/b": ["/b", 200]},
        {},
    ),
    "redirected and back": (["aab", "", ""], ALL, {"/a": ["/b", 200], "/b": ["/a"]}, {}),
    "redirected and half back": (
        ["abbc", "", ""],
        ALL,
        {"/a": ["/b"], "/b": ["/c", 200], "/c": ["/b"]},
        {},
    ),
    "redirected in a circle": (["aabb"] * 3, ALL, {"/a": ["/b"], "/b": ["/a"]}, {}),
    "redirected to itself again and again": (["aa", "aa", "aa"], ALL, {"/a": ["/a"]}, {}),
    "ends the crawl on purpose": (["a", "a", "a"], ALL, {}, {"RAISES": [CloseSpider] * 3}),
    "stopped while one waits to be tried again": (
        "abbcd",
        STOPPED,
        {"/b": [503, 200]},
        {"PAGES": "abcd"},
    ),
    "closed while it takes requests over": ("abc", STOPPED, {}, {"PAGES": "abc", "CLOSES": 1}),
    "its start closes it at once": ("ab", STOPPED, {}, {"PAGES": "ab", "CLOSES": 0}),
    "asks for pages while it closes": ("a", STOPPED, {}, {"LATE": "b"}),
}


def crawl_case(project: Any, case: str) -> None:
    """Crawls it, and compares what the crawls fetch; no error in the log is tbloom's."""
    expected, crawls, answers, more = CASES[case]
    ends = project(*crawls, answers=answers, RETRY_ENABLED=True, **more)
    fetched = [end.pages for end in ends]
    assert expected == ("".join(sorted("".join(fetched))) if crawls is STOPPED else fetched)
    lines = [line for end in ends for line in end.log if line.startswith("ERROR ")]
    assert [] == [line for line in lines if not line.startswith("ERROR scrapy.")]


@pytest.mark.parametrize("case", CASES)
def test_the_next_crawl_fetches_the_pages_that_a_crawl_leaves(
    project: Any, url: str, name: str, case: str
) -> None:
    """Without a link to it. No page closes all later crawls, or is fetched once by each of them; and no crawl that was stopped has died.

    scrapy#1225: a page that is redirected for a cookie, and back, is done."""
    crawl_case(project, case)
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
def test_the_next_crawl_fetches_failed_pages_unless_marked_when_scheduled(
    project: Any, settings: dict[str, Any], fetched: list[str]
) -> None:
    """The add-on's own mark is "done"."""
    ends = project(*ALL, **settings, RAISES=[KeyError])
    assert fetched == [end.pages for end in ends]


class Fails(Project):
    pages = "ab"

    def parse(self, response: Response) -> None:
        if path_of(response) == "a":
            raise ZeroDivisionError


class Prepared(Project):
    """Its start needs some pages of its own."""

    async def start(self) -> AsyncIterator[Request]:
        self.logged_in, self.fetched_all = asyncio.Event(), asyncio.Event()
        taking._START_PATIENCE = 3600.0
        yield self.request("login", callback=self.login, dont_filter=True)

    def login(self, _: Response) -> Iterator[Request]:
        yield self.request("table", callback=self.get_table, dont_filter=True)

    def get_table(self, _: Response) -> None:
        self.said.append("ready")
        self.logged_in.set()

    def parse(self, response: Response) -> None:
        self.said.append(path_of(response))
        if self.said[-1] == "c":
            taking._START_PATIENCE = 0.1
        if len(self.said) == 3:
            self.fetched_all.set()


class GoesOn(Prepared):
    """Its start does not come to an end before it has fetched all."""

    async def start(self) -> AsyncIterator[Request]:
        async for request in super().start():
            yield request
        await self.logged_in.wait()
        yield self.request("c")
        await self.fetched_all.wait()


@pytest.mark.parametrize("spider", [Prepared, GoesOn])
@pytest.mark.parametrize("mark", ["done", LOCAL])
def test_left_pages_wait_until_the_spider_is_ready(project: Any, spider: Any) -> None:
    """It may have to log in first. If its start does not come to an end, they are fetched after some time without other pages."""
    rarely = {"EXTENSIONS": {LooksRarely: 1}} if spider is Prepared else {}
    first, second = project(Fails, spider, alone=True, **rarely)
    assert "ab" == first.pages
    assert ["ready", *"c" * (spider is GoesOn), "a"] == second.said


def test_a_jobdirs_page_that_another_crawl_fetched_is_not_refetched(
    project: Any, tmp_path: Path
) -> None:
    """Scrapy marks a page that is tried again with dont_filter, so that its scheduler does not ask the filter."""
    job = queued("JOBDIR", tmp_path)
    answers = {"/a": [(0.5, 503), 200]}  # once "b" is queued, too
    ends = project(Stops, answers=answers, PAGES="ab", RETRY_ENABLED=True, **job)
    ends += project(Project) + project(Project, **job)
    assert [("ab", "closespider_pagecount"), ("a", "finished"), ("", "finished")] == [
        (end.pages, end.reason) for end in ends
    ]
