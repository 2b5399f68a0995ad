"""Scrapy's components, as the add-on sets them: the duplicate filter, the downloader and the spider middleware.

Each of their methods is one of Scrapy's calls. What it does stands in ``inbox.py`` and ``done/pages.py``.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from inspect import Parameter, signature
from typing import Any, Self

from redis import RedisError
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.dupefilters import RFPDupeFilter
from scrapy.http import Response
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import CancelledError, Deferred

from tbloom import Claim
from tbloom.errors import TBloomError
from tbloom.scrapy.crawl import Crawl, Stage, crawl_of, ending_at_an_error
from tbloom.scrapy.done.pages import Pages
from tbloom.scrapy.done.serialize import look_in_note
from tbloom.scrapy.hooks.engine import is_trial, next_turn
from tbloom.scrapy.hooks.feeds import open_no_feeds
from tbloom.scrapy.hooks.starts import uncalled
from tbloom.scrapy.inbox import FilteringScheduler, Project, Requests
from tbloom.scrapy.links import Answer, NoAnswer
from tbloom.scrapy.options import check_mark, naming_redis
from tbloom.scrapy.settings import FILTER, FLUSH, MARK, OLD_SIZE, project_in
from tbloom.scrapy.stores import AnyStore
from tbloom.scrapy.summary import described, summarize

logger: logging.Logger = logging.getLogger(__name__)

_OTHER_PROJECT = (
    "the project {first!r} uses this filter, too: a page is fetched by one of the two projects only. To separate them, give this one "
    "TBLOOM_KEY = '{ours}:%(spider)s'. To share the filter on purpose, name it by TBLOOM_KEY in both. Left and failed pages are a "
    "project's in any case"
)


class DupeFilter(RFPDupeFilter):
    """Filters requests that any crawler has asked for within the window.

    What it remembers outlives the crawl: the store forgets it slice by slice, or item by item.
    """

    __module__ = "tbloom.scrapy"

    def __init__(self, crawler: Crawler, *, shares_queue: bool = False) -> None:
        debug = crawler.settings.getbool("DUPEFILTER_DEBUG")
        super().__init__(debug=debug, fingerprinter=crawler.request_fingerprinter)
        self._crawl, self._settings = crawl_of(crawler), crawler.settings
        self._shares_queue, self._is_trial = shares_queue, is_trial(crawler)
        #: The requests of the crawl, once its store is open.
        self.requests: Requests | None = None
        #: Whether scrapy-redis-bloomfilter's stat is counted, too.
        self._has_old_size = any(name in self._settings for name in OLD_SIZE)
        #: The request that was last dropped for lack of an answer.
        self._dropped: Request | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Make the dupefilter. Scrapy's scheduler calls this."""
        return cls(crawler)

    @classmethod
    def from_spider(cls, spider: Spider) -> Self:
        """Make the dupefilter, and open it. scrapy-redis' scheduler calls this, but neither ``open`` nor ``close``."""
        dupefilter = cls(spider.crawler, shares_queue=True)
        dupefilter.open()
        return dupefilter

    # Called by open(), because Scrapy hides an error in from_crawler behind one of its own.
    def _open_store(self) -> Requests:
        """Open the store, and set ``requests``. With the add-on they wait in its scheduler, and threads ask the filter."""
        crawl, mark = self._crawl, self._settings.get(MARK.name)
        has_add_on = crawl.scheduler is not None
        check_mark(self._settings, shares_queue=self._shares_queue, has_add_on=has_add_on)
        crawl.open()
        claims = crawl.seen.claims if mark == "done" else None
        if claims is not None:
            claims.open_claims(look_in_note)
        scheduler: FilteringScheduler | None = crawl.scheduler
        if scheduler is not None:
            if claims is not None:
                scheduler.requests = Pages(crawl, scheduler, claims)
            elif crawl.seen.needs_server:  # nothing waits for a local one
                scheduler.requests = Requests(crawl, scheduler)
            self.requests = scheduler.requests
        self.requests = self.requests or Requests(crawl, None)
        return self.requests

    def open(self) -> Deferred[None] | None:
        """Open the filter. Scrapy's scheduler calls this at the start. An error ends the crawl.

        With the add-on, whose scheduler waits for ``Crawl.opened``, the event loop does not wait for the server. A command that only
        tries a spider needs none: the fingerprints are in memory.
        """
        if self._is_trial:
            logger.info("This command of Scrapy neither uses nor changes tbloom's filter")
            return None
        crawl = self._crawl
        if not crawl.is_ending:  # by a mistake in another component's settings
            with ending_at_an_error(crawl.crawler):
                if self.requests is None:
                    self._open_store()
                # close() would be too early: claims may be settled after it, and scrapy-redis does not call it.
                crawl.crawler.signals.connect(self._closed, signals.spider_closed)
                self._name_uncalled()
                # The first call raises at the start any error that the first request would raise, such as ConfigMismatch.
                seen = crawl.seen
                is_flushed = FLUSH.value(self._settings)
                first = seen.clear if is_flushed else partial(seen.contains_many, [b"a"])
                if crawl.scheduler is not None:
                    crawl.opened = deferred_from_coro(self._open(first))
                    return crawl.opened
                with naming_redis(self._settings):
                    first()
                self._describe(*summarize(crawl.seen, described(self.fingerprinter)))
        if crawl.is_ending:  # perhaps by an extension that was made before the feed exporter
            open_no_feeds(crawl.crawler)
        return None

    async def _open(self, first: Callable[[], object]) -> None:
        crawl = self._crawl
        with ending_at_an_error(crawl.crawler), naming_redis(self._settings):
            await crawl.link_calls.run(first)
            if isinstance(self.requests, Pages) and (shared := crawl.seen.shared) is not None:
                # Pages are a project's, if crawlers of another one were the first ones of the filter.
                ours = project_in(self._settings)
                other = await crawl.link_calls.run(partial(shared.first_project, ours))
                if other != ours:
                    crawl.project = ours
                    if self._settings.get(FILTER["name"].name) is None:
                        self._warn([_OTHER_PROJECT.format(ours=ours, first=other)])
                # After an error, the next crawl deletes them.
                crawl.page_calls.begin(shared.forget_old_records, bool)
            # Here, because the fingerprinter is not made for threads.
            call = partial(summarize, crawl.seen, described(self.fingerprinter))
            crawl.page_calls.begin(call, lambda called: self._describe(*called.result()))
        if crawl.is_ending:
            open_no_feeds(crawl.crawler)

    def clear(self) -> None:
        """Clear nothing. scrapy-redis' scheduler calls this at the end: an empty filter is of no use to the next crawl.

        It also does so at the start where SCHEDULER_FLUSH_ON_START is set: then ``open`` has cleared the filter.
        """

    def request_seen(self, request: Request) -> bool:
        """Return whether the request has been seen within the window. A new one is remembered.

        ``meta={"tbloom_within": n}`` asks for the newest n slices only; ``meta={"tbloom_keep": n}``, or in an exact store
        ``meta={"tbloom_ttl": seconds}``, says how long a new one is remembered.
        """
        answer: Answer = NoAnswer.DROPPED
        requests = self.requests
        if requests is None:
            if self._is_trial:  # in ``scrapy shell``, nothing is filtered, as in Scrapy
                return self._crawl.crawler.crawling and super().request_seen(request)
            # A scheduler may not have opened it; or it could not be opened.
            requests = None if self._crawl.is_ending else self._open_store()
        if requests:
            requests.is_asked = True
            answer = requests.answer or requests.answer_to(request)
        self._dropped = request if answer is NoAnswer.DROPPED else None
        return answer is not Claim.NEW

    def log(self, request: Request, spider: Spider) -> None:
        """Log a request that was filtered, as Scrapy does."""
        if request is not self._dropped:
            super().log(request, spider)
            if self._has_old_size:
                self._crawl.count("bloomfilter/filtered")

    def _name_uncalled(self) -> None:
        """Log what would begin the crawl, and is never called."""
        engine, spider = self._crawl.crawler.engine, self._crawl.spider
        if engine and "start" not in vars(spider):
            for line in uncalled(type(spider), map(type, engine.scraper.spidermw.middlewares)):
                logger.warning(line)

    def _describe(self, text: str, unsaved: str, warnings: list[str]) -> None:
        logger.info(text)
        if unsaved:
            self._crawl.count("tbloom/unsaved")
            logger.info(unsaved)
        self._warn(warnings)

    def _warn(self, warnings: list[str]) -> None:
        for warning in warnings:
            self._crawl.count("tbloom/warnings")
            logger.warning("filter %r: %s", self._crawl.seen.name, warning)

    async def _closed(self) -> None:
        """Finish, and close the store."""
        crawl, stats, requests = self._crawl, self._crawl.crawler.stats, self.requests
        assert requests is not None  # noqa: S101 - the store is open
        seen = crawl.seen
        try:
            await requests.finish()
            if stats and not crawl.is_ending:
                window = await crawl.page_calls.run(partial(_window, seen))
                for name, value in window.items():
                    stats.set_value(name, value)
        finally:
            for stat, number in seen.counts().items():
                if number:
                    crawl.count(f"tbloom/{stat}", number)
            try:
                crawl.close()
            except TBloomError as error:  # a local store's file is gone
                crawl.fail(error)
        requests.report()


def _window(seen: AnyStore) -> dict[str, float]:
    """Return the stats of the filter as it is now. Some servers don't let us ask for its size (None), and none is waited for."""
    stats = dict[str, float]()
    with suppress(RedisError, TBloomError):
        info = seen.info()
        for name in ("items", "bytes", "error_rate"):
            if (value := getattr(info, name)) is not None:
                stats[f"tbloom/window/{name}"] = value
    return stats


#: The event loop has a turn after so many requests of ``start``. With a turn after each, few share a call.
_TURNS_EVERY = 20


def pages_of(crawl: Crawl) -> Pages | None:
    """Return the pages of a crawl that follows them."""
    requests = None if crawl.scheduler is None else crawl.scheduler.requests
    return requests if isinstance(requests, Pages) else None


class PageDownloader(Project):  # type: ignore[misc] # known at run time only
    """A project's downloader. What it gives for a page, behind all downloader middlewares, gets the page's token."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._crawl = crawl_of(crawler)
        spider = signature(super().fetch).parameters.get("spider")
        #: Whether the project's ``fetch`` demands the spider as an argument, which Scrapy gives to such a one only.
        self._needs_spider = spider is not None and spider.default is Parameter.empty

    def fetch(self, request: Request, spider: Any = None) -> Any:
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
            scheduler: FilteringScheduler | None = self._crawl.scheduler
            try:
                if yielded % _TURNS_EVERY == 0:
                    await next_turn()
                if scheduler is not None and scheduler.requests:
                    await scheduler.requests.inbox.have_room()
            except CancelledError:  # of another reactor than asyncio's: the engine stops
                return
            if self._crawl.stage >= Stage.CLOSING:
                return

    def process_start_requests(self, start_requests: Any, spider: Any) -> Any:
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
