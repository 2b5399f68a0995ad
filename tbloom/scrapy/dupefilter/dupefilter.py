"""The duplicate filter for Scrapy's and scrapy-redis' schedulers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from redis import RedisError
from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter

from tbloom import LocalBloom
from tbloom.engine.retries import is_outage
from tbloom.errors import ConfigError, TBloomError
from tbloom.items import check_keep, check_ttl, check_within
from tbloom.scrapy.calls import Calls, Crawl
from tbloom.scrapy.claims.links import ClaimedLinks
from tbloom.scrapy.compat import is_trial
from tbloom.scrapy.connection import naming_redis
from tbloom.scrapy.crawler import CrawlEnd, count, ends_early
from tbloom.scrapy.dupefilter.shadow import ShadowDupeFilter
from tbloom.scrapy.dupefilter.summary import summarize, window_stats
from tbloom.scrapy.gates import has_gate, open_gate
from tbloom.scrapy.meta import KEEP, TTL, WITHIN
from tbloom.scrapy.options import read_options
from tbloom.scrapy.outage import NEW, Answer, Answers, Guess
from tbloom.scrapy.settings import FLUSH, MARK, MARKS_DONE, SHADOW, STORE, Setting, naming_settings
from tbloom.scrapy.stores import CrawlBloom, CrawlExact

if TYPE_CHECKING:
    from scrapy import Request

    from tbloom.scrapy.links import Links

logger = logging.getLogger(__name__)

#: The keys of a request's meta that say how it is remembered.
_OWN = {WITHIN, KEEP, TTL}


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
        self._links: Links | None = None
        #: The answer that the scheduler gets now, and whether the stats count it.
        self._answer: tuple[Answer | None, bool] = None, False

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
        answer, is_counted = self._answer
        if answer is None:
            answer, is_counted = self._ask(request), True
        self._dropped = request if answer is Guess.DROPPED else None
        if is_counted:
            count(self._crawler, f"tbloom/{answer.value}")
        return answer not in NEW

    @contextmanager
    def answering(self, answer: Answer | None, *, is_counted: bool) -> Iterator[None]:
        """Within it, the scheduler gets this answer; None: the filter is asked."""
        self._answer = answer, is_counted
        try:
            yield
        finally:
            self._answer = None, False

    def question(self, request: Request) -> tuple[bytes | None, Any, Answer | None]:
        """What the filter is asked for the request: item, arguments, and the answer where there is nothing to ask.

        A wrong value in the request's meta ends the crawl.
        """
        if self._crawl_end.has_begun:
            return None, (), Guess.DROPPED
        given: tuple[tuple[str, Any], ...] = ()
        if _OWN & request.meta.keys():
            try:
                given = self._arguments(request)
            except TBloomError as error:
                self.fail(error)
                return None, (), Guess.DROPPED
        return self.fingerprinter.fingerprint(request), given, None

    def fail(self, error: Exception) -> None:
        """Ends the crawl by an error of the filter."""
        if not self._is_outage():  # which the log has
            is_known = isinstance(error, RedisError | TBloomError)
            logger.error("The crawl ends: %s", error, exc_info=None if is_known else error)
        self._crawl_end.begin()

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
        self._open_gate()
        # close() would be too early: claims may be settled after it, and scrapy-redis does not call it.
        self._crawler.signals.connect(self._closed, signals.spider_closed)
        flush = FLUSH.value(self._settings)
        try:
            with naming_redis(self._settings):
                seen.clear() if flush else seen.contains_many([b"a"])
        except RedisError as error:
            if self.answers.on_error == "raise" or not is_outage(error):
                raise
            if flush:
                logger.error("The filter could not be cleared at the start")
        else:
            self._report(seen)

    def _open_gate(self) -> None:
        """Makes what the links of this crawl wait in."""
        mark = self._settings.get(MARK.name)
        if mark in MARKS_DONE and not has_gate(self._crawler):
            expected = "'scheduled', or tbloom's add-on: ADDONS = {'tbloom.scrapy.Addon': 500}"
            raise ConfigError(MARK.name, mark, expected)
        if not isinstance(self.seen, LocalBloom):  # which needs no round trips
            self._links = open_gate(self._crawler, self, shared=self._shares_queue)

    @cached_property
    def crawl(self) -> Crawl:
        """The crawl, with what asks its filter: in a thread of its own where the add-on lets links wait."""
        is_remote = has_gate(self._crawler) and not isinstance(self.seen, LocalBloom)
        calls, ends_calls = Calls(in_thread=is_remote), Calls(in_thread=is_remote)
        return Crawl(self._crawler, self.answers, calls, ends_calls, self._crawl_end)

    @property
    def _claims(self) -> ClaimedLinks | None:
        return self._links if isinstance(self._links, ClaimedLinks) else None

    def _report(self, seen: CrawlBloom | CrawlExact | LocalBloom) -> None:
        """Logs what the filter holds, and what threatens it."""
        text, warnings = summarize(seen, self.fingerprinter)
        logger.info(text)
        for warning in warnings:
            count(self._crawler, "tbloom/warnings")
            logger.warning("filter %r: %s", seen.name, warning)

    def _ask(self, request: Request) -> Answer:
        """The answer; "dropped" if the crawl ends by an error. (Scrapy hangs where the dupefilter raises too many.)"""
        try:
            if self._claims:
                return self._claims.claim_now(request) or Guess.DROPPED
            item, given, answer = self.question(request)
            if item is None or answer is not None:
                return answer or Guess.DROPPED
            [answer] = self.crawl.calls.now(partial(self.answers.ask, [item], **dict(given)))
        except (RedisError, TBloomError) as error:
            self.fail(error)
            return Guess.DROPPED
        return answer

    def _arguments(self, request: Request) -> tuple[tuple[str, Any], ...]:
        """The arguments of ``add`` or ``claim`` that are in the request's meta. Raises ConfigError that names the key."""
        is_exact, meta = isinstance(self.seen, CrawlExact), request.meta
        names = {"ttl": TTL} if is_exact else {"within": WITHIN, "keep": KEEP}
        table = {name: Setting(f"meta[{key!r}] of {request}") for name, key in names.items()}
        for key in (_OWN - {*names.values()}) & meta.keys():
            expected = f"to be left out with TBLOOM_STORE = {STORE.value(self._settings)!r}"
            raise ConfigError(f"meta[{key!r}] of {request}", meta[key], expected)
        if self._claims:  # the end of the page says how long it is kept
            del names["keep"]
        given = {name: meta[key] for name, key in names.items() if key in meta}
        with naming_settings(table):
            if isinstance(self.seen, CrawlExact):
                check_ttl(given["ttl"])
            else:
                slices = self.seen.config.slices
                check_keep(given.get("keep"), given.get("within"), slices)
                check_within(given.get("within"), slices)
        return (*given.items(),)

    async def _closed(self, reason: str) -> None:
        """Ends the crawl once its feeds are stored."""
        try:
            if self._claims:
                await self._claims.finish()
            stats = self._crawler.stats
            has_failed = self._crawl_end.has_begun or self.answers.circuit.errors
            if stats and not has_failed:  # else don't wait for Redis once more
                window = await self.crawl.calls.run(partial(window_stats, self.seen))
                for name, value in window.items():
                    stats.set_value(name, value)
        finally:
            if isinstance(self.seen, CrawlBloom) and (hits := self.seen.cache_hits):
                count(self._crawler, "tbloom/cache_hits", hits)
            if errors := self.answers.circuit.errors:
                count(self._crawler, "tbloom/errors", errors)
            self.crawl.ends_calls.close()
            self.crawl.calls.close()
            self.answers.close()
        if self._claims and (unmarked := self._claims.ends.unmarked()):
            message = "%d pages were fetched and not marked: the next crawl fetches them again"
            logger.warning(message, unmarked)
