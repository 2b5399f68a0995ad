"""Distinct URLs and hosts of a fleet, in Scrapy's stats: ``EXTENSIONS = {"tbloom.scrapy.DistinctCounts": 500}``."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from concurrent.futures import Future
from functools import partial
from typing import Any, Self
from urllib.parse import urlsplit

from redis.exceptions import RedisClusterException, RedisError
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK
from scrapy.settings import BaseSettings
from scrapy.utils.asyncio import create_looping_call
from w3lib.url import canonicalize_url

from tbloom.distinct import DistinctCounter
from tbloom.engine.keys import check_name
from tbloom.engine.retries import is_outage
from tbloom.errors import TBloomError
from tbloom.scrapy.crawl import Calls, crawl_of, ending_at_an_error
from tbloom.scrapy.hooks.engine import is_trial, wait_until_closed
from tbloom.scrapy.options import make_client, naming_redis
from tbloom.scrapy.settings import COUNTS, arguments, check_settings, expand, naming_settings

logger: logging.Logger = logging.getLogger(__name__)

KINDS = ("urls", "hosts")
_DEFAULTS = {"name": "%(spider)s", "tz": "UTC"}
#: Members are sent to Redis this often (seconds).
_PAUSE = 1.0
_FAILED = "Distinct URLs and hosts can't be counted now; the crawl goes on: %s"


def make_counters(settings: BaseSettings, spider: str) -> dict[str, DistinctCounter]:
    """Make a counter for each kind. Raise ConfigError that names the setting, if one can't be right."""
    check_settings(settings)
    found: dict[str, Any] = {**_DEFAULTS, **arguments(settings, COUNTS)}
    name = expand(COUNTS["name"], found.pop("name"), spider=spider)
    client, retry_for = make_client(settings)
    with naming_settings(COUNTS):
        ids = f"{check_name(name)}:ids"
        given = {**retry_for, **found, "granularity": "d", "slices": 30}
        return {kind: DistinctCounter(client, f"{name}:{kind}", ids, **given) for kind in KINDS}


class DistinctCounts:
    """Counts the distinct URLs and hosts of the responses, together with all crawlers of the same counters.

    A thread sends to Redis what is pending; the event loop waits for Redis only at the start. If Redis does
    not answer, the start and the end take as long as ``retry_for``.
    """

    __module__ = "tbloom.scrapy"

    def __init__(self, crawler: Crawler) -> None:
        self._crawl = crawl_of(crawler)
        spider = (crawler.spider or crawler.spidercls).name
        self._counters = make_counters(crawler.settings, spider)
        #: Distinct members by kind, in order.
        self._pending = defaultdict[str, dict[bytes, None]](dict)
        #: The stats, by the ends of their names.
        self._stats: Counter[str] = Counter()
        self._calls, self._is_sending = Calls(), False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Make the extension. A wrong setting, or counters with other parameters, ends the crawl at the start."""
        if is_trial(crawler):
            raise NotConfigured
        with ending_at_an_error(crawler, COUNTS):
            counts = cls(crawler)
            with naming_redis(crawler.settings):
                counts._check()
            crawler.signals.connect(counts.spider_opened, signals.spider_opened)
            crawler.signals.connect(counts.response_received, signals.response_received)
            crawler.signals.connect(counts.spider_closed, signals.spider_closed)
            crawler.signals.connect(wait_until_closed, signals.engine_stopped)
            return counts
        raise NotConfigured

    def spider_opened(self) -> None:
        """Begin to send."""
        self._timer = create_looping_call(self._send)
        self._timer.start(_PAUSE, now=False)

    def response_received(self, response: Response, request: Request) -> None:
        """Gather the URL and the host, except for a component's request, as for robots.txt."""
        if request.callback is NO_CALLBACK:
            return
        try:
            url = canonicalize_url(response.url)
            members = url.encode(), (urlsplit(url).hostname or "").encode()
        except ValueError:  # it can't be a URL
            self._stats["urls/lost"] += 1
            return
        for kind, member in zip(KINDS, members, strict=True):
            if member:  # some URLs have no host
                self._pending[kind][member] = None

    async def spider_closed(self) -> None:
        """Send the rest to Redis, and set the stats before Scrapy prints them."""
        self._timer.stop()
        await self._calls.run(self._end)
        self._calls.close()
        lost = [self._stats[f"{kind}/lost"] for kind in KINDS]
        if any(lost):
            logger.warning("Up to %d URLs and %d hosts of this crawl are not counted", *lost)
        for name, number in self._stats.items():
            if number:
                self._crawl.count(f"tbloom/distinct/{name}", number)

    def _check(self) -> None:
        """Raise now if the stored counters have other parameters, or Redis refuses; it may be down."""
        try:
            for counter in self._counters.values():
                counter.count(within=1)
        except (RedisError, RedisClusterException) as error:
            if not is_outage(error):
                raise
            self._crawl.log_once(logger.warning, _FAILED, error)

    def _send(self) -> None:
        """Send what is pending, unless the thread still waits for Redis."""
        if not self._is_sending:
            self._is_sending = True
            batch, self._pending = self._pending, defaultdict(dict)
            self._calls.begin(partial(self._count, batch), self._sent)

    def _sent(self, _: Future[None]) -> None:
        self._is_sending = False

    def _count(self, batch: dict[str, dict[bytes, None]]) -> None:
        """Count the members."""
        for kind, members in batch.items():
            try:
                self._stats[f"{kind}/new"] += sum(self._counters[kind].add_many(members))
            except Exception as error:  # noqa: BLE001 - the crawl goes on after any error
                self._stats[f"{kind}/lost"] += len(members)
                self._crawl.log_once(logger.warning, _FAILED, error)

    def _end(self) -> None:
        """Count the rest, and ask what the counters say."""
        self._count(self._pending)
        try:
            for kind, counter in self._counters.items():
                if not self._stats[f"{kind}/lost"]:  # else don't wait for Redis once more
                    self._stats[kind] = counter.count(1)
                    self._stats[f"{kind}/window"] = counter.count()
        except (RedisError, RedisClusterException, TBloomError) as error:
            self._crawl.log_once(logger.warning, _FAILED, error)
        self._counters[KINDS[0]].client.close()
