"""``TBLOOM_SHADOW``: an exact dupefilter decides; tbloom's filter is asked too, and the answers are compared."""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Callable

from redis import RedisError
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.misc import build_from_crawler, load_object
from twisted.internet.defer import Deferred

from tbloom.errors import ConfigError, TBloomError
from tbloom.scrapy.crawler import (
    OnceLogger,
    count,
    ending_at_an_error,
    fingerprint,
    spider_of,
    state_of,
)
from tbloom.scrapy.options import read_options
from tbloom.scrapy.outage import CrawlBloom
from tbloom.scrapy.settings import SHADOW, WITHIN

logger: logging.Logger = logging.getLogger(__name__)

_SCRAPYS = "scrapy.dupefilters.RFPDupeFilter"
_SCRAPY_REDIS = "scrapy_redis.dupefilter.RFPDupeFilter"
#: Limit for the logged disagreements of each kind.
_MAX_SHOWN = 10
_MEANING = {
    "lost": "is new, but tbloom calls it seen, and would have lost it",
    "again": "was seen, but tbloom calls it new, and would have fetched it again",
}


class ShadowDupeFilter(BaseDupeFilter):
    """The exact dupefilter as far as the scheduler knows; tbloom's filter runs in its shadow.

    No error of tbloom's Redis reaches the crawl. ``ours`` is the class that is not exact.
    """

    _exact: BaseDupeFilter
    seen: CrawlBloom

    def __init__(self, crawler: Crawler, ours: type[BaseDupeFilter], *, shares_queue: bool) -> None:
        self._crawler, self._settings = crawler, crawler.settings
        self._ours, self._shares_queue = ours, shares_queue
        self._is_in_memory = not shares_queue and not self._settings.get("JOBDIR")
        #: The number of disagreements of each kind.
        self._differ: Counter[str] = Counter()
        self._once = OnceLogger(logger)

    # Scrapy hides an error in from_crawler behind one of its own.
    def open(self) -> Deferred[None] | None:
        """Ends the crawl now by what a wrong setting would raise later; Redis may be down."""
        if self._is_ending:  # by a mistake in another component's settings
            return None
        with ending_at_an_error(self._crawler):
            kind = self._exact_kind()
            self.seen = self._make_filter()
            if self._shares_queue and hasattr(
                kind, "from_spider"
            ):  # as scrapy-redis' scheduler does
                self._exact = kind.from_spider(spider_of(self._crawler))
            else:
                self._exact = build_from_crawler(kind, self._crawler)
            self._crawler.signals.connect(self._end, signals.spider_closed)
            message = "filter %r is only tried, beside %s.%s"
            logger.info(message, self.seen.name, kind.__module__, kind.__qualname__)
        return None if self._is_ending else self._exact.open()

    def close(self, reason: str = "") -> Deferred[None] | None:
        """Scrapy's scheduler calls this at the end."""
        return None if self._is_ending else self._exact.close(reason)

    def clear(self) -> None:
        """scrapy-redis' scheduler calls this: both filters forget, so that they can be compared."""
        if not self._is_ending:
            self._exact.clear()  # type: ignore[attr-defined] # scrapy-redis' has it
            self._ask(self.seen.clear)

    def request_seen(self, request: Request) -> bool:
        """The answer of the exact dupefilter."""
        # tbloom's filter looks before the exact one and adds after it. The exact one then has all that
        # tbloom's finds, and a request of another crawler in between never counts as lost.
        item, within = fingerprint(self._crawler, request), request.meta.get(WITHIN)
        found = self._ask(lambda: self.seen.contains_many([item], within)[0])
        seen = bool(self._exact.request_seen(request))
        if found is False:
            is_new = self._ask(lambda: self.seen.add_many([item], within)[0])
            found = None if is_new is None else seen and not is_new
        self._count("asked")
        if found is None:
            self._count("unanswered")
            return seen
        self._count("seen" if seen else "new")
        kind = "agreed" if found is seen else "lost" if found else "again"
        self._count(kind)
        self._differ[kind] += 1
        if kind in _MEANING and self._differ[kind] <= _MAX_SHOWN:
            logger.info("%s %s", request, _MEANING[kind])
        return seen

    def log(self, request: Request, spider: Spider) -> None:
        """The scheduler calls this for each request that was filtered."""
        self._exact.log(request, spider)

    @property
    def _is_ending(self) -> bool:
        return state_of(self._crawler).is_ending

    def _exact_kind(self) -> type[BaseDupeFilter]:
        chosen = SHADOW.value(self._settings)
        default = _SCRAPY_REDIS if self._shares_queue else _SCRAPYS
        try:
            kind: type[BaseDupeFilter] = load_object(default if chosen is True else chosen)
            is_exact = not issubclass(kind, self._ours) and hasattr(kind, "request_seen")
        except (ValueError, TypeError, NameError, ImportError):
            is_exact = False
        if not is_exact:
            raise ConfigError(SHADOW.name, chosen, "True, False or an exact dupefilter's class")
        return kind

    def _make_filter(self) -> CrawlBloom:
        """The filter that is tried. Where the exact one forgets after the crawl, it is one of its own."""
        suffix = f":shadow-{secrets.token_hex(4)}" if self._is_in_memory else ""
        if self._shares_queue and not self._settings.getbool("SCHEDULER_PERSIST"):
            suffix = ":shadow"
        spider = spider_of(self._crawler).name
        seen = read_options(self._settings, spider, suffix, retry_for=0).seen
        assert isinstance(seen, CrawlBloom)  # noqa: S101 - the other stores refuse TBLOOM_SHADOW
        seen.circuit.effect = "the crawl goes on without it (TBLOOM_SHADOW)"
        return seen

    def _ask(self, call: Callable[[], bool | None]) -> bool | None:
        """The filter's answer, or None if it has none. Logs the first error that is no outage, which the circuit breaker logs."""
        try:
            return call()
        except (RedisError, TBloomError) as error:
            if not self.seen.circuit.is_open:
                message = "tbloom's filter fails; the crawl goes on without it: %s"
                self._once.log(logging.ERROR, message, error)
            return None

    def _count(self, what: str) -> None:
        count(self._crawler, f"tbloom/shadow/{what}")

    def _end(self) -> None:
        if self._is_in_memory and not self.seen.circuit.is_open:  # otherwise its keys expire
            self._ask(self.seen.clear)
        self.seen.close()
        self.seen.client.close()
