"""What tbloom asks of Scrapy's crawler."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from redis import RedisError
from redis.exceptions import RedisClusterException
from scrapy import signals
from scrapy.utils.defer import deferred_from_coro

from tbloom.engine.urls import without_secrets
from tbloom.errors import ConfigError, ConfigMismatch, ServerTooOld, TBloomError
from tbloom.scrapy.compat import scheduler_of
from tbloom.scrapy.connection import server_settings
from tbloom.scrapy.settings import FILTER, PAGES, STORE, Setting

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

logger: logging.Logger = logging.getLogger(__name__)

#: What a user can mend. (Of a file, and of a cluster that does not answer, the last two.)
_MENDABLE = (TBloomError, RedisError, RedisClusterException, OSError)
#: The reason with which a spider is closed when Redis fails and TBLOOM_ON_ERROR is "raise".
ERROR_REASON = "tbloom_error"
#: The parameters that `tbloom reconfigure` changes.
_CHANGEABLE = {"slices", "capacity", "error_rate"}


def error_line(
    error: Exception, settings: BaseSettings, table: Mapping[str, Setting] = FILTER
) -> str:
    """The error as one line of the log, which begins with a setting and ends with a remedy; ``table``: those of the store."""
    if isinstance(error, ConfigError):
        return str(error)
    is_file = table is PAGES or (table is FILTER and STORE.value(settings) == "local")
    place = table["path" if is_file else "name"].name
    if isinstance(error, ConfigMismatch) and error.differences.keys() <= table.keys():
        return _mismatch_line(error, settings, table, place)
    is_servers = isinstance(error, RedisError | RedisClusterException | ServerTooOld)
    if is_servers and not str(error).startswith("WRONGTYPE"):
        place = server_settings(settings)
    return f"{place}: {error}"  # of a file, of a server, or of another program's data


def _mismatch_line(
    error: ConfigMismatch, settings: BaseSettings, table: Mapping[str, Setting], place: str
) -> str:
    is_sized = any(name.startswith("BLOOMFILTER_") for name in settings)
    # These follow from the others.
    sizes = {"capacity", "error_rate"} if is_sized else {"bits", "hashes"}
    names = [name for name in error.differences if name not in sizes] or error.differences
    differing = {name: error.differences[name] for name in names}
    given = ", ".join(f"{table[name].name} is {own!r}" for name, (_, own) in differing.items())
    stored = ", ".join(f"{theirs!r}" for theirs, _ in differing.values())
    remedy = f"another {place}, or {stored}"
    values = {name: own for name, (_, own) in differing.items() if own is not None}
    if place == FILTER["name"].name and differing.keys() == values.keys() & _CHANGEABLE:
        words = ["tbloom", "reconfigure", error.name]
        for name, own in values.items():
            words += [f"--{name.replace('_', '-')}", str(own)]
        if url := settings.get("REDIS_URL"):
            words += ["--url", without_secrets(url)]
        remedy = f"`{shlex.join(words)}`, {remedy}"
    kind = "filter" if table is FILTER else "one"
    return f"{given}, the stored {kind} has {stored}: {remedy}"


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


#: The crawls that end by an error: no request is asked for any more, or marked or released.
_ending: WeakSet[Crawler] = WeakSet()


def is_ending(crawler: Crawler) -> bool:
    """Whether the crawl ends by an error."""
    return crawler in _ending


def end_crawl(crawler: Crawler) -> None:
    """Ends the crawl by an error. (After a mere exception Scrapy would lose the request and end as "finished".)"""
    if crawler in _ending:
        return
    _ending.add(crawler)
    engine = crawler.engine
    crawler.signals.connect(_note_failure, signals.engine_stopped)
    if engine and engine.spider:
        if scheduler := scheduler_of(engine):
            scheduler.persist = True  # scrapy-redis' would clear the queue of all crawlers
        deferred_from_coro(engine.close_spider_async(reason=ERROR_REASON))


@contextmanager
def ending_at_an_error(
    crawler: Crawler,
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
        if not crawler.crawling:
            raise
        if not is_logged() and crawler not in _ending:
            logger.error(error_line(error, crawler.settings, table))
        _ending.add(crawler)
        # A function, because Scrapy's signals keep no method alive, and call one function once.
        crawler.signals.connect(_end_before_start, signals.engine_started)


def _note_failure(sender: Any) -> None:
    """Scrapy's signals call this with the crawler."""
    sender.spider = None  # `scrapy crawl` takes this for a failure, and exits with 1


async def _end_before_start(sender: Any) -> None:
    """Scrapy's signals call this with the crawler."""
    engine = sender.engine
    scheduler_of(engine).persist = True  # scrapy-redis' would clear the queue of all crawlers
    await engine.close_spider_async(reason=ERROR_REASON)
    await engine.stop_async()
    _note_failure(sender)


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
