"""The duplicate filter for Scrapy's and scrapy-redis' schedulers."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

from redis import RedisError
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred

from tbloom import Claim, FilterInfo, LocalBloom
from tbloom.bloom.config import Config, shard_expiry
from tbloom.bloom.fingerprinter import differing, maker_of, note
from tbloom.engine.urls import address_of
from tbloom.errors import TBloomError
from tbloom.local.claims import CrawlLocal
from tbloom.scrapy.asked import AskedRequests
from tbloom.scrapy.crawl import crawl_of, ending_at_an_error
from tbloom.scrapy.done.pages import Pages
from tbloom.scrapy.done.serialize import look_in_note
from tbloom.scrapy.hooks.engine import is_trial
from tbloom.scrapy.hooks.feeds import open_no_feeds
from tbloom.scrapy.links import Answer, NoAnswer
from tbloom.scrapy.options import (
    make_store,
    naming_redis,
    needs_add_on,
    needs_no_shared_queue,
)
from tbloom.scrapy.outage import AnyStore, ClaimStore, CrawlBloom, CrawlExact
from tbloom.scrapy.scheduler import FilteringScheduler
from tbloom.scrapy.settings import FILTER, FLUSH, MARK, OLD_SIZE

logger: logging.Logger = logging.getLogger(__name__)

_OTHER_PROJECT = (
    "the project {first!r} uses this filter, too: a page is fetched by one of the two projects only. To separate them, give this one "
    "TBLOOM_KEY = '{ours}:%(spider)s'. To share the filter on purpose, name it by TBLOOM_KEY in both. Left and failed pages are a "
    "project's in any case"
)
_PERIODS = {"h": "hourly", "d": "daily", "w": "weekly", "m": "monthly"}


class _Trial(RFPDupeFilter):
    """The duplicate filter of commands that only try a spider: Scrapy's own, in memory. In ``scrapy shell`` it filters nothing, as in Scrapy."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(fingerprinter=crawler.request_fingerprinter)
        self._filters = crawler.crawling

    def request_seen(self, request: Request) -> bool:
        return self._filters and super().request_seen(request)

    def clear(self) -> None:
        """Do nothing. scrapy-redis' scheduler calls this."""


class DupeFilter(RFPDupeFilter):
    """Filters requests that any crawler has asked for within the window.

    What it remembers outlives the crawl: the store forgets it slice by slice, or item by item.
    """

    __module__ = "tbloom.scrapy"

    def __init__(self, crawler: Crawler, *, shares_queue: bool = False) -> None:
        debug = crawler.settings.getbool("DUPEFILTER_DEBUG")
        super().__init__(debug=debug, fingerprinter=crawler.request_fingerprinter)
        self._crawl, self._settings = crawl_of(crawler), crawler.settings
        self._shares_queue = shares_queue
        #: Whether scrapy-redis-bloomfilter's stat is counted, too.
        self._has_old_size = any(name in self._settings for name in OLD_SIZE)
        #: The request that was last dropped for lack of an answer.
        self._dropped: Request | None = None

    @classmethod
    def from_crawler(  # type: ignore[override] # may be another class
        cls, crawler: Crawler, *, shares_queue: bool = False
    ) -> BaseDupeFilter:
        """Return the dupefilter for the crawl, or for a command that only tries a spider. Scrapy's scheduler calls this."""
        if is_trial(crawler):
            logger.info("This command of Scrapy neither uses nor changes tbloom's filter")
            return _Trial(crawler)
        return cls(crawler, shares_queue=shares_queue)

    @classmethod
    def from_spider(cls, spider: Spider) -> BaseDupeFilter:
        """Make the dupefilter, and open it. scrapy-redis' scheduler calls this, but neither ``open`` nor ``close``."""
        dupefilter = cls.from_crawler(spider.crawler, shares_queue=True)
        dupefilter.open()
        return dupefilter

    # Made by open(), because Scrapy hides an error in from_crawler behind one of its own.
    @cached_property
    def requests(self) -> Pages | AskedRequests:
        """The requests of the crawl, whose store is opened now. With the add-on they wait in its scheduler, and threads ask the filter."""
        crawl, mark = self._crawl, self._settings.get(MARK.name)
        if mark == "done" and self._shares_queue:
            raise needs_no_shared_queue()
        if mark == "done" and crawl.scheduler is None:
            raise needs_add_on()
        spider = crawl.crawler.spider or crawl.crawler.spidercls
        seen = make_store(self._settings, spider.name)
        if isinstance(seen, CrawlLocal):
            seen.open_claims(look_in_note)
        crawl.open(seen)
        scheduler = crawl.scheduler
        if not isinstance(scheduler, FilteringScheduler):
            return AskedRequests(crawl, None)
        if mark == "done" and isinstance(seen, ClaimStore):
            scheduler.requests = Pages(crawl, scheduler, seen)
        elif not isinstance(seen, LocalBloom):
            scheduler.requests = AskedRequests(crawl, scheduler)
        # A local store needs no round trips, so nothing waits for it.
        return scheduler.requests or AskedRequests(crawl, None)

    def open(self) -> Deferred[None] | None:
        """Open the filter. Scrapy's scheduler calls this at the start. An error ends the crawl.

        With the add-on, whose scheduler waits for ``Crawl.opened``, the event loop does not wait for the server.
        """
        crawl = self._crawl
        if not crawl.is_ending:  # by a mistake in another component's settings
            with ending_at_an_error(crawl.crawler):
                first = self._first_call()
                if crawl.scheduler is not None:
                    crawl.opened = deferred_from_coro(self._open(first))
                    return crawl.opened
                with naming_redis(self._settings):
                    first()
                self._describe(*summarize(crawl.seen, described(self.fingerprinter)))
        if crawl.is_ending:  # perhaps by an extension that was made before the feed exporter
            open_no_feeds(crawl.crawler)
        return None

    async def _open(self, first: Callable[[], object]) -> None:
        crawl = self._crawl
        with ending_at_an_error(crawl.crawler), naming_redis(self._settings):
            await crawl.link_calls.run(first)
            if isinstance(self.requests, Pages) and isinstance(crawl.seen, CrawlBloom):
                # Pages are a project's, if crawlers of another one were the first ones of the filter.
                ours = str(self._settings["BOT_NAME"])
                other = await crawl.link_calls.run(partial(crawl.seen.first_project, ours))
                if other != ours:
                    crawl.project = ours
                    if self._settings.get(FILTER["name"].name) is None:
                        self._describe("", [_OTHER_PROJECT.format(ours=ours, first=other)])
                # After an error, the next crawl deletes them.
                crawl.page_calls.begin(crawl.seen.forget_old_records, bool)
            # Here, because the fingerprinter is not made for threads.
            call = partial(summarize, crawl.seen, described(self.fingerprinter))
            crawl.page_calls.begin(call, lambda called: self._describe(*called.result()))
        if crawl.is_ending:
            open_no_feeds(crawl.crawler)

    def clear(self) -> None:
        """Clear nothing. scrapy-redis' scheduler calls this at the end: an empty filter is of no use to the next crawl.

        It also does so at the start where SCHEDULER_FLUSH_ON_START is set: then ``open`` has cleared the filter.
        """

    def request_seen(self, request: Request) -> bool:
        """Return whether the request has been seen within the window. A new one is remembered.

        ``meta={"tbloom_within": n}`` asks for the newest n slices only; ``meta={"tbloom_keep": n}``, or in an exact store
        ``meta={"tbloom_ttl": seconds}``, says how long a new one is remembered.
        """
        answer: Answer = NoAnswer.DROPPED
        # Else it could not be opened.
        if "requests" in self.__dict__ or not self._crawl.is_ending:
            project = self.requests.project
            project.is_asked = True
            answer = project.answer or self.requests.answer_to(request)
        self._dropped = request if answer is NoAnswer.DROPPED else None
        return answer is not Claim.NEW

    def log(self, request: Request, spider: Spider) -> None:
        """Log a request that was filtered, as Scrapy does."""
        if request is not self._dropped:
            super().log(request, spider)
            if self._has_old_size:
                self._crawl.count("bloomfilter/filtered")

    def _first_call(self) -> Callable[[], object]:
        """Return the first call, which raises at the start any error that the first request would raise, such as ConfigMismatch."""
        self.requests  # noqa: B018 - opens the store
        seen = self._crawl.seen
        # close() would be too early: claims may be settled after it, and scrapy-redis does not call it.
        self._crawl.crawler.signals.connect(self._closed, signals.spider_closed)
        return seen.clear if FLUSH.value(self._settings) else partial(seen.contains_many, [b"a"])

    def _describe(self, text: str, warnings: list[str]) -> None:
        if text:
            logger.info(text)
        for warning in warnings:
            self._crawl.count("tbloom/warnings")
            logger.warning("filter %r: %s", self._crawl.seen.name, warning)

    async def _closed(self, reason: str) -> None:
        """Finish once the feeds are stored."""
        crawl, stats = self._crawl, self._crawl.crawler.stats
        seen = crawl.seen
        try:
            await self.requests.finish(reason)
            if stats and not crawl.is_ending:
                for name, value in await crawl.page_calls.run(partial(_window, seen)):
                    stats.set_value(name, value)
        finally:
            if isinstance(seen, CrawlBloom):
                for stat, number in ("cache_hits", seen.cache_hits), ("lost", seen.lost):
                    if number:
                        self._crawl.count(f"tbloom/{stat}", number)
            try:
                crawl.close()
            except TBloomError as error:  # a local store's file is gone
                crawl.fail(error)
        self.requests.report()


def _window(seen: AnyStore) -> list[tuple[str, float]]:
    """Return the stats of the filter as it is now. Some servers don't let us ask for its size (None), and none is waited for."""
    with suppress(RedisError, TBloomError):
        info = seen.info()
        found = [(name, getattr(info, name)) for name in ("items", "bytes", "error_rate")]
        return [(f"tbloom/window/{name}", value) for name, value in found if value is not None]
    return []


def summarize(seen: AnyStore, fingerprints: str) -> tuple[str, list[str]]:
    """Return a line about the filter as it is now, and warnings. Some servers don't let us ask for its size.

    ``fingerprints``: what ``described`` returns.
    """
    kind = "exact"
    if not isinstance(seen, CrawlExact):
        period = seen.config.window.granularity
        period = _PERIODS.get(str(period), period)
        kind = f"{seen.config.slices} {period} slices" if period else "no window"
    place = address_of(seen.client) if not isinstance(seen, LocalBloom) else seen.path or "memory"
    warnings, held, is_new = list[str](), "", False
    with suppress(RedisError, TBloomError):
        info = seen.info()
        is_new = not info.items
        held = f", {info.items:,} items"
        if isinstance(info, FilterInfo):
            held += f" ({info.slices[-1].items:,} in the newest)"
        if info.bytes is not None:
            held += f", {info.bytes / 2**20:,.2f} MB"
        held += ", new" if is_new else ", existing"
        warnings += info.warnings
    if fingerprints and not isinstance(seen, LocalBloom):
        with suppress(RedisError, TBloomError):
            warnings += _other_fingerprints(seen, fingerprints, is_new=is_new)
    return f"filter {seen.name!r}: {kind}{held}, at {place}", warnings


def described(fingerprinter: Any) -> str:
    """Return the path of the fingerprinter's class, and hashes of its fingerprints of the sample requests; "" if it can't read these."""
    kind, hashes = type(fingerprinter), list[str]()
    try:
        for sample in _samples():
            made = fingerprinter.fingerprint(sample)
            hashes.append(hashlib.blake2b(made, digest_size=8).hexdigest())
    except Exception:  # noqa: BLE001 - the project's own, which may know its own requests only
        return ""
    return " ".join([f"{kind.__module__}.{kind.__qualname__}", *hashes])


def _samples() -> list[Request]:
    """Return requests of which another fingerprinter, or another setting, changes some or all. Without a callback, they go to ``parse``."""
    return [
        Request("https://example.com/", callback=NO_CALLBACK),
        Request("https://example.com/"),
        Request("https://example.com/?b=2&a=1&utm_source=c#d"),
        Request("https://example.com/", method="POST", body="a=1"),
    ]


def _other_fingerprints(seen: CrawlBloom | CrawlExact, ours: str, *, is_new: bool) -> list[str]:
    """Return a warning if other fingerprints have filled the filter; else store ours, with the TTL of the items that are added."""
    ttl = seen.lasts_ms if isinstance(seen, CrawlExact) else _lasts_ms(seen.config)
    known = seen.run(note(seen.config.keys.fingerprinter(), ours, ttl, is_new=is_new))
    samples, others = _samples(), differing(known, ours)
    if not others:
        return []
    kind, theirs = maker_of(ours), maker_of(known)
    by = "by the same class" if kind == theirs else f"by {theirs}"
    what = "every page is new"
    if len(others) < len(samples):
        sample = samples[others[0]]
        what = f"requests such as {sample}{'' if sample.callback else ' to parse'} are new"
    text = (
        f"REQUEST_FINGERPRINTER_CLASS is {kind}, but the filter was filled with other fingerprints, {by}: "
        f"to this crawl, {what}. Undo what has changed (that class, an add-on, a setting), or set another TBLOOM_KEY"
    )
    return [text]


def _lasts_ms(config: Config) -> int | None:
    """Return how long an item is remembered that is added now, by the client's clock (ms); None: for ever."""
    if config.granularity is None:
        return None
    now = time.time_ns() // 1_000_000
    current = config.window.slice_at(now)
    return shard_expiry(config, config.window.expires(current), None) - now
