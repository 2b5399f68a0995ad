"""``TBLOOM_SHADOW``: an exact dupefilter decides; tbloom's filter is asked too, and the answers are compared."""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Callable
from typing import Any

from redis import RedisError
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.misc import build_from_crawler, load_object

from tbloom.errors import ConfigError, TBloomError
from tbloom.scrapy.crawl import crawl_of
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

#: The exact dupefilter's class comes next in the order of methods.
_Exact: Any = object


class Shadow(_Exact):  # type: ignore[misc] # known at run time only
    """An exact dupefilter, with tbloom's filter in its shadow. No error of tbloom's Redis reaches the crawl."""

    def watch(self, crawler: Crawler, *, shares_queue: bool) -> None:
        """Open the filter that is tried. If the exact filter forgets everything after the crawl, make a new filter with a name of its own."""
        self._of_crawl, settings = crawl_of(crawler), crawler.settings
        self._is_in_memory = not shares_queue and not settings.get("JOBDIR")
        suffix = f":shadow-{secrets.token_hex(4)}" if self._is_in_memory else ""
        if shares_queue and not settings.getbool("SCHEDULER_PERSIST"):
            suffix = ":shadow"
        #: The number of disagreements of each kind.
        self._differ: Counter[str] = Counter()
        seen = read_options(settings, self._of_crawl.spider.name, suffix, retry_for=0).seen
        assert isinstance(seen, CrawlBloom)  # noqa: S101 - the other stores refuse TBLOOM_SHADOW
        self._seen = seen
        seen.circuit.effect = "the crawl goes on without it (TBLOOM_SHADOW)"
        crawler.signals.connect(self._end, signals.spider_closed)
        exact = type(self).__mro__[2]
        message = "filter %r is only tried, beside %s.%s"
        logger.info(message, seen.name, exact.__module__, exact.__qualname__)

    def clear(self) -> None:
        """Clear both filters, so that they can be compared. scrapy-redis' scheduler calls this."""
        if not self._of_crawl.is_ending:
            super().clear()
            self._ask(self._seen.clear)

    def request_seen(self, request: Request) -> bool:
        """Return the answer of the exact dupefilter."""
        # tbloom's filter looks before the exact one and adds after it. The exact one then has all that
        # tbloom's finds, and a request of another crawler in between never counts as lost.
        item, within = self._of_crawl.fingerprint(request), request.meta.get(WITHIN)
        found = self._ask(lambda: self._seen.contains_many([item], within)[0])
        seen = bool(super().request_seen(request))
        if found is False:
            is_new = self._ask(lambda: self._seen.add_many([item], within)[0])
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

    def _ask(self, call: Callable[[], bool | None]) -> bool | None:
        """Return the filter's answer, or None if it has none. Log the first error that is no outage, which the circuit breaker logs."""
        try:
            return call()
        except (RedisError, TBloomError) as error:
            if not self._seen.circuit.is_open:
                message = "tbloom's filter fails; the crawl goes on without it: %s"
                self._of_crawl.log_once(logger.error, message, error)
            return None

    def _count(self, what: str) -> None:
        self._of_crawl.count(f"tbloom/shadow/{what}")

    def _end(self) -> None:
        if self._is_in_memory and not self._seen.circuit.is_open:  # otherwise its keys expire
            self._ask(self._seen.clear)
        self._seen.close()
        self._seen.client.close()


def shadowed(crawler: Crawler, ours: type[BaseDupeFilter], *, shares_queue: bool) -> BaseDupeFilter:
    """Make the exact dupefilter that the setting names, with a shadow; ``ours`` is the class that is not exact."""
    chosen = SHADOW.value(crawler.settings)
    default = _SCRAPY_REDIS if shares_queue else _SCRAPYS
    try:
        kind = load_object(default if chosen is True else chosen)
        is_exact = not issubclass(kind, ours) and hasattr(kind, "request_seen")
    except (ValueError, TypeError, NameError, ImportError):
        is_exact = False
    if not is_exact:
        raise ConfigError(SHADOW.name, chosen, "True, False or an exact dupefilter's class")
    kind = type(f"Shadowed{kind.__name__}", (Shadow, kind), {})
    if shares_queue and hasattr(kind, "from_spider"):  # as scrapy-redis' scheduler does
        dupefilter = kind.from_spider(crawl_of(crawler).spider)
    else:
        dupefilter = build_from_crawler(kind, crawler)
    dupefilter.watch(crawler, shares_queue=shares_queue)
    made: BaseDupeFilter = dupefilter
    return made
