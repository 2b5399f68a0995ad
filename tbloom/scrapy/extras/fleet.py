"""Which settings do not fit several crawlers of a spider at once: the notes of ``tbloom doctor``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from tbloom.scrapy.settings import FILTER, FLUSH, MARK, SHARE, TAKE_OVER

#: Formats of which several crawlers can append whole lines to one file.
_LINES = {"jsonlines", "jsonl", "jl", "csv"}
#: In the path of a feed, what is replaced by something of a crawl's own. ``name`` is the spider's.
_OWN = re.compile(r"%\((?!name\)|batch_id\))")
#: `scrapy startproject` writes this delay (seconds), so it says nothing of what the user wants.
_TEMPLATES_DELAY = 1


def clashes(settings: BaseSettings) -> Iterator[str]:
    """Yield a line for each setting that does not fit several crawlers, with the remedy."""
    is_done, gives_hosts = MARK.value(settings) == "done", SHARE.value(settings) == "hosts"
    queue = load_object(settings["SCHEDULER_PRIORITY_QUEUE"])
    by_itself = f"counts for each by itself; with {SHARE.name} = 'hosts', for all together"
    if "%(timestamp)s" in str(FILTER["name"].value(settings)):
        yield f"{FILTER['name'].name}: %(timestamp)s gives each a filter of its own, so each fetches every page"
    if FLUSH.value(settings):
        yield f"{FLUSH.name} clears the filter under those that run: set it for the first one alone"
    if not (is_done or shares_queue(settings)):
        yield f"{MARK.name} = 'scheduled' shares no work; 'done' does"
    if is_done and not TAKE_OVER.value(settings):
        yield f"{TAKE_OVER.name} = False shares no work; True does"
    if gives_hosts and not issubclass(queue, DownloaderAwarePriorityQueue):
        yield f"SCHEDULER_PRIORITY_QUEUE keeps {SHARE.name} = 'hosts' from giving any away: remove it"
    if not gives_hosts and settings.getbool("AUTOTHROTTLE_ENABLED"):
        yield f"AUTOTHROTTLE_ENABLED {by_itself}"
    if not gives_hosts and settings.getfloat("DOWNLOAD_DELAY") > _TEMPLATES_DELAY:
        yield f"DOWNLOAD_DELAY {by_itself}"
    if settings["JOBDIR"]:
        yield "requests are lost unless each has a JOBDIR of its own; 'done' needs none"
    feeds = settings.getdict("FEEDS").items()
    for uri in [str(uri) for uri, feed in feeds if not _keeps_items(str(uri), feed)]:
        yield f"FEEDS: {uri!r} loses items if several write it: append jsonlines, or name a file for each"


def shares_queue(settings: BaseSettings) -> bool:
    """Return whether the scheduler is scrapy-redis'."""
    kinds = load_object(settings["SCHEDULER"]).__mro__
    return any(kind.__module__.startswith("scrapy_redis.") for kind in kinds)


def _keeps_items(uri: str, feed: dict[str, Any]) -> bool:
    """Return whether several crawlers can write the feed: each has a file of its own, or they append lines to one on this disk."""
    if uri.startswith("stdout:") or _OWN.search(uri) or feed.get("uri_params"):
        return True
    is_here = "://" not in uri or uri.startswith("file:")
    is_appended = is_here and not feed.get("overwrite") and not feed.get("postprocessing")
    return is_appended and feed.get("format") in _LINES
