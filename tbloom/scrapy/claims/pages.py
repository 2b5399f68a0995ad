"""The pages in work of one crawl, by the objects that Scrapy passes on.

The gates (``gates``) and Scrapy's signals tell what happens to a page; ``states`` says what it does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from scrapy import Request, signals
from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.http import Response
from scrapy.settings import BaseSettings
from scrapy.spidermiddlewares.httperror import HttpError
from scrapy.utils.asyncio import call_later
from twisted.python.failure import Failure

from tbloom.scrapy.claims.outputs import Outputs
from tbloom.scrapy.claims.page import Page, Token, is_retry, pipeline_of, reason
from tbloom.scrapy.claims.states import ENDS, Event, State, after
from tbloom.scrapy.settings import MARK

logger: logging.Logger = logging.getLogger(__name__)

#: A server's answers from here on are failures, as those of RETRY_HTTP_CODES are.
_SERVER_ERROR = 500
#: A response with one of these is for the callback. Why the page fails if a spider middleware refuses it, also where an errback
#: then returns.
_GOOD, _REFUSED = range(200, 300), "input"


class Pages:
    """Follows each page from the queue to its end, and calls ``ended`` with those that are marked or have failed.

    ``go_on`` is called with a page that has ended in whatever way and was asked for again, and that request; ``places`` says
    where items wait that have passed the pipelines. ``knows_items``: ``outputs.processed`` is called for each item, so one that no page
    has yielded is a pipeline's own.
    """

    def __init__(
        self,
        settings: BaseSettings,
        ended: Callable[[Page], object],
        go_on: Callable[[Page, Request], object],
        places: Callable[[], set[object]] = set,
        *,
        knows_items: bool = True,
    ) -> None:
        self._ended, self._go_on, self._places = ended, go_on, places
        self._knows_items = knows_items
        self._awaits_items = settings.get(MARK.name) == "done"
        self._try_later = {int(code) for code in settings.getlist("RETRY_HTTP_CODES")}
        #: By the id of the Request, Response or exception that is passed on now, and of a retry until it is scheduled.
        self._by_id: dict[int, Page] = {}
        #: Pages that end as another one does, by that one's fingerprint.
        self._followers: dict[str, list[Page]] = {}
        #: Where items wait of pages that are in the queue again, by the pages' numbers.
        self._passed_on: dict[int, set[object]] = {}
        self.outputs: Outputs = Outputs()
        #: Pages whose output or items have perhaps ended in this turn of the event loop.
        self._ending: list[Page] = []

    def connect(self, connect: Callable[[Callable[..., None], object], None]) -> None:
        """Has Scrapy tell what becomes of links and items. (Items of the start have no response, those of an errback a Failure.)"""
        connect(self.request_scheduled, signals.request_scheduled)
        connect(self.spider_error, signals.spider_error)
        if self._awaits_items:
            for signal in (signals.item_scraped, signals.item_dropped, signals.item_error):
                connect(self.item_ended, signal)

    def happens(self, page: Page, event: Event) -> bool:
        """Moves the page to its next state; returns whether the table has the event."""
        state, known = after(page.state, event)
        if not known:
            logger.error("%s: it can't be that it %s: it is %s", page.request, event.value, page.state.value)  # fmt: skip
        if page.state in ENDS:
            return known
        if state is State.FAILED:
            page.failed = page.failed or page.would_fail or "unfinished"
        page.state = state
        if state in ENDS:
            self._end(page)
        return known

    def page_of(self, thing: Any) -> Page | None:
        """The page of a Response, or of a Failure that went to an errback."""
        return self._by_id.get(id(thing.value if isinstance(thing, Failure) else thing))

    # From the queue and back

    def taken(self, token: Token, request: Request, note: str) -> None:
        """A page's request has come out of the queue."""
        page = Page(token, request, note, thing=request)
        page.places = self._passed_on.pop(token.number, page.places)
        self._pass_on(page, Event.TAKEN, request)

    def returning(self, request: Request) -> Page | None:
        """The page as which the request is to enter the queue; None: it is a request like any other."""
        return self._pop(request, State.RETURNING)

    def keep_retry(self, request: Request) -> bool:
        """Keeps a request with which a callback or errback asks for its page again until that has ended; False: it is none."""
        page = self._by_id.get(id(request))
        if page is None or page.retry is not request:
            return False
        del self._by_id[id(request)]
        self._one_less(page)
        return True

    def follow(self, page: Page, fingerprint: str) -> None:
        """The page is redirected to one that this crawl works on. (Of a circle, none ends before the crawl is idle.)"""
        if self.happens(page, Event.TO_PAGE_IN_WORK):
            self._followers.setdefault(fingerprint, []).append(page)

    # The downloader

    def fetching(self, request: Request) -> Page | None:
        """The page of a request that is to be fetched; None: a callback, a pipeline or Scrapy downloads it."""
        return self._pop(request, State.DOWNLOADING)

    def fetched(self, result: Any, page: Page) -> Any:
        """The downloader gives this for the page; returns what the engine gets."""
        if isinstance(result, Request):
            self._pass_on(page, Event.REQUEST, result)
            call_later(0, self._check_return, result)
        elif isinstance(result, Response):
            if id(result) in self._by_id:  # a middleware gives one Response to two pages
                result = result.replace()
            fails = result.status in self._try_later or result.status >= _SERVER_ERROR
            refused = _REFUSED if result.status in _GOOD else ""
            page.would_fail = f"status/{result.status}" if fails else refused
            self._pass_on(page, Event.RESPONSE, result)
        else:
            self._failed_to_fetch(result, page)
        return result

    def _failed_to_fetch(self, failure: Any, page: Page) -> None:
        error = getattr(failure, "value", failure)  # a downloader may give what Scrapy refuses
        ignored = isinstance(error, IgnoreRequest)
        page.would_fail = "" if ignored else f"download/{type(error).__name__}"
        # A middleware may give one exception to several pages.
        if page.request.errback is None or error is failure or id(error) in self._by_id:
            self.happens(page, Event.IGNORED if ignored else Event.FAILURE)
        else:  # Twisted makes another Failure of the exception on its way
            self._pass_on(page, Event.FAILURE_FOR_ERRBACK, error)

    def _check_return(self, request: Request) -> None:
        """The engine schedules a middleware's request at once, unless a handler of ``request_scheduled`` drops it."""
        if page := self.returning(request):
            self.happens(page, Event.IGNORED)

    # Callbacks and their output

    def reaches_callback(self, response: Response) -> None:
        """No spider middleware has refused the page's response."""
        page = self.page_of(response)
        if page and page.would_fail == _REFUSED:
            page.would_fail = ""

    def callback_raised(self, response: Response, error: Exception) -> None:
        """The page fails, unless it is asked for again."""
        page = self.page_of(response)
        if page and isinstance(error, CloseSpider):  # it has done what it was to do
            self.output_may_have_ended(page)
        elif page and not isinstance(error, HttpError):  # the status decides
            page.would_fail = page.would_fail or reason(error)

    @contextmanager
    def following(self, thing: Any) -> Iterator[Callable[[Any], None]]:
        """Within it, output of a page's callback or errback passes; the function takes each piece of it."""
        page = self.page_of(thing)
        if page is None:
            yield lambda _: None
            return
        page.inside += 1
        failed = "unfinished"
        try:
            yield partial(self._yielded, page)
            failed = ""
        except Exception as error:
            failed = "" if isinstance(error, CloseSpider) else reason(error)
            raise
        finally:
            page.failed = page.failed or failed
            page.inside -= 1
            self.output_may_have_ended(page)

    def output_may_have_ended(self, page: Page) -> None:
        """The page has perhaps no more output and items. It may end soon, not now: a middleware that recovers gives its output in this turn."""
        if not self._ending:
            call_later(0, self._end_outputs)
        self._ending.append(page)

    def spider_error(self, failure: Failure, response: Any) -> None:
        """A callback, an errback or a middleware has raised an exception, and none has recovered."""
        if page := self.page_of(response):
            page.failed = page.failed or reason(failure.value)
            self.output_may_have_ended(page)

    def _yielded(self, page: Page, found: Any) -> None:
        """The page's callback or errback yields this, and no middleware drops it any more."""
        is_request = isinstance(found, Request)
        if not is_request and (found is None or not self._awaits_items):
            return
        page.items += 1
        if is_request and page.retry is None and is_retry(page, found):
            page.retry, self._by_id[id(found)] = found, page
        else:  # Scrapy pulls output ahead of what it has handed on
            self.outputs.add(found, page)

    # Links and items

    def request_scheduled(self, request: Request) -> None:
        """The engine takes a request, just before the scheduler does: perhaps one that a callback or errback has yielded."""
        if page := self.outputs.take(request):
            self._one_less(page)
        elif id(request) in self._by_id:
            call_later(0, self._check_retry, self._by_id[id(request)], request)

    def _check_retry(self, page: Page, request: Request) -> None:
        """The engine has scheduled a retry by now, unless a handler of ``request_scheduled`` has dropped it."""
        if self.keep_retry(request):
            page.retry = None

    def item_ended(
        self, item: Any, response: Any, signal: object, failure: Failure | None = None
    ) -> None:
        """An item has passed the pipelines, or one of them has dropped it, or raised an exception."""
        page = self.outputs.take(item) or (None if self._knows_items else self.page_of(response))
        if page is None:
            return
        if signal is signals.item_scraped:
            page.places |= self._places()
        elif failure:
            page.failed = page.failed or f"pipeline/{pipeline_of(failure.value)}"
        self._one_less(page)

    def _one_less(self, page: Page) -> None:
        if page.items:  # an item of a pipeline's own may count, too, unless items are known
            page.items -= 1
            self.output_may_have_ended(page)

    # The end

    def end_all(self) -> None:
        """The crawl is idle or closed: nothing is inside any more."""
        self._passed_on.clear()  # of pages that other processes have taken out of the queue
        self._end_outputs()  # first what was to come in this turn of the event loop
        following = [page for pages in self._followers.values() for page in pages]
        self._followers.clear()  # each ends once
        for page in {*self._by_id.values(), *following}:
            self.happens(page, Event.LEFT_OVER)
        self.outputs.clear()

    def _end_outputs(self) -> None:
        ending, self._ending = self._ending, []
        for page in ending:
            if page.inside or page.items or page.state is not State.PARSING:
                continue
            if page.failed or (page.would_fail and not page.retry):
                self.happens(page, Event.ALL_ENDED)
            else:
                self.happens(page, Event.RETRIED if page.retry else Event.ALL_WELL)

    def _end(self, page: Page) -> None:
        if self._by_id.get(id(page.thing)) is page:
            del self._by_id[id(page.thing)]
        is_scheduled = page.retry is not None and self._by_id.pop(id(page.retry), None) is None
        if page.state is not State.PASSED_ON:
            self._ended(page)
            is_marked = page.state is State.MARKED
            for fingerprint in page.token.fingerprints:
                for other in self._followers.pop(fingerprint, ()):
                    other.places |= page.places
                    self.happens(other, Event.TARGET_MARKED if is_marked else Event.TARGET_FAILED)
        elif page.places:
            self._passed_on[page.token.number] = page.places
        page.thing = None
        if page.retry is not None and is_scheduled:
            self._go_on(page, page.retry)

    def _pass_on(self, page: Page, event: Event, thing: Any) -> None:
        """Scrapy passes this on for the page from now on."""
        if self.happens(page, event):
            page.thing, self._by_id[id(thing)] = thing, page

    def _pop(self, request: Request, state: State) -> Page | None:
        page = self._by_id.get(id(request))
        return self._by_id.pop(id(request)) if page and page.state is state else None
