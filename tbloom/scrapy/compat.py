"""Undocumented parts of Scrapy that tbloom needs, a function for each, with what happens without it.

They are tested with the oldest and the newest Scrapy. ``untested_versions`` names installed versions that the tests do not know.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from copy import copy
from functools import cached_property, partial
from inspect import isawaitable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol
from uuid import uuid4

import redis
import scrapy
from scrapy import Request, Spider, signals
from scrapy.core.downloader.middleware import DownloaderMiddlewareManager
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.exceptions import IgnoreRequest, NotConfigured
from scrapy.extensions import feedexport
from scrapy.extensions.feedexport import FeedExporter, FileFeedStorage, StdoutFeedStorage
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.spiders import CrawlSpider, SitemapSpider
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.asyncio import call_later
from scrapy.utils.conf import build_component_list
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.request import RequestFingerprinterProtocol
from scrapy.utils.sitemap import Sitemap, sitemap_urls_from_robots
from twisted.internet.defer import Deferred

from tbloom.version import NEWEST_TESTED


def untested_versions() -> list[str]:
    """Return a line for each of Scrapy and redis-py that is newer than tbloom's tests know."""
    lines = []
    for name, library in {"Scrapy": scrapy, "redis-py": redis}.items():
        major, minor = NEWEST_TESTED[library.__name__]
        numbers = re.findall(r"\d+", library.__version__)  # of 2.20rc1: 2, 20 and 1
        if (*map(int, numbers[:2]),) > (major, minor):
            newest = f"{major}.{minor}, the newest that tbloom's tests have seen"
            lines.append(f"{name} {library.__version__} is newer than {newest}")
    return lines


# Fingerprinters


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


# Requests


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


# The engine


def keep_shared_queue(engine: Any) -> None:
    """Keep scrapy-redis' queue, which all crawlers share, though its scheduler is closed and ``SCHEDULER_PERSIST`` is not set.

    The engine's scheduler is public from Scrapy 2.19 on. Without it, the queue is cleared where a crawl ends by an error.
    """
    owner = engine if hasattr(engine, "scheduler") else getattr(engine, "_slot", None)
    scheduler = getattr(owner, "scheduler", None)
    if scheduler is not None:  # an empty one is false
        scheduler.persist = True


def is_idle(engine: Any) -> bool:
    """Return whether the engine has nothing to do. Without it, an idle crawl ends while others' pages may have to be taken over."""
    return bool(engine and hasattr(engine, "spider_is_idle") and engine.spider_is_idle())


def is_downloading(engine: Any) -> bool:
    """Return whether the engine downloads something. Without it, left pages may be fetched while a slow login is under way."""
    return bool(getattr(getattr(engine, "downloader", None), "active", ()))


def wake_engine(engine: Any) -> None:
    """Make the engine ask its scheduler for requests. Without it, it does so at the next response, or after 5 seconds."""
    nextcall = getattr(getattr(engine, "_slot", None), "nextcall", None)
    if nextcall is not None:
        nextcall.schedule()


async def wait_until_closed(sender: Any) -> None:
    """Wait at ``engine_stopped`` until the spider is closed; ``sender`` is the crawler.

    Without it, a signal that comes while the spider closes ends Scrapy's event loop before feeds are stored and pages are committed.
    """
    while sender.engine.spider is not None:
        pause: Deferred[None] = Deferred()
        call_later(0.01, pause.callback, None)
        await maybe_deferred_to_future(pause)


def host_of(request: Request) -> str:
    """Return the host of a request, as Scrapy's downloader has it: requests of one host wait for each other.

    Without it, an owner of hosts may give away a host that shares a slot of the downloader with another one.
    """
    return request.meta.get("download_slot") or urlparse_cached(request).hostname or ""


def hosts_at_work(engine: Any) -> set[str]:
    """Return the hosts from which the engine downloads, or has downloaded within the delay.

    Without it, an owner of hosts (``TBLOOM_SHARE = "hosts"``) may give one away during its delay.
    """
    downloader = getattr(engine, "downloader", None)
    slots, now = getattr(downloader, "slots", {}), time.time()
    # A delay may be random, up to half longer.
    waiting = {
        host for host, of in slots.items() if of.active or of.lastseen + 1.5 * of.delay > now
    }
    return waiting | {*map(host_of, getattr(downloader, "active", ()))}


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


# The scraper


class OutputWatcher(Protocol):
    """What is told about the output of callbacks and errbacks."""

    def yields(self, response: Any) -> object:
        """Hear that a link of the response, or of an errback's failure, is scheduled now; None: that is over."""

    def item_lost(self, response: Any, error: BaseException) -> object:
        """Hear that a pipeline was cancelled, for which Scrapy sends no signal."""


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


#: The response, or the failure of an errback, whose item passes the pipelines.
_source = ContextVar[Any]("tbloom_source", default=None)


def watch_output(engine: Any, watcher: OutputWatcher) -> None:
    """Tell the watcher whose output the scraper processes, by its method ``_process_spidermw_output_async``.

    Without it, keys of a request's meta that were copied from a response are not known; and with "done", a page is committed
    although a link of it could not be scheduled, or a pipeline was cancelled.
    """
    scraper = engine.scraper
    process = getattr(scraper, "_process_spidermw_output_async", None)
    if process is None:
        return

    async def watched(output: Any, response: Any) -> None:
        if isinstance(output, Request):
            watcher.yields(response)
            try:
                await process(output, response)  # does not wait
            finally:
                watcher.yields(None)
            return
        _source.set(response)
        try:
            await process(output, response)
        except BaseException as error:
            watcher.item_lost(response, error)
            raise

    scraper._process_spidermw_output_async = watched  # noqa: SLF001 - as above


# Middlewares and extensions


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


# Files and images


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


# Feeds

#: Scrapy's exporters of lines, and the others. Each writes an item into its file at once; JSON's and XML's write only a bracket at
#: their end. (Names, because the module of the classes takes 8 MB.)
_LINES = {"CsvItemExporter", "JsonLinesItemExporter", "PprintItemExporter"}
_PICKLES = {"MarshalItemExporter", "PickleItemExporter"}
_AT_ONCE = {"JsonItemExporter", "XmlItemExporter", *_LINES, *_PICKLES}
#: Scrapy's storages of local files.
LOCAL_STORAGES: tuple[Any, ...] = FileFeedStorage, StdoutFeedStorage


class FeedWatcher(Protocol):
    """What is told about a feed."""

    def accepts(self, slot: Any, item: Any) -> object:
        """Hear that the feed is about to export an item."""

    def raises(self, slot: Any) -> object:
        """Hear that the feed's filter has raised an exception."""

    def lost(self, slot: Any) -> object:
        """Hear that the exporter could not write its end, whereupon Scrapy neither stores the file nor says so."""

    def stored(self, slot: Any) -> object:
        """Hear that the storage has stored the file."""


def watch_feed(slot: Any, watcher: FeedWatcher) -> None:
    """Tell the watcher what becomes of a feed's items.

    Without it, pages with items in feeds that are stored at their end fail. Others are committed though a filter, an exporter, or an
    exporter's end has raised an exception, which Scrapy only logs.
    """
    slot.filter = _WatchedFilter(slot, watcher)
    finish, storage = slot.finish_exporting, slot.storage
    store = storage.store

    def finish_watched() -> None:
        try:
            finish()
        except BaseException:
            watcher.lost(slot)
            raise

    def note(result: Any) -> Any:
        watcher.stored(slot)
        return result

    async def note_later(storing: Any) -> Any:
        return note(await storing)

    def store_watched(file: Any) -> Any:
        result = store(file)
        if isinstance(result, Deferred):
            return result.addCallback(note)
        return note_later(result) if isawaitable(result) else note(result)

    slot.finish_exporting, storage.store = finish_watched, store_watched


class _WatchedFilter:
    """A feed's filter. Scrapy exports an item right after it was accepted."""

    def __init__(self, slot: Any, watcher: FeedWatcher) -> None:
        self._slot, self._filter, self._watcher = slot, slot.filter, watcher

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filter, name)

    def accepts(self, item: Any) -> bool:
        try:
            is_accepted: bool = self._filter.accepts(item)
        except Exception:
            self._watcher.raises(self._slot)
            raise
        if is_accepted:
            self._watcher.accepts(self._slot, item)
        return is_accepted


def feed_slots(crawler: Crawler) -> list[Any]:
    """Return the feeds that are open, each with its file. Without it, pages are committed before their items are in the file."""
    return getattr(crawler.get_extension(FeedExporter), "slots", [])


def open_no_feeds(crawler: Crawler) -> None:
    """Keep the feeds' files as they are in a crawl that can't begin. Without it, Scrapy empties those that it is to overwrite."""
    extensions: Any = None
    with suppress(RuntimeError):  # they are not made yet
        extensions = crawler.extensions
    for extension in getattr(extensions, "middlewares", ()):
        if isinstance(extension, FeedExporter):
            crawler.signals.disconnect(extension.open_spider, signals.spider_opened)
            extension.slots.clear()


def unopened_feed(crawler: Crawler) -> str:
    """Return which feed is not open, and why; "" if all are, or if the project has a feed exporter of its own.

    Without it, Scrapy logs an ERROR, and the crawl stores nothing.
    """
    exporter = crawler.get_extension(FeedExporter)
    if exporter is None:
        extensions = map(
            load_object, build_component_list(crawler.settings.getwithbase("EXTENSIONS"))
        )
        return next(refused_feeds(crawler), "") if FeedExporter in extensions else ""
    if type(exporter).open_spider is not FeedExporter.open_spider:
        return ""
    for uri in [*exporter.feeds][len(exporter.slots) :]:
        again: Any = copy(exporter)
        again.slots, why = [], "another feed is not open"
        try:
            again.open_spider(crawler.spider)
        except Exception as error:  # noqa: BLE001 - whatever the project's own raises
            why = f"{type(error).__name__}: {error}"
        return f"{uri}: {why}"
    return ""


def refused_feeds(crawler: Crawler) -> Iterator[str]:
    """Yield each feed of the settings that the feed exporter refuses, and why, which it only logs."""
    settings, said = crawler.settings, list[str]()
    feeds = [
        (uri, {"FEEDS": {uri: each}, "FEED_URI": None})
        for uri, each in settings.getdict("FEEDS").items()
    ]
    if uri := settings["FEED_URI"]:
        feeds.append((uri, {"FEEDS": {}}))
    for uri, own in feeds:
        one = copy(crawler)
        one.settings = Settings({**settings, **own})

        def keep(record: logging.LogRecord) -> bool:
            said.append(record.getMessage())
            return False

        feedexport.logger.addFilter(keep)
        try:
            FeedExporter(one)
        except NotConfigured:
            yield f"{uri}: {said[-1] if said else 'not configured'}"
        finally:
            feedexport.logger.removeFilter(keep)


def items_taken(slot: Any) -> int:
    """Return how many items a feed has taken. Without it, pages are committed before their items are uploaded."""
    return getattr(slot, "itemcount", 0)


def flush_feed(slot: Any) -> None:
    """Write what a feed keeps in memory into its file. Raise its OSError. Without it, a kill may lose items of committed pages."""
    file = getattr(slot, "file", None)
    if file is not None and not file.closed:
        file.flush()


def _scrapys(exporter: Any) -> Any:
    """Return the class of Scrapy's own from which an exporter derives, or ``object``."""
    classes = getattr(exporter, "__mro__", ())
    return next((each for each in classes if each.__module__ == "scrapy.exporters"), object)


def is_written_at_once(exporter: Any, storage: Any, options: Mapping[str, Any]) -> bool:
    """Return whether these classes of a feed are known to write each item into a local file as it comes.

    A class that ends a file in its own way may keep items until then; a storage of its own, or a compressed file, has them at its
    end only.
    """
    base = _scrapys(exporter)
    return (
        "postprocessing" not in options
        and base.__name__ in _AT_ONCE
        and exporter.finish_exporting is base.finish_exporting
        and any(
            issubclass(storage, kind) and (storage.open, storage.store) == (kind.open, kind.store)
            for kind in LOCAL_STORAGES
        )
    )


def is_local_feed(holder: Any) -> bool:
    """Return whether this is a feed whose items go into a local file as they come.

    Without it, pages are committed once their feed is closed.
    """
    if (options := getattr(holder, "feed_options", None)) is None:
        return False
    return is_written_at_once(holder.exporters.get(holder.format), type(holder.storage), options)


def continued_file(slot: Any) -> Path | None:
    """Return the file to which a feed appends; None if it begins one.

    Without it, the first item may continue half a line, which a crawler that was killed has left.
    """
    storage = getattr(slot, "storage", None)
    if isinstance(storage, FileFeedStorage) and storage.write_mode == "ab":
        return Path(storage.path)
    return None


def writes_lines(slot: Any) -> bool:
    """Return whether a feed writes lines, which a later crawl can append to, and not compressed."""
    name = _scrapys(slot.exporters.get(slot.format)).__name__
    return name in _LINES and "postprocessing" not in slot.feed_options


def writes_document(slot: Any) -> bool:
    """Return whether nobody can read a file to which a feed has appended.

    An exporter of the project's own that writes nothing at its end may be for lines.
    """
    exporter = slot.exporters.get(slot.format)
    name = _scrapys(exporter).__name__
    finish = getattr(exporter, "finish_exporting", None)
    writes_end = getattr(finish, "__qualname__", "") != "BaseItemExporter.finish_exporting"
    return name in _PICKLES or (
        name not in _LINES and writes_end
    )  # a pickle that was cut hides later ones


def continue_csv(exporter: Any, header: list[str], item: Any) -> None:
    """Let an exporter write rows under this header, if its columns are those of the item. Without it, each crawl writes a header."""
    from itemadapter import ItemAdapter  # noqa: PLC0415 - the exporter has imported it

    fields = exporter.fields_to_export
    names = [
        *(
            fields.values()
            if isinstance(fields, Mapping)
            else fields or ItemAdapter(item).field_names()
        )
    ]
    if not fields and {*names} <= {*header}:
        exporter.fields_to_export = header
        exporter._autodetected_fields = True  # noqa: SLF001 - Scrapy warns of other fields
    elif names != header:
        return
    exporter.include_headers_line = False


# The process


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


def spider_arguments(crawler: Crawler) -> dict[str, Any]:
    """Return the arguments with which ``Crawler.crawl`` makes the spider, while it makes the crawl's components.

    Scrapy keeps them nowhere. Without it, crawls of one spider share their pages whatever its arguments are.
    """
    frame = sys._getframe()  # noqa: SLF001 - documented
    while frame := frame.f_back:  # type: ignore[assignment] # ends with None
        found = frame.f_locals
        if found.get("self") is crawler and "kwargs" in found and "args" in found:
            return {**{str(n): value for n, value in enumerate(found["args"])}, **found["kwargs"]}
    return {}


# The event loop


def call_soon(call: Callable[..., object], *arguments: Any) -> None:
    """Call a function in the next turn of the event loop."""
    call_later(0, call, *arguments)


async def next_turn() -> None:
    """Wait for the next turn of the event loop."""
    turn: Deferred[None] = Deferred()
    call_later(0, turn.callback, None)
    await maybe_deferred_to_future(turn)


def in_loop() -> Callable[..., Any]:
    """Return a function that other threads call with a function and its arguments, which the event loop then calls."""
    with suppress(RuntimeError):  # another reactor
        return asyncio.get_running_loop().call_soon_threadsafe
    from twisted.internet import reactor  # noqa: PLC0415 - the import installs one where there is none

    return reactor.callFromThread  # type: ignore[no-any-return]


# Sitemaps


def read_sitemap(spider: SitemapSpider, response: Response) -> Any:
    """Return the entries of a sitemap, with its ``type``; None if it is none.

    Without it, only Scrapy's own SitemapSpider reads sitemaps.
    """
    body = spider._get_sitemap_body(response)  # noqa: SLF001 - as the docstring says
    return Sitemap(body) if body else None


def is_of_sitemap(request: Request) -> bool:
    """Return whether a SitemapSpider, Scrapy's or tbloom's, reads a sitemap with the request.

    Without it, a crawl that fetched nothing but sitemaps does not say so.
    """
    return getattr(request.callback, "__name__", "") == "_parse_sitemap"


def sitemaps_in(robots: Response) -> list[str]:
    """Return the URLs of the sitemaps that a robots.txt names. Before Scrapy 2.15, its function takes a str.

    Without it, only ``sitemap_urls`` name sitemaps.
    """
    takes_bytes = scrapy.version_info >= (2, 15)
    text: Any = robots.body if takes_bytes else robots.body.decode(errors="replace")
    return [*sitemap_urls_from_robots(text, base_url=robots.url)]
