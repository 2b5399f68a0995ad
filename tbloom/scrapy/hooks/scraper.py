"""The scraper: when it has finished a page, whose output it processes, and what becomes of an item's files."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol
from uuid import uuid4

import scrapy
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.spiders import SitemapSpider
from scrapy.utils.sitemap import Sitemap, sitemap_urls_from_robots

from tbloom.scrapy.hooks.downloader import is_forbidden


class OutputWatcher(Protocol):
    """What is told about the output of callbacks and errbacks."""

    #: The response, or the failure of an errback, whose link is scheduled now; None: there is none.
    source: Any

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
            watcher.source = response
            try:
                await process(output, response)  # does not wait
            finally:
                watcher.source = None
            return
        _source.set(response)
        try:
            await process(output, response)
        except BaseException as error:
            watcher.item_lost(response, error)
            raise

    scraper._process_spidermw_output_async = watched  # noqa: SLF001 - as above


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
