"""The scheduler's queues, and the requests in them."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import scrapy
from scrapy import Request, Spider
from scrapy.spiders import CrawlSpider
from scrapy.utils.httpobj import urlparse_cached


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
    downloader = getattr(engine, "downloader", None)
    slots = getattr(downloader, "slots", {})
    now = time.monotonic() if scrapy.version_info >= (2, 16) else time.time()
    # A delay is random, up to half longer if nothing else is set.
    waiting = {
        host
        for host, of in slots.items()
        if of.active or of.lastseen + of.delay * (1 + getattr(of, "jitter", 0.5)) > now
    }
    return waiting | {*map(host_of, getattr(downloader, "active", ()))}
