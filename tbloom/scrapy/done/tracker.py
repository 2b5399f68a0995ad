"""The pages in work of one crawl.

A queue holds nothing of a page but the token in its request's meta. A ``Page`` exists from ``next_request`` until the scraper has
finished the request: the callback's output has ended, its links are scheduled, and its items have passed the pipelines. Scrapy
says when that is (``compat.watch_end``), so nothing is counted here.

A page that is done is committed. A page that has failed keeps its claim until the crawl's session ends. Then the next crawl takes
the page over.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError
from twisted.python.failure import Failure

from tbloom.scrapy.compat import call_soon, is_forbidden, is_offsite
from tbloom.scrapy.done.page import (
    RETRIES,
    Origin,
    Page,
    Token,
    pipeline_of,
    why_failed,
    without,
)
from tbloom.scrapy.settings import DONE, TOKEN, WITHIN, done_statuses, failed_pause

logger: logging.Logger = logging.getLogger(__name__)

_SHOWN_URLS = 3


@dataclass(slots=True)
class _Failed:
    """A page that has failed in this crawl."""

    #: When a link to the page is followed again, and how long the page's next pause is (seconds).
    until: float
    pause: float
    #: The number of earlier crawls in a row in which the page has failed.
    failures: int


class Tracker:
    """Follows pages from the queue until the scraper has finished them.

    ``commit`` is called with a page that is done, ``left`` with one that has failed; ``enqueue`` with a request that asks for a page
    again, and the page's token; ``count`` with the name of a stat.
    """

    def __init__(
        self,
        crawler: Crawler,
        commit: Callable[[Page], object],
        left: Callable[[Page], object],
        enqueue: Callable[[Request, Token | None], object],
        count: Callable[[str], object],
    ) -> None:
        self._crawler, self._count = crawler, count
        self._commit, self._left, self._enqueue = commit, left, enqueue
        self._done_statuses = done_statuses(crawler.settings)
        self._pause = failed_pause(crawler.settings)
        #: The pages in work, by their first fingerprints.
        self._in_work: dict[str, Page] = {}
        #: Pages whose requests are in the queue again (a redirect, a retry), by their first fingerprints.
        self._requeued: dict[str, Page] = {}
        self._failed: dict[str, _Failed] = {}
        self._reasons: Counter[str] = Counter()
        self._urls: list[str] = []

    def of(self, source: Any) -> Page | None:
        """Return the page in work of a request, or of the request of a response or failure."""
        request = source if isinstance(source, Request) else getattr(source, "request", None)
        text = request.meta.get(TOKEN) if isinstance(request, Request) else None
        return self._in_work.get(Token.first_of(text)) if isinstance(text, str) else None

    # The queue

    def taken(self, request: Request, token: Token) -> None:
        """Begin to follow a page whose request is to be fetched."""
        before = self._requeued.pop(token.fingerprints[0], None)
        origin = before.origin if before else Origin.of(request, token)
        page = self._in_work[token.fingerprints[0]] = Page(token, request, origin, request.meta)
        if before:
            page.holders = before.holders

    def continued(self, request: Request) -> Page | None:
        """Return the page that goes on as this request, which a downloader middleware gave; None: it is a new link."""
        page = self.of(request)
        if page is None or page.next is not request:
            return None
        page.next = None
        return page

    def asked_again(self, request: Request, source: Page | None = None) -> bool:
        """Keep a request with which a callback or errback asks for its own page again, until that page is finished.

        Return False for any other request. If such a request has a token, the token came with a copied meta.

        ``source``: the page whose callback or errback has yielded the request.
        """
        page = self.of(request) or source
        if page is None or page.again or page.next or not request.dont_filter:
            return False
        last = page.request
        is_later = request.meta.get(RETRIES, 0) > last.meta.get(RETRIES, 0)
        is_same = (request.url, request.method, request.body) == (last.url, last.method, last.body)
        if is_later or is_same:
            page.again = request
        return page.again is request

    def queued(self, page: Page, token: Token) -> None:
        """Stop following a page that is in the queue again."""
        first = token.fingerprints[0]
        self._in_work.pop(first, None)
        self._requeued[first] = page

    def idle(self) -> None:
        """Forget pages that were in the queue again: other processes have taken them out of it."""
        self._requeued.clear()

    def pauses(self, fingerprint: str) -> bool | None:
        """Return whether a link to a page that has failed is not followed yet; None: the page has not failed in this crawl."""
        failed = self._failed.get(fingerprint)
        return None if failed is None else time.monotonic() < failed.until

    def failures_before(self, fingerprint: str) -> int:
        """Return in how many earlier crawls in a row the page has failed; 0 if it has not failed in this crawl."""
        failed = self._failed.get(fingerprint)
        return failed.failures if failed else 0

    # The downloader and the scraper

    def fetching(self, request: Request) -> Page | None:
        """Return the page of a request that the engine fetches; None: a component fetches it, perhaps with a copied meta."""
        page = self.of(request)
        return page if page and page.request is request and not page.is_fetched else None

    def fetched(self, result: Any, page: Page) -> Any:
        """Return what the downloader gives for the page, with the page's token."""
        page.is_fetched = True
        if isinstance(result, Request):
            page.token.write(result)
            page.next = result
            call_soon(self._check_next, page, result)
        elif isinstance(result, Response):
            text = str(page.token)
            if result.request is not None and result.request.meta.get(TOKEN) != text:
                meta = {**result.request.meta, TOKEN: text}
                result = result.replace(request=result.request.replace(meta=meta))
            page.meta = (result.request or page.request).meta
            page.status = result.status
        else:
            error = getattr(result, "value", result)  # a downloader may give what Scrapy refuses
            is_ignored = isinstance(error, IgnoreRequest)
            page.is_settled = is_ignored and is_forbidden(error, page.request, self._crawler)
            page.download_error = type(error).__name__
        return result

    def _check_next(self, page: Page, request: Request) -> None:
        """End a page whose next request a handler of ``request_scheduled`` has dropped.

        Any other next request has reached the scheduler by now.
        """
        if page.next is request:
            page.next = None
            page.is_settled = is_offsite(request, self._crawler)
            page.download_error = IgnoreRequest.__name__
            self._finish(page)

    def reached_callback(self, response: Response) -> None:
        """Note that no spider middleware has refused the response."""
        if page := self.of(response):
            page.is_called = True

    def callback_raised(self, response: Response, error: Exception) -> None:
        """Let the page fail, though a spider middleware may recover. After an HttpError, the status decides."""
        page = self.of(response)
        if page and not isinstance(error, HttpError | CloseSpider):
            page.exception = page.exception or f"callback/{type(error).__name__}"

    def spider_error(self, failure: Failure, response: Any) -> None:
        """Handle Scrapy's signal: a callback, an errback or a middleware has raised an exception, and none has recovered."""
        if page := self.of(response):
            page.exception = page.exception or f"callback/{type(failure.value).__name__}"

    def item_error(self, failure: Failure, response: Any) -> None:
        """Handle Scrapy's signal: a pipeline has raised an exception."""
        if page := self.of(response):
            page.exception = page.exception or f"pipeline/{pipeline_of(failure.value)}"

    def item_lost(self, response: Any, error: BaseException) -> None:
        """Let the page of an item fail whose pipeline was cancelled, for which Scrapy sends no signal."""
        if page := self.of(response):
            page.exception = page.exception or f"pipeline/{type(error).__name__}"

    def scraped(self, request: Request) -> None:
        """End the page of a request that the scraper has finished."""
        page = self.of(request)
        if page and page.request is request and page.next is None:
            self._finish(page)

    # The end of a page

    def why_failed(self, page: Page) -> str:
        """Return why the page has failed; "": it is done."""
        return why_failed(page, self._done_statuses)

    def _finish(self, page: Page) -> None:
        """Commit the page, or leave it, or enqueue it again."""
        del self._in_work[page.first]
        again = page.again
        goes_on = again is not None and not page.exception and page.meta.get(DONE) is None
        reason = "" if goes_on else self.why_failed(page)
        if reason:
            self.leave(reason, page)
        elif goes_on:
            self._requeued[page.first] = page
        else:
            self._failed.pop(page.first, None)
            self._commit(page)
        if again is not None:
            again = without(again, DONE, *[] if goes_on else [TOKEN])
            self._enqueue(again, page.token if goes_on else None)

    def lead_to_done(self, page: Page, holders: set[object]) -> None:
        """End a page that is redirected to a page that is done. ``holders``: what holds the items of the other page."""
        page.holders |= holders
        page.is_settled = True
        self._finish(page)

    def leave(self, reason: str, page: Page) -> None:
        """Count a page that has failed, and leave it to the next crawl."""
        self._in_work.pop(page.first, None)
        if WITHIN not in page.request.meta:
            failed = self._failed.get(page.first)
            pause = failed.pause if failed else self._pause
            failures = 0 if page.drops_claim else page.token.failures
            self._failed[page.first] = _Failed(time.monotonic() + pause, 2 * pause, failures)
        self._count_left(reason, page)
        self._left(page)

    def _count_left(self, reason: str, page: Page) -> None:
        self._reasons[reason] += 1
        if len(self._urls) < _SHOWN_URLS:
            self._urls.append(page.request.url)
        self._count("tbloom/left")
        self._count(f"tbloom/left/{reason}")

    def report(self) -> None:
        """Log how many pages are left to the next crawl, why, and the first ones."""
        for page in self._in_work.values():
            self._count_left("unfinished", page)
        if self._reasons:
            message = "%d pages have failed, and are left to the next crawl (%s), for example %s"
            reasons = ", ".join(f"{reason}: {n}" for reason, n in self._reasons.most_common())
            logger.warning(message, self._reasons.total(), reasons, " ".join(self._urls))
