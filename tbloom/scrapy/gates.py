"""The two gates of a crawl: subclasses of the classes that the settings SCHEDULER and DOWNLOADER name, behind which
everything passes, whichever middlewares a project has.

``enqueue_request`` is where links are asked about; ``fetch`` is where an attempt to fetch a page begins and ends.
"""

from __future__ import annotations

from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from scrapy import Request
from scrapy.core.scheduler import Scheduler as MemoryScheduler
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tbloom.errors import ConfigError
from tbloom.scrapy.claims.errbacks import follow_errback
from tbloom.scrapy.claims.links import ClaimedLinks
from tbloom.scrapy.compat import is_trial
from tbloom.scrapy.connection import make_client
from tbloom.scrapy.crawler import ending_at_an_error, is_ending
from tbloom.scrapy.settings import FLUSH, MARK, MARKS_DONE, SHADOW

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from tbloom.scrapy.links import Links

#: The schedulers of the crawls that run with the add-on, by the ids of their crawlers, to which they lead.
_schedulers: WeakValueDictionary[int, Any] = WeakValueDictionary()


def gate_of(crawler: Crawler) -> SchedulerGate | None:
    """The crawl's scheduler, if it runs with the add-on."""
    return _schedulers.get(id(crawler))


def claimed_links(crawler: Crawler) -> ClaimedLinks | None:
    """The links of a crawl that claims pages."""
    links = getattr(gate_of(crawler), "links", None)
    return links if isinstance(links, ClaimedLinks) else None


#: The class that a setting names comes next in the order of methods.
_Project: Any = object


class SchedulerGate(_Project):  # type: ignore[misc] # known at run time only
    """A project's scheduler, in which links wait until they are known to be new."""

    #: What links wait in; None: each waits where it is met.
    links: Links | None = None
    #: A spider may not know its crawler.
    _of_crawler: Crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Any:
        """Scrapy's constructor. Where scrapy-redis finds no server, one line in the log ends the crawl."""
        is_shared = any(kind.__module__.startswith("scrapy_redis.") for kind in cls.__mro__)
        if is_shared and is_trial(crawler):  # leaves the queue alone
            return MemoryScheduler.from_crawler(crawler)
        with ending_at_an_error(crawler):
            if is_shared:  # these name a wrong setting
                FLUSH.value(crawler.settings)
                make_client(crawler.settings)[0].close()
            scheduler = super().from_crawler(crawler)
            scheduler._of_crawler = crawler  # noqa: SLF001 - its own
            if not is_trial(crawler):
                _schedulers[id(crawler)] = scheduler
            return scheduler
        return MemoryScheduler.from_crawler(crawler)  # of which nothing is asked

    def open(self, spider: Spider) -> Any:
        """The dupefilter opens the gate. An error ends the crawl."""
        crawler = self._of_crawler
        with ending_at_an_error(crawler):
            opened = super().open(spider)
            if not (self.links or is_trial(crawler) or is_ending(crawler)):
                self._check_mark(crawler.settings)
            return opened

    def _check_mark(self, settings: BaseSettings) -> None:
        """Raises ConfigError if pages are to be followed, and the project's scheduler has asked for no dupefilter of ours."""
        mark = settings.get(MARK.name)
        if mark in MARKS_DONE and not SHADOW.value(settings):
            own, asked = type(self).__mro__[2], settings["DUPEFILTER_CLASS"]
            place = f"{own.__module__}.{own.__qualname__}"
            expected = f"'scheduled', because {place} does not ask {asked}"
            raise ConfigError(MARK.name, mark, expected)

    def flush(self) -> None:
        """scrapy-redis clears the queue of all crawlers, unless this crawl ends by an error."""
        if not is_ending(self._of_crawler):
            super().flush()

    def enqueue_request(self, request: Request) -> bool:
        """True at once; ``request_dropped`` is sent later for a duplicate."""
        return self.links.enqueue(request) if self.links else self.enqueue_below(request)

    def next_request(self) -> Request | None:
        """The next request that is to be fetched."""
        return self.links.next_request() if self.links else self.next_below()

    def has_pending_requests(self) -> bool:
        """Whether requests are queued, or wait."""
        return bool(self.links and self.links.is_pending) or bool(super().has_pending_requests())

    def __len__(self) -> int:
        return int(super().__len__()) + (self.links.waiting if self.links else 0)

    def close(self, reason: str) -> Deferred[None]:
        """Nothing waits any more: what is left is in the queue."""
        return deferred_from_coro(self._close(reason))

    def enqueue_below(self, request: Request) -> bool:
        """``enqueue_request`` of the project's scheduler."""
        return bool(super().enqueue_request(request))

    def next_below(self) -> Request | None:
        """``next_request`` of the project's scheduler."""
        request: Request | None = super().next_request()
        return request

    async def _close(self, reason: str) -> None:
        if self.links:
            await self.links.close()
        closed = super().close(reason)
        if isinstance(closed, Deferred):
            await maybe_deferred_to_future(closed)


class DownloaderGate(_Project):  # type: ignore[misc] # known at run time only
    """A project's downloader, which tells what it gives for a page."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._of_crawler = crawler
        spider = signature(super().fetch).parameters.get("spider")
        #: As earlier versions of Scrapy had it.
        self._needs_spider = spider is not None and spider.default is Parameter.empty

    def fetch(self, request: Request, spider: Any = None) -> Any:  # noqa: ARG002 - as Scrapy's
        """A Deferred of the Response, Request or Failure; a page is known by the object that is passed on."""
        links = claimed_links(self._of_crawler)
        page = links and links.pages.fetching(request)
        own = [self._of_crawler.spider] if self._needs_spider else []
        fetched = super().fetch(request, *own)
        if not links or not page:
            return fetched

        def ended(result: Any) -> Any:
            result = links.pages.fetched(result, page)
            if isinstance(result, Failure):
                follow_errback(links.pages, page)
            return result

        return fetched.addBoth(ended) if isinstance(fetched, Deferred) else ended(fetched)

    def needs_backout(self) -> bool:
        """Also while too many links wait for the filter's answer."""
        links = getattr(gate_of(self._of_crawler), "links", None)
        return bool(links and links.is_full) or bool(super().needs_backout())


def gated(gate: type[Any], kind: type[Any]) -> type[Any]:
    """The class with the gate before it."""
    return type(f"Gated{kind.__name__}", (gate, kind), {})
