"""Crawls one after the other on one filter: what one leaves, the next one fetches, and then it is done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from scrapy import Request, Spider, signals
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.http import Response, TextResponse

from tests.helpers import crawl as crawls
from tests.helpers.forked import Forked
from tests.helpers.schedulers import DONE


@dataclass
class Case:
    """A site, a spider, and which pages three crawls fetch."""

    fetched: list[str]
    #: How a page is answered, time after time, and then with 200: a status, or the path that it redirects to.
    answers: Mapping[str, Iterable[int | str]] = field(default_factory=dict)
    #: How its callback ends: with an error, or "again" if it asks for the page again; and then well.
    ends: Mapping[str, Iterable[Any]] = field(default_factory=dict)
    #: The pages that the first crawl asks for, one after another; and the crawl whose start raises CloseSpider then.
    pages: str = "a"
    pause: float = 0.0
    closes: int | None = None
    #: The first two crawls end after a page.
    stops: bool = False


class Site(crawls.Part):
    """A download handler; and an extension that drops what is asked for again, and takes its time at the end."""

    lazy = False

    def __init__(self, crawler: Any) -> None:
        super().__init__(crawler)
        crawler.signals.connect(self.scheduled, signals.request_scheduled)
        crawler.signals.connect(self.close, signals.spider_closed)

    async def download_request(self, request: Request) -> Response:
        spider, path = self.crawler.spider, urlsplit(request.url).path[1:]
        spider.fetched.append(path)
        answer = next(spider.answers.get(path, iter(())), 200)
        status, headers = (answer, {}) if isinstance(answer, int) else (302, {"Location": answer})
        return TextResponse(request.url, status, headers)

    def scheduled(self, request: Request) -> None:
        if request.meta.get("is_dropped"):
            raise IgnoreRequest

    async def close(self) -> None:
        await asyncio.sleep(0.05)


class Later(Spider):
    """The spider of a case."""

    name = "later"

    async def start(self) -> AsyncIterator[Request]:
        for page in self.pages:
            await asyncio.sleep(self.case.pause)
            yield Request(f"http://site/{page}", priority=-ord(page))
        if self.closes:
            raise CloseSpider

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"page": response.url}
        end = next(self.ends.get(urlsplit(response.url).path[1:], iter(())), None)
        if end == "again":
            again = get_retry_request(response.request, spider=self, reason=end)
            yield again.replace(meta={**again.meta, "is_dropped": True})
        elif end:
            raise end


def crawl_all(case: Case, settings: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What each crawl has fetched; and the errors in the log that are not about a page."""
    errors, log = list[str](), logging.Handler(logging.ERROR)
    log.emit = lambda record: errors.append(f"{record.name}: {record.getMessage()}")
    logging.getLogger().addHandler(log)
    answers, ends = ({p: iter(each) for p, each in of.items()} for of in (case.answers, case.ends))
    given = {"case": case, "answers": answers, "ends": ends}
    rounds = [
        {**given, "fetched": [], "pages": "" if i else case.pages, "closes": i == case.closes}
        for i in range(3)
    ]
    stop = {"CLOSESPIDER_PAGECOUNT": 1, "CONCURRENT_REQUESTS": 1, "RETRY_PRIORITY_ADJUST": -1000}
    stopping = type("Stopping", (Later,), {"custom_settings": stop}) if case.stops else Later
    kinds = (stopping, stopping, Later)
    crawls.run([[each] for each in zip(kinds, rounds, strict=True)], **settings)
    return ["".join(each["fetched"]) for each in rounds], [
        error for error in errors if not error.startswith("scrapy.")
    ]


CASES = {
    "retries run out": Case(["aaa", "aa", ""], {"a": [503] * 4}),
    "redirected to itself, and fails": Case(
        ["aa", "aa", ""], {"a": ["a", 200, "a"]}, {"a": [KeyError]}
    ),
    "redirected to one that is redirected to itself": Case(
        ["abb", "", ""], {"a": ["b"], "b": ["b"]}
    ),
    "ends the crawl on purpose": Case(["a", "", ""], ends={"a": [CloseSpider] * 3}),
    "stopped while one waits to be tried again": Case(
        ["a", "bc", "db"], {"b": [503]}, pages="abcd", stops=True
    ),
    "closed while it takes requests over": Case(["a", "", "bc"], pages="abc", closes=1, stops=True),
    "asks again, and that is dropped": Case(["a", "", ""], ends={"a": ["again"] * 3}),
    "asks for pages while it closes": Case(["a", "", ""], pages="ab", pause=0.03, stops=True),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_crawl_leaves_is_fetched_by_the_next_one(url: str, name: str, case: str) -> None:
    """No page closes all later crawls, or is fetched once by each of them; and no crawl that was stopped has died."""
    settings = {**DONE, "REDIS_URL": url, "TBLOOM_KEY": name, "RETRY_ENABLED": True}
    settings |= {"DOWNLOAD_HANDLERS": {"http": Site}, "EXTENSIONS": {Site: 1}}
    assert (CASES[case].fetched, []) == Forked(crawl_all, CASES[case], settings).result()
