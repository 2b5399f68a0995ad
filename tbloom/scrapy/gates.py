"""The add-on, and where a crawl's links, pages and items pass with it: subclasses of the classes that the settings SCHEDULER,
DOWNLOADER and ITEM_PROCESSOR name, through which everything passes, whichever middlewares a project has; and two spider
middlewares.

``enqueue_request`` is where links are asked about; ``fetch`` is where an attempt to fetch a page begins and ends;
``process_item_async`` is where an item passes the pipelines.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial, wraps
from inspect import Parameter, isawaitable, signature
from typing import Any, Self

from scrapy import Request, Spider
from scrapy.core.scheduler import BaseScheduler
from scrapy.core.scheduler import Scheduler as MemoryScheduler
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.http import Response
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from scrapy.utils.asyncgen import as_async_generator
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.misc import arg_to_iter, load_object
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tbloom.errors import ConfigError
from tbloom.scrapy.claims.page import Page
from tbloom.scrapy.claims.pages import Pages
from tbloom.scrapy.compat import is_asked_async, is_trial
from tbloom.scrapy.crawler import Crawl, crawl_of, ending_at_an_error
from tbloom.scrapy.dupefilter.dupefilter import DupeFilter
from tbloom.scrapy.links import Links
from tbloom.scrapy.options import make_client
from tbloom.scrapy.settings import FLUSH, MARK, MARKS_DONE, SHADOW

#: The class that a setting names comes next in the order of methods.
_Project: Any = object


class SchedulerGate(_Project):  # type: ignore[misc] # known at run time only
    """A project's scheduler, in which links wait until they are known to be new."""

    #: A spider may not know its crawler.
    _of_crawl: Crawl

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
            scheduler._of_crawl = crawl_of(crawler)  # noqa: SLF001 - its own
            if not is_trial(crawler):
                crawl_of(crawler).gate = scheduler
            return scheduler
        return MemoryScheduler.from_crawler(crawler)  # of which nothing is asked

    @property
    def links(self) -> Links | None:
        """What links wait in; None: each waits where it is met."""
        links: Links | None = self._of_crawl.links
        return links

    def open(self, spider: Spider) -> Any:
        """The dupefilter opens the gate. An error ends the crawl."""
        crawler = self._of_crawl.crawler
        with ending_at_an_error(crawler):
            opened = super().open(spider)
            if not (self.links or is_trial(crawler) or self._of_crawl.is_ending):
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
        if not self._of_crawl.is_ending:
            super().flush()

    def enqueue_request(self, request: Request) -> bool:
        """True at once; ``request_dropped`` is sent later for a duplicate."""
        return self.links.enqueue(request) if self.links else self.enqueue_below(request)

    def next_request(self) -> Request | None:
        """The next request that is to be fetched."""
        return self.links.next_request() if self.links else self.next_below()

    def has_pending_requests(self) -> bool:
        """Whether requests are queued, or wait."""
        return bool(self.links and self.links.waiting) or bool(super().has_pending_requests())

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
        self._of_crawl = crawl_of(crawler)
        spider = signature(super().fetch).parameters.get("spider")
        #: As earlier versions of Scrapy had it.
        self._needs_spider = spider is not None and spider.default is Parameter.empty

    def fetch(self, request: Request, spider: Any = None) -> Any:  # noqa: ARG002 - as Scrapy's
        """A Deferred of the Response, Request or Failure; a page is known by the object that is passed on."""
        pages = self._of_crawl.pages
        page = pages.fetching(request)
        fetched = super().fetch(request, *[self._of_crawl.crawler.spider] * self._needs_spider)
        if page is None:
            return fetched
        ended = partial(_ended, pages, page)
        return fetched.addBoth(ended) if isinstance(fetched, Deferred) else ended(fetched)

    def needs_backout(self) -> bool:
        """Also while too many links wait for the filter's answer."""
        links = self._of_crawl.links
        return bool(links and links.is_full) or bool(super().needs_backout())


class ItemGate(_Project):  # type: ignore[misc] # known at run time only
    """A project's item processor, which tells what pipelines make of an item."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Any:
        """Scrapy's constructor."""
        below: Any = super()
        processor = below.from_crawler(crawler) if hasattr(below, "from_crawler") else cls()
        processor._of_crawl = crawl_of(crawler)  # noqa: SLF001 - its own
        processor._of_crawl.knows_items = True  # noqa: SLF001 - the same
        return processor

    async def process_item_async(self, item: Any) -> Any:
        """The item behind the pipelines. (A pipeline may hand on items of its own, too, with the page's response.)"""
        output = await super().process_item_async(item)
        self._of_crawl.pages.outputs.processed(item, output)
        return output


def _ended(pages: Pages, page: Page, result: Any) -> Any:
    """The downloader gives this for the page; returns what the engine gets."""
    result = pages.fetched(result, page)
    errback = page.request.errback
    if errback is None or not isinstance(result, Failure) or pages.page_of(result) is not page:
        return result

    async def output(failure: Failure, found: Any) -> AsyncIterator[Any]:
        with pages.following(failure) as tell:
            async for each in as_async_generator(found):
                tell(each)
                yield each

    @wraps(errback)
    async def followed(failure: Failure) -> AsyncIterator[Any]:
        """The errback, whose output the spider middlewares do not see."""
        page.request.errback = errback  # a copy that the errback makes has the spider's own method, which a queue can store
        try:
            found: Any = errback(failure)
            if isinstance(found, Deferred):
                found = maybe_deferred_to_future(found)
            if isawaitable(found):
                found = await found
            if isinstance(found, Failure):
                found.raiseException()
        except BaseException:
            pages.output_may_have_ended(page)
            raise
        return output(failure, found if isinstance(found, AsyncIterator) else arg_to_iter(found))

    page.request.errback = followed
    return result


def gated(gate: type[Any], kind: type[Any]) -> type[Any]:
    """The class with the gate before it."""
    return type(f"Gated{kind.__name__}", (gate, kind), {})


class _Middleware:
    def __init__(self, crawler: Crawler) -> None:
        self._crawl = crawl_of(crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Scrapy's constructor."""
        return cls(crawler)


class NearestToSpider(_Middleware):
    """Sees the callback itself, and an exception of it, whichever middleware recovers from that."""

    def process_spider_input(self, response: Response) -> None:
        """No middleware has refused the response."""
        self._crawl.pages.reaches_callback(response)

    def process_spider_exception(self, response: Response, exception: Exception) -> None:
        """The page fails, unless it is asked for again."""
        self._crawl.pages.callback_raised(response, exception)


class NearestToEngine(_Middleware):
    """Sees what no spider middleware drops any more, and its end."""

    def process_spider_output(self, response: Response, result: Iterable[Any]) -> Iterator[Any]:
        """As the next one, for Scrapy before 2.16, which mixes the two where a middleware recovers."""
        with self._crawl.pages.following(response) as tell:
            for found in result:
                tell(found)
                yield found

    async def process_spider_output_async(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """Follows all that the page's callback yields."""
        with self._crawl.pages.following(response) as tell:
            async for found in result:
                tell(found)
                yield found


class Addon:
    """``ADDONS = {"tbloom.scrapy.Addon": 500}`` makes tbloom the duplicate filter."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Scrapy calls this before the crawl. The project's own settings stay as they are, except
        that with TBLOOM_SHADOW tbloom's dupefilter calls the project's.

        :raises NotConfigured: if the project has another dupefilter; Scrapy logs it, and goes on without the add-on.
        """
        settings.set("DUPEFILTER_CLASS", DupeFilter, priority="addon")
        chosen = settings.get("DUPEFILTER_CLASS")
        shadow = SHADOW.value(settings)
        if not issubclass(load_object(chosen), DupeFilter):
            if not shadow:
                message = f"the project sets DUPEFILTER_CLASS to {chosen!r}; remove that line, and tbloom filters"
                raise NotConfigured(message)
            if shadow is True:
                settings.set(SHADOW.name, chosen, settings.getpriority(SHADOW.name) or 0)
            priority = settings.getpriority("DUPEFILTER_CLASS") or 0
            settings.set("DUPEFILTER_CLASS", DupeFilter, priority)
        gates: list[tuple[str, Any, Callable[[Any], bool]]] = [
            ("SCHEDULER", SchedulerGate, lambda kind: issubclass(kind, BaseScheduler)),
            ("DOWNLOADER", DownloaderGate, lambda kind: hasattr(kind, "fetch")),
        ]
        # With a shadow nothing is claimed.
        if settings.get(MARK.name) in MARKS_DONE and not shadow:
            gates.append(("ITEM_PROCESSOR", ItemGate, is_asked_async))
            add = settings.setdefault_in_component_priority_dict
            add("SPIDER_MIDDLEWARES", NearestToEngine, -1_000_000)
            add("SPIDER_MIDDLEWARES", NearestToSpider, 1_000_000)
        for name, gate, is_possible in gates:
            # With the priority that the setting has: a project's own setting would win otherwise, and no gate be there.
            priority = max(settings.getpriority(name) or 0, SETTINGS_PRIORITIES["addon"])
            kind = load_object(settings[name])
            # Else Scrapy refuses it, and says why, or calls an item processor as earlier versions did.
            if is_possible(kind):
                settings.set(name, gated(gate, kind), priority)
