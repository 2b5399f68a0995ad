"""Distinct URLs and hosts of a fleet, in Scrapy's stats: ``EXTENSIONS = {"tbloom.scrapy.DistinctCounts": 500}``."""

from __future__ import annotations

import asyncio
import logging
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError
from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.asyncio import is_asyncio_available
from twisted.internet.threads import deferToThread
from w3lib.url import canonicalize_url

from tbloom.errors import ConfigError, ConfigMismatch, MappingFull, ServerTooOld
from tbloom.scrapy.connection import params_error
from tbloom.scrapy.counts.counters import KINDS, Counters
from tbloom.scrapy.crawler import CrawlEnd, OnceLogger, is_trial
from tbloom.scrapy.settings import COUNTS

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from typing_extensions import Self

logger = logging.getLogger(__name__)

#: Redis is asked this often (seconds), or when this many members of a kind are pending.
_PAUSE, _ENOUGH = 1.0, 500
#: Limit for the pending members of a kind while Redis does not answer; further ones are not counted.
MAX_PENDING = 10_000
#: Redis' replies that will be the same later.
_REFUSALS = (AuthenticationError, AuthorizationError, NoPermissionError)

_UNREACHABLE = (
    "Distinct URLs and hosts can't be counted now; the crawl goes on, and up to "
    f"{MAX_PENDING} of each are kept for later: %s"
)
_FULL = (
    "New URLs and hosts are not counted any more (TBLOOM_COUNT_MAX_MEMBERS); the crawl goes on: %s"
)

#: Distinct members by kind, in order.
Pending = dict[str, dict[bytes, None]]


class DistinctCounts:
    """Counts the distinct URLs and hosts of the responses, together with all crawlers of the same counters.

    A thread sends to Redis what is pending; the reactor waits for Redis only at the start. If Redis does
    not answer, the start and the end take as long as ``retry_for``.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._counters = Counters(crawler.settings, (crawler.spider or crawler.spidercls).name)
        self._thread = Thread(target=self._send_until_closing, name="tbloom-counts", daemon=True)
        self._enough, self._closing = Event(), Event()
        #: Guards the next two.
        self._lock = Lock()
        self._pending = _nothing()
        self._lost = dict.fromkeys(KINDS, 0)
        #: Only the thread uses the rest, until it has ended.
        self._stats: dict[str, int] = dict.fromkeys((f"{kind}/new" for kind in KINDS), 0)
        self._has_given_up = False
        self._once = OnceLogger(logger)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Scrapy's constructor. A wrong setting, or counters with other parameters, ends the crawl at the start."""
        if is_trial(crawler):
            raise NotConfigured
        with CrawlEnd(crawler).ending_at_an_error(COUNTS):
            counts = cls(crawler)
            counts._check()
            crawler.signals.connect(counts.response_received, signals.response_received)
            crawler.signals.connect(counts.spider_closed, signals.spider_closed)
            return counts
        raise NotConfigured

    def response_received(self, response: Response, request: Request) -> None:
        """Gathers the URL and the host, except for a component's request, as for robots.txt."""
        if request.callback is NO_CALLBACK:
            return
        for kind, member in zip(KINDS, _members(response.url), strict=True):
            self._gather(kind, member)
        if not self._thread.ident:
            self._thread.start()

    async def spider_closed(self) -> None:
        """Sends the rest to Redis, and sets the stats before Scrapy prints them."""
        if is_asyncio_available():
            await asyncio.to_thread(self._end)
        else:
            await deferToThread(self._end)
        if any(self._lost.values()):
            message = "Up to %d URLs and %d hosts of this crawl are not counted"
            logger.warning(message, *self._lost.values())
        stats = self._crawler.stats
        if stats:
            lost = {f"{kind}/lost": number for kind, number in self._lost.items()}
            for name, value in {**self._stats, **lost}.items():
                if value:
                    stats.set_value(f"tbloom/distinct/{name}", value)

    def _check(self) -> None:
        """Raises now if the stored counters have other parameters, or Redis refuses; it may be down."""
        try:
            self._counters.counts(within=1)
        except TypeError as error:  # redis-py's connections lack a parameter
            raise params_error(self._crawler.settings, error) from None
        except (ConfigError, ConfigMismatch, ServerTooOld, *_REFUSALS):
            raise
        except Exception as error:  # noqa: BLE001 - redis-py's of a cluster is no RedisError
            self._warn(_UNREACHABLE, error)

    def _gather(self, kind: str, member: bytes | None) -> None:
        with self._lock:
            pending = self._pending[kind]
            if member == b"" or member in pending:
                return
            if member is None or len(pending) >= MAX_PENDING:
                self._lost[kind] += 1
                return
            pending[member] = None
            if len(pending) == _ENOUGH:
                self._enough.set()

    def _send_until_closing(self) -> None:
        while not self._closing.is_set():
            self._enough.wait(_PAUSE)
            self._enough.clear()
            if self._closing.is_set():
                return
            if not self._send():
                self._has_given_up = self._closing.is_set()
                self._closing.wait(_PAUSE)

    def _send(self) -> bool:
        """Counts the pending members. Returns False if Redis does not answer; they stay pending."""
        with self._lock:
            batch, self._pending = self._pending, _nothing()
        try:
            for kind, members in batch.items():
                if members:
                    self._count(kind, members)
        except Exception as error:  # noqa: BLE001 - the crawl goes on after any error
            self._warn(_UNREACHABLE, error)
            self._put_back(batch)
            return False
        return True

    def _count(self, kind: str, members: dict[bytes, None]) -> None:
        """Removes the members that are counted, or lost because the mapping is full."""
        counter = self._counters.by_kind[kind]
        try:
            self._stats[f"{kind}/new"] += sum(counter.add_many(members))
            members.clear()
        except MappingFull as error:
            self._warn(_FULL, error)
        for member in [*members]:  # members with an id are counted all the same
            try:
                self._stats[f"{kind}/new"] += counter.add(member)
            except MappingFull:
                with self._lock:
                    self._lost[kind] += 1
            del members[member]

    def _put_back(self, batch: Pending) -> None:
        with self._lock:
            for kind, members in batch.items():
                pending = [*(members | self._pending[kind])]
                self._lost[kind] += len(pending[MAX_PENDING:])
                self._pending[kind] = dict.fromkeys(pending[:MAX_PENDING])

    def _end(self) -> None:
        self._closing.set()
        self._enough.set()
        if self._thread.ident:
            self._thread.join()
        if not self._has_given_up and self._send():
            try:
                self._stats |= self._counters.counts(within=1)
                window = self._counters.counts()
                self._stats |= {f"{kind}/window": count for kind, count in window.items()}
            except Exception as error:  # noqa: BLE001 - the crawl ends after any error
                self._warn(_UNREACHABLE, error)
        with self._lock:
            for kind, members in self._pending.items():
                self._lost[kind] += len(members)
        self._counters.close()

    def _warn(self, message: str, error: object) -> None:
        self._once.log(logging.WARNING, message, error)


def _nothing() -> Pending:
    return {kind: {} for kind in KINDS}


def _members(url: str) -> tuple[bytes | None, bytes]:
    """The canonical URL, or None if it can't be a URL; and its host, or ``b""`` if it has none."""
    try:
        canonical = canonicalize_url(url)
        return canonical.encode(), (urlsplit(canonical).hostname or "").encode()
    except ValueError:
        return None, b""
