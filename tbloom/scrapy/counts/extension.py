"""Distinct URLs and hosts of a fleet, in Scrapy's stats: ``EXTENSIONS = {"tbloom.scrapy.DistinctCounts": 500}``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError
from scrapy import signals
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.asyncio import is_asyncio_available
from twisted.internet.threads import deferToThread
from w3lib.url import canonicalize_url

from tbloom.distinct import DistinctCounter
from tbloom.distinct.config import CounterConfig
from tbloom.engine.keys import check_name
from tbloom.errors import ConfigError, ConfigMismatch, MappingFull, ServerTooOld
from tbloom.scrapy import settings as options
from tbloom.scrapy.connection import make_client, params_error

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings
    from typing_extensions import Self

logger = logging.getLogger(__name__)

KINDS = ("urls", "hosts")
#: The settings that the counters' arguments come from, and what they are if not set.
_NAMES: dict[str, tuple[str, Any]] = {
    "name": ("TBLOOM_COUNT_KEY", "%(spider)s"),
    "mapping": ("TBLOOM_COUNT_MAPPING", None),
    "granularity": ("TBLOOM_COUNT_GRANULARITY", "d"),
    "slices": ("TBLOOM_COUNT_SLICES", 30),
    "tz": ("TBLOOM_TIMEZONE", "UTC"),
    "max_members": ("TBLOOM_COUNT_MAX_MEMBERS", None),
    "retry_for": ("TBLOOM_RETRY_FOR", None),
}
_NUMBERS = {"slices": int, "max_members": int, "retry_for": float}
#: The arguments that clients of the same counter may differ in.
_OWN = {"max_members", "retry_for"}
#: Redis is told after so many seconds, or once so many of a kind wait.
_PAUSE, _ENOUGH = 1.0, 500
#: So many of a kind wait while Redis does not answer; those that follow are lost.
MOST_WAITING = 10_000
#: What Redis says to those that it will not serve later either.
_REFUSALS = (AuthenticationError, AuthorizationError, NoPermissionError)

_AWAY = (
    "Distinct URLs and hosts can't be counted now; the crawl goes on, and up to "
    f"{MOST_WAITING} of each wait: %s"
)
_FULL = (
    "New URLs and hosts are not counted any more (TBLOOM_COUNT_MAX_MEMBERS); the crawl goes on: %s"
)

#: Distinct members by kind, in order.
Waiting = dict[str, dict[bytes, None]]


class DistinctCounts:
    """Counts the distinct URLs and hosts of the responses, together with all crawlers of the same counters.

    But for one look at the start, the reactor does not wait for Redis: a thread tells it what is gathered. Where Redis
    does not answer, the start and the end take as long as the retry_for.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._counters = _Counters(crawler.settings, (crawler.spider or crawler.spidercls).name)
        self._thread = Thread(target=self._tell_until_closing, name="tbloom-counts", daemon=True)
        self._enough, self._closing = Event(), Event()
        #: For the two that follow.
        self._lock = Lock()
        self._waiting = _nothing()
        self._lost = dict.fromkeys(KINDS, 0)
        #: The rest is the thread's, until it has ended.
        self._stats: dict[str, int] = dict.fromkeys((f"{kind}/new" for kind in KINDS), 0)
        self._has_given_up = False
        self._warned: set[str] = set()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Scrapy's constructor. Raises ConfigError that names the setting, or ConfigMismatch."""
        counts = cls(crawler)
        counts._look()
        crawler.signals.connect(counts.response_received, signals.response_received)
        crawler.signals.connect(counts.spider_closed, signals.spider_closed)
        return counts

    def response_received(self, response: Response, request: Request) -> None:
        """Gathers the URL and the host, unless a component asked for them, as for robots.txt."""
        if request.callback is NO_CALLBACK:
            return
        for kind, member in zip(KINDS, _members(response.url), strict=True):
            self._gather(kind, member)
        if not self._thread.ident:
            self._thread.start()

    async def spider_closed(self) -> None:
        """Tells Redis the rest, and sets the stats, before Scrapy prints them."""
        if is_asyncio_available():
            await asyncio.to_thread(self._end)
        else:
            await deferToThread(self._end)
        if any(self._lost.values()):
            logger.warning(
                "Of this crawl, up to %d URLs and %d hosts are not counted", *self._lost.values()
            )
        stats = self._crawler.stats
        if stats:
            lost = {f"{kind}/lost": number for kind, number in self._lost.items()}
            for name, value in {**self._stats, **lost}.items():
                if value:
                    stats.set_value(f"tbloom/distinct/{name}", value)

    def _look(self) -> None:
        """Raises now where the counters are stored with other parameters, or Redis won't have us; it need not be there."""
        try:
            self._counters.counts(within=1)
        except ConfigMismatch:
            logger.error("TBLOOM_COUNT_* and TBLOOM_TIMEZONE describe %s", self._counters)
            raise
        except TypeError as error:  # what redis-py's connections lack
            raise params_error(self._crawler.settings, error) from None
        except (ConfigError, ServerTooOld, *_REFUSALS):
            raise
        except Exception as error:  # noqa: BLE001 - redis-py's of a cluster is no RedisError
            self._warn(_AWAY, error)

    def _gather(self, kind: str, member: bytes | None) -> None:
        with self._lock:
            waiting = self._waiting[kind]
            if member == b"" or member in waiting:
                return
            if member is None or len(waiting) >= MOST_WAITING:
                self._lost[kind] += 1
                return
            waiting[member] = None
            if len(waiting) == _ENOUGH:
                self._enough.set()

    def _tell_until_closing(self) -> None:
        while not self._closing.is_set():
            self._enough.wait(_PAUSE)
            self._enough.clear()
            if self._closing.is_set():
                return
            if not self._tell():
                self._has_given_up = self._closing.is_set()
                self._closing.wait(_PAUSE)

    def _tell(self) -> bool:
        """Counts those that wait. False: Redis does not answer, and they wait on."""
        with self._lock:
            told, self._waiting = self._waiting, _nothing()
        try:
            for kind, members in told.items():
                if members:
                    self._count(kind, members)
        except Exception as error:  # noqa: BLE001 - whatever it is, the crawl goes on
            self._warn(_AWAY, error)
            self._put_back(told)
            return False
        return True

    def _count(self, kind: str, members: dict[bytes, None]) -> None:
        """Takes those out that are counted, or lost."""
        counter = self._counters.of[kind]
        try:
            self._stats[f"{kind}/new"] += sum(counter.add_many(members))
            members.clear()
        except MappingFull as error:
            self._warn(_FULL, error)
        for member in [*members]:  # those with a number are counted all the same
            try:
                self._stats[f"{kind}/new"] += counter.add(member)
            except MappingFull:
                with self._lock:
                    self._lost[kind] += 1
            del members[member]

    def _put_back(self, told: Waiting) -> None:
        with self._lock:
            for kind, members in told.items():
                waiting = [*(members | self._waiting[kind])]
                self._lost[kind] += len(waiting[MOST_WAITING:])
                self._waiting[kind] = dict.fromkeys(waiting[:MOST_WAITING])

    def _end(self) -> None:
        self._closing.set()
        self._enough.set()
        if self._thread.ident:
            self._thread.join()
        if not self._has_given_up and self._tell():
            try:
                self._stats |= self._counters.counts(within=1)
                window = self._counters.counts()
                self._stats |= {f"{kind}/window": count for kind, count in window.items()}
            except Exception as error:  # noqa: BLE001
                self._warn(_AWAY, error)
        with self._lock:
            for kind, members in self._waiting.items():
                self._lost[kind] += len(members)
        self._counters.close()

    def _warn(self, sentence: str, error: object) -> None:
        """Once in a crawl."""
        if sentence not in self._warned:
            self._warned.add(sentence)
            logger.warning(sentence, error)


class _Counters:
    """Those that the settings describe, by kind."""

    def __init__(self, settings: BaseSettings, spider: str) -> None:
        self._settings = settings
        options.check_names(settings)
        with _naming_settings():
            self._arguments = _arguments(settings, spider)
            self._key = check_name(self._arguments.pop("name"))
            CounterConfig(self._key, **{k: v for k, v in self._arguments.items() if k not in _OWN})

    def __str__(self) -> str:
        mapping = self._arguments["mapping"]
        names = " and ".join(repr(f"{self._key}:{kind}") for kind in KINDS)
        return f"the counters {names} of the mapping {mapping!r}"

    @cached_property
    def of(self) -> dict[str, DistinctCounter]:
        """Made when they are first needed: the client of a cluster calls it at once."""
        client, retry_for = make_client(self._settings)
        with _naming_settings():
            return {
                kind: DistinctCounter(
                    client, f"{self._key}:{kind}", **{**retry_for, **self._arguments}
                )
                for kind in KINDS
            }

    def counts(self, within: int | None = None) -> dict[str, int]:
        """How many distinct members each has, in its newest slices."""
        return {kind: counter.count(within) for kind, counter in self.of.items()}

    def close(self) -> None:
        """Closes their client, if there is one."""
        if "of" in self.__dict__:
            self.of[KINDS[0]].client.close()


@contextmanager
def _naming_settings() -> Iterator[None]:
    """Has a ConfigError name the setting, not the argument."""
    try:
        yield
    except ConfigError as error:
        known = {**_NAMES, "client": ("REDIS_PARAMS", None)}
        setting, _ = known.get(error.argument, (error.argument, None))
        raise ConfigError(setting, error.value, error.expected) from None


def _arguments(settings: BaseSettings, spider: str) -> dict[str, Any]:
    found = dict[str, Any]()
    for argument, (setting, default) in _NAMES.items():
        value = settings.get(setting)
        if value is None:
            value = default
        elif argument in _NUMBERS:
            value = options.number(settings, setting, _NUMBERS[argument])
        if argument == "mapping" and value is None:
            value = f"{found['name']}:ids"
        elif argument in ("name", "mapping"):
            value = options.named(setting, value, spider)
        if value is not None:
            found[argument] = value
    return found


def _nothing() -> Waiting:
    return {kind: {} for kind in KINDS}


def _members(url: str) -> tuple[bytes | None, bytes]:
    """The URL as Scrapy's fingerprints have it, or None where it can't be one; and its host, if it has one."""
    try:
        canonical = canonicalize_url(url)
        return canonical.encode(), (urlsplit(canonical).hostname or "").encode()
    except ValueError:
        return None, b""
