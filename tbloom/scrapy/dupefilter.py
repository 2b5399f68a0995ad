"""The duplicate filter for Scrapy's and scrapy-redis' schedulers."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from redis import RedisError
from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.request import RequestFingerprinter, referer_str

from tbloom.errors import ConfigError
from tbloom.scrapy import options

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings
    from scrapy.statscollectors import StatsCollector
    from scrapy.utils.request import RequestFingerprinterProtocol
    from typing_extensions import Self

    from tbloom.sync import TimeBloom

logger = logging.getLogger(__name__)

WITHIN = "tbloom_within"
#: After an error, requests are answered by TBLOOM_ON_ERROR for so long before Redis is asked again:
#: each try may block the reactor for seconds.
HOLD_OFF_SECONDS = 10
#: The reason with which a spider is closed when Redis fails and TBLOOM_ON_ERROR is "raise".
ERROR_REASON = "tbloom_error"


class DupeFilter(BaseDupeFilter):
    """Filters requests that any crawler has asked for within the window.

    What it remembers outlives the crawl: Redis forgets it slice by slice.
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
        self._hold_off_until = 0.0
        self._crawler: Crawler | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """For Scrapy's scheduler."""
        spider = crawler.spider.name if crawler.spider else crawler.spidercls.name
        dupefilter = cls(crawler.settings, spider, crawler.request_fingerprinter, crawler.stats)
        dupefilter._crawler = crawler
        return dupefilter

    @classmethod
    def from_spider(cls, spider: Spider) -> Self:
        """For scrapy-redis' scheduler, which calls neither ``open`` nor ``close``."""
        dupefilter = cls.from_crawler(spider.crawler)
        dupefilter._check()  # noqa: SLF001 - our own
        return dupefilter

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> Self:
        """For whoever has no crawler: TBLOOM_KEY must then do without the spider's name."""
        return cls(settings, None, RequestFingerprinter())

    @cached_property
    def _options(self) -> options.Options:
        # Read by open(), not in from_crawler: an error there Scrapy hides behind one of its own.
        return options.read(self._settings, self._spider)

    @property
    def seen(self) -> TimeBloom:
        """The filter."""
        return self._options.seen

    def open(self) -> None:
        """Called by Scrapy's scheduler at the start. Raises ConfigError that names the setting."""
        self._check()
        if self._flush_on_start:
            self.clear()

    def close(self, reason: str = "") -> None:  # noqa: ARG002 - Scrapy's signature
        """Called by Scrapy's scheduler at the end: closes the connection, keeps the data."""
        if "_options" in self.__dict__:  # else there was an error before there was a client
            self.seen.client.close()

    def clear(self) -> None:
        """Clears at the start, where SCHEDULER_FLUSH_ON_START asks for it.

        scrapy-redis' scheduler also calls this at the end of each crawl unless SCHEDULER_PERSIST is
        set. A filter that is emptied then can't serve the next crawl, so that call clears nothing.
        """
        if self._flush_on_start:
            self._flush_on_start = False
            with self._errors_by_policy():
                self.seen.clear()
        else:
            self._say(
                "kept",
                f"Keeping what filter {self.seen.name!r} has seen for the next crawl; "
                "SCHEDULER_FLUSH_ON_START = True forgets it",
                logging.INFO,
            )

    def request_seen(self, request: Request) -> bool:
        """Has the request been seen within the window? If not, it has from now on.

        ``meta={"tbloom_within": n}`` asks for the newest n slices only.
        """
        fingerprint = self._fingerprinter.fingerprint(request)
        within = request.meta.get(WITHIN)
        new = None
        if time.monotonic() >= self._hold_off_until:
            try:
                with self._errors_by_policy():
                    new = self.seen.add(fingerprint, within)
            except RedisError:
                self._close_spider()
                raise
            except ConfigError as error:
                argument = f"meta[{WITHIN!r}] of {request}"
                raise ConfigError(argument, error.value, error.expected) from None
        if new is None:
            return self._answer_without_redis(request)
        self._count("tbloom/new" if new else "tbloom/seen")
        return not new

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
        seen = self.seen
        if self._flush_on_start:  # clear() comes next, and will find out
            return
        with self._errors_by_policy():
            seen.contains(b"tbloom")

    @contextmanager
    def _errors_by_policy(self) -> Iterator[None]:
        """Lets Redis' errors through only where TBLOOM_ON_ERROR is "raise"."""
        try:
            yield
        except RedisError as error:
            self._count("tbloom/errors")
            if self._options.on_error == "raise":
                raise
            what = "dropped" if self._options.on_error == "drop" else "treated as new"
            message = f"Redis does not answer; requests are {what} meanwhile (TBLOOM_ON_ERROR)"
            self._say("error", f"{message}: {error}", logging.ERROR)
            self._hold_off_until = time.monotonic() + HOLD_OFF_SECONDS

    def _answer_without_redis(self, request: Request) -> bool:
        drop = self._options.on_error == "drop"
        self._dropped = request if drop else None
        self._count("tbloom/errors/dropped" if drop else "tbloom/errors/scheduled")
        return drop

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
