"""What users of Scrapy and scrapy-redis have reported in public: with tbloom, no page is lost, and none is fetched for ever.

docs/reports.md has all reports that tests name.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis
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
