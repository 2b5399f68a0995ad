"""The duplicate filter for Scrapy's and scrapy-redis' schedulers."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING

from redis import RedisError
from scrapy import signals
from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.asyncio import is_asyncio_available
from scrapy.utils.request import RequestFingerprinter, referer_str

from tbloom import Claim, LocalBloom
from tbloom.errors import ConfigError, TBloomError
from tbloom.scrapy.calls import Calls
from tbloom.scrapy.claims.inflight import InFlight
from tbloom.scrapy.claims.middleware import DownloaderMiddleware, SpiderMiddleware
from tbloom.scrapy.connection import naming_redis
from tbloom.scrapy.crawler import CrawlEnd, OnceLogger, count, ends_before_start, is_trial
from tbloom.scrapy.dupefilter.batches import BatchMiddleware
from tbloom.scrapy.dupefilter.prefetch import Prefetch
from tbloom.scrapy.dupefilter.shadow import ShadowDupeFilter
from tbloom.scrapy.dupefilter.summary import (
    OTHER_FINGERPRINTER,
    FingerprinterNote,
    summarize,
    window_stats,
)
from tbloom.scrapy.dupefilter.trial import TrialDupeFilter
from tbloom.scrapy.meta import KEEP, TTL, WITHIN
from tbloom.scrapy.options import Options, read_options, shadow_setting
from tbloom.scrapy.settings import MARK
from tbloom.scrapy.stores import CrawlBloom, CrawlExact

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings
    from typing_extensions import Self

logger = logging.getLogger(__name__)


class DupeFilter(BaseDupeFilter):
    """Filters requests that any crawler has asked for within the window.

    What it remembers outlives the crawl: the store forgets it slice by slice, or item by item.
    """

    def __init__(
        self, settings: BaseSettings, crawler: Crawler | None = None, *, shares_queue: bool = False
    ) -> None:
        self._settings = settings
        self._crawler = crawler
        self._shares_queue = shares_queue
        known = crawler.request_fingerprinter if crawler else None
        self._fingerprinter = known or RequestFingerprinter()
        self._note = FingerprinterNote(self._fingerprinter)
        self._once = OnceLogger(logger)
        self._crawl_end = CrawlEnd(crawler)
        #: The request that was last dropped for lack of an answer.
        self._dropped: Request | None = None
        self._calls = Calls(in_thread=False)
        self._in_flight: InFlight | None = None
        self._prefetch: Prefetch | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> BaseDupeFilter:  # type: ignore[override] # may be a ShadowDupeFilter
        """Scrapy's scheduler calls this."""
        return cls._make(crawler)

    @classmethod
    def from_spider(cls, spider: Spider) -> BaseDupeFilter:
        """scrapy-redis' scheduler calls this, but neither ``open`` nor ``close``."""
        dupefilter = cls._make(spider.crawler, shares_queue=True)
        dupefilter.open()
        return dupefilter

    @classmethod
    def _make(cls, crawler: Crawler, *, shares_queue: bool = False) -> BaseDupeFilter:
        """The dupefilter for what is run."""
        if is_trial(crawler):
            return TrialDupeFilter(crawler)
        if shadow_setting(crawler.settings):
            return ShadowDupeFilter(crawler, DupeFilter, shares_queue=shares_queue)
        return cls(crawler.settings, crawler, shares_queue=shares_queue)

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> Self:
        """A dupefilter without a crawler; TBLOOM_KEY must not have the spider's name in it."""
        shadow = shadow_setting(settings)
        if shadow:
            raise ConfigError("TBLOOM_SHADOW", shadow, "False, where there is no crawler")
        return cls(settings)

    @cached_property
    def _options(self) -> Options:
        # Read by open(), because Scrapy hides an error in from_crawler behind one of its own.
        crawler = self._crawler
        spider = (crawler.spider or crawler.spidercls).name if crawler else None
        return read_options(self._settings, spider)

    @property
    def seen(self) -> CrawlBloom | CrawlExact | LocalBloom:
        """The filter."""
        return self._options.seen

    def open(self) -> None:
        """Scrapy's scheduler calls this at the start. An error ends the crawl, or is raised where there is none."""
        if ends_before_start(self._crawler):  # by a mistake in another component's settings
            return
        with self._crawl_end.ending_at_an_error(is_logged=self._is_outage):
            self._start(self.seen)

    def close(self, reason: str = "") -> None:
        """Scrapy's scheduler calls this at the end: closes the connection, keeps the data."""
        # Without options there was an error before. With a crawler, spider_closed ends the crawl.
        if "_options" in self.__dict__ and not self._crawler:
            self._end(reason)

    def clear(self) -> None:
        """Clears nothing: an empty filter is of no use to the next crawl.

        scrapy-redis' scheduler calls this at the end of each crawl unless SCHEDULER_PERSIST is set, and at the start where
        SCHEDULER_FLUSH_ON_START is: then ``open`` has cleared the filter.
        """
        if not ends_before_start(self._crawler) and not self._options.flush:
            message = (
                "Keeping what filter %r has seen for the next crawl; "
                "SCHEDULER_FLUSH_ON_START = True forgets it"
            )
            self._once.log(logging.INFO, message, self.seen.name)

    def request_seen(self, request: Request) -> bool:
        """Has the request been seen within the window? A new one is remembered.

        ``meta={"tbloom_within": n}`` asks for the newest n slices only; ``meta={"tbloom_keep": n}``, or in an exact store
        ``meta={"tbloom_ttl": seconds}``, says how long a new one is remembered.
        """
        self._note.renew(self.seen)
        circuit = self._options.circuit
        guesses = circuit.answers
        answer = (self._prefetch and self._prefetch.take(request)) or self._ask(request)
        is_seen = answer is not Claim.NEW
        if answer is None or circuit.answers > guesses:  # not the filter's answer
            self._count_errors()
            self._dropped = request if is_seen else None
            stat = "tbloom/errors/dropped" if is_seen else "tbloom/errors/scheduled"
            count(self._crawler, stat)
        else:
            count(self._crawler, f"tbloom/{answer.value}")
        return is_seen

    def log(self, request: Request, spider: Spider) -> None:
        """The scheduler calls this for each request that was filtered."""
        if request is self._dropped:
            self._dropped = None
            return
        message = "Filtered duplicate request: %s (referer: %s)"
        values = (request, referer_str(request))
        if self._options.debug:
            logger.debug(message, *values, extra={"spider": spider})
        else:
            hint = "no more duplicates will be shown (see DUPEFILTER_DEBUG to show all duplicates)"
            self._once.log(logging.DEBUG, f"{message} - {hint}", *values)
        count(self._crawler, "bloomfilter/filtered")
        count(self._crawler, "dupefilter/filtered")

    def _is_outage(self) -> bool:
        return "_options" in self.__dict__ and self._options.circuit.is_open

    def _start(self, seen: CrawlBloom | CrawlExact | LocalBloom) -> None:
        """Raises now what the first request would raise: a Redis that is down, other parameters."""
        if self._crawler:
            self._attach(self._crawler, seen)
        try:
            with naming_redis(self._settings):
                if self._options.flush:
                    self._flush(seen)
                else:
                    seen.contains(b"tbloom")
            if not self._options.circuit.is_open:
                self._report(seen)
        finally:
            self._count_errors()
        if self._crawler:
            # close() would be too early: claims may be settled after it, and scrapy-redis does not call it.
            self._crawler.signals.connect(self._closed, signals.spider_closed)

    def _flush(self, seen: CrawlBloom | CrawlExact | LocalBloom) -> None:
        try:
            seen.clear()
        except RedisError as error:
            if self._options.circuit.on_error == "raise":
                raise
            logger.error("The filter could not be cleared at the start: %s", error)

    def _attach(self, crawler: Crawler, seen: CrawlBloom | CrawlExact | LocalBloom) -> None:
        """Makes what follows the requests of this crawl."""
        batches = crawler.get_spider_middleware(BatchMiddleware)
        is_remote = not isinstance(seen, LocalBloom)  # a local one needs no round trips
        self._calls = Calls(in_thread=bool(batches) and is_remote and is_asyncio_available())
        if self._options.mark_done and isinstance(seen, CrawlBloom):
            downloading = crawler.get_downloader_middleware(DownloaderMiddleware)
            parsing = crawler.get_spider_middleware(SpiderMiddleware)
            if downloading is None or parsing is None:
                expected = "'scheduled', or tbloom's add-on: ADDONS = {'tbloom.scrapy.Addon': 500}"
                raise ConfigError(MARK.name, self._settings[MARK.name], expected)
            self._in_flight = InFlight(
                crawler,
                seen,
                self._crawl_end,
                self._calls,
                take_over=self._options.take_over,
                shared=self._shares_queue,
            )
            downloading.in_flight = parsing.in_flight = self._in_flight
        if batches and self._calls.in_thread and not isinstance(seen, LocalBloom):
            self._prefetch = Prefetch(crawler, seen, self._in_flight, self._calls)
            batches.prefetch = self._prefetch

    def _report(self, seen: CrawlBloom | CrawlExact | LocalBloom) -> None:
        """Logs what the filter holds, and what threatens it. Some servers don't let us ask."""
        with suppress(RedisError):
            summary = summarize(seen, each_link_waits=not self._calls.in_thread)
            logger.info(summary.text)
            for warning in summary.warnings:
                self._warn("filter %r: %s", seen.name, warning)
            if isinstance(seen, LocalBloom):
                return
            if other := self._note.write(seen, is_new=summary.is_new):
                ours = self._settings.get("REQUEST_FINGERPRINTER_CLASS")
                self._warn(OTHER_FINGERPRINTER, ours, seen.name, other)

    def _warn(self, message: str, *values: object) -> None:
        count(self._crawler, "tbloom/warnings")
        logger.warning(message, *values)

    def _ask(self, request: Request) -> Claim | None:
        """The answer; None if the crawl ends by an error. (Scrapy hangs where the dupefilter raises too many.)"""
        if self._crawl_end.has_begun:
            return None
        if self._options.mark_done and not self._in_flight:
            expected = "'scheduled', where there is no crawler"
            raise ConfigError(MARK.name, self._settings[MARK.name], expected)
        allowed = self._options.meta_keys
        for other in ({WITHIN, KEEP, TTL} - set(allowed.values())) & request.meta.keys():
            expected = f"to be left out with TBLOOM_STORE = {self._options.store!r}"
            raise ConfigError(f"meta[{other!r}] of {request}", request.meta[other], expected)
        try:
            if self._in_flight:
                return self._in_flight.claim(request)
            fingerprint = self._fingerprinter.fingerprint(request)
            given = {name: request.meta.get(key) for name, key in allowed.items()}
            new = self._calls.now(partial(self.seen.add, fingerprint, **given))
        except ConfigError as error:
            if error.argument not in allowed:
                raise
            argument = f"meta[{allowed[error.argument]!r}] of {request}"
            raise ConfigError(argument, error.value, error.expected) from None
        except (RedisError, TBloomError) as error:
            if self._crawler is None:
                raise
            if not self._options.circuit.is_open:  # which the log has
                logger.error("The crawl ends: %s", error)
            self._crawl_end.begin()
            return None
        return Claim.NEW if new else Claim.SEEN

    async def _closed(self, reason: str) -> None:
        """Ends the crawl once its feeds are stored."""
        try:
            if self._in_flight:
                await self._in_flight.finish()
            stats = self._crawler and self._crawler.stats
            if stats and not self._options.circuit.errors:  # don't wait for Redis once more
                window = await self._calls.run(partial(window_stats, self.seen))
                for name, value in window.items():
                    stats.set_value(name, value)
        finally:
            self._end(reason)

    def _end(self, reason: str) -> None:
        """Settles the claims of the crawl. Those that are left are for others, unless it is finished."""
        if self._in_flight and reason == "finished":
            self._in_flight.release_all()
        self._count_errors()
        stats = self._crawler and self._crawler.stats
        if stats and self._options.cache_hits:
            stats.set_value("tbloom/cache_hits", self._options.cache_hits)
        self._calls.close()
        self._options.close()

    def _count_errors(self) -> None:
        errors = self._options.circuit.errors
        if errors and self._crawler and self._crawler.stats:
            self._crawler.stats.set_value("tbloom/errors", errors)
