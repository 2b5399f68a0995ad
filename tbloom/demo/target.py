"""The target of the demo: its own site or a folder on loopback, or a live site."""

from __future__ import annotations

import contextlib
import math
import os
import time
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from w3lib.url import canonicalize_url

from tbloom.cli.kit.errors import CommandError
from tbloom.demo.crawler import USER_AGENT
from tbloom.demo.site import Folder, Gazette, serve, survey

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

    from tbloom.cli.kit.progress import Reporter

_MIN_PERIOD = 10
_MIN_ITEMS = 1000
# Time of a crawler beside parsing, on a slow machine.
_SECONDS_PER_PAGE = 0.01
_SECONDS_PER_LINK = 0.0005
_MARGIN = 1.5
# Between two requests of any crawlers to a live site.
_POLITE_SECONDS = 0.5
# Links on a page of a live site; the crawl follows few of them.
_LINKS_PER_LIVE_PAGE = 50


@dataclass(frozen=True, slots=True)
class Target:
    """A site to crawl, with the expected size of the crawl."""

    start: str
    #: The paths of all pages; None: not known.
    pages: frozenset[str] | None
    #: Upper limit of the pages of a run.
    max_pages: int
    #: Number of distinct links.
    items: int
    #: Length of a slice (s); the first and the second run fit into two slices.
    period: int
    #: Number of requests for each path since the last call; None for a live site.
    take_hits: Callable[[], Counter[str]] | None = None
    #: Further settings for the crawlers.
    settings: dict[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def loopback(folder: str | None, crawlers: int, reporter: Reporter) -> Iterator[Target]:
    """The folder, or the demo's own site, on a loopback server."""
    site = Folder(folder) if folder else Gazette()
    with serve(site) as server:
        began = time.monotonic()
        with reporter.count("Counting the pages of the site", None) as advance:
            found = survey(site, server.url, advance)
        seconds = time.monotonic() - began
        reporter.say(
            f"Site: {site.title}: {len(found.pages):,} pages with {found.links:,} links, "
            f"served on {server.url}"
        )
        work = seconds + len(found.pages) * _SECONDS_PER_PAGE + found.links * _SECONDS_PER_LINK
        at_once = min(crawlers, os.cpu_count() or 1)
        yield Target(
            start=canonicalize_url(server.url + site.start),
            pages=found.pages,
            max_pages=len(found.pages),
            items=max(_MIN_ITEMS, found.targets),
            period=max(_MIN_PERIOD, math.ceil(work / at_once * _MARGIN)),
            take_hits=server.take_hits,
        )


def live(url: str, crawlers: int, max_pages: int, reporter: Reporter) -> Target:
    """The live site; raises CommandError where its URL is no HTML page."""
    start = canonicalize_url(_check(url))
    reporter.say(
        f"Site: {start}, live: at most {max_pages} pages, at most {1 / _POLITE_SECONDS:.0f} "
        "requests a second, robots.txt obeyed"
    )
    share = max(1, max_pages // crawlers)
    return Target(
        start=start,
        pages=None,
        max_pages=share * crawlers,
        items=max(_MIN_ITEMS, max_pages * _LINKS_PER_LIVE_PAGE),
        period=max(_MIN_PERIOD, math.ceil(max_pages * _POLITE_SECONDS)),
        settings={
            "CLOSESPIDER_PAGECOUNT": share,
            "CONCURRENT_REQUESTS": 1,
            # On loopback, Scrapy's 180 s: a machine may stand still for seconds.
            "DOWNLOAD_TIMEOUT": 15,
            "DOWNLOAD_DELAY": _POLITE_SECONDS * crawlers,
            "HTTPPROXY_ENABLED": True,
            "RETRY_ENABLED": True,
            "ROBOTSTXT_OBEY": True,
        },
    )


def _check(url: str) -> str:
    """The URL after all redirects."""
    if not url.startswith(("http://", "https://")):
        raise CommandError(
            f"--url: expected a URL that starts with http:// or https://, got {url!r}"
        )
    request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT})  # noqa: S310 - checked
    try:
        with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310 - checked
            kind = response.headers.get_content_type()
            final: str = response.geturl()
    except (OSError, HTTPException, ValueError) as error:
        raise CommandError(
            f"--url: {url} can't be fetched: {getattr(error, 'reason', error)}"
        ) from None
    if kind != "text/html":
        raise CommandError(f"--url: {url} is not an HTML page but {kind}")
    return final
