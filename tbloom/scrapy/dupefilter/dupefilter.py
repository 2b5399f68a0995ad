"""The duplicate filter for Scrapy's and scrapy-redis' schedulers."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from redis import RedisError
from scrapy import signals
from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.request import RequestFingerprinter, referer_str

from tbloom.bloom.claims.held import Claim
from tbloom.bloom.sync import TimeBloom
from tbloom.errors import ConfigError, FilterFull, TBloomError
from tbloom.local.sync import LocalBloom
from tbloom.scrapy import settings as options
from tbloom.scrapy.claims.inflight import InFlight, in_flight
from tbloom.scrapy.claims.middleware import SpiderMiddleware
from tbloom.scrapy.claims.notes import TTL_META, WITHIN
from tbloom.scrapy.dupefilter.ahead import Ahead, ahead
from tbloom.scrapy.dupefilter.shadow import Shadow

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings
    from scrapy.statscollectors import StatsCollector
    from scrapy.utils.request import RequestFingerprinterProtocol
    from typing_extensions import Self

    from tbloom.exact import ExactFilter

logger = logging.getLogger(__name__)

#: The reason with which a spider is closed when Redis fails and TBLOOM_ON_ERROR is "raise".
ERROR_REASON = "tbloom_error"


class DupeFilter(BaseDupeFilter):
    """Filters requests that any crawler has asked for within the window.

    What it remembers outlives the crawl: the store forgets it slice by slice, or item by item.
    """

    def __init__(
        self,
        settings: BaseSettings,
        spider: str | None,
        fingerprinter: RequestFingerprinterProtocol,
        stats: StatsCollector | None = None,
    ) -> None:
        self._settings = settings
        self._spider = spider
        self._fingerprinter = fingerprinter
        self._stats = stats
        self._flush_on_start = settings.getbool("SCHEDULER_FLUSH_ON_START")
        self._said: set[str] = set()
        self._dropped: Request | None = None
        self._in_flight: InFlight | None = None
        self._ahead: Ahead | None = None
        self._shares_queue = False
        self._ends_with_spider = False
        self._crawler: Crawler | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> BaseDupeFilter:  # type: ignore[override] # a Shadow is none of ours
        """For Scrapy's scheduler."""
        if options.shadowed(crawler.settings):
            return Shadow(crawler, DupeFilter, shares_queue=False)
        return cls._of(crawler)

    @classmethod
    def from_spider(cls, spider: Spider) -> BaseDupeFilter:
        """For scrapy-redis' scheduler, which calls neither ``open`` nor ``close``."""
        if options.shadowed(spider.crawler.settings):
            shadow = Shadow(spider.crawler, DupeFilter, shares_queue=True)
            shadow.start()
            return shadow
        dupefilter = cls._of(spider.crawler)
        dupefilter._shares_queue = True  # noqa: SLF001
        dupefilter._check()  # noqa: SLF001 - our own
        return dupefilter

    @classmethod
    def _of(cls, crawler: Crawler) -> Self:
        spider = crawler.spider.name if crawler.spider else crawler.spidercls.name
        dupefilter = cls(crawler.settings, spider, crawler.request_fingerprinter, crawler.stats)
        dupefilter._crawler = crawler
        return dupefilter

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> Self:
        """For whoever has no crawler: TBLOOM_KEY must then do without the spider's name."""
        shadowed = options.shadowed(settings)
        if shadowed:
            raise ConfigError("TBLOOM_SHADOW", shadowed, "False, where there is no crawler")
        return cls(settings, None, RequestFingerprinter())

    @cached_property
    def _options(self) -> options.Options:
        # Read by open(), not in from_crawler: an error there Scrapy hides behind one of its own.
        return options.read(self._settings, self._spider)

    @property
    def seen(self) -> TimeBloom | ExactFilter | LocalBloom:
        """The filter."""
        return self._options.seen

    def open(self) -> None:
        """Called by Scrapy's scheduler at the start. Raises ConfigError that names the setting."""
        self._check()
        if self._flush_on_start:
            self.clear()

    def close(self, reason: str = "") -> None:
        """Called by Scrapy's scheduler at the end: closes the connection, keeps the data."""
        # Before there were options, there was an error. A crawl ends with its spider.
        if "_options" in self.__dict__ and not self._ends_with_spider:
            self._end(reason)

    def clear(self) -> None:
        """Clears at the start, where SCHEDULER_FLUSH_ON_START asks for it.

        scrapy-redis' scheduler also calls this at the end of each crawl unless SCHEDULER_PERSIST is
        set. A filter that is emptied then can't serve the next crawl, so that call clears nothing.
        """
        if self._flush_on_start:
            self._flush_on_start = False
            try:
                self.seen.clear()
            except RedisError as error:
                self._count_errors()
                if self._options.circuit.on_error == "raise":
                    raise
                logger.error("The filter could not be cleared at the start: %s", error)
        else:
            self._say(
                "kept",
                f"Keeping what filter {self.seen.name!r} has seen for the next crawl; "
                "SCHEDULER_FLUSH_ON_START = True forgets it",
                logging.INFO,
            )

    def request_seen(self, request: Request) -> bool:
        """Has the request been seen within the window? If not, it has from now on.

        ``meta={"tbloom_within": n}`` asks for the newest n slices only; in an exact store
        ``meta={"tbloom_ttl": seconds}`` says for how long a new one is remembered.
        """
        circuit = self._options.circuit
        guesses = circuit.answers
        answer = (self._ahead and self._ahead.take(request)) or self._ask(request)
        if circuit.answers > guesses:
            self._count_errors()
            return self._note_guess(request, drop=answer is not Claim.NEW)
        self._count(f"tbloom/{answer.value}")
        return answer is not Claim.NEW

    def _note_guess(self, request: Request, *, drop: bool) -> bool:
        self._dropped = request if drop else None
        self._count("tbloom/errors/dropped" if drop else "tbloom/errors/scheduled")
        return drop

    def log(self, request: Request, spider: Spider) -> None:
        """Called by the scheduler for each request that was filtered."""
        if request is self._dropped:
            self._dropped = None
            return
        message = f"Filtered duplicate request: {request} (referer: {referer_str(request)})"
        if self._options.debug:
            logger.debug(message, extra={"spider": spider})
        else:
            hint = "no more duplicates will be shown (see DUPEFILTER_DEBUG to show all duplicates)"
            self._say("filtered", f"{message} - {hint}", logging.DEBUG)
        self._count("bloomfilter/filtered")
        self._count("dupefilter/filtered")

    def _check(self) -> None:
        """Raises now what the first request would raise: no Redis there, other parameters stored."""
        seen, crawler = self.seen, self._crawler
        if self._options.mark_done and crawler is not None and isinstance(seen, TimeBloom):
            if crawler.get_spider_middleware(SpiderMiddleware) is None:
                raise ConfigError(
                    "TBLOOM_MARK",
                    "done",
                    "'scheduled', or tbloom's add-on: ADDONS = {'tbloom.scrapy.Addon': 500}",
                )
            self._in_flight = in_flight[crawler] = InFlight(
                crawler,
                seen,
                self._close_spider,
                take_over=self._options.take_over,
                shared=self._shares_queue,
            )
        if crawler is not None:
            if not isinstance(seen, LocalBloom):  # no call, no trip to be saved
                self._ahead = ahead[crawler] = Ahead(crawler, seen, self._in_flight)
            self._ends_with_spider = True
            # Not with close(): scrapy-redis' scheduler doesn't call it, and what is claimed may be
            # settled later.
            crawler.signals.connect(self._end, signals.spider_closed)
        if self._flush_on_start:  # clear() comes next, and will find out
            return
        try:
            seen.contains(b"tbloom")
            if not isinstance(seen, LocalBloom) and not seen.circuit.is_open:
                self._warn(seen)
        finally:
            self._count_errors()

    def _warn(self, seen: TimeBloom | ExactFilter) -> None:
        """Says what threatens the filter. That can't be asked of every server."""
        with suppress(RedisError):
            for warning in seen.warnings():
                self._count("tbloom/warnings")
                logger.warning("filter %r: %s", seen.name, warning)

    def _ask(self, request: Request) -> Claim:
        if self._options.mark_done and not self._in_flight:
            raise ConfigError("TBLOOM_MARK", "done", "'scheduled', where there is no crawler")
        term = self._options.term
        for other in ({WITHIN, TTL_META} - {term}) & request.meta.keys():
            expected = f"to be left out with TBLOOM_STORE = {self._options.store!r}"
            raise ConfigError(f"meta[{other!r}] of {request}", request.meta[other], expected)
        try:
            if self._in_flight:
                return self._in_flight.claim(request)
            fingerprint = self._fingerprinter.fingerprint(request)
            new = self.seen.add(fingerprint, request.meta.get(term))
        except RedisError:
            self._count_errors()
            self._close_spider()
            raise
        except FilterFull:
            self._close_spider()
            raise
        except ConfigError as error:
            if error.argument not in ("within", "ttl"):
                raise
            argument = f"meta[{term!r}] of {request}"
            raise ConfigError(argument, error.value, error.expected) from None
        return Claim.NEW if new else Claim.SEEN

    def _end(self, reason: str) -> None:
        """The crawl is over. What it has claimed is left to others, unless there should be nothing left."""
        if self._in_flight:
            self._in_flight.settle()
            if reason == "finished":
                self._in_flight.release_all()
        self._count_errors()
        if self._stats:
            hits = self._options.cache_hits
            if hits:
                self._stats.set_value("tbloom/cache_hits", hits)
            self._sum_up(self._stats)
        self._options.close()

    def _sum_up(self, stats: StatsCollector) -> None:
        """What the whole window holds at the end, from this crawl and all others."""
        if self._options.circuit.errors:  # a Redis that is lost is not waited for once more
            return
        with suppress(RedisError, TBloomError):  # nor must it allow us to ask
            info = self.seen.info()
            stats.set_value("tbloom/window/items", info.items)
            stats.set_value("tbloom/window/bytes", info.bytes)
            stats.set_value("tbloom/window/error_rate", info.error_rate)

    def _close_spider(self) -> None:
        """Without this, Scrapy would log the error, lose the request, and end as "finished"."""
        engine = self._crawler and self._crawler.engine
        if engine and "closing" not in self._said:
            self._said.add("closing")
            close = getattr(engine, "close_spider_async", None)  # from Scrapy 2.14 on
            if close:
                deferred_from_coro(close(reason=ERROR_REASON))
            elif engine.spider:
                engine.close_spider(engine.spider, ERROR_REASON)

    def _say(self, what: str, message: str, level: int) -> None:
        """Logs it once in a crawl."""
        if what not in self._said:
            self._said.add(what)
            logger.log(level, message)

    def _count(self, stat: str) -> None:
        if self._stats:
            self._stats.inc_value(stat)

    def _count_errors(self) -> None:
        errors = self._options.circuit.errors
        if self._stats and errors:
            self._stats.set_value("tbloom/errors", errors)
