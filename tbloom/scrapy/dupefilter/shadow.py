"""``TBLOOM_SHADOW``: an exact dupefilter decides; tbloom's filter is asked too, and their answers are compared."""

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

from tbloom.bloom.measured import Measured
from tbloom.bloom.sync import TimeBloom
from tbloom.errors import ConfigError, TBloomError
from tbloom.scrapy import settings as options
from tbloom.scrapy.claims.notes import WITHIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

logger = logging.getLogger(__name__)

_SCRAPYS = "scrapy.dupefilters.RFPDupeFilter"
_SCRAPY_REDIS = "scrapy_redis.dupefilter.RFPDupeFilter"
#: So many disagreements of each kind are logged.
_SHOWN = 10
_MEANING = {
    "lost": "is new, but tbloom calls it seen, and would have lost it",
    "again": "was seen, but tbloom calls it new, and would have fetched it again",
}


class Shadow(BaseDupeFilter):
    """The exact dupefilter, as the scheduler knows it, with tbloom's filter in its shadow.

    No error of tbloom's Redis gets from here to the crawl. ``ours`` is what can't be the exact one.
    """

    def __init__(self, crawler: Crawler, ours: type[BaseDupeFilter], *, shares_queue: bool) -> None:
        self._crawler = crawler
        self._settings = crawler.settings
        self._ours = ours
        self._shares_queue = shares_queue
        self._counts: Counter[str] = Counter()
        self._has_failed = False

    @cached_property
    def _exact(self) -> Any:
        # Made by start(), not before: an error in from_crawler Scrapy hides behind one of its own.
        kind = self._kind()
        if not self._shares_queue:
            return build_from_crawler(kind, self._crawler)
        if hasattr(kind, "from_spider"):  # as scrapy-redis' scheduler makes it
            return kind.from_spider(self._crawler.spider)
        return kind.from_settings(self._settings)

    @cached_property
    def seen(self) -> TimeBloom:
        """The filter that is tried."""
        spider = self._crawler.spider
        assert spider is not None  # noqa: S101 - a crawl is under way
        seen = options.read(
            self._settings, spider.name, self._suffix(), on_error="schedule", retry_for=0
        ).seen
        assert isinstance(seen, TimeBloom)  # noqa: S101 - others are refused
        return seen

    def _kind(self) -> Any:
        chosen = options.shadowed(self._settings)
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
        """An exact dupefilter that forgets at the end of a crawl is compared with a filter apart, which
        does so too; one of this process with one of this process."""
        if self._is_in_memory:
            return f":shadow-{secrets.token_hex(4)}"
        is_cleared = self._shares_queue and not self._settings.getbool("SCHEDULER_PERSIST")
        return ":shadow" if is_cleared else ""

    def start(self) -> None:
        """Raises now what a wrong setting would raise later; Redis need not be there."""
        exact, seen = self._exact, self.seen
        self._crawler.signals.connect(self._end, signals.spider_closed)
        kind = type(exact)
        logger.info(
            "filter %r is only tried, beside %s.%s", seen.name, kind.__module__, kind.__qualname__
        )
        if self._settings.getbool("SCHEDULER_FLUSH_ON_START"):  # parameters may change then
            return
        try:
            seen.contains(b"tbloom")
        except RedisError as error:
            self._warn(error)

    def open(self) -> Deferred[None] | None:
        """Called by Scrapy's scheduler at the start. Raises ConfigError that names the setting."""
        self.start()
        opened: Deferred[None] | None = self._exact.open()
        return opened

    def close(self, reason: str = "") -> Deferred[None] | None:
        """Called by Scrapy's scheduler at the end."""
        if "_exact" not in self.__dict__:  # there was an error before
            return None
        closed: Deferred[None] | None = self._exact.close(reason)
        return closed

    def clear(self) -> None:
        """Called by scrapy-redis' scheduler: both forget, so that they can be compared."""
        self._exact.clear()
        self._clear()

    def request_seen(self, request: Request) -> bool:
        """What the exact one says."""
        # tbloom looks before the exact one is asked, and adds after it: what it finds, the exact one has
        # by then. So what other crawlers do meanwhile is never taken for a page that would be lost.
        found = self._ask(self.seen.contains, request)
        seen: bool = self._exact.request_seen(request)
        if found is False:
            new = self._ask(self.seen.add, request)
            found = None if new is None else bool(seen) and not new
        self._compare(request, seen=bool(seen), found=found)
        return seen

    def log(self, request: Request, spider: Spider) -> None:
        """Called by the scheduler for each request that was filtered."""
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
        if self._counts[kind] <= _SHOWN:
            more = f"; no more of these will be shown, tbloom/shadow/{kind} counts them"
            end = more if self._counts[kind] == _SHOWN else ""
            logger.info("%s %s%s", request, _MEANING[kind], end)

    def _ask(self, verb: Callable[[bytes, int | None], bool], request: Request) -> bool | None:
        """The filter's answer; None: there was none."""
        fingerprinter = self._crawler.request_fingerprinter
        assert fingerprinter is not None  # noqa: S101
        guesses = self.seen.circuit.answers
        try:
            answer = verb(fingerprinter.fingerprint(request), request.meta.get(WITHIN))
        except (RedisError, TBloomError) as error:
            self._warn(error)
            return None
        if self.seen.circuit.answers > guesses:
            self._warn("its server does not answer")
            return None
        return answer

    def _warn(self, error: object) -> None:
        """Says the first error; requests without an answer are counted."""
        if not self._has_failed:
            self._has_failed = True
            logger.error("tbloom's filter fails; the crawl goes on without it: %s", error)

    def _count(self, what: str) -> None:
        self._counts[what] += 1
        if self._crawler.stats:
            self._crawler.stats.inc_value(f"tbloom/shadow/{what}")

    def _clear(self) -> None:
        try:
            self.seen.clear()
        except (RedisError, TBloomError) as error:
            self._warn(error)

    def _end(self) -> None:
        logger.info("filter %r in the shadow: %s", self.seen.name, self._summary())
        if self._is_in_memory and not self.seen.circuit.is_open:  # else its keys expire
            self._clear()
        self.seen.close()
        self.seen.client.close()

    def _summary(self) -> str:
        counts = self._counts
        lost = Measured(counts["lost"], counts["new"])
        measured = f"{lost.rate:.1e} ({lost.low:.1e} to {lost.high:.1e}, 95 % interval)"
        return (
            f"of {counts['asked']} requests, {counts['agreed']} agreed and {counts['unanswered']} were "
            f"not answered; of {counts['new']} new ones it would have lost {counts['lost']}, of "
            f"{counts['seen']} seen ones fetched {counts['again']} again. Error rate: {measured}, "
            f"promised {self.seen.config.error_rate:.1e}"
        )
