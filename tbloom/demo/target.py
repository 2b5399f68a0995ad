"""What the demo crawls: its own site or a folder on loopback, or a live site."""

from __future__ import annotations

import contextlib
import math
import os
import time
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import TYPE_CHECKING

from w3lib.url import canonicalize_url

from tbloom.cli.kit.errors import CommandError
from tbloom.demo.crawler import USER_AGENT
from tbloom.demo.site import Folder, Gazette, serve, survey

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

    from tbloom.cli.kit.progress import Reporter

_SHORTEST_PERIOD = 10
_FEWEST_ITEMS = 1000
# What a crawler needs beside parsing, on a slow machine.
_SECONDS_PER_PAGE = 0.01
_SECONDS_PER_LINK = 0.0005
_MARGIN = 1.5
# For a live site: between two requests, of whichever crawler.
_POLITE_SECONDS = 0.5
# A live site's pages link to so many others that the crawl does not come to.
_LINKS_PER_LIVE_PAGE = 50


@dataclass(frozen=True, slots=True)
class Target:
    """A site to crawl, and what is known of it."""

    start: str
    #: The paths of all its pages; None: not known.
    pages: frozenset[str] | None
    #: How many pages a run may come to.
    most_pages: int
    #: How many distinct links the filter will be asked about.
    items: int
    #: In seconds, so long that the first and the second run fit into two of them.
    period: int
    #: How often each path was asked for since the last call, if the server can be asked.
    take_hits: Callable[[], Counter[str]] | None = None
    #: Further arguments for the crawlers.
    arguments: list[str] = field(default_factory=list)


@contextlib.contextmanager
def loopback(folder: str | None, crawlers: int, reporter: Reporter) -> Iterator[Target]:
    """The folder, or the demo's own site, served on loopback."""
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
            most_pages=len(found.pages),
            items=max(_FEWEST_ITEMS, found.targets),
            period=max(_SHORTEST_PERIOD, math.ceil(work / at_once * _MARGIN)),
            take_hits=server.take_hits,
        )


def live(url: str, crawlers: int, max_pages: int, reporter: Reporter) -> Target:
    """The live site; raises CommandError where it does not answer with a page."""
    start = canonicalize_url(_check(url))
    reporter.say(
        f"Site: {start}, live: at most {max_pages} pages, at most {1 / _POLITE_SECONDS:.0f} "
        "requests a second, robots.txt obeyed"
    )
    share = max(1, max_pages // crawlers)
    delay = _POLITE_SECONDS * crawlers
    return Target(
        start=start,
        pages=None,
        most_pages=share * crawlers,
        items=max(_FEWEST_ITEMS, max_pages * _LINKS_PER_LIVE_PAGE),
        period=max(_SHORTEST_PERIOD, math.ceil(max_pages * _POLITE_SECONDS)),
        arguments=["--polite", "--delay", str(delay), "--max-pages", str(share)],
    )


def _check(url: str) -> str:
    """Where the URL leads to, by redirects too."""
    if not url.startswith(("http://", "https://")):
        message = f"--url: expected a URL that starts with http:// or https://, got {url!r}"
        raise CommandError(message)
    request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT})  # noqa: S310 - checked
    try:
        with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310 - checked
            kind = response.headers.get_content_type()
            final: str = response.geturl()
    except (OSError, HTTPException, ValueError) as error:
        message = f"--url: {url} can't be fetched: {getattr(error, 'reason', error)}"
        raise CommandError(message) from None
    if kind != "text/html":
        message = f"--url: {url} is not an HTML page but {kind}"
        raise CommandError(message)
    return final
