"""Which settings do not fit several crawlers of a spider at once: the notes of ``tbloom doctor``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from tbloom.scrapy.settings import FILTER, FLUSH, MARK, SHARE, TAKE_OVER

#: Formats that several crawlers can append to one file, a line at a time.
_LINES = {"jsonlines", "jsonl", "jl", "csv"}
#: Placeholders of a feed's path that differ between crawls that begin in different seconds; ``%(name)s`` is the spider's.
_OWN = re.compile(r"%\((?!name\)|batch_id\))")
#: A delay up to that of `scrapy startproject` says nothing of what the user wants (seconds).
_TEMPLATES_DELAY = 1


def clashes(settings: BaseSettings) -> Iterator[str]:
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
        yield f"FEEDS: {uri!r} loses items if several crawlers write it: append jsonlines, or give each a file"


def shares_queue(settings: BaseSettings) -> bool:
    """Return whether the scheduler is scrapy-redis'."""
    kinds = load_object(settings["SCHEDULER"]).__mro__
    return any(kind.__module__.startswith("scrapy_redis.") for kind in kinds)


def _keeps_items(uri: str, feed: dict[str, Any]) -> bool:
    """Return whether several crawlers can write the feed: each has its own file, or they append lines to one on this disk."""
    if uri.startswith("stdout:") or _OWN.search(uri) or feed.get("uri_params"):
        return True
    is_here = "://" not in uri or uri.startswith("file:")
    is_appended = is_here and not feed.get("overwrite") and not feed.get("postprocessing")
    return is_appended and feed.get("format") in _LINES
