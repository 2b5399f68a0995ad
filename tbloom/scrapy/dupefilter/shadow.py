"""``TBLOOM_SHADOW``: an exact dupefilter decides; tbloom's filter is asked too, and the answers are compared."""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any

from redis import RedisError
from scrapy import signals
from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.misc import build_from_crawler, load_object

from tbloom.bloom.sizing import interval
from tbloom.errors import ConfigError, TBloomError
from tbloom.scrapy.crawler import CrawlEnd, OnceLogger, count, fingerprint, spider_of
from tbloom.scrapy.meta import WITHIN
from tbloom.scrapy.options import read_options, shadow_setting
from tbloom.scrapy.outage import CrawlBloom
from tbloom.scrapy.settings import FLUSH

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

logger = logging.getLogger(__name__)

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

    def __init__(self, crawler: Crawler, ours: type[BaseDupeFilter], *, shares_queue: bool) -> None:
        self._crawler = crawler
        self._settings = crawler.settings
        self._ours = ours
        self._shares_queue = shares_queue
        self._counts: Counter[str] = Counter()
        self._once = OnceLogger(logger)
        self._crawl_end = CrawlEnd(crawler)

    @cached_property
    def _exact(self) -> Any:
        # Made by open(), because Scrapy hides an error in from_crawler behind one of its own.
        kind = self._kind()
        if not self._shares_queue:
            return build_from_crawler(kind, self._crawler)
        if hasattr(kind, "from_spider"):  # as scrapy-redis' scheduler makes it
            return kind.from_spider(spider_of(self._crawler))
        return kind.from_settings(self._settings)

    @cached_property
    def seen(self) -> CrawlBloom:
        """The filter that is tried."""
        spider = spider_of(self._crawler).name
        seen = read_options(
            self._settings, spider, self._suffix(), on_error="drop", retry_for=0
        ).seen
        assert isinstance(seen, CrawlBloom)  # noqa: S101 - the other stores refuse TBLOOM_SHADOW
        seen.circuit.effect = "the crawl goes on without it (TBLOOM_SHADOW)"
        return seen

    def _kind(self) -> Any:
        chosen = shadow_setting(self._settings)
        try:
            if chosen is True:
                return load_object(_SCRAPY_REDIS if self._shares_queue else _SCRAPYS)
            kind = load_object(chosen)
            if not issubclass(kind, self._ours) and hasattr(kind, "request_seen"):
                return kind
        except (ValueError, TypeError, NameError, ImportError):
            pass
        raise ConfigError("TBLOOM_SHADOW", chosen, "True, False or an exact dupefilter's class")

    @property
    def _is_in_memory(self) -> bool:
        return not self._shares_queue and not self._settings.get("JOBDIR")

    def _suffix(self) -> str:
        """Suffix of the filter's name: where the exact one forgets after the crawl, so must a filter of its own."""
        if self._is_in_memory:
            return f":shadow-{secrets.token_hex(4)}"
        is_cleared = self._shares_queue and not self._settings.getbool("SCHEDULER_PERSIST")
        return ":shadow" if is_cleared else ""

    def _start(self) -> None:
        exact, seen = self._exact, self.seen
        self._crawler.signals.connect(self._end, signals.spider_closed)
        kind = type(exact)
        logger.info(
            "filter %r is only tried, beside %s.%s", seen.name, kind.__module__, kind.__qualname__
        )
        if FLUSH.is_on(self._settings, default=False):  # parameters may change then
            return
        try:
            seen.contains(b"tbloom")
        except RedisError as error:
            self._warn(error)

    def open(self) -> Deferred[None] | None:
        """Ends the crawl now by what a wrong setting would raise later; Redis may be down."""
        with self._crawl_end.ending_at_an_error():
            self._start()
        if self._crawl_end.has_begun:
            return None
        opened: Deferred[None] | None = self._exact.open()
        return opened

    def close(self, reason: str = "") -> Deferred[None] | None:
        """Scrapy's scheduler calls this at the end."""
        if self._crawl_end.has_begun:
            return None
        closed: Deferred[None] | None = self._exact.close(reason)
        return closed

    def clear(self) -> None:
        """scrapy-redis' scheduler calls this: both filters forget, so that they can be compared."""
        if self._crawl_end.has_begun:
            return
        self._exact.clear()
        self._clear()

    def request_seen(self, request: Request) -> bool:
        """The answer of the exact dupefilter."""
        # tbloom's filter looks before the exact one and adds after it. The exact one then has all that
        # tbloom's finds, and a request of another crawler in between never counts as lost.
        found = self._ask(self.seen.contains, request)
        seen: bool = self._exact.request_seen(request)
        if found is False:
            new = self._ask(self.seen.add, request)
            found = None if new is None else bool(seen) and not new
        self._compare(request, seen=bool(seen), found=found)
        return seen

    def log(self, request: Request, spider: Spider) -> None:
        """The scheduler calls this for each request that was filtered."""
        self._exact.log(request, spider)

    def _compare(self, request: Request, *, seen: bool, found: bool | None) -> None:
        self._count("asked")
        if found is None:
            self._count("unanswered")
            return
        self._count("seen" if seen else "new")
        if found is seen:
            self._count("agreed")
            return
        kind = "lost" if found else "again"
        self._count(kind)
        if self._counts[kind] <= _MAX_SHOWN:
            more = f"; no more of these will be shown, tbloom/shadow/{kind} counts them"
            end = more if self._counts[kind] == _MAX_SHOWN else ""
            logger.info("%s %s%s", request, _MEANING[kind], end)

    def _ask(self, verb: Callable[[bytes, int | None], bool], request: Request) -> bool | None:
        """The filter's answer, or None if it has none."""
        guesses = self.seen.circuit.answers
        try:
            answer = verb(fingerprint(self._crawler, request), request.meta.get(WITHIN))
        except (RedisError, TBloomError) as error:
            self._warn(error)
            return None
        return None if self.seen.circuit.answers > guesses else answer

    def _warn(self, error: Exception) -> None:
        """Logs the first error that is no outage, which the circuit breaker logs."""
        message = "tbloom's filter fails; the crawl goes on without it: %s"
        self._once.log(logging.ERROR, message, error)

    def _count(self, what: str) -> None:
        self._counts[what] += 1
        count(self._crawler, f"tbloom/shadow/{what}")

    def _clear(self) -> None:
        try:
            self.seen.clear()
        except (RedisError, TBloomError) as error:
            self._warn(error)

    def _end(self) -> None:
        logger.info("filter %r in the shadow: %s", self.seen.name, self._summary())
        if self._is_in_memory and not self.seen.circuit.is_open:  # otherwise its keys expire
            self._clear()
        self.seen.close()
        self.seen.client.close()

    def _summary(self) -> str:
        counts = self._counts
        lost, new = counts["lost"], counts["new"]
        low, high = interval(lost, new)
        measured = f"{lost / max(1, new):.1e} ({low:.1e} to {high:.1e}, 95 % interval)"
        return (
            f"{counts['asked']} requests: {counts['agreed']} agreed, {counts['unanswered']} not answered; "
            f"would have lost {counts['lost']} of {counts['new']} new requests, and fetched "
            f"{counts['again']} of {counts['seen']} seen requests again. Error rate: {measured}, "
            f"promised {self.seen.config.error_rate:.1e}"
        )
