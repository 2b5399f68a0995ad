"""Gather requests to be asked for, and follow each that is claimed to its end (``TBLOOM_MARK = "done"``)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.exceptions import DontCloseSpider, IgnoreRequest
from scrapy.utils.asyncio import is_asyncio_available

from tbloom.scrapy.claims.inflight import in_flight
from tbloom.scrapy.claims.notes import CLAIM
from tbloom.scrapy.dupefilter.ahead import ahead
from tbloom.scrapy.dupefilter.bursts import bursts

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from typing_extensions import Self

    from tbloom.scrapy.claims.inflight import InFlight

# Scrapy before 2.14 passes ``spider`` to the methods, and later versions do not want it asked for.


#: So many requests of a response are held back at most, and so many of the start.
_MOST, _MOST_AT_START = 500, 50


class _Middleware:
    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Scrapy's constructor."""
        return cls(crawler)

    @property
    def _in_flight(self) -> InFlight:
        # Made by the dupefilter, after the middlewares.
        return in_flight[self._crawler]


class DownloaderMiddleware(_Middleware):
    """Nearest to the engine: sees requests first, and failures that nobody retries."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Scrapy's constructor."""
        middleware = cls(crawler)
        crawler.signals.connect(middleware.scheduled, signals.request_scheduled)
        crawler.signals.connect(middleware.idle, signals.spider_idle)
        return middleware

    def process_request(self, request: Request, spider: Spider | None = None) -> None:
        """Lets through what is claimed here, or was never claimed."""
        if not self._in_flight.arrives(request):
            request.errback = None  # nothing has gone wrong
            message = f"Somebody else fetches, or has fetched, {request}"
            raise IgnoreRequest(message)

    def process_exception(
        self,
        request: Request,
        exception: Exception,
        spider: Spider | None = None,
    ) -> None:
        """The download failed for good, or the request was dropped."""
        self._in_flight.failed(request)

    def scheduled(self, request: Request) -> None:
        """A request, a retry or a redirect is about to be queued."""
        self._in_flight.scheduled(request)

    def idle(self) -> None:
        """Keeps the crawl open while a silent crawler's work may have to be taken over."""
        if not self._in_flight.is_idle():
            raise DontCloseSpider


class SpiderMiddleware(_Middleware):
    """Nearest to the engine: sees the end of a callback's output."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        # A server that answers so may have the page later.
        self._try_later = {int(code) for code in crawler.settings.getlist("RETRY_HTTP_CODES")}

    async def process_spider_output(
        self,
        response: Response,
        result: AsyncIterator[Any],
        spider: Spider | None = None,
    ) -> AsyncIterator[Any]:
        """Marks the page once all that its callback yields has gone through here."""
        request, goes_on = response.request, False
        assert request is not None  # noqa: S101 - Scrapy has set it
        claim = request.meta.get(CLAIM)
        try:
            async for found in result:
                if not isinstance(found, Request) or found.meta.get(CLAIM) != claim:
                    yield found
                elif self._in_flight.goes_on(found, request):
                    goes_on = True
                    yield found
                else:  # a request made with its parent's meta
                    child = found.copy() if found is request else found
                    child.meta.pop(CLAIM, None)
                    yield child
        except Exception:
            self._in_flight.failed(request)
            raise
        if goes_on:
            return
        if response.status in self._try_later:
            self._in_flight.failed(request)
        else:
            self._in_flight.done(request)

    def process_spider_exception(
        self,
        response: Response,
        exception: Exception,
        spider: Spider | None = None,
    ) -> None:
        """The callback raised an exception."""
        if response.request is not None:
            self._in_flight.failed(response.request)


class BatchMiddleware(_Middleware):
    """Spider middleware: gathers what a callback, or the start, yields without waiting."""

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The start requests, in their order."""
        async for one in self._batched(start, _MOST_AT_START):
            yield one

    async def process_spider_output(
        self,
        response: Response,
        result: AsyncIterator[Any],
        spider: Spider | None = None,
    ) -> AsyncIterator[Any]:
        """What the callback yields, in its order."""
        async for one in self._batched(result, _MOST):
            yield one

    async def _batched(self, source: AsyncIterator[Any], most: int) -> AsyncIterator[Any]:
        asker = ahead.get(self._crawler)
        if asker is None or not is_asyncio_available():
            async for one in source:
                yield one
            return
        async for burst in bursts(source, most):
            asker.ask(burst)
            for one in burst:
                yield one
