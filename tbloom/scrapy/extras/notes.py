"""The notes of ``tbloom doctor``: which settings do not fit several crawlers of a spider, or what ends no crawl and yet costs pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from inspect import isclass
from typing import Any
from urllib.parse import urlsplit

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.extensions.feedexport import FeedExporter
from scrapy.http import Response
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.settings import BaseSettings
from scrapy.spiders import SitemapSpider as ScrapysSitemapSpider
from scrapy.utils.misc import load_object

from tbloom.scrapy.extras.sitemap import SitemapSpider
from tbloom.scrapy.hooks.feeds import OWN, how_to_keep, shown_uri
from tbloom.scrapy.hooks.starts import uncalled
from tbloom.scrapy.settings import FILTER, FLUSH, MARK, SHARE, STORE, TAKE_OVER, done_statuses

#: Formats that several crawlers can append to one file, a line at a time.
_LINES = {"jsonlines", "jsonl", "jl", "csv"}
#: A delay up to that of `scrapy startproject` says nothing of what the user wants (seconds).
_TEMPLATES_DELAY = 1
#: Pipelines of others that keep items in memory, with the setting of how many, and its default.
_BUFFERING = {
    "bigquerypipeline.pipelines.BigQueryPipeline": ("BIGQUERY_ITEM_BATCH", 1),
    "s3pipeline.pipelines.S3Pipeline": ("S3PIPELINE_MAX_CHUNK_SIZE", 100),
    "scrapy_mongodb.MongoDBPipeline": ("MONGODB_BUFFER_DATA", 0),
    "scrapyelasticsearch.scrapyelasticsearch.ElasticSearchPipeline": (
        "ELASTICSEARCH_BUFFER_LENGTH",
        500,
    ),
}
_KEEPS = "ITEM_PIPELINES: {} keeps up to {} items in memory, and their pages count as seen before they are stored: set {} = 1"
_SITEMAPS = (
    "Scrapy's SitemapSpider: the filter drops its sitemaps, and pages that have changed, within the window: "
    "tbloom.scrapy.SitemapSpider reads the sitemaps, and fetches such pages"
)


def notes_on(
    spider: type[Spider] | None, crawler: Crawler, settings: BaseSettings
) -> Iterator[str]:
    """Yield the notes on one spider, or on a project without any; ``settings``: those of the crawl, which have no fault."""
    if STORE.value(settings) != "local":  # which is for one crawler
        yield from (f"with several crawlers: {each}" for each in _clashes(settings))
    yield from _pipelines(settings)
    yield from _cached_failures(settings)
    kinds = spider.__mro__ if spider else ()
    if ScrapysSitemapSpider in kinds and SitemapSpider not in kinds:
        yield _SITEMAPS
    if spider:
        yield from uncalled(spider, _classes(settings, "SPIDER_MIDDLEWARES"))
    yield from _feeds(crawler)


def _classes(settings: BaseSettings, setting: str) -> Iterator[type[Any]]:
    """Yield the classes of a setting's components that are on."""
    for path, place in settings.getwithbase(setting).items():
        kind: Any = None
        with suppress(Exception):  # Scrapy says that
            kind = load_object(path)
        if place is not None and isclass(kind):
            yield kind


def _clashes(settings: BaseSettings) -> Iterator[str]:
    """Yield a line for each setting that does not fit several crawlers, with the remedy."""
    is_done, gives_hosts = MARK.value(settings) == "done", SHARE.value(settings) == "hosts"
    queue = load_object(settings["SCHEDULER_PRIORITY_QUEUE"])
    by_itself = f"holds for each crawler; with {SHARE.name} = 'hosts', for the fleet"
    if "%(timestamp)s" in str(FILTER["name"].value(settings)):
        yield f"{FILTER['name'].name}: %(timestamp)s gives each crawler a separate filter, so each fetches every page"
    if FLUSH.value(settings):
        yield f"{FLUSH.name} clears the filter of running crawlers: set it only for the first"
    if not (is_done or shares_queue(settings)):
        yield f"{MARK.name} = 'scheduled' shares no work; 'done' does"
    if is_done and not TAKE_OVER.value(settings):
        yield f"{TAKE_OVER.name} = False shares no work; True does"
    if gives_hosts and not issubclass(queue, DownloaderAwarePriorityQueue):
        yield "SCHEDULER_PRIORITY_QUEUE lets no crawler give hosts away before its end: remove it"
    if not gives_hosts and settings.getbool("AUTOTHROTTLE_ENABLED"):
        yield f"AUTOTHROTTLE_ENABLED {by_itself}"
    if not gives_hosts and settings.getfloat("DOWNLOAD_DELAY") > _TEMPLATES_DELAY:
        yield f"DOWNLOAD_DELAY {by_itself}"
    if settings["JOBDIR"]:
        yield "JOBDIR: requests are lost unless each crawler has its own; 'done' needs none"
    feeds = settings.getdict("FEEDS").items()
    for uri in [str(uri) for uri, feed in feeds if not _keeps_items(str(uri), feed)]:
        yield f"FEEDS: {shown_uri(uri)!r} loses items if several crawlers write it: append jsonlines, or give each a file"


def shares_queue(settings: BaseSettings) -> bool:
    """Return whether the scheduler is scrapy-redis'."""
    kinds = load_object(settings["SCHEDULER"]).__mro__
    return any(kind.__module__.startswith("scrapy_redis.") for kind in kinds)


def _keeps_items(uri: str, feed: dict[str, Any]) -> bool:
    """Return whether several crawlers can write the feed: each has its own file, or they append lines to one on this disk."""
    if uri.startswith("stdout:") or OWN.search(uri) or feed.get("uri_params"):
        return True
    is_here = "://" not in uri or uri.startswith("file:")
    is_appended = is_here and not feed.get("overwrite") and not feed.get("postprocessing")
    return is_appended and feed.get("format") in _LINES


def _pipelines(settings: BaseSettings) -> Iterator[str]:
    """Yield a note on each pipeline that keeps items and sends no signals, and on each of Scrapy's own that is off.

    No pipeline is made, because some empty a file when they are made.
    """
    from scrapy.pipelines.files import FilesPipeline  # noqa: PLC0415 - only doctor needs them
    from scrapy.pipelines.images import ImagesPipeline  # noqa: PLC0415

    if MARK.value(settings) != "done":
        return
    for kind in _classes(settings, "ITEM_PIPELINES"):
        for base in kind.__mro__:
            name, default = _BUFFERING.get(f"{base.__module__}.{base.__qualname__}", ("", 0))
            if name and (kept := settings.getint(name, default)) > 1:
                yield _KEEPS.format(kind.__qualname__, kept, name)
        is_images = issubclass(kind, ImagesPipeline)
        usual: Any = ImagesPipeline if is_images else FilesPipeline
        made_by = getattr(kind, "from_crawler", None)
        if getattr(made_by, "__func__", None) is usual.from_crawler.__func__:
            store = "IMAGES_STORE" if is_images else "FILES_STORE"
            if not settings.get(store):
                yield f"ITEM_PIPELINES: {kind.__qualname__} is off: {store} is not set"
            elif is_images and find_spec("PIL") is None:
                yield f"ITEM_PIPELINES: {kind.__qualname__} is off: it needs the package Pillow"


def _cached_failures(settings: BaseSettings) -> Iterator[str]:
    """Yield a note if Scrapy's HTTP cache serves the responses of failed pages again."""
    if not settings.getbool("HTTPCACHE_ENABLED") or MARK.value(settings) != "done":
        return
    policy = load_object(settings["HTTPCACHE_POLICY"])(settings)
    statuses = {403, *map(int, settings.getlist("RETRY_HTTP_CODES"))}
    request, served = Request("https://example.com/"), list[int]()
    for status in sorted(statuses - done_statuses(settings)):
        response = Response(request.url, status)
        if policy.should_cache_response(response, request):
            served += [status] * policy.is_cached_response_fresh(response, request)
    if served:
        name = "HTTPCACHE_IGNORE_HTTP_CODES"
        ignored = sorted({*map(int, settings.getlist(name)), *served})
        yield (
            f"HTTPCACHE_ENABLED: the cache serves a failed page's response ({', '.join(map(str, served))}) to the next crawls as well, "
            f"so that the page fails again: let HTTPCACHE_POLICY refuse it, as Scrapy's own does with {name} = {ignored}"
        )


def _feeds(crawler: Crawler) -> Iterator[str]:
    """Yield a note on each feed whose file each crawl replaces."""
    exporter = FeedExporter(crawler)
    for uri, options in exporter.feeds.items():
        storage = exporter.storages.get(urlsplit(uri).scheme, exporter.storages["file"])
        if remedy := how_to_keep(storage, uri, options):
            yield f"FEEDS: each crawl replaces {shown_uri(uri)}: it has the items of one crawl's new pages only: {remedy}"
