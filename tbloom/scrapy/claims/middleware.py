"""The middlewares that follow each claimed request to its end (``TBLOOM_MARK = "done"``)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.exceptions import CloseSpider, DontCloseSpider, IgnoreRequest, NotConfigured
from scrapy.http import Response

from tbloom.errors import ConfigError
from tbloom.scrapy.crawler import CrawlEnd, ends_early, is_trial
from tbloom.scrapy.meta import CLAIM
from tbloom.scrapy.settings import MARK

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from typing_extensions import Self

    from tbloom.scrapy.claims.inflight import InFlight


class _Middleware:
    #: The dupefilter sets it, which Scrapy makes after the middlewares.
    in_flight: InFlight

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Scrapy's constructor. Where nothing is claimed, there is nothing to follow."""
        if is_trial(crawler):
            raise NotConfigured
        return cls(crawler)


class DownloaderMiddleware(_Middleware):
    """Nearest to the engine: sees requests first, and failures that nothing retries."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        crawler.signals.connect(self.opened, signals.spider_opened)
        crawler.signals.connect(self.idle, signals.spider_idle)

    def opened(self) -> None:
        """Ends the crawl where the scheduler has made no dupefilter of ours."""
        if hasattr(self, "in_flight") or ends_early(self._crawler):
            return
        with CrawlEnd(self._crawler).ending_at_an_error():
            settings = self._crawler.settings
            scheduler, kind = settings["SCHEDULER"], settings["DUPEFILTER_CLASS"]
            expected = f"'scheduled', because {scheduler} does not ask {kind}"
            raise ConfigError(MARK.name, settings[MARK.name], expected)

    def process_request(self, request: Request) -> None:
        """Lets a request pass that is claimed here, or was never claimed."""
        if not self.in_flight.admit(request):
            request.errback = None  # nothing has gone wrong
            message = f"Another crawler fetches, or has fetched, {request}"
            raise IgnoreRequest(message)

    def process_exception(self, request: Request, exception: Exception) -> None:
        """The download has failed for good, or the request was dropped."""
        self.in_flight.pages.failed(request)

    def idle(self) -> None:
        """Keeps the crawl open while the work of a silent crawler may have to be taken over."""
        if not self.in_flight.is_idle():
            raise DontCloseSpider


class SpiderMiddleware(_Middleware):
    """Nearest to the engine: sees the end of a callback's output."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        # A server that answers with one of these may have the page later.
        self._try_later = {int(code) for code in crawler.settings.getlist("RETRY_HTTP_CODES")}
        self._awaits_items = crawler.settings.get(MARK.name) == "done"
        if self._awaits_items:
            crawler.signals.connect(self.item_scraped, signals.item_scraped)
            crawler.signals.connect(self.item_dropped, signals.item_dropped)
            crawler.signals.connect(self.item_error, signals.item_error)

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """Marks the page once all that its callback yields has passed."""
        request, is_asked_again = response.request, False
        assert request is not None  # noqa: S101 - Scrapy has set it
        claim = request.meta.get(CLAIM)
        try:
            async for found in result:
                if not isinstance(found, Request):
                    if self._awaits_items and found is not None:
                        self.in_flight.pages.awaits(request, 1)
                    yield found
                elif found.meta.get(CLAIM) != claim:
                    yield found
                elif self.in_flight.continues(found, request):
                    is_asked_again = True
                    yield found
                else:  # a request made with its parent's meta
                    child = found.copy() if found is request else found
                    child.meta.pop(CLAIM, None)
                    yield child
        except Exception as error:
            self.process_spider_exception(response, error)
            raise
        if not is_asked_again:
            self.in_flight.pages.ended(request, well=response.status not in self._try_later)

    def process_spider_exception(self, response: Response, exception: Exception) -> None:
        """The callback has raised an exception."""
        if response.request is not None and isinstance(exception, CloseSpider):
            self.in_flight.pages.leave(response.request)
        elif response.request is not None:
            self.in_flight.pages.ended(response.request, well=False)

    # Items of the start have no response, those of an errback have a failure: no page awaits them.

    def item_scraped(self, response: Any) -> None:
        """An item of the page has passed the pipelines."""
        if isinstance(response, Response) and response.request is not None:
            self.in_flight.pages.passed(response.request)

    def item_dropped(self, response: Any) -> None:
        """A pipeline has dropped an item of the page."""
        if isinstance(response, Response) and response.request is not None:
            self.in_flight.pages.awaits(response.request, -1)

    def item_error(self, response: Any) -> None:
        """A pipeline has failed with an item of the page."""
        if isinstance(response, Response) and response.request is not None:
            self.in_flight.pages.ended(response.request, well=False)
