"""The engine and its parts: how a crawl is woken, is idle, and ends; the downloader, the queues, and the scraper."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar
from copy import copy
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import scrapy
from pydispatch.dispatcher import getAllReceivers, liveReceivers
from scrapy import Request, Spider
from scrapy.core.downloader.middleware import DownloaderMiddlewareManager
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.spiders import CrawlSpider, SitemapSpider
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.request import RequestFingerprinterProtocol
from scrapy.utils.sitemap import Sitemap, sitemap_urls_from_robots
from twisted.internet.defer import Deferred


def is_idle(engine: Any) -> bool:
    """Return whether the engine has nothing to do. Without it, an idle crawl ends while others' pages may have to be taken over."""
    return bool(engine and hasattr(engine, "spider_is_idle") and engine.spider_is_idle())


def requests_in_work(engine: Any) -> list[Request]:
    """Return the requests that the engine downloads, or whose callbacks have not ended.

    Without it, no log names a start request with ``dont_filter`` that never ends.
    """
    return [*getattr(getattr(engine, "_slot", None), "inprogress", ())]


def requests_downloaded(engine: Any) -> frozenset[Request]:
    """Return the requests in the downloader, also those of media pipelines.

    Without it, an item with many files seems to hang, and left pages may be fetched while a slow login is under way.
    """
    return frozenset(getattr(getattr(engine, "downloader", None), "active", ()))


def requests_in_line(engine: Any) -> set[Request]:
    """Return the requests that wait for a delay, or for others of their host. Without it, they seem to hang. Any thread may call this."""
    slots = getattr(getattr(engine, "downloader", None), "slots", {})
    return {request for slot in slots.copy().values() for request, *_ in slot.queue.copy()}


def delays_downloads(engine: Any) -> bool:
    """Return whether a download waits only for a delay. Without it, the log names pages of a crawl that goes on after the delay."""
    slots = getattr(getattr(engine, "downloader", None), "slots", {})
    return any(slot.queue and slot.free_transfer_slots() > 0 for slot in slots.values())


def wake_engine(engine: Any) -> None:
    """Make the engine ask its scheduler for requests. Without it, it does so at the next response, or after 5 seconds."""
    nextcall = getattr(getattr(engine, "_slot", None), "nextcall", None)
    # An engine that has not opened its scraper yet begins by itself.
    if nextcall is not None and getattr(getattr(engine, "scraper", None), "slot", None):
        nextcall.schedule()


async def wait_until_closed(sender: Any) -> None:
    """Wait at ``engine_stopped`` until the spider is closed; ``sender`` is the crawler.

    Without it, a signal that comes while the spider closes ends Scrapy's event loop before feeds are stored and pages are committed.
    """
    while sender.engine.spider is not None:
        await next_turn(0.01)


def exit_with_failure(sender: Any) -> None:
    """Let ``scrapy crawl`` exit with 1, at ``engine_stopped``; ``sender`` is the crawler, which then seems to have had no spider.

    Without it, the command exits with 0, and only the log and ``finish_reason`` say that an error has ended the crawl.
    """
    sender.spider = None


def is_trial(crawler: Crawler) -> bool:
    """Return whether this is ``scrapy shell``, ``parse``, ``fetch`` or ``check``, which try a spider, and leave no trace on Redis.

    The shell makes a crawler that does not crawl, the others give the spider another start. Without it, what they try is marked.
    """
    return not crawler.crawling or crawler.spidercls.start.__module__.startswith("scrapy.commands.")


def keep_spider_arguments() -> None:
    """Let each crawler keep the arguments with which it makes its spider. Call this once, before any spider is made.

    Scrapy keeps them nowhere. Without it, crawls of one spider share their pages whatever its arguments are.
    """
    create = Crawler._create_spider  # noqa: SLF001 - what crawl and crawl_async have in common

    def create_spider(crawler: Crawler, *args: Any, **kwargs: Any) -> Spider:
        numbered = {str(n): value for n, value in enumerate(args)}
        vars(crawler)["tbloom_arguments"] = {**numbered, **kwargs}
        return create(crawler, *args, **kwargs)

    Crawler._create_spider = create_spider  # type: ignore[method-assign, assignment] # noqa: SLF001


def spider_arguments(crawler: Crawler) -> dict[str, Any] | None:
    """Return the arguments with which the crawler has made its spider; None: it did so before ``keep_spider_arguments``."""
    return vars(crawler).get("tbloom_arguments")


def has_receivers(crawler: Crawler, signal: object) -> bool:
    """Return whether anybody hears a signal of the crawl. Without it, Scrapy looks for receivers at each request that is dropped."""
    return next(liveReceivers(getAllReceivers(crawler, signal)), None) is not None


async def next_turn(after: float = 0.0) -> None:
    """Wait for the next turn of the event loop after so many seconds."""
    turn: Deferred[None] = Deferred()
    call_later(after, turn.callback, None)
    await maybe_deferred_to_future(turn)


def in_loop() -> Callable[..., Any]:
    """Return a function that other threads call with a function and its arguments, which the event loop then calls."""
    with suppress(RuntimeError):  # another reactor
        return asyncio.get_running_loop().call_soon_threadsafe
    from twisted.internet import reactor  # noqa: PLC0415 - the import installs one where there is none

    return reactor.callFromThread  # type: ignore[no-any-return]


class _Engine:
    """The engine of a crawl that does not run: in it, add-ons' fingerprinters look for downloader middlewares."""

    def __init__(self, crawler: Any) -> None:
        self._crawler = crawler
        crawler.engine = self

    @cached_property
    def downloader(self) -> SimpleNamespace:
        """The middlewares, made only for a fingerprinter that asks for them."""
        self._crawler.engine = None  # as in a crawl, until they are made
        made = DownloaderMiddlewareManager.from_crawler(self._crawler)
        self._crawler.engine = self
        return SimpleNamespace(middleware=made)


def make_fingerprinter(crawler: Crawler) -> RequestFingerprinterProtocol:
    """Return the fingerprinter of a crawl, for a crawler that does not run. What it counts, nobody reads.

    Without it, scrapy-poet's fingerprinter, and others that ask the crawler for its engine or its stats, raise an error.
    """
    crawler.stats = MemoryStatsCollector(crawler)
    kind = load_object(crawler.settings["REQUEST_FINGERPRINTER_CLASS"])
    made: RequestFingerprinterProtocol = build_from_crawler(kind, crawler)
    crawler.request_fingerprinter = made
    _Engine(crawler)
    return made


def is_forbidden(error: BaseException, request: Request, crawler: Crawler) -> bool:
    """Return whether Scrapy's own middlewares for robots.txt and for other sites have raised this IgnoreRequest.

    Without it (they say so in the exception's text only), such a page has failed.
    """
    return str(error) == "Forbidden by robots.txt" or is_offsite(request, crawler)


def is_offsite(request: Request, crawler: Crawler) -> bool:
    """Return whether Scrapy's middleware for other sites drops the request. Without it, such a page has failed."""
    middleware = crawler.get_downloader_middleware(OffsiteMiddleware)
    if middleware is None or request.dont_filter or request.meta.get("allow_offsite"):
        return False
    assert crawler.spider is not None  # noqa: S101 - the crawl is running
    return not middleware.should_follow(request, crawler.spider)


def copy_request(request: Request, meta: dict[str, Any]) -> Request:
    """Return a copy of the request with this meta.

    Without it, ``Request.replace`` would call the constructor of the request's class, which may not know all of its attributes.
    """
    copied = copy(request)
    copied._meta = meta  # noqa: SLF001 - the property has no setter
    copied.headers = request.headers.copy()
    copied._cb_kwargs = dict(request.cb_kwargs)  # noqa: SLF001
    copied.flags = list(request.flags)
    return copied


def rules_of(spider: Spider, callback: str | None) -> list[Any] | None:
    """Return the rules of a CrawlSpider, if its callback of this name chooses one by the number in ``meta["rule"]``.

    Without it, a page that was kept under a rule's number goes to whichever rule has that number, and perhaps to another callback.
    """
    is_chosen = callback == "_callback" and isinstance(spider, CrawlSpider)
    return getattr(spider, "_rules", None) if is_chosen else None


def host_of(request: Request) -> str:
    """Return the host of a request, as Scrapy's downloader has it: requests of one host wait for each other.

    Without it, an owner of hosts may give away a host that shares a slot of the downloader with another one.
    """
    return request.meta.get("download_slot") or urlparse_cached(request).hostname or ""


def host_queues(scheduler: Any) -> list[tuple[str, Callable[[], Any], int]] | None:
    """Return for each host in the queue its name, a function that takes a request out, and the number of its requests.

    Hosts of which the fewest requests are being downloaded come first, then the smallest. Return None if it is not known, as with
    a queue on disk: then a crawler gives away some requests of each host, in place of all of some.
    """
    queues = getattr(scheduler, "mqs", None)
    by_host = getattr(queues, "pqueues", {})
    active = getattr(getattr(queues, "_downloader_interface", None), "_active_downloads", None)
    if active is None or getattr(scheduler, "dqs", None) is not None:
        return None
    order = sorted(by_host, key=lambda host: (active(host), len(by_host[host])))

    def pop(host: str) -> Any:
        queue = by_host[host]
        request = queue.pop()
        if not len(queue):
            del by_host[host]
            queue.close()
        for stat in ("dequeued", "dequeued/memory"):  # as the scheduler counts
            scheduler.stats.inc_value(f"scheduler/{stat}")
        return request

    return [(host, partial(pop, host), len(by_host[host])) for host in order]


def hosts_at_work(engine: Any) -> set[str]:
    """Return the hosts from which the engine downloads, or has downloaded within the delay.

    Without it, an owner of hosts (``TBLOOM_SHARE = "hosts"``) may give one away during its delay.
    """
    slots = getattr(getattr(engine, "downloader", None), "slots", {})
    now = time.monotonic() if scrapy.version_info >= (2, 16) else time.time()
    # A delay is random, up to half longer if nothing else is set.
    waiting = {
        host
        for host, of in slots.items()
        if of.active or of.lastseen + of.delay * (1 + getattr(of, "jitter", 0.5)) > now
    }
    return waiting | {*map(host_of, requests_downloaded(engine))}


def watch_end(engine: Any, scraped: Callable[[Request], object]) -> None:
    """Call ``scraped`` with each request of the engine that the scraper has finished.

    Its callback or errback has ended, its links are scheduled, and its items have passed the pipelines. Without it, no page is ever
    committed: all are left to the next crawl, and none is lost.
    """
    scraper = engine.scraper
    enqueue_scrape = scraper.enqueue_scrape

    def enqueue(result: Any, request: Request, *more: Any) -> Any:
        def finished(result: Any) -> Any:
            scraped(request)
            return result

        return enqueue_scrape(result, request, *more).addBoth(finished)

    scraper.enqueue_scrape = enqueue


def watch_answers(engine: Any, got: Callable[[Request, int | Exception], object]) -> None:
    """Call ``got`` with each request, and the status or the exception that the downloader middlewares are about to get for it.

    Without it, nobody knows why a middleware asks for a page again, if it gives a request in place of the response.
    """
    methods = getattr(getattr(engine.downloader, "middleware", None), "methods", None)
    if methods is None:
        return

    def process_response(request: Request, response: Response) -> Response:
        got(request, response.status)
        return response

    def process_exception(request: Request, exception: Exception) -> None:
        got(request, exception)

    methods["process_response"].appendleft(process_response)
    methods["process_exception"].appendleft(process_exception)


#: The response, or the failure of an errback, whose item passes the pipelines. (One of these may schedule requests of its own, which
#: are no links of the page.)
_source = ContextVar[Any]("tbloom_source", default=None)


#: The response, or the failure of an errback, whose link the engine gives to its scheduler now; None: there is none.
link_source: ContextVar[Any] = ContextVar("tbloom_link_source", default=None)


def watch_output(
    engine: Any, passing: Callable[[Any], AbstractContextManager[object]] = nullcontext
) -> None:
    """Set ``link_source`` while a link is scheduled. An item passes the pipelines in what ``passing`` returns for its response.

    No signal tells of an item that enters them, or whose pipeline was cancelled. Without it, keys of a request's meta that were copied
    from a response are not known; and with "done", a page is committed although a link of it could not be scheduled, or a pipeline was
    cancelled.
    """
    scraper = engine.scraper
    process = getattr(scraper, "_process_spidermw_output_async", None)
    if process is None:
        return

    async def watched(output: Any, response: Any) -> None:
        if isinstance(output, Request):
            link_source.set(response)
            try:
                await process(output, response)  # does not wait
            finally:
                link_source.set(None)
            return
        _source.set(response)
        with passing(response):
            await process(output, response)

    scraper._process_spidermw_output_async = watched  # noqa: SLF001 - as the docstring says


def watch_files(engine: Any, failed: Callable[[Any, Request, Exception, int], object]) -> None:
    """Call ``failed`` each time that a media pipeline has not stored a file of an item.

    Its arguments are the item's response, the file's request, the exception, and the status of the file's response if it is another
    one than 200, or 0. Without it (the pipelines only log the exception), a page is committed, and its file is missing.
    """
    for pipeline in getattr(getattr(engine.scraper, "itemproc", None), "middlewares", ()):
        if hasattr(pipeline, "media_downloaded") and hasattr(pipeline, "_process_request"):
            _watch_files_of(pipeline, engine.crawler.request_fingerprinter.fingerprint, failed)
            _store_whole_files(getattr(pipeline, "store", None))


def _watch_files_of(
    pipeline: Any,
    fingerprint: Callable[[Request], bytes],
    failed: Callable[[Any, Request, Exception, int], object],
) -> None:
    process, downloaded = pipeline._process_request, pipeline.media_downloaded  # noqa: SLF001 - as above
    #: By the fingerprint, because several items may have one file, which is fetched once.
    statuses = dict[bytes, int]()

    def note_status(response: Any, request: Request, *more: Any, **item: Any) -> Any:
        if response.status != 200:  # noqa: PLR2004 - as the pipelines do
            statuses[fingerprint(request)] = response.status
        return downloaded(response, request, *more, **item)

    async def watched(request: Request, *more: Any) -> Any:
        try:
            return await process(request, *more)
        except Exception as error:
            failed(_source.get(), request, error, statuses.get(fingerprint(request), 0))
            raise

    pipeline._process_request, pipeline.media_downloaded = watched, note_status  # noqa: SLF001


def _store_whole_files(store: Any) -> None:
    """Let a local folder get whole files only. Without it, the next crawl takes a torn file for a whole one."""
    from scrapy.pipelines.files import FSFilesStore  # noqa: PLC0415 - the pipeline has imported it

    if type(store) is not FSFilesStore:
        return
    persist, path_of = store.persist_file, store._get_filesystem_path  # noqa: SLF001

    def persist_whole(path: Any, *more: Any, **options: Any) -> None:
        name = f"{str(path).rpartition('/')[0]}/.{uuid4().hex}.part"  # next to it; others may have a crawler of this process ID
        try:
            persist(name, *more, **options)
            path_of(name).replace(path_of(path))
        except OSError:
            path_of(name).unlink(missing_ok=True)  # a full disk
            raise

    store.persist_file = persist_whole  # type: ignore[method-assign]


def why_no_file(error: BaseException, request: Request, crawler: Crawler) -> str:
    """Return the name of the exception for which a media pipeline has not stored a file.

    Return "" if the pipeline does not want the file (an image is too small), or may not fetch it. Without it, such a page has failed.
    """
    from scrapy.pipelines.images import ImageException  # noqa: PLC0415 - few crawls need it

    of_pipelines: Any = ImageException.__base__  # FileException has had several modules
    while isinstance(error, of_pipelines) and not isinstance(error, ImageException):
        cause = error.__cause__ or error.__context__
        if cause is None:
            break
        error = cause
    is_refused = isinstance(error, IgnoreRequest) and is_forbidden(error, request, crawler)
    return "" if is_refused or isinstance(error, ImageException) else type(error).__name__


def read_sitemap(spider: SitemapSpider, response: Response) -> Any:
    """Return the entries of a sitemap, with its ``type``; None if it is none.

    Without it, only Scrapy's own SitemapSpider reads sitemaps.
    """
    body = spider._get_sitemap_body(response)  # noqa: SLF001 - as the docstring says
    return Sitemap(body) if body else None


def sitemaps_in(robots: Response) -> list[str]:
    """Return the URLs of the sitemaps that a robots.txt names. Before Scrapy 2.15, its function takes a str.

    Without it, only ``sitemap_urls`` name sitemaps.
    """
    takes_bytes = scrapy.version_info >= (2, 15)
    text: Any = robots.body if takes_bytes else robots.body.decode(errors="replace")
    return [*sitemap_urls_from_robots(text, base_url=robots.url)]
