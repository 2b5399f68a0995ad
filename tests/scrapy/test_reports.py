"""What users of Scrapy and scrapy-redis have reported in public: with tbloom, no page is lost, and none is fetched for ever.

docs/reports.md has all reports that tests name.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import scrapy
from scrapy.exceptions import CloseSpider
from scrapy.http import Response
from scrapy.utils.request import fingerprint

from tbloom import TimeBloom
from tests.helpers.crawl import Part
from tests.helpers.projects import LOCAL, Project, by_mark_and_queue, path_of, times

MARKS = ("scheduled", "done", "done, local")
DONE_MARKS = pytest.mark.parametrize("mark", ["done", LOCAL])


class Captcha(Project):
    """Asks for its page again until there is no captcha, or three times."""

    pages = ("solved", "never", "other")

    def parse(self, response: Response, visit: int = 1) -> Any:
        page = path_of(response)
        if page == "other" or (page == "solved" and visit == 3):
            yield {"page": page}
        elif visit < 3:
            yield self.again(response, {"visit": visit + 1})
        else:
            raise ValueError("still a captcha")

    def again(self, response: Response, kwargs: dict[str, Any]) -> Any:
        """By a request of its own."""
        page = path_of(response)
        return self.request(page, callback=self.parse, cb_kwargs=kwargs, dont_filter=True)


class CaptchaByReplace(Captcha):
    def again(self, response: Response, kwargs: dict[str, Any]) -> Any:
        return response.request.replace(cb_kwargs=kwargs, dont_filter=True)


@by_mark_and_queue(MARKS)
@pytest.mark.parametrize("spider", [Captcha, CaptchaByReplace])
def test_a_callback_asks_for_its_page_again_past_the_filter(
    project: Any, *, mark: str, spider: Any
) -> None:
    """scrapy-redis#78; and if the last answer is no better, the next crawl asks again."""
    first, second = project(spider, spider)
    assert {"solved": [3], "never": [3], "other": [1]} == times([first])
    assert ["other", "solved"] == sorted(item["page"] for item in first.items)
    again = [] if mark == "scheduled" else ["/never"]
    assert again == sorted({*second.fetched})


class TwoCallbacks(Project):
    """Reads its page twice, the second time by another callback."""

    pages = ("page",)

    def parse(self, response: Response) -> Any:
        yield self.request(path_of(response), callback=self.parse_again, dont_filter=True)

    def parse_again(self, response: Response) -> Any:
        if not self.number:
            raise ValueError
        yield {"page": path_of(response)}


@DONE_MARKS
def test_a_page_is_done_after_its_second_callback(project: Any) -> None:
    """scrapy#2662"""
    first, second, third = project(*[TwoCallbacks] * 3)
    assert (2, 0) == (len(first.fetched), len(first.items))
    assert [{"page": "page"}] == second.items
    assert [] == third.fetched


class DatabaseIsDown(Part):
    """In the first crawl."""

    def process_item(self, item: Any) -> Any:
        if not self.crawler.spider.number:
            raise CloseSpider("the database is down")
        return item


@DONE_MARKS
def test_a_pipeline_that_raises_close_spider_has_stored_nothing(project: Any) -> None:
    """scrapy#2405"""
    down = {"ITEM_PIPELINES": {DatabaseIsDown: 1}}
    first, second, third = project(*[Project] * 3, PAGES="abc", **down)
    assert [] == first.items
    assert ["a", "b", "c"] == sorted(item["page"] for item in second.items)
    assert [] == third.fetched


class Chain(Project):
    """Each page leads to the next one."""

    def links(self) -> Iterator[Any]:
        yield self.request("0")

    def parse(self, response: Response) -> Any:
        number = int(path_of(response))
        yield {"page": number}
        if number < 9:
            yield self.request(str(number + 1))


@by_mark_and_queue(MARKS, ["JOBDIR", "scrapy-redis"], long=["done, local"])
def test_a_chain_of_pages_goes_on_where_it_was_stopped(project: Any) -> None:
    """scrapy#5312: a crawl that is resumed fetches more than one page."""
    crawls = project(*[Chain] * 6, CLOSESPIDER_PAGECOUNT=3, CONCURRENT_REQUESTS=1)
    assert [str(number) for number in range(10)] == [
        path.strip("/") for crawl in crawls for path in crawl.fetched
    ]


class WaitsForTheFirst(Project):
    """Asks for its second page once the first one is marked, and notes how many items are in the files then."""

    async def start(self) -> AsyncIterator[Any]:
        first = self.request("first")
        yield first
        fingerprint = self.crawler.request_fingerprinter.fingerprint(first)
        while not await asyncio.to_thread(self.is_marked, fingerprint):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        files = Path(self.settings["ITEMS"]).parent.glob("items*")
        self.said.append(sum(file.read_text(encoding="utf-8").count("first") for file in files))
        yield self.request("second")

    def is_marked(self, fingerprint: bytes) -> bool:
        place = self.settings["REDIS_URL"], self.settings["TBLOOM_KEY"]
        with TimeBloom.from_url(*place, error_rate=1e-9) as seen:
            return fingerprint in seen


LATE = pytest.mark.skipif(scrapy.version_info < (2, 18), reason="stores batches at the crawl's end")


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("", {}),
        ("items", {"format": "jsonlines"}),
        ("items", {"format": "json"}),
        pytest.param("items-%(batch_id)d", {"format": "csv", "batch_item_count": 1}, marks=LATE),
    ],
    ids=["no feed", "jsonlines", "json", "batches"],
)
def test_a_page_is_marked_once_its_items_are_stored(
    project: Any, tmp_path: Path, file: str, options: dict[str, Any]
) -> None:
    """scrapy#7730: some versions stored a batch only at the crawl's end. Nothing of the page is in the memory of the crawler, which may
    be killed, though no request leaves the queue."""
    feeds = {"FEEDS": {str(tmp_path / file): options}} if file else {}
    [end] = project(WaitsForTheFirst, ITEMS=str(tmp_path / "items"), **feeds)
    assert ([int(bool(file))], ["/first", "/second"]) == (end.said, end.fetched)


# A page that kills its crawler


class Deadly(Project):
    """Notes each page in a file, because its process does not live to tell of it. Only the first crawl has the links."""

    def links(self) -> Iterator[Any]:
        if self.settings.getbool("FIRST"):
            yield self.request("good")
            yield self.request("deadly", priority=-1)

    async def parse(self, response: Response) -> Any:
        self.note(path_of(response))
        if path_of(response) == "deadly":
            stat = self.crawler.stats.get_value
            while stat("tbloom/done", 0) < stat("response_received_count") - 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # until the other page is marked
            os.kill(os.getpid(), signal.SIGKILL)
        yield {"page": path_of(response)}

    def note(self, page: str) -> None:
        with Path(self.settings["NOTES"]).open("a", encoding="utf-8") as notes:
            notes.write(f"{page}\n")


@pytest.mark.check
@DONE_MARKS
@pytest.mark.parametrize("linked", [False, True])
def test_a_deadly_page_is_taken_over_three_times(
    project: Any, tmp_path: Path, *, mark: str, linked: bool
) -> None:
    """By the crawls that come next; then one line names it. A link to it does not begin its count again (activepieces#15130)."""
    notes = tmp_path / "notes"
    more = {"NOTES": str(notes), "CONCURRENT_REQUESTS": 1}
    more |= {"TBLOOM_SESSION_TTL": None if mark == "done, local" else 1}
    ends = []
    for number in range(6):
        ends.append(project(Deadly, **more, FIRST=not number or (linked and number < 5)))
        time.sleep(1.2)  # until the session has ended
    fetched = notes.read_text(encoding="utf-8").split()
    assert (1, 4) == (fetched.count("good"), fetched.count("deadly"))
    assert [True] * 4 + [False] * 2 == [end is None for end in ends]
    assert [1, 0] == [len(end[0].warnings("/deadly")) for end in ends[4:]]


class Blocking(Project):
    """Blocks the event loop for longer than its session lives without a sign of life. Meanwhile, it asks as another crawler whether
    the page is free."""

    pages = ("a",)

    def parse(self, response: Response) -> Any:
        settings = self.settings
        with TimeBloom.open(settings["REDIS_URL"], settings["TBLOOM_KEY"]) as other:
            for _ in range(5):
                time.sleep(1)
                self.said.append(other.claim(fingerprint(response.request)).value)
        return super().parse(response)


def test_a_crawler_whose_callback_blocks_is_not_dead(project: Any) -> None:
    """bull#1416: its signs of life come from another thread."""
    [end] = project(Blocking, TBLOOM_SESSION_TTL=4)
    assert (["busy"] * 5, 1) == (end.said, len(end.items))


class CountsConnections(Project):
    """Fetches a few pages, and looks at each which connections its crawl has."""

    pages = tuple("abcdefgh")

    def parse(self, response: Response) -> Any:
        with redis.Redis.from_url(self.settings["REDIS_URL"]) as client:
            named = [each for each in client.client_list() if each["name"] == "crawl"]
        self.said.append(len(named))
        return super().parse(response)


@pytest.mark.parametrize("mark", ["scheduled", "done"])
def test_a_crawl_has_two_connections(project: Any) -> None:
    """scrapy-redis#321: one for links, and one for the end of pages and the summary in the log."""
    [end] = project(CountsConnections, REDIS_PARAMS={"client_name": "crawl"})
    assert len(CountsConnections.pages) == len(end.items)
    assert {1, 2} >= {*end.said}
