"""Goes before the project's scheduler: requests wait in it until they are known to be new."""

from __future__ import annotations

from collections import deque
from typing import Any

from scrapy import Request, Spider
from scrapy.core.scheduler import Scheduler as MemoryScheduler
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from tbloom.scrapy.asked import AskedRequests
from tbloom.scrapy.crawl import Crawl, Stage, crawl_of, ending_at_an_error
from tbloom.scrapy.done.pages import Pages
from tbloom.scrapy.hooks.engine import is_trial
from tbloom.scrapy.options import asks_nobody, make_client
from tbloom.scrapy.settings import FLUSH

#: Stands for the class that the setting SCHEDULER names, which takes its place in the order of methods (``addon``).
_Project: Any = object


class FilteringScheduler(_Project):  # type: ignore[misc] # known at run time only
    """A project's scheduler, in which requests wait for the filter's answer."""

    #: A spider may not know its crawler.
    _crawl: Crawl
    #: Requests that came out of the queue and were not given to other crawlers: they are the next ones.
    first: deque[Request]
    #: The requests of the crawl; None: the dupefilter asks about each as it comes.
    requests: Pages | AskedRequests | None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Any:
        """Make the scheduler. Where scrapy-redis finds no server, one line in the log ends the crawl."""
        is_shared = any(kind.__module__.startswith("scrapy_redis.") for kind in cls.__mro__)
        if is_shared and is_trial(crawler):  # leaves the queue alone
            return MemoryScheduler.from_crawler(crawler)
        with ending_at_an_error(crawler):
            if is_shared:  # both calls raise an error that names a wrong setting
                FLUSH.value(crawler.settings)
                make_client(crawler.settings)[0].close()
            scheduler = super().from_crawler(crawler)
            scheduler._crawl = crawl_of(crawler)  # noqa: SLF001 - its own
            scheduler.first, scheduler.requests = deque(), None
            if not is_trial(crawler):
                crawl_of(crawler).scheduler = scheduler
            return scheduler
        return MemoryScheduler.from_crawler(crawler)  # of which nothing is asked

    def open(self, spider: Spider) -> Deferred[None]:
        """Open the scheduler. The dupefilter sets ``requests``. An error ends the crawl."""
        return deferred_from_coro(self._open(spider))

    def flush(self) -> None:
        """Clear scrapy-redis' queue, which all crawlers share, unless this crawl ends by an error."""
        if not self._crawl.is_ending:
            super().flush()

    def enqueue_request(self, request: Request) -> bool:
        """Return True at once; ``request_dropped`` is sent later for a duplicate."""
        return self.requests.enqueue(request) if self.requests else self.enqueue_in_project(request)

    def next_request(self) -> Request | None:
        """Return the next request that is to be fetched."""
        return self.requests.next_request() if self.requests else self.next_in_project()

    def has_pending_requests(self) -> bool:
        """Return whether requests are queued, or wait."""
        is_queued = self.first or super().has_pending_requests()
        return bool(is_queued) or bool(self.requests and self.requests.is_busy)

    def __len__(self) -> int:
        return self.queued + (self.requests.inbox.waiting if self.requests else 0)

    def close(self, reason: str) -> Deferred[None]:
        """Close the scheduler once no request waits: all that are left are in the queue."""
        return deferred_from_coro(self._close(reason))

    @property
    def queued(self) -> int:
        """The number of requests in the project's scheduler."""
        return len(self.first) + int(getattr(super(), "__len__", int)())  # int() is 0

    def enqueue_in_project(self, request: Request) -> bool:
        """Call ``enqueue_request`` of the project's scheduler."""
        return bool(super().enqueue_request(request))

    def next_in_project(self) -> Request | None:
        """Call ``next_request`` of the project's scheduler."""
        request: Request | None = self.first.popleft() if self.first else super().next_request()
        return request

    async def _open(self, spider: Spider) -> None:
        crawl = self._crawl
        with ending_at_an_error(crawl.crawler):
            opened: object = None
            try:
                opened = super().open(spider)
            finally:
                # scrapy-redis' scheduler does not return what its dupefilter does, and may raise while that is under way.
                for each in {opened, crawl.opened}:
                    if isinstance(each, Deferred):
                        await maybe_deferred_to_future(each)
            is_open = crawl.stage is not Stage.OPENING
            if not (is_open or crawl.is_ending or is_trial(crawl.crawler)):
                raise asks_nobody(type(self))

    async def _close(self, reason: str) -> None:
        if self.requests:
            await self.requests.close()
        closed = super().close(reason)
        if isinstance(closed, Deferred):
            await maybe_deferred_to_future(closed)
