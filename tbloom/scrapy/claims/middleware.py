"""The spider middlewares and signals that tell what a callback yields, and how its items end (``TBLOOM_MARK = "done"``)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.exceptions import DontCloseSpider
from scrapy.spidermiddlewares.httperror import HttpError

from tbloom.scrapy.claims.page import reason
from tbloom.scrapy.gates import claimed_links
from tbloom.scrapy.settings import MARK

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from typing_extensions import Self

    from tbloom.scrapy.claims.pages import Pages


class _Middleware:
    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Scrapy's constructor."""
        return cls(crawler)

    @property
    def _pages(self) -> Pages | None:
        """None where nothing is claimed, as by Scrapy's commands that try a spider."""
        links = claimed_links(self._crawler)
        return links.pages if links else None


class NearestToSpider(_Middleware):
    """Sees the callback itself, and an exception of it, whichever middleware recovers from that."""

    def process_spider_input(self, response: Response) -> None:
        """No middleware has refused the response."""
        if self._pages and (page := self._pages.page_of(response)):
            self._pages.reaches_callback(page)

    def process_spider_exception(self, response: Response, exception: Exception) -> None:
        """The page fails, unless it is asked for again."""
        page = self._pages and self._pages.page_of(response)
        if page and not isinstance(exception, HttpError):  # the status decides
            page.would_fail = page.would_fail or reason(exception)


class NearestToEngine(_Middleware):
    """Sees what no spider middleware drops any more, and its end."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        connect = crawler.signals.connect
        connect(self.idle, signals.spider_idle)
        connect(self.spider_error, signals.spider_error)
        connect(self.request_scheduled, signals.request_scheduled)
        if crawler.settings.get(MARK.name) == "done":
            connect(self.item_scraped, signals.item_scraped)
            connect(self.item_dropped, signals.item_dropped)
            connect(self.item_error, signals.item_error)

    def idle(self) -> None:
        """Keeps the crawl open while the work of a silent crawler may have to be taken over."""
        links, engine = claimed_links(self._crawler), self._crawler.engine
        # Another handler of the signal may have found something to do.
        if links and engine and engine.spider_is_idle() and not links.is_idle:
            raise DontCloseSpider

    def process_spider_output(self, response: Response, result: Iterable[Any]) -> Iterator[Any]:
        """As the next one, for Scrapy before 2.16, which mixes the two where a middleware recovers."""
        with self._following(response) as tell:
            for found in result:
                tell(found)
                yield found

    async def process_spider_output_async(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """Follows all that the page's callback yields."""
        with self._following(response) as tell:
            async for found in result:
                tell(found)
                yield found

    def _following(self, response: Response) -> AbstractContextManager[Callable[[Any], object]]:
        return self._pages.following(response) if self._pages else nullcontext(lambda _: None)

    def process_spider_exception(self, response: Response, exception: Exception) -> None:
        """No middleware has recovered from the exception."""
        if self._pages:
            self._pages.raised(response, reason(exception))

    def spider_error(self, failure: Any, response: Any) -> None:
        """Scrapy logs an exception of a callback or an errback."""
        if self._pages:
            self._pages.raised(response, reason(failure.value))

    def request_scheduled(self, request: Request) -> None:
        """The engine takes a request, just before the scheduler does."""
        if self._pages:
            self._pages.link_scheduled(request)

    # Items of the start have no response, and those of an errback a Failure.

    def item_scraped(self, response: Any) -> None:
        """An item has passed the pipelines."""
        if links := claimed_links(self._crawler):
            links.pages.item_ended(response, places=links.ends.feeds.places())

    def item_dropped(self, response: Any) -> None:
        """A pipeline has dropped an item."""
        if self._pages:
            self._pages.item_ended(response)

    def item_error(self, response: Any, failure: Any) -> None:
        """A pipeline has raised an exception."""
        if self._pages:
            self._pages.item_ended(response, f"pipeline/{_pipeline(failure.value)}")


def _pipeline(error: BaseException) -> str:
    """The name of the pipeline that has raised the exception."""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_name == "process_item" and "self" in frame.f_locals:
            return type(frame.f_locals["self"]).__qualname__
        trace = trace.tb_next
    return type(error).__name__
