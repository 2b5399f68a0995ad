"""The duplicate filter for Scrapy's and scrapy-redis' schedulers."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING

from redis import RedisError
from scrapy.dupefilters import BaseDupeFilter
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

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """For Scrapy's scheduler."""
        spider = crawler.spider.name if crawler.spider else crawler.spidercls.name
        return cls(crawler.settings, spider, crawler.request_fingerprinter, crawler.stats)

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
        self.seen.client.close()

    def clear(self) -> None:
        """Clears at the start, where SCHEDULER_FLUSH_ON_START asks for it.

        scrapy-redis' scheduler also calls this at the end of each crawl unless SCHEDULER_PERSIST is
        set. A filter that is emptied then can't serve the next crawl, so that call clears nothing.
        """
        if self._flush_on_start:
            self._flush_on_start = False
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
        try:
            fingerprint = self._fingerprinter.fingerprint(request)
            new = self.seen.add(fingerprint, request.meta.get(WITHIN))
        except RedisError as error:
            return self._failed(request, error)
        except ConfigError as error:
            argument = f"meta[{WITHIN!r}] of {request}"
            raise ConfigError(argument, error.value, error.expected) from None
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
        try:
            seen.contains(b"tbloom")
        except RedisError as error:
            if self._options.on_error == "raise":
                raise
            self._say_error(error)

    def _failed(self, request: Request, error: RedisError) -> bool:
        self._count("tbloom/errors")
        if self._options.on_error == "raise":
            raise error
        self._say_error(error)
        drop = self._options.on_error == "drop"
        self._dropped = request if drop else None
        self._count("tbloom/errors/dropped" if drop else "tbloom/errors/scheduled")
        return drop

    def _say_error(self, error: RedisError) -> None:
        what = "dropped" if self._options.on_error == "drop" else "treated as new"
        message = f"Redis does not answer; requests are {what} meanwhile (TBLOOM_ON_ERROR): {error}"
        self._say("error", message, logging.ERROR)

    def _say(self, what: str, message: str, level: int) -> None:
        """Logs it once in a crawl."""
        if what not in self._said:
            self._said.add(what)
            logger.log(level, message)

    def _count(self, stat: str) -> None:
        if self._stats:
            self._stats.inc_value(stat)
