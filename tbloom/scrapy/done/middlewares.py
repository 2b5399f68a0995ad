"""A subclass of the project's downloader, and a spider middleware next to the spider: every request and page passes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from inspect import Parameter, signature
from typing import Any, Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from twisted.internet.defer import CancelledError, Deferred

from tbloom.scrapy.crawl import Crawl, Stage, crawl_of
from tbloom.scrapy.done.pages import Pages
from tbloom.scrapy.hooks.engine import next_turn
from tbloom.scrapy.scheduler import FilteringScheduler

#: The event loop has a turn after so many requests of ``start``. With a turn after each, few share a call.
_TURNS_EVERY = 20
#: Stands for the class that the setting DOWNLOADER names, which takes its place in the order of methods (``addon``).
_Project: Any = object


def pages_of(crawl: Crawl) -> Pages | None:
    """Return the pages of a crawl that follows them."""
    requests = crawl.scheduler.requests if isinstance(crawl.scheduler, FilteringScheduler) else None
    return requests if isinstance(requests, Pages) else None


class PageDownloader(_Project):  # type: ignore[misc] # known at run time only
    """A project's downloader. What it gives for a page, behind all downloader middlewares, gets the page's token."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._crawl = crawl_of(crawler)
        spider = signature(super().fetch).parameters.get("spider")
        #: Whether the project's ``fetch`` demands the spider as an argument, which Scrapy gives to such a one only.
        self._needs_spider = spider is not None and spider.default is Parameter.empty

    def fetch(self, request: Request, spider: Any = None) -> Any:  # noqa: ARG002 - as Scrapy's
        """Return a Deferred of the Response, Request or Failure."""
        pages = pages_of(self._crawl)
        page = pages.work.fetching(request) if pages else None
        fetched = super().fetch(request, *[self._crawl.crawler.spider] * self._needs_spider)
        if pages is None or page is None:
            return fetched
        if not isinstance(fetched, Deferred):
            return pages.work.fetched(fetched, page)
        if page.token.deaths:
            # Held back until the page's note counts this crawler among the dead ones: the result may kill it.
            noted = pages.committer.note_death
            fetched.addBoth(lambda result: noted(page).addCallback(lambda _: result))
        return fetched.addBoth(pages.work.fetched, page)


class PageSpiderMiddleware:
    """The spider middleware next to the spider: sees the callback itself, whichever other one recovers from its exceptions."""

    __module__ = "tbloom.scrapy"

    def __init__(self, crawler: Crawler) -> None:
        self._crawl = crawl_of(crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Make the middleware."""
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield what ``start`` yields, while few requests wait, until the crawl closes.

        Give the event loop its turns: while enough pages are in work, Scrapy takes requests from a ``start`` that awaits nothing,
        and does nothing else.
        """
        yielded = 0
        async for output in start:
            yield output
            yielded += 1
            scheduler = self._crawl.scheduler
            try:
                if yielded % _TURNS_EVERY == 0:
                    await next_turn()
                if isinstance(scheduler, FilteringScheduler) and scheduler.requests:
                    await scheduler.requests.inbox.have_room()
            except CancelledError:  # of another reactor than asyncio's: the engine stops
                return
            if self._crawl.stage >= Stage.CLOSING:
                return

    def process_start_requests(self, start_requests: Any, spider: Any) -> Any:  # noqa: ARG002 - as Scrapy has it
        """Return the requests as they are. Scrapy before 2.16 calls this, where other middlewares have no ``process_start``."""
        return start_requests

    def process_spider_input(self, response: Response) -> None:
        """Note that no other middleware has refused the response."""
        if pages := pages_of(self._crawl):
            pages.work.reached_callback(response)

    def process_spider_exception(self, response: Response, exception: Exception) -> None:
        """Note that the callback has raised an exception, or that the response has not reached it."""
        if pages := pages_of(self._crawl):
            pages.work.callback_raised(response, exception)
