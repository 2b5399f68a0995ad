"""The pages in work of one crawl.

A queue holds nothing of a page but the token in its request's meta. A ``Page`` exists from ``next_request`` until the scraper has
finished the request: the callback's output has ended, its links are scheduled, and its items have passed the pipelines. Scrapy
says when that is (``hooks.engine.watch_end``), so nothing is counted here.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.extensions.httpcache import RFC2616Policy
from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError
from scrapy.utils.asyncio import call_later
from scrapy.utils.misc import load_object
from twisted.python.failure import Failure

from tbloom.engine.urls import without_userinfo
from tbloom.scrapy.crawl import crawl_of
from tbloom.scrapy.done.page import RETRIES, FailedPage, Page, Token, pipeline_of, words_of
from tbloom.scrapy.done.states import IN_QUEUE, Event, Known, Register, State
from tbloom.scrapy.done.stored import StoredItems
from tbloom.scrapy.hooks.engine import copy_request, is_forbidden, is_offsite, why_no_file
from tbloom.scrapy.links import ASK_SITE, own_values
from tbloom.scrapy.settings import TOKEN, done_statuses

logger: logging.Logger = logging.getLogger(__name__)

_NOT_MODIFIED = 304
#: With these of the spider's own, the site may answer so, and the cached page is as new as can be.
_VALIDATORS = {b"If-None-Match", b"If-Modified-Since"}
#: What holds items and requests. (A named tuple may be an item of the project's own.)
_COLLECTIONS = {list, tuple, set, frozenset}
#: What gives them later, such as the coroutine of a method that was not awaited.
_HOLDERS = (Iterator, AsyncIterator, Awaitable)
_COLLECTION = (
    "%s has failed, and perhaps others: its callback has yielded a %s, which Scrapy takes for one item, so that the items or requests "
    "in it are lost. Use yield from, or await. If a pipeline stores such items, set response.meta['tbloom_done'] = True"
)


class Work:
    """Follows pages from the queue until the scraper has finished them: then ``ended`` is called."""

    def __init__(
        self,
        crawler: Crawler,
        register: Register,
        stored: StoredItems,
        ended: Callable[[Page], object],
    ) -> None:
        self._crawler, self._stored, self._ended = crawler, stored, ended
        #: The statuses with which a page, or a file, is done though no callback gets its response.
        self.done_statuses: frozenset[int] = done_statuses(crawler.settings) | {_NOT_MODIFIED}
        self._register = register
        #: The pages in work by the identities of their requests, whose meta a callback may empty.
        self._by_request = dict[int, Page]()
        #: Changes whenever a page's work begins or ends, its download ends, or an item of it has passed the pipelines.
        self.steps: int = 0
        connect = crawler.signals.connect
        connect(self._item_scraped, signals.item_scraped)  # after the feed exporter
        connect(self._item_dropped, signals.item_dropped)
        connect(self._spider_error, signals.spider_error)
        connect(self._item_error, signals.item_error)

    def of(self, source: Any) -> Page | None:
        """Return the page in work of a request, or of the request of a response or failure."""
        request = source if isinstance(source, Request) else getattr(source, "request", None)
        if page := self._by_request.get(id(request)):
            return page
        token = Token.of(request) if isinstance(request, Request) else None
        return self._register.get(Page, token.fingerprints[0], State.WORK) if token else None

    @property
    def pages(self) -> list[Page]:
        """The pages in work. Any thread may ask for them."""
        return [*self._by_request.copy().values()]

    # The queue

    def begin(self, request: Request, token: Token, versions: set[str]) -> None:
        """Begin to follow a page whose request is to be fetched, for links in these versions."""
        page = Page(token.fingerprints[0], token, request, request, request.url, versions)
        before = self._register.get(Known, page.first, *IN_QUEUE)
        if isinstance(before, Page):
            page.url, page.holders, page.pause = before.url, before.holders, before.pause
            page.versions |= before.versions
        elif isinstance(before, FailedPage):
            page.pause = before.pause
        page.others = token.fingerprints[1:]
        self._register.step(before or page, Event.OUT, page)
        self._by_request[id(request)] = page
        self.steps += 1

    def goes_on(self, page: Page) -> None:
        """Note that a page in work is queued again, as another request."""
        self._by_request.pop(id(page.request), None)
        self._register.step(page, Event.ON)

    def continued(self, request: Request) -> Page | None:
        """Return the page that goes on as this request, which a downloader middleware gave; None: it is a new link."""
        page = self.of(request)
        if page is None or page.replacement is not request:
            return None
        page.replacement = None
        return page

    def asked_again(self, request: Request, source: Page | None) -> bool:
        """Keep a request with ``dont_filter`` with which a callback or errback asks for its own page again, until that page is finished.

        Return False for any other request. If such a request has a token, the token came with a copied meta.

        ``source``: the page whose callback or errback has yielded the request.
        """
        page = self.of(request) or source
        if page is None or page.repeat or page.replacement:
            return False
        last = page.request
        is_later = request.meta.get(RETRIES, 0) > last.meta.get(RETRIES, 0)
        is_same = (request.url, request.method, request.body) == (last.url, last.method, last.body)
        if is_later or is_same:
            page.repeat = request
        return page.repeat is request

    @property
    def requests(self) -> list[Request]:
        """The requests of the pages in work, and of those that are in the queue again."""
        pages = self._register.all(Page, State.WORK, State.WAITING)
        return [
            each for page in pages for each in (page.request, page.replacement, page.repeat) if each
        ]

    # The downloader

    def fetching(self, request: Request) -> Page | None:
        """Return the page of a request that the engine fetches; None: a component fetches it, perhaps with a copied meta."""
        page = self.of(request)
        return page if page and page.request is request and not page.is_fetched else None

    def answered(self, request: Request, got: int | Exception) -> None:
        """Note the status or the exception that downloader middlewares get for a request, if it is a page's."""
        if page := self._by_request.get(id(request)):
            page.got = got

    def fetched(self, result: Any, page: Page) -> Any:
        """Return the downloader's result for the page: a response, a request or a Failure. A request gets the page's token."""
        page.is_fetched = True
        self.steps += 1
        text = str(page.token)
        if isinstance(result, Request):
            result.meta[TOKEN] = text
            page.replacement = result
            call_later(0, self._check_replacement, page, result)
        elif isinstance(result, Response):
            if result.request is not None and result.request.meta.get(TOKEN) != text:
                meta = {**result.request.meta, TOKEN: text}
                result = copy(result)
                result.request = copy_request(result.request, meta)
            page.answered = result.request or page.request
            own_values(page.answered)  # of a queue on disk, or of a middleware
            page.status, page.is_cached = result.status, "cached" in result.flags
            if page.is_cached and page.token.version and self._is_stale(page.request):
                page.fail("stale")
        else:
            error = getattr(result, "value", result)  # a downloader may give what Scrapy refuses
            is_ignored = isinstance(error, IgnoreRequest)
            page.is_forbidden = is_ignored and is_forbidden(error, page.request, self._crawler)
            page.download_error = type(error).__name__
            page.words = words_of(error if isinstance(error, BaseException) else None)
            own_values(page.request)  # whose meta an errback may copy
        return result

    def _is_stale(self, request: Request) -> bool:
        """Return whether a cached response stands for what the site did not answer: Scrapy's RFC2616Policy gives it then."""
        if request.headers.get(ASK_SITE[0]) != b"no-cache" or _VALIDATORS & request.headers.keys():
            return False
        policy = load_object(self._crawler.settings["HTTPCACHE_POLICY"])
        return isinstance(policy, type) and issubclass(policy, RFC2616Policy)

    def _check_replacement(self, page: Page, request: Request) -> None:
        """End a page whose next request a handler of ``request_scheduled`` has dropped.

        Any other next request has reached the scheduler by now.
        """
        if page.replacement is request:
            page.replacement = None
            page.is_forbidden = is_offsite(request, self._crawler)
            page.download_error = IgnoreRequest.__name__
            self.end(page)

    # The scraper

    def reached_callback(self, response: Response) -> None:
        """Note that no spider middleware has refused the response."""
        if page := self.of(response):
            page.is_called = True

    def callback_raised(self, response: Response, error: Exception) -> None:
        """Let the page fail, though a spider middleware may recover. After an HttpError, the status decides."""
        if not isinstance(error, HttpError):
            self.fail(response, f"callback/{type(error).__name__}", error)

    def fail(self, source: Any, reason: str, error: BaseException | None) -> None:
        """Let the page of a response, if it is one, fail at its end."""
        if page := self.of(source):
            page.fail(reason, error)

    def _spider_error(self, failure: Failure, response: Any) -> None:
        """Handle Scrapy's signal: a callback, an errback or a middleware has raised an exception, and none has recovered."""
        self.fail(response, f"callback/{type(failure.value).__name__}", failure.value)

    @contextmanager
    def passing(self, response: Any) -> Iterator[None]:
        """Note that an item of a response passes the pipelines. Let its page fail if a pipeline is cancelled."""
        page = self.of(response)
        if page:
            page.passing += 1
        try:
            yield
        except BaseException as error:
            self.fail(response, f"pipeline/{type(error).__name__}", error)
            raise
        if page:  # an item whose pipeline was cancelled never leaves it
            page.passing -= 1

    def _item_scraped(self, response: Any, item: Any = None) -> None:
        """Handle Scrapy's signal: an item has passed the pipelines. A list of items or requests is no item: these are lost."""
        holders = self._stored.took_item()
        self.steps += 1
        if not (page := self.of(response)):
            return
        page.holders |= holders
        if type(item) in _COLLECTIONS or isinstance(item, _HOLDERS):
            kind = type(item).__name__
            page.fail(f"output/{kind}")
            crawl_of(self._crawler).log_once(logger.warning, _COLLECTION, page.request, kind)

    def _item_dropped(self, response: Any) -> None:
        """Handle Scrapy's signal: a pipeline has dropped an item, which an earlier one may have buffered."""
        if page := self.of(response):
            page.holders.update(self._stored.buffers)

    def _item_error(self, failure: Failure, response: Any) -> None:
        """Handle Scrapy's signal: a pipeline has raised an exception."""
        self._item_dropped(response)
        self.fail(response, f"pipeline/{pipeline_of(failure.value)}", failure.value)

    def file_failed(self, response: Any, request: Request, error: Exception, status: int) -> None:
        """Let the page of an item fail whose file or image is not stored, unless a page with its status would be done."""
        why = str(status) if status else why_no_file(error, request, self._crawler)
        if why and status not in self.done_statuses and (page := self.of(response)):
            page.fail(f"file/{why}", error, without_userinfo(request.url))

    def scraped(self, request: Request) -> None:
        """End the page of a request that the scraper has finished."""
        page = self.of(request)
        if page and page.request is request and page.replacement is None:
            self.end(page)

    def end(self, page: Page) -> None:
        """Stop following a page."""
        if page.state is State.WORK:
            self.steps += 1
            self._by_request.pop(id(page.request), None)
            self._ended(page)
