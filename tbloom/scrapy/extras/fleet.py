"""Which settings do not fit several crawlers of a spider at once: the notes of ``tbloom doctor``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from tbloom.scrapy.settings import FILTER, FLUSH, MARK, PAGES, SHARE, STORE, TAKE_OVER

#: Formats of which several crawlers can append whole lines to one file.
_LINES = {"jsonlines", "jsonl", "jl", "csv"}
#: In the path of a feed, what is replaced by something of a crawl's own. ``name`` is the spider's.
_OWN = re.compile(r"%\((?!name\)|batch_id\))")
#: `scrapy startproject` writes this delay (seconds), so it says nothing of what the user wants.
_TEMPLATES_DELAY = 1


def shares_queue(settings: BaseSettings) -> bool:
    """Return whether the scheduler is scrapy-redis'."""
    kinds = load_object(settings["SCHEDULER"]).__mro__
    return any(kind.__module__.startswith("scrapy_redis.") for kind in kinds)


def is_page_cache(storage: Any) -> bool:
    """Return whether the class of an HTTP cache is tbloom's, or a subclass. To import that would need the extra ``pages``."""
    names = [(kind.__module__, kind.__name__) for kind in getattr(storage, "__mro__", ())]
    return ("tbloom.scrapy", "PageCacheStorage") in names


def clashes(settings: BaseSettings) -> Iterator[str]:
    """Yield a line for each setting that does not fit several crawlers, with the remedy. A local store is for one crawler."""
    if STORE.value(settings) != "local":
        yield from _of_work(settings)
        yield from _of_hosts(settings)
        yield from _of_files(settings)


def _of_work(settings: BaseSettings) -> Iterator[str]:
    is_done = MARK.value(settings) == "done"
    if "%(timestamp)s" in str(FILTER["name"].value(settings)):
        yield f"{FILTER['name'].name}: %(timestamp)s gives each a filter of its own, so each fetches every page"
    if FLUSH.value(settings):
        yield f"{FLUSH.name} clears the filter under those that run: set it for the first one alone"
    if not (is_done or shares_queue(settings)):
        yield f"{MARK.name} = 'scheduled' shares no work; 'done' does"
    elif is_done and not TAKE_OVER.value(settings):
        yield f"{TAKE_OVER.name} = False shares no work; True does"


def _of_hosts(settings: BaseSettings) -> Iterator[str]:
    if SHARE.value(settings) == "hosts":
        queue = load_object(settings["SCHEDULER_PRIORITY_QUEUE"])
        if not issubclass(queue, DownloaderAwarePriorityQueue):
            yield f"SCHEDULER_PRIORITY_QUEUE keeps {SHARE.name} = 'hosts' from giving any away: remove it"
        return
    delays = {
        "AUTOTHROTTLE_ENABLED": settings.getbool("AUTOTHROTTLE_ENABLED"),
        "DOWNLOAD_DELAY": settings.getfloat("DOWNLOAD_DELAY") > _TEMPLATES_DELAY,
    }
    if names := [name for name, is_set in delays.items() if is_set]:
        count = "count" if len(names) > 1 else "counts"
        yield f"{' and '.join(names)} {count} for each by itself; with {SHARE.name} = 'hosts', for all together"


def _of_files(settings: BaseSettings) -> Iterator[str]:
    if settings["JOBDIR"]:
        yield "requests are lost unless each has a JOBDIR of its own; 'done' needs none"
    for uri, feed in settings.getdict("FEEDS").items():
        if not _keeps_items(str(uri), feed):
            yield f"FEEDS: {str(uri)!r} loses items if several write it: append jsonlines, or name a file for each"
    is_cached = settings.getbool("HTTPCACHE_ENABLED")
    storage = load_object(settings["HTTPCACHE_STORAGE"]) if is_cached else None
    if is_page_cache(storage) and not PAGES["readonly"].value(settings):
        yield f"one writes the page store, and others end at their start: give these {PAGES['readonly'].name} = True"


def _keeps_items(uri: str, feed: dict[str, Any]) -> bool:
    """Return whether several crawlers can write the feed: each has a file of its own, or they append lines to one on this disk."""
    if uri.startswith("stdout:") or _OWN.search(uri) or feed.get("uri_params"):
        return True
    is_here = "://" not in uri or uri.startswith("file:")
    is_appended = is_here and not feed.get("overwrite") and not feed.get("postprocessing")
    return is_appended and feed.get("format") in _LINES
