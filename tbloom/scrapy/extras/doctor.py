"""What is wrong with a project's settings and spiders, or with what Redis has stored for them: for ``tbloom doctor``."""

from __future__ import annotations

import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from difflib import get_close_matches
from importlib.util import find_spec
from inspect import isclass
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis
import scrapy
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.exceptions import NotConfigured
from scrapy.extensions.feedexport import FeedExporter
from scrapy.http import Response
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings, Settings
from scrapy.spiders import SitemapSpider as ScrapysSitemapSpider
from scrapy.utils.conf import closest_scrapy_cfg
from scrapy.utils.misc import load_object
from scrapy.utils.project import ENVVAR

from tbloom import LocalBloom
from tbloom.engine.server import is_read_only
from tbloom.errors import ConfigError, ConfigMismatch, TBloomError
from tbloom.scrapy.addon import Addon
from tbloom.scrapy.dupefilter import DupeFilter
from tbloom.scrapy.extras.counts import KINDS, DistinctCounts, make_counters
from tbloom.scrapy.extras.fleet import clashes, shares_queue
from tbloom.scrapy.extras.sitemap import SitemapSpider
from tbloom.scrapy.hooks.feeds import LOCAL_STORAGES, is_written_at_once, refused_feeds
from tbloom.scrapy.options import (
    REDIS,
    error_line,
    make_store,
    naming_redis,
    needs_no_shared_queue,
    server_settings,
)
from tbloom.scrapy.settings import (
    COUNTS,
    FILTER,
    MARK,
    STORE,
    Setting,
    check_settings,
    done_statuses,
    expand,
)
from tbloom.version import NEWEST_TESTED, OLDEST_SCRAPY

_PERSIST, _WARN_ONLY = "SCHEDULER_PERSIST", "SPIDER_LOADER_WARN_ONLY"
#: tbloom's classes, by the setting that names them.
_OURS = {"ADDONS": "tbloom.scrapy.Addon", "DUPEFILTER_CLASS": "tbloom.scrapy.DupeFilter"}
#: Errors of a server that can't be reached. (A cluster's is no RedisError.)
_AWAY = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.RedisClusterException)
#: A fault names at most so many spiders.
_NAMED = 3
_READ_ONLY = "{}: a replica, which takes no writes: name its master"
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
_OFF = (
    "tbloom is off: neither ADDONS nor DUPEFILTER_CLASS names it{}. Set ADDONS = {{'tbloom.scrapy.Addon': 500}}, "
    "once: a later line such as ADDONS = {{}}, which scrapy startproject writes, undoes it"
)


def examine(settings: BaseSettings) -> tuple[list[str], list[str]]:
    """Return the faults of the project and its spiders, and notes.

    A fault is a line and, if the setting is in a file, a line with that file. A fault that only some spiders have names them.
    """
    _, fault = _loaded("SPIDER_LOADER_CLASS", settings["SPIDER_LOADER_CLASS"])
    if fault:
        return [_at(_place(fault, settings), fault)], []
    project, spiders = list[str](), list[type[Spider] | None]()
    try:
        spiders += _spiders(settings, warn_only=False)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the project's own modules raise
        others = settings.getbool(_WARN_ONLY)
        what = "a spider can't be imported" + ", so none can crawl" * (not others)
        place = _raised_at(error) or _place("SPIDER_MODULES", settings)
        project.append(_at(place, f"{what}: {_why(error)}"))
        if others:
            spiders += _spiders(settings, warn_only=True)
    faults, notes = dict[str, list[str]](), dict[str, list[str]]()
    away = dict[str, Exception]()
    for spider in spiders or [None]:
        name = spider.name if spider else "spider"
        faults[name], notes[name] = _examine_spider(spider, name, settings, away)
    return project + _merged(faults), _merged(notes)


def _spiders(settings: BaseSettings, *, warn_only: bool) -> list[type[Spider]]:
    """Return the project's spiders. Raise the error of one that can't be imported, or with ``warn_only`` leave it out."""
    settings = settings.copy()
    settings.set(_WARN_ONLY, warn_only, "cmdline")
    with warnings.catch_warnings(action="ignore"):  # Scrapy makes a warning of a traceback
        loader = load_object(settings["SPIDER_LOADER_CLASS"]).from_settings(settings.frozencopy())
    return [loader.load(name) for name in loader.list()]


def _merged(texts: dict[str, list[str]]) -> list[str]:
    """Return each text of the spiders once, with the names of those that have it, unless all have."""
    merged = list[str]()
    for text in dict.fromkeys(chain.from_iterable(texts.values())):
        names = [name for name, own in texts.items() if text in own]
        more = len(names) - _NAMED
        shown = ", ".join(names[:_NAMED]) + f" and {more} more" * (more > 0)
        merged.append(text if len(names) == len(texts) else f"spider {shown}: {text}")
    return merged


def _examine_spider(
    spider: type[Spider] | None, name: str, settings: BaseSettings, away: dict[str, Exception]
) -> tuple[list[str], list[str]]:
    """Return the faults and the notes of one spider, or of a project without any.

    ``away``: the servers that have not answered, with the error.
    """
    settings = settings.copy()
    try:
        if spider:
            spider.update_settings(settings)
    except Exception as error:  # noqa: BLE001 - whatever the spider raises
        what = f"update_settings of a spider fails: {_why(error)}"
        return [_at(_raised_at(error), what)], []
    examination, notes = _Examination(settings.copy(), name, away), list[str]()
    faults = [_at(_place(fault, settings, spider), fault) for fault in examination.faults()]
    crawler, refused = Crawler(spider or Spider, Settings(settings)), list[str]()
    with suppress(Exception):  # Scrapy ends by it, or the project's own component needs a crawl
        refused += refused_feeds(crawler)
    for feed in refused:
        fault = f"FEEDS: the crawl ends before its first request, because a feed can't be opened: {feed}"
        faults.append(_at(_place(fault, settings, spider), fault))
    with suppress(Exception):  # a wrong setting of Scrapy's, which Scrapy names
        # With wrong settings left out, a note could be wrong. The server does not matter, and a local store is for one crawler.
        if examination.wrong <= {*REDIS}:
            if STORE.value(examination.settings) != "local":
                notes += [
                    f"with several crawlers: {each}" for each in clashes(examination.settings)
                ]
            notes.extend(_pipelines(examination.settings))
            notes.extend(_cached_failures(examination.settings))
            notes.extend(_passing_robots(examination.settings))
            notes.extend(_sitemaps(spider, examination.settings))
            if not refused:
                notes.extend(_feeds(crawler, examination.settings))
    return faults, notes


def _pipelines(settings: BaseSettings) -> Iterator[str]:
    """Yield a note on each pipeline that keeps items and sends no signals, and on each of Scrapy's own that is off.

    No pipeline is made, because some empty a file when they are made.
    """
    from scrapy.pipelines.files import FilesPipeline  # noqa: PLC0415 - only doctor needs them
    from scrapy.pipelines.images import ImagesPipeline  # noqa: PLC0415

    if MARK.value(settings) != "done":
        return
    for path, place in settings.getwithbase("ITEM_PIPELINES").items():
        kind, fault = _loaded("ITEM_PIPELINES", path)
        if place is None or fault or not isclass(kind):  # Scrapy says that
            continue
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


def _passing_robots(settings: BaseSettings) -> Iterator[str]:
    """Yield a note if pages that robots.txt forbids may be fetched all the same: the Scrapy that is installed has this fault."""
    is_faulty = OLDEST_SCRAPY <= scrapy.version_info[:2] <= NEWEST_TESTED["scrapy"]
    if not (is_faulty and settings.getbool("ROBOTSTXT_OBEY")):
        return
    middlewares = settings.getwithbase("DOWNLOADER_MIDDLEWARES")
    places = {load_object(path): place for path, place in middlewares.items()}
    if places.get(RobotsTxtMiddleware) is not None and settings.getint("CONCURRENT_REQUESTS") > 1:
        yield (
            "ROBOTSTXT_OBEY: with Scrapy 2.14 to 2.19, forbidden pages are fetched if their requests wait together for a host's "
            "robots.txt, in each crawler: set CONCURRENT_REQUESTS = 1, or take the middleware of tbloom's recipe 'A robots.txt that every request heeds'"
        )


def _sitemaps(spider: type[Spider] | None, settings: BaseSettings) -> Iterator[str]:
    """Yield a note if a spider that reads sitemaps does not fetch a page again that has changed."""
    if not (spider and issubclass(spider, ScrapysSitemapSpider)):
        return
    if not issubclass(spider, SitemapSpider):
        yield (
            "Scrapy's SitemapSpider: the filter drops its sitemaps, and pages that have changed, within the window: "
            "tbloom.scrapy.SitemapSpider reads the sitemaps, and fetches such pages"
        )
    elif spider.sitemap_lastmod and settings.getbool("HTTPCACHE_ENABLED"):
        policy = load_object(settings["HTTPCACHE_POLICY"])(settings)
        request = Request("https://example.com/")
        if policy.is_cached_response_fresh(Response(request.url), request):
            yield (
                "HTTPCACHE_ENABLED: the cache serves a page that has changed as it was: set HTTPCACHE_POLICY = "
                "'scrapy.extensions.httpcache.RFC2616Policy', which asks the site, or leave the cache out"
            )


def _feeds(crawler: Crawler, settings: BaseSettings) -> Iterator[str]:
    """Yield notes on feeds that may not be opened, are stored at their end only, or replace a file by an empty one."""
    exporter = FeedExporter(crawler)
    given = {
        "time",
        "batch_time",
        "batch_id",
        "crawler",
        "name",
        "settings",
        *dir(crawler.spidercls),
    }
    for uri, options in exporter.feeds.items():
        storage = exporter.storages.get(urlsplit(uri).scheme, exporter.storages["file"])
        names = {*re.findall(r"%\((\w+)\)", uri)}
        if lacking := ", ".join(sorted(names - given)) * (not options["uri_params"]):
            yield f"FEEDS: {uri}: unless an argument or __init__ gives the spider {lacking}, the crawl ends before its first request"
        if MARK.value(settings) == "done" and not is_written_at_once(
            exporter.exporters[options["format"]], storage, options
        ):
            ends = (
                "batch"
                if options["batch_item_count"] and scrapy.version_info >= (2, 18)
                else "crawl"
            )
            what = f"FEEDS: {uri}: its items are stored at the end of the {ends}, and so pages are marked then"
            yield what + ": FEED_EXPORT_BATCH_ITEM_COUNT makes batches" * (ends == "crawl")
        is_replaced = options.get("overwrite", not issubclass(storage, LOCAL_STORAGES))
        if options["store_empty"] and is_replaced and names.isdisjoint({"time", "batch_time"}):
            yield f"FEEDS: {uri}: a crawl without new items replaces the file by an empty one: set 'store_empty': False"


class _Examination:
    """Looks for the faults of one spider's settings.

    A wrong setting is left out, so that it hides no other fault. So are those of a server that is away.
    """

    def __init__(self, settings: BaseSettings, name: str, away: dict[str, Exception]) -> None:
        self.settings, self._name, self._away = settings, name, away
        #: The settings that were left out.
        self.wrong = set[str]()
        #: The components that ADDONS and EXTENSIONS switch on.
        self._components = list[Any]()

    def faults(self) -> Iterator[str]:
        """Yield each fault. Change nothing that is stored."""
        try:
            yield from self._classes()
            if self.wrong.isdisjoint(_OURS) and (off := self._why_off()):
                yield off
                self.wrong.add("ADDONS")
            yield from self._errors(self._ask_filter, FILTER)
            if DistinctCounts in self._components:
                yield from self._errors(self._ask_counters, COUNTS)
            if self.wrong.isdisjoint(_OURS):
                yield from self._mark()
        except (TypeError, ValueError) as error:  # a bool or a dict of Scrapy's
            yield str(error)

    def _classes(self) -> Iterator[str]:
        """Look at the classes without which Scrapy or tbloom can't start."""
        for name in ("DUPEFILTER_CLASS", "SCHEDULER", "DOWNLOADER"):
            kind, fault = _loaded(f"tbloom can't start: {name}", self.settings[name])
            if not fault and not isclass(kind):
                fault = f"tbloom can't start: {name} is not a class: {kind!r}"
            if fault:
                yield fault
                self.wrong.add(name)
                # The add-on can be looked at with Scrapy's class.
                self.settings.set(name, Settings()[name], "cmdline")
        for name in ("ADDONS", "EXTENSIONS"):
            given = self.settings.getdict(name)
            for path in [path for path, on in given.items() if on is not None]:
                component, fault = _loaded(name, path)
                self._components.append(component)
                if fault:
                    yield fault
                    self.wrong.add(name)

    def _why_off(self) -> str:
        """Apply the add-on. Return why tbloom filters nothing, or ""."""
        settings = self.settings
        if Addon in self._components:
            try:
                Addon().update_settings(settings)
            except NotConfigured as error:
                return f"tbloom's add-on is off: {error}"
        if issubclass(load_object(settings["DUPEFILTER_CLASS"]), DupeFilter):
            return ""
        names = sorted(name for name in settings if name.startswith("TBLOOM_"))
        return _OFF.format(f" (without effect: {', '.join(names)})" if names else "")

    def _mark(self) -> Iterator[str]:
        """Yield a fault if the queue, or a missing add-on, does not suit TBLOOM_MARK."""
        is_done, is_shared = self.settings.get(MARK.name) == "done", shares_queue(self.settings)
        if is_done and is_shared:
            yield str(needs_no_shared_queue())
        elif is_done and Addon not in self._components:
            yield f"{MARK.name}: 'done' needs ADDONS = {{'tbloom.scrapy.Addon': 500}}"
        elif is_shared and not self.settings.getbool(_PERSIST):
            yield (
                f"{_PERSIST}: without it, scrapy-redis deletes the queue when a crawl is stopped, and its pages count as seen for "
                f"the whole window: set it to True; or remove SCHEDULER, and set {MARK.name} = 'done'"
            )

    def _errors(self, ask: Callable[[], list[str]], table: Mapping[str, Setting]) -> Iterator[str]:
        """Yield what a store says, and the error that it raises. Leave out what the error names, and ask again."""
        while True:
            try:
                yield from ask()
            except ConfigError as error:
                names = {*error.argument.split(", ")}
                if names <= self.wrong:  # it follows from what was left out
                    return
                yield str(error)
            except ConfigMismatch as error:
                # A default in place of a wrong setting says nothing.
                if not any(name.startswith(("TBLOOM_", "BLOOMFILTER_")) for name in self.wrong):
                    yield error_line(error, self.settings, table)
                return
            except _AWAY as error:
                yield error_line(error, self.settings, table)
                self._away[server_settings(self.settings)] = error
                names = {*REDIS}
            except (TBloomError, redis.RedisError) as error:
                yield error_line(error, self.settings, table)
                return
            else:
                return
            self.wrong |= names
            for name in names & {*self.settings}:
                del self.settings[name]

    def _ask_filter(self) -> list[str]:
        """Return the warnings of the filter with these settings. Raise the first error."""
        settings, name, path = self.settings, self._name, FILTER["path"]
        check_settings(settings)
        if STORE.name in self.wrong:  # the others may be right for the store that is meant
            return []
        is_local = STORE.value(settings) == "local"
        if is_local and path.value(settings) is not None:
            file = Path(expand(path, path.value(settings), spider=name))
            if file.parent.is_dir() and not file.exists():  # a crawl makes it
                settings.set(path.name, None, "cmdline")
        is_asked = is_local or self._server_is_known()
        make_store(settings, name).close()  # else a wrong TBLOOM_RETRY_FOR would not be found
        with naming_redis(settings), closing(make_store(settings, name, retry_for=0)) as seen:
            if not is_asked:
                return []
            seen.contains_many([b"a"])  # raises if other parameters are stored
            if isinstance(seen, LocalBloom):
                return []
            if seen.run(is_read_only(seen.config.keys.root)):
                return [_READ_ONLY.format(server_settings(settings))]
            return seen.warnings()

    def _ask_counters(self) -> list[str]:
        """Raise the first error of counters with these settings."""
        is_asked = self._server_is_known()
        counter = make_counters(self.settings, self._name)[KINDS[0]]
        with naming_redis(self.settings), closing(counter.client):
            if is_asked:
                counter.count()
        return []

    def _server_is_known(self) -> bool:
        """Return whether no setting of the server is left out. Raise the error that another spider got from this server."""
        is_known = self.wrong.isdisjoint(REDIS)
        if is_known and (error := self._away.get(server_settings(self.settings))):
            raise error
        return is_known


def _loaded(subject: str, value: Any) -> tuple[Any, str]:
    """Return what the value names; or None and a fault, which begins with the subject."""
    try:
        return load_object(value), ""
    except Exception as error:  # noqa: BLE001 - whatever the project's own module raises
        meant = next((path for name, path in _OURS.items() if subject.endswith(name)), "")
        is_close = get_close_matches(str(value), [meant], 1)
        hint = f"; did you mean {meant!r}?" if is_close else ""
        why = f"{type(error).__name__}: {error}{hint}"
        return None, f"{subject} can't be imported: {why}"


def _at(place: str, fault: str) -> str:
    return f"{fault}\n{place}".rstrip()


def _why(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _raised_at(error: BaseException) -> str:
    """Return the project's last line on the way to the error; "" if none of its lines is."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_relative(error.filename)}, line {error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(_relative(frame.filename))
        # An environment of Python may be in the project's folder.
        if not (path.is_absolute() or "site-packages" in path.parts or path.name.startswith("<")):
            return f"{path}, line {frame.lineno}"
    return ""


def _place(fault: str, settings: BaseSettings, spider: type[Spider] | None = None) -> str:
    """Return the file of the setting that a fault names first, and its name; "" if it has a default."""
    named = re.search(r"\b[A-Z]+(_[A-Z]+)*\b", fault)
    priority = settings.getpriority(named[0]) if named else None
    if named is None or priority is None or priority < SETTINGS_PRIORITIES["project"]:
        return ""
    module = os.environ.get(ENVVAR, "")
    if spider and priority >= SETTINGS_PRIORITIES["spider"]:
        bases = spider.__mro__
        sets = [each for each in bases if named[0] in (vars(each).get("custom_settings") or ())]
        module = (sets or [spider])[0].__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    return f"{_relative(file)}: {named[0]}" if file else ""


def _relative(file: str) -> str:
    """Return the path within the project's folder, if it is there."""
    root, path = Path(closest_scrapy_cfg() or "scrapy.cfg").resolve().parent, Path(file)
    return str(path.relative_to(root) if path.is_relative_to(root) else path)
