"""What users of Scrapy and scrapy-redis have reported in public: with tbloom, no page is lost, and none is fetched for ever.

docs/reports.md has all reports that tests name.
"""

from __future__ import annotations

import asyncio
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
    """Asks for its page again until there is no captcha, or three times: by a request of its own, and by a copy for another callback."""

    pages = ("solved", "never", "other")

    def parse(self, response: Response, visit: int = 1) -> Any:
        page, more = path_of(response), {"cb_kwargs": {"visit": visit + 1}, "dont_filter": True}
        if page == "other":
            yield {"page": page}
        elif visit == 1:
            yield self.request(page, callback=self.parse, **more)
        else:
            yield response.request.replace(callback=self.parse_last, **more)

    def parse_last(self, response: Response, visit: int) -> Any:
        if path_of(response) == "never":
            raise ValueError(f"still a captcha at visit {visit}")
        yield {"page": path_of(response)}


@by_mark_and_queue(MARKS)
def test_a_callback_asks_for_its_page_again_past_the_filter(project: Any, mark: str) -> None:
    """scrapy-redis#78; it is done after its last callback (scrapy#2662), and if that fails, the next crawl asks again."""
    first, second = project(Captcha, Captcha)
    assert {"solved": [3], "never": [3], "other": [1]} == times([first])
    assert ["other", "solved"] == sorted(item["page"] for item in first.items)
    again = [] if mark == "scheduled" else ["/never"]
    assert again == sorted({*second.fetched})


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


# Crawlers that live


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
