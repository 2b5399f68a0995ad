"""The duplicate filter for Scrapy's and scrapy-redis' schedulers."""

from __future__ import annotations

import logging
from functools import cached_property, partial
from typing import TYPE_CHECKING

from redis import RedisError
from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter
from scrapy.utils.asyncio import is_asyncio_available

from tbloom import LocalBloom
from tbloom.errors import ConfigError, TBloomError
from tbloom.scrapy.calls import Calls
from tbloom.scrapy.claims.inflight import InFlight
from tbloom.scrapy.claims.middleware import DownloaderMiddleware, SpiderMiddleware
from tbloom.scrapy.connection import naming_redis
from tbloom.scrapy.crawler import CrawlEnd, count, ends_early, is_trial
from tbloom.scrapy.dupefilter.batches import BatchMiddleware
from tbloom.scrapy.dupefilter.prefetch import Prefetch
from tbloom.scrapy.dupefilter.shadow import ShadowDupeFilter
from tbloom.scrapy.dupefilter.summary import summarize, window_stats
from tbloom.scrapy.meta import KEEP, TTL, WITHIN
from tbloom.scrapy.options import read_options
from tbloom.scrapy.outage import NEW, Answer, Answers, Guess
from tbloom.scrapy.settings import FLUSH, MARK, MARKS_DONE, SHADOW, STORE
from tbloom.scrapy.stores import CrawlBloom, CrawlExact

if TYPE_CHECKING:
    from scrapy import Request

logger = logging.getLogger(__name__)


class _Trial(RFPDupeFilter):
    """The duplicate filter of what only tries a spider: Scrapy's own, in memory; the shell's filters nothing, as in Scrapy."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(fingerprinter=crawler.request_fingerprinter)
        self._filters = crawler.crawling

    def request_seen(self, request: Request) -> bool:
        return self._filters and super().request_seen(request)

    def clear(self) -> None:
        """scrapy-redis' scheduler calls this."""


class DupeFilter(RFPDupeFilter):
    """Filters requests that any crawler has asked for within the window.

    What it remembers outlives the crawl: the store forgets it slice by slice, or item by item.
    """

    def __init__(self, crawler: Crawler, *, shares_queue: bool = False) -> None:
        debug = crawler.settings.getbool("DUPEFILTER_DEBUG")
        super().__init__(debug=debug, fingerprinter=crawler.request_fingerprinter)
        self._crawler, self._settings = crawler, crawler.settings
        self._shares_queue = shares_queue
        self._crawl_end = CrawlEnd(crawler)
        #: The request that was last dropped for lack of an answer.
        self._dropped: Request | None = None
        self._calls = Calls(in_thread=False)
        self._in_flight: InFlight | None = None
        self._prefetch: Prefetch | None = None

    @classmethod
    def from_crawler(  # type: ignore[override] # may be a ShadowDupeFilter
        cls, crawler: Crawler, *, shares_queue: bool = False
    ) -> BaseDupeFilter:
        """Scrapy's scheduler calls this: the dupefilter for what is run."""
        if is_trial(crawler):
            logger.info("tbloom's filter is neither asked nor filled by this command of Scrapy's")
            return _Trial(crawler)
        if SHADOW.value(crawler.settings):
            return ShadowDupeFilter(crawler, DupeFilter, shares_queue=shares_queue)
        return cls(crawler, shares_queue=shares_queue)

    @classmethod
    def from_spider(cls, spider: Spider) -> BaseDupeFilter:
        """scrapy-redis' scheduler calls this, but neither ``open`` nor ``close``."""
        dupefilter = cls.from_crawler(spider.crawler, shares_queue=True)
        dupefilter.open()
        return dupefilter

    @cached_property
    def answers(self) -> Answers:
        """What asks the filter."""
        # Made by open(), because Scrapy hides an error in from_crawler behind one of its own.
        spider = self._crawler.spider or self._crawler.spidercls
        return read_options(self._settings, spider.name)

    @property
    def seen(self) -> CrawlBloom | CrawlExact | LocalBloom:
        """The filter."""
        return self.answers.seen

    def open(self) -> None:
        """Scrapy's scheduler calls this at the start. An error ends the crawl."""
        if ends_early(self._crawler):  # by a mistake in another component's settings
            return
        with self._crawl_end.ending_at_an_error(is_logged=self._is_outage):
            self._start()

    def clear(self) -> None:
        """Clears nothing. scrapy-redis' scheduler calls this at the end: an empty filter is of no use to the next crawl.

        It also does so at the start where SCHEDULER_FLUSH_ON_START is set: then ``open`` has cleared the filter.
        """

    def request_seen(self, request: Request) -> bool:
        """Has the request been seen within the window? A new one is remembered.

        ``meta={"tbloom_within": n}`` asks for the newest n slices only; ``meta={"tbloom_keep": n}``, or in an exact store
        ``meta={"tbloom_ttl": seconds}``, says how long a new one is remembered.
        """
        answer = (self._prefetch and self._prefetch.take(request)) or self._ask(request)
        self._dropped = request if answer is Guess.DROPPED else None
        count(self._crawler, f"tbloom/{answer.value}")
        return answer not in NEW

    def log(self, request: Request, spider: Spider) -> None:
        """The scheduler calls this for each request that was filtered."""
        if request is not self._dropped:
            super().log(request, spider)
            count(self._crawler, "bloomfilter/filtered")

    def _is_outage(self) -> bool:
        return "answers" in self.__dict__ and self.answers.circuit.is_open

    def _start(self) -> None:
        """Raises now what the first request would raise: a Redis that is down, other parameters."""
        seen = self.seen
        self._attach(seen)
        # close() would be too early: claims may be settled after it, and scrapy-redis does not call it.
        self._crawler.signals.connect(self._closed, signals.spider_closed)
        with naming_redis(self._settings):
            flush = FLUSH.is_on(self._settings)
            first = seen.clear if flush else partial(seen.contains_many, [b"a"])
            if not self.answers.attempt(first) and flush:
                logger.error("The filter could not be cleared at the start")
        if not self._is_outage():
            self._report(seen)

    def _attach(self, seen: CrawlBloom | CrawlExact | LocalBloom) -> None:
        """Makes what follows the requests of this crawl."""
        crawler = self._crawler
        batches = crawler.get_spider_middleware(BatchMiddleware)
        is_remote = not isinstance(seen, LocalBloom)  # a local one needs no round trips
        self._calls = Calls(in_thread=bool(batches) and is_remote and is_asyncio_available())
        mark = self._settings.get(MARK.name)
        if mark in MARKS_DONE and isinstance(seen, CrawlBloom):
            downloading = crawler.get_downloader_middleware(DownloaderMiddleware)
            parsing = crawler.get_spider_middleware(SpiderMiddleware)
            if downloading is None or parsing is None:
                expected = "'scheduled', or tbloom's add-on: ADDONS = {'tbloom.scrapy.Addon': 500}"
                raise ConfigError(MARK.name, mark, expected)
            self._in_flight = InFlight(
                crawler, seen, self.answers, self._crawl_end, self._calls, shared=self._shares_queue
            )
            downloading.in_flight = parsing.in_flight = self._in_flight
        if batches and self._calls.in_thread:
            self._prefetch = Prefetch(crawler, self.answers, self._in_flight, self._calls)
            batches.prefetch = self._prefetch

    def _report(self, seen: CrawlBloom | CrawlExact | LocalBloom) -> None:
        """Logs what the filter holds, and what threatens it."""
        waits = not self._calls.in_thread
        text, warnings = summarize(seen, self.fingerprinter, each_link_waits=waits)
        logger.info(text)
        for warning in warnings:
            count(self._crawler, "tbloom/warnings")
            logger.warning("filter %r: %s", seen.name, warning)

    def _ask(self, request: Request) -> Answer:
        """The answer; "dropped" if the crawl ends by an error. (Scrapy hangs where the dupefilter raises too many.)"""
        if self._crawl_end.has_begun:
            return Guess.DROPPED
        is_exact = isinstance(self.seen, CrawlExact)
        keys = {"ttl": TTL} if is_exact else {"within": WITHIN, "keep": KEEP}
        try:
            for other in ({WITHIN, KEEP, TTL} - set(keys.values())) & request.meta.keys():
                store = STORE.value(self._settings, "bloom")
                expected = f"to be left out with TBLOOM_STORE = {store!r}"
                raise ConfigError(f"meta[{other!r}] of {request}", request.meta[other], expected)
            if self._in_flight:
                return self._in_flight.claim(request)
            items = [self.fingerprinter.fingerprint(request)]
            given = {name: request.meta[key] for name, key in keys.items() if key in request.meta}
            [answer] = self._calls.now(partial(self.answers.ask, items, **given))
        except (RedisError, TBloomError) as error:
            if isinstance(error, ConfigError) and error.argument in keys:
                error.argument = f"meta[{keys[error.argument]!r}] of {request}"
            if not self._is_outage():  # which the log has
                logger.error("The crawl ends: %s", error)
            self._crawl_end.begin()
            return Guess.DROPPED
        return answer

    async def _closed(self, reason: str) -> None:
        """Ends the crawl once its feeds are stored."""
        try:
            if self._in_flight:
                await self._in_flight.finish(reason)
            stats = self._crawler.stats
            has_failed = self._crawl_end.has_begun or self.answers.circuit.errors
            if stats and not has_failed:  # else don't wait for Redis once more
                window = await self._calls.run(partial(window_stats, self.seen))
                for name, value in window.items():
                    stats.set_value(name, value)
        finally:
            if isinstance(self.seen, CrawlBloom) and (hits := self.seen.cache_hits):
                count(self._crawler, "tbloom/cache_hits", hits)
            if errors := self.answers.circuit.errors:
                count(self._crawler, "tbloom/errors", errors)
            self._calls.close()
            self.answers.close()
        if self._in_flight and (unmarked := self._in_flight.pages.unmarked()):
            message = "%d pages were fetched and not marked: the next crawl fetches them again"
            logger.warning(message, unmarked)
