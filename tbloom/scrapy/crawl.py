"""One crawl: the state that tbloom's components share, the threads that call its store, and its end by an error."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from enum import IntEnum
from functools import cached_property, partial
from typing import Any, TypeVar

from redis import RedisError
from redis.exceptions import RedisClusterException
from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from tbloom.claims.queues import queue_of, unnamed
from tbloom.errors import TBloomError
from tbloom.scrapy.fingerprints import Fingerprints
from tbloom.scrapy.hooks.engine import (
    exit_with_failure,
    in_loop,
    spider_arguments,
    wait_until_closed,
    wake_engine,
)
from tbloom.scrapy.hooks.feeds import open_no_feeds, unopened_feed
from tbloom.scrapy.options import error_line, make_store, server_settings
from tbloom.scrapy.settings import FILTER, SHARE, STORE, Setting
from tbloom.scrapy.stores import PAUSE, AnyStore, Outage

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Errors that a user can mend. (OSError: of a file; RedisClusterException: the cluster does not answer.)
_MENDABLE = (TBloomError, RedisError, RedisClusterException, OSError)
#: The reason with which a spider is closed when its filter fails.
ERROR_REASON = "tbloom_error"
_UNNAMED = (
    "the spider's arguments %s may say something else in each run, as objects and sets do: crawls that differ only in these share their "
    "pages. Give a text, a number, or a list, tuple or dict of these as well to keep crawls apart"
)
_UNKNOWN = (
    "the spider's arguments are not known, because it was made before tbloom was imported: crawls share their pages whatever these are. "
    "In custom_settings, give ADDONS the class in place of its name: from tbloom.scrapy import Addon"
)


class Stage(IntEnum):
    """How far a crawl is. One stage follows the other, also if the crawl ends by an error."""

    #: Its store is not open yet.
    OPENING = 0
    RUNNING = 1
    #: ``start`` is asked for nothing any more. Requests that wait for their answers still enter the queue.
    CLOSING = 2
    #: No request enters the queue. Pages are committed once their items are stored.
    QUEUE_CLOSED = 3
    #: Its threads have ended, and its store is closed.
    CLOSED = 4


class Calls:
    """Makes calls one after the other in a separate thread, so that the event loop does not wait.

    Those of a store that needs no server are made in the event loop (``inline``). While its disk is full, they wait.
    """

    def __init__(self, outage: Outage | None = None, *, inline: bool = False) -> None:
        self._thread = ThreadPoolExecutor(1, "tbloom-calls")  # has no thread before its first call
        self._outage, self._in_loop = outage, in_loop()
        self._room = outage if inline else None
        #: In the event loop: the calls that are not made yet, in order, each with what is called then.
        self._waiting = deque[tuple[Callable[[], Any], Callable[[Future[Any]], object]]]()

    def begin(self, call: Callable[[], T], then: Callable[[Future[T]], object]) -> None:
        """Make a call, which may wait for its server or for room. The event loop calls ``then`` once the call has ended."""
        if self._room:
            self._waiting.append((call, then))
            if len(self._waiting) == 1:
                self._make(self._room)
            return
        made = partial(self._outage.wait_for, call) if self._outage else call
        self._thread.submit(made).add_done_callback(partial(self._in_loop, then))

    def _make(self, room: Outage) -> None:
        while self._waiting:
            call, then = self._waiting[0]
            if (made := room.attempt(call)) is None:
                call_later(PAUSE, self._make, room)
                return
            self._waiting.popleft()
            call_later(0, then, made)

    async def run(self, call: Callable[[], T]) -> T:
        """Await the result of a call. Calls that ``begin`` began earlier have ended by then."""
        done: Deferred[Future[T]] = Deferred()
        self.begin(call, done.callback)
        return (await maybe_deferred_to_future(done)).result()

    async def ended(self) -> None:
        """Return once the calls that were begun earlier have ended."""
        await self.run(int)

    def close(self) -> None:
        """End the thread, once its calls are made."""
        self._thread.shutdown()


class Crawl:
    """A crawl, as tbloom's components know it."""

    #: Its store, whether the store's server is away, and what fingerprints requests; set once the dupefilter is open.
    seen: AnyStore
    outage: Outage
    fingerprints: Fingerprints
    #: One thread asks about links, and one commits pages, so that links don't wait for commits.
    link_calls: Calls
    page_calls: Calls

    def __init__(self, crawler: Crawler) -> None:
        self.crawler: Crawler = crawler
        self.stage: Stage = Stage.OPENING
        #: It ends by an error: no request is asked for any more, or committed or released.
        self.is_ending: bool = False
        #: With the add-on: fires once the store's server has answered, or the crawl is to end.
        self.opened: Deferred[None] | None = None
        #: Its scheduler (``inbox.FilteringScheduler``), if it runs with the add-on.
        self.scheduler: Any = None
        #: Its project, if another project's crawlers were the first ones of the filter: pages are a project's. Otherwise "".
        self.project: str = ""
        #: How often each stat was counted, also where the project keeps no stats.
        self.counts: Counter[str] = Counter()
        self._logged = set[str]()

    @cached_property
    def spider(self) -> Spider:
        """The spider of a running crawl."""
        assert self.crawler.spider is not None  # noqa: S101 - the crawl is running
        return self.crawler.spider

    @cached_property
    def owns_hosts(self) -> bool:
        """Whether one crawler at a time works on pages of a host."""
        return bool(SHARE.value(self.crawler.settings) == "hosts")

    @property
    def is_running(self) -> bool:
        """Whether requests may enter its queue, and leave it."""
        return self.stage < Stage.CLOSING and not self.is_ending

    @cached_property
    def queue(self) -> str:
        """The queue of the spider's left pages: of those that crawls of the project with the same arguments have left."""
        return queue_of(self.spider.name, spider_arguments(self.crawler) or {}, self.project)

    @property
    def warning_of_arguments(self) -> str:
        """What a log says of spider's arguments that the queue's name lacks; "" if it lacks none."""
        if (arguments := spider_arguments(self.crawler)) is None:
            return _UNKNOWN
        return _UNNAMED % ", ".join(names) if (names := unnamed(arguments)) else ""

    def count(self, stat: str, times: int = 1) -> None:
        """Add to one of the crawl's stats, if it has begun."""
        self.counts[stat] += times
        if self.crawler.stats:
            self.crawler.stats.inc_value(stat, times)

    def log_once(self, log: Callable[..., None], message: str, *values: object) -> None:
        """Log the message by a logger's method, unless it was logged before, with whatever values."""
        if message not in self._logged:
            self._logged.add(message)
            log(message, *values)

    def open(self) -> None:
        """Make the store, and begin to ask it."""
        crawler, settings = self.crawler, self.crawler.settings
        needs_server = STORE.value(settings) != "local"
        self.outage = Outage(
            server_settings(settings) if needs_server else FILTER["path"].name,
            FILTER["retry_for"].value(settings),
            lambda: not crawler.crawling,
            partial(in_loop(), self._is_back),
        )
        self.fingerprints = Fingerprints(crawler)
        # Without the add-on, the event loop asks, and does not wait for long. A local store needs no threads.
        outage = None if self.scheduler is None else self.outage
        self.seen = make_store(settings, (crawler.spider or crawler.spidercls).name, outage=outage)
        self.link_calls, self.page_calls = (
            Calls(self.outage, inline=not needs_server) for _ in range(2)
        )
        self.stage = Stage.RUNNING
        crawler.signals.connect(wait_until_closed, signals.engine_stopped)
        crawler.signals.connect(self._feeds_opened, signals.spider_opened)

    def _feeds_opened(self) -> None:
        """End a crawl whose items would go nowhere. This is called after the feed exporter."""
        if not self.is_ending and (feed := unopened_feed(self.crawler)):
            logger.error(
                "The crawl ends: a feed of FEEDS can't be opened, as the log says above: %s", feed
            )
            self.end(before_start=True)

    def _is_back(self) -> None:
        """Go on: the server answers again."""
        self.count("tbloom/outages")
        wake_engine(self.crawler.engine)

    def end(self, *, before_start: bool = False) -> None:
        """End the crawl by an error: after a mere exception, Scrapy would lose the request and end as "finished"."""
        if self.is_ending:
            return
        self.is_ending = True
        # Functions, because Scrapy's signals keep no method alive.
        self.crawler.signals.connect(exit_with_failure, signals.engine_stopped)
        if before_start:
            open_no_feeds(self.crawler)
            self.crawler.signals.connect(_end_before_start, signals.engine_started)
        elif self.crawler.engine and self.crawler.engine.spider:
            closing = self.crawler.engine.close_spider_async(reason=ERROR_REASON)
            deferred_from_coro(closing)

    def fail(self, error: Exception) -> None:
        """End the crawl by an error of the filter."""
        if not self.is_ending:
            is_of_redis = isinstance(error, RedisError)
            said = f"{server_settings(self.crawler.settings)}: {error}" if is_of_redis else error
            is_known = is_of_redis or isinstance(error, TBloomError)
            logger.error("The crawl ends: %s", said, exc_info=None if is_known else error)
        self.end()

    def close(self) -> None:
        """End the threads, and close the store."""
        self.stage = Stage.CLOSED
        self.page_calls.close()
        self.link_calls.close()
        self.seen.close()


def crawl_of(crawler: Crawler) -> Crawl:
    """Return the crawl of a crawler, which holds it."""
    known = vars(crawler)
    crawl: Crawl = known.get("tbloom") or known.setdefault("tbloom", Crawl(crawler))
    return crawl


async def _end_before_start(sender: Any) -> None:
    """Close the crawl before its first request. Scrapy's signals call this with the crawler."""
    await sender.engine.close_spider_async(reason=ERROR_REASON)
    await sender.engine.stop_async()


@contextmanager
def ending_at_an_error(crawler: Crawler, table: Mapping[str, Setting] = FILTER) -> Iterator[None]:
    """Log an error that a user can mend as one line, at the start, and end the crawl before its first request.

    Scrapy would log an exception with tracebacks, one of them of its own ("Scraper slot not assigned"). ``table``: the
    settings of the store.
    """
    is_crawl = crawler.crawling  # a signal may come meanwhile
    try:
        yield
    except _MENDABLE as error:
        if not is_crawl:
            raise
        crawl = crawl_of(crawler)
        if not crawl.is_ending:
            logger.error(error_line(error, crawler.settings, table))
        crawl.end(before_start=True)
