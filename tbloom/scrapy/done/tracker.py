"""The pages in work of one crawl.

A queue holds nothing of a page but the token in its request's meta. A ``Page`` exists from ``next_request`` until the scraper has
finished the request: the callback's output has ended, its links are scheduled, and its items have passed the pipelines. Scrapy
says when that is (``compat.watch_end``), so nothing is counted here.

A page that is done goes to the committer. So does one that has failed.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from copy import copy
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError
from twisted.python.failure import Failure

from tbloom.scrapy.done.committer import Committer
from tbloom.scrapy.done.failures import Failures
from tbloom.scrapy.done.page import RETRIES, Page, Token, pipeline_of, without
from tbloom.scrapy.hooks.downloader import is_forbidden, is_offsite
from tbloom.scrapy.hooks.engine import call_soon
from tbloom.scrapy.hooks.queue import copy_request
from tbloom.scrapy.hooks.scraper import why_no_file
from tbloom.scrapy.settings import DONE, TOKEN

logger: logging.Logger = logging.getLogger(__name__)

#: What holds items and requests. (A named tuple may be an item of the project's own.)
_COLLECTIONS = {list, tuple, set, frozenset}
#: What gives them later, such as the coroutine of a method that was not awaited.
_HOLDERS = (Iterator, AsyncIterator, Awaitable)
_COLLECTION = (
    "%s has failed, and perhaps others: its callback has yielded a %s, which Scrapy takes for one item, so that the items or requests "
    "in it are lost. Use yield from, or await. If a pipeline stores such items, set response.meta['tbloom_done'] = True"
)


class Tracker:
    """Follows pages from the queue until the scraper has finished them.

    ``enqueue`` is called with a request that asks for a page again, and the page's token.
    """

    def __init__(
        self,
        crawler: Crawler,
        failures: Failures,
        committer: Committer,
        enqueue: Callable[[Request, Token | None], object],
    ) -> None:
        self._crawler, self._failures, self._committer = crawler, failures, committer
        self._enqueue = enqueue
        #: The pages in work, by their first fingerprints.
        self._in_work: dict[str, Page] = {}
        #: Whether the log has said that a callback yields lists.
        self._has_warned = False
        #: Pages whose requests are in the queue again (a redirect, a retry), by their first fingerprints.
        self._requeued: dict[str, Page] = {}

    def of(self, source: Any) -> Page | None:
        """Return the page in work of a request, or of the request of a response or failure."""
        request = source if isinstance(source, Request) else getattr(source, "request", None)
        text = request.meta.get(TOKEN) if isinstance(request, Request) else None
        page = self._in_work.get(Token.first_of(text)) if isinstance(text, str) else None
        # A callback may have emptied the meta.
        return page or next(
            (page for page in self._in_work.values() if page.request is request), None
        )

    # The queue

    def follow(self, request: Request, token: Token, versions: Iterable[str] = ()) -> None:
        """Begin to follow a page whose request is to be fetched, also in these versions."""
        before = self._requeued.pop(token.fingerprints[0], None)
        url = before.url if before else request.url
        asked = {*versions, token.version} - {""}
        page = self._in_work[token.fingerprints[0]] = Page(token, request, asked, request.meta, url)
        if before:
            page.holders = before.holders
            page.versions |= before.versions

    def continued(self, request: Request) -> Page | None:
        """Return the page that goes on as this request, which a downloader middleware gave; None: it is a new link."""
        page = self.of(request) if TOKEN in request.meta else None
        if page is None or page.replacement is not request:
            return None
        page.replacement = None
        return page

    def asked_again(self, request: Request, source: Page | None = None) -> bool:
        """Keep a request with which a callback or errback asks for its own page again, until that page is finished.

        Return False for any other request. If such a request has a token, the token came with a copied meta.

        ``source``: the page whose callback or errback has yielded the request.
        """
        page = (self.of(request) or source) if request.dont_filter else None
        if page is None or page.repeat or page.replacement:
            return False
        last = page.request
        is_later = request.meta.get(RETRIES, 0) > last.meta.get(RETRIES, 0)
        is_same = (request.url, request.method, request.body) == (last.url, last.method, last.body)
        if is_later or is_same:
            page.repeat = request
        return page.repeat is request

    def requeued(self, page: Page, token: Token) -> None:
        """Stop following a page that is in the queue again."""
        first = token.fingerprints[0]
        self._in_work.pop(first, None)
        self._requeued[first] = page

    def is_again(self, token: Token) -> bool:
        """Return whether the page is in the queue again."""
        return token.fingerprints[0] in self._requeued

    def forget(self, token: Token) -> None:
        """Stop following a page that was in the queue again, because another crawler has it."""
        self._requeued.pop(token.fingerprints[0], None)

    @property
    def requests(self) -> list[Request]:
        """The requests of the pages in work, and of those that are in the queue again."""
        pages = [*self._in_work.values(), *self._requeued.values()]
        return [
            each for page in pages for each in (page.request, page.replacement, page.repeat) if each
        ]

    # The downloader and the scraper

    def fetching(self, request: Request) -> Page | None:
        """Return the page of a request that the engine fetches; None: a component fetches it, perhaps with a copied meta."""
        page = self.of(request)
        return page if page and page.request is request and not page.is_fetched else None

    def fetched(self, result: Any, page: Page) -> Any:
        """Return the downloader's result for the page: a response, a request or a Failure. A request gets the page's token."""
        page.is_fetched = True
        if isinstance(result, Request):
            page.token.write(result)
            page.replacement = result
            call_soon(self._check_replacement, page, result)
        elif isinstance(result, Response):
            text = str(page.token)
            if result.request is not None and result.request.meta.get(TOKEN) != text:
                meta = {**result.request.meta, TOKEN: text}
                result = copy(result)
                result.request = copy_request(result.request, meta)
            page.meta = (result.request or page.request).meta
            page.status, page.is_cached = result.status, "cached" in result.flags
        else:
            error = getattr(result, "value", result)  # a downloader may give what Scrapy refuses
            is_ignored = isinstance(error, IgnoreRequest)
            page.counts_as_done = is_ignored and is_forbidden(error, page.request, self._crawler)
            page.download_error = type(error).__name__
        return result

    def _check_replacement(self, page: Page, request: Request) -> None:
        """End a page whose next request a handler of ``request_scheduled`` has dropped.

        Any other next request has reached the scheduler by now.
        """
        if page.replacement is request:
            page.replacement = None
            page.counts_as_done = is_offsite(request, self._crawler)
            page.download_error = IgnoreRequest.__name__
            self._finish(page)

    def reached_callback(self, response: Response) -> None:
        """Note that no spider middleware has refused the response."""
        if page := self.of(response):
            page.is_called = True

    def callback_raised(self, response: Response, error: Exception) -> None:
        """Let the page fail, though a spider middleware may recover. After an HttpError, the status decides."""
        page = self.of(response)
        if page and not isinstance(error, HttpError):
            page.exception = page.exception or f"callback/{type(error).__name__}"

    def spider_error(self, failure: Failure, response: Any) -> None:
        """Handle Scrapy's signal: a callback, an errback or a middleware has raised an exception, and none has recovered."""
        if page := self.of(response):
            page.exception = page.exception or f"callback/{type(failure.value).__name__}"

    def item_scraped(self, response: Any, item: Any = None) -> None:
        """Handle Scrapy's signal: an item has passed the pipelines. A list of items or requests is no item: these are lost."""
        holders = self._committer.stored.took_item()
        page = self.of(response)
        if page and holders:
            page.holders |= holders
        if page and (type(item) in _COLLECTIONS or isinstance(item, _HOLDERS)):
            page.exception = page.exception or f"output/{type(item).__name__}"
            if not self._has_warned:
                self._has_warned = True
                logger.warning(_COLLECTION, page.request, type(item).__name__)

    def item_dropped(self, response: Any) -> None:
        """Handle Scrapy's signal: a pipeline has dropped an item, which an earlier one may have buffered."""
        if page := self.of(response):
            page.holders.update(self._committer.stored.buffers)

    def item_error(self, failure: Failure, response: Any) -> None:
        """Handle Scrapy's signal: a pipeline has raised an exception."""
        self.item_dropped(response)
        if page := self.of(response):
            page.exception = page.exception or f"pipeline/{pipeline_of(failure.value)}"

    def item_lost(self, response: Any, error: BaseException) -> None:
        """Let the page of an item fail whose pipeline was cancelled, for which Scrapy sends no signal."""
        if page := self.of(response):
            page.exception = page.exception or f"pipeline/{type(error).__name__}"

    def file_failed(self, response: Any, request: Request, error: Exception, status: int) -> None:
        """Let the page of an item fail whose file or image is not stored, unless a page with its status would be done."""
        why = str(status) if status else why_no_file(error, request, self._crawler)
        page = self.of(response)
        if page and why and not self._failures.is_done_status(status):
            page.exception = page.exception or f"file/{why}"

    def scraped(self, request: Request) -> None:
        """End the page of a request that the scraper has finished."""
        page = self.of(request)
        if page and page.request is request and page.replacement is None:
            self._finish(page)

    # The end of a page

    def _finish(self, page: Page) -> None:
        """Commit the page, or leave it, or enqueue it again."""
        del self._in_work[page.first]
        again = page.repeat
        goes_on = again is not None and not page.exception and page.meta.get(DONE) is None
        if goes_on:
            self._requeued[page.first] = page
        elif reason := self._failures.why_failed(page):
            self._committer.fail(page, reason)
        else:
            self._committer.add(page)
        if again is not None:
            again = without(again, DONE, *[] if goes_on else [TOKEN])
            self._enqueue(again, page.token if goes_on else None)

    def lead_to_done(self, page: Page, holders: Iterable[object]) -> None:
        """End a page that is redirected to a page that is done. ``holders``: feeds and pipelines that hold items of the other page."""
        page.holders.update(holders)
        page.counts_as_done = True
        self._finish(page)

    def fail(self, page: Page, reason: str) -> None:
        """Stop following a page that has failed."""
        self._in_work.pop(page.first, None)
        self._committer.fail(page, reason)

    def report(self) -> None:
        """Log the pages that have failed, and those that are still in work."""
        self._failures.report(self._in_work.values())
