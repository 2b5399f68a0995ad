"""What tbloom asks of Scrapy's crawler."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from redis import RedisError
from redis.exceptions import RedisClusterException
from scrapy import signals
from scrapy.utils.defer import deferred_from_coro

from tbloom.errors import ConfigError, ConfigMismatch, TBloomError
from tbloom.scrapy.settings import FILTER, PAGES, Setting

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

#: What a user can mend. (Of a file, and of a cluster that does not answer, the last two.)
_MENDABLE = (TBloomError, RedisError, RedisClusterException, OSError)
#: The reason with which a spider is closed when Redis fails and TBLOOM_ON_ERROR is "raise".
ERROR_REASON = "tbloom_error"


def error_line(error: Exception, table: Mapping[str, Setting] = FILTER) -> str:
    """The error as one line of the log, which begins with the name of a setting; ``table``: those of the store."""
    if isinstance(error, ConfigMismatch):
        names = [table[name].name for name in error.differences if name in table]
        names = [name for name in names if not name.startswith("BLOOMFILTER")] or names
        return f"{', '.join(names) or table['name'].name}: {error}"
    if isinstance(error, RedisError | RedisClusterException):
        return f"Redis: {error}"
    if isinstance(error, ConfigError):
        return str(error)
    is_file = isinstance(error, OSError) or table is PAGES
    return f"{table['path' if is_file else 'name'].name}: {error}"


def is_trial(crawler: Crawler) -> bool:
    """True under ``scrapy shell``, ``parse``, ``fetch`` and ``check``, which try a spider, and leave no trace on Redis.

    The shell makes a crawler that does not crawl, the others give the spider another start.
    """
    return not crawler.crawling or crawler.spidercls.start.__module__.startswith("scrapy.commands.")


def spider_of(crawler: Crawler) -> Spider:
    """The spider of a running crawl."""
    assert crawler.spider is not None  # noqa: S101 - the crawl is running
    return crawler.spider


def fingerprint(crawler: Crawler, request: Request) -> bytes:
    """The request's fingerprint in a running crawl."""
    assert crawler.request_fingerprinter is not None  # noqa: S101 - the crawl is running
    return crawler.request_fingerprinter.fingerprint(request)


def count(crawler: Crawler, stat: str, times: int = 1) -> None:
    """Adds to one of the crawl's stats, if it has begun."""
    if crawler.stats:
        crawler.stats.inc_value(stat, times)


#: The crawls that end before their first request.
_ending: WeakSet[Crawler] = WeakSet()


class CrawlEnd:
    """The end of a crawl by an error. (After a mere exception Scrapy would lose the request and end as "finished".)"""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        #: True if the crawl ends: no request is asked for any more, or marked or released.
        self.has_begun = False

    def begin(self) -> None:
        """Ends the crawl."""
        if self.has_begun:
            return
        self.has_begun = True
        engine = self._crawler.engine
        self._crawler.signals.connect(_note_failure, signals.engine_stopped)
        if engine and engine.spider:
            deferred_from_coro(engine.close_spider_async(reason=ERROR_REASON))

    @contextmanager
    def ending_at_an_error(
        self,
        table: Mapping[str, Setting] = FILTER,
        *,
        is_logged: Callable[[], bool] = lambda: False,
    ) -> Iterator[None]:
        """Within it, at the start, an error that a user can mend is one line in the log, and ends the crawl before its first request.

        Scrapy would log an exception with tracebacks, one of them of its own ("Scraper slot not assigned"). ``table``: the
        settings of the store; ``is_logged``: the log has the error already.
        """
        try:
            yield
        except _MENDABLE as error:
            if not self._crawler.crawling:
                raise
            if not is_logged() and self._crawler not in _ending:
                logger.error(error_line(error, table))
            self.has_begun = True
            _ending.add(self._crawler)
            # A function, because Scrapy's signals keep no method alive, and call one function once.
            self._crawler.signals.connect(_end_before_start, signals.engine_started)


def _note_failure(sender: Any) -> None:
    """Scrapy's signals call this with the crawler."""
    sender.spider = None  # `scrapy crawl` takes this for a failure, and exits with 1


async def _end_before_start(sender: Any) -> None:
    """Scrapy's signals call this with the crawler."""
    engine = sender.engine
    # scrapy-redis' scheduler would clear the queue of all crawlers. (Scrapy 2.14 has no public name for it.)
    engine._slot.scheduler.persist = True  # noqa: SLF001
    await engine.close_spider_async(reason=ERROR_REASON)
    await engine.stop_async()
    _note_failure(sender)


def ends_before_start(crawler: Crawler) -> bool:
    """Whether an error has ended the crawl before its first request."""
    return crawler in _ending


class OnceLogger:
    """Logs each message once in a crawl, whatever its values are."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._logged: set[str] = set()

    def log(self, level: int, message: str, *values: object, **options: Any) -> None:
        """Logs the message, as ``Logger.log`` does, unless it was logged before."""
        if message not in self._logged:
            self._logged.add(message)
            self._logger.log(level, message, *values, **options)
