"""A SitemapSpider that fetches a page again when its ``lastmod`` has changed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Literal

from scrapy import Request
from scrapy import spiders as scrapys
from scrapy.http import Response

from tbloom.errors import ConfigError
from tbloom.scrapy.hooks.engine import read_sitemap, sitemaps_in
from tbloom.scrapy.links import ASK_SITE, asks_site, one_moment
from tbloom.scrapy.settings import VERSION

#: The day that a lastmod in a W3C format begins with.
_DAY = re.compile(rb"\d{4}-\d\d-\d\d")


class SitemapSpider(scrapys.SitemapSpider):
    """Scrapy's SitemapSpider, with each page's ``lastmod`` as its version. Each crawl reads the sitemaps."""

    __module__ = "tbloom.scrapy"

    #: What of a page's ``lastmod`` is its version: True: all; "day": the day; False: nothing, so that each page is fetched once a window.
    sitemap_lastmod: bool | Literal["day"] = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.sitemap_lastmod not in (True, False, "day"):
            raise ConfigError("sitemap_lastmod", self.sitemap_lastmod, "True, False or 'day'")

    async def start(self) -> AsyncIterator[Any]:
        """Yield requests for the sitemaps."""
        for url in self.sitemap_urls:
            yield self._sitemap(url)

    def _parse_sitemap(self, response: Response, above: Iterable[str] = ()) -> Iterator[Request]:
        """Yield requests for the sitemaps or the pages that a sitemap or a robots.txt names. In place of Scrapy's method.

        ``above``: the URLs that have led to it, and its own. They are not read again, because an index may name itself.
        """
        if response.url.endswith("/robots.txt"):
            for url in sitemaps_in(response):
                if url not in above:
                    yield self._sitemap(url, above)
            return
        sitemap = read_sitemap(self, response)
        kind = getattr(sitemap, "type", None)
        if kind not in ("sitemapindex", "urlset"):
            self.logger.warning("Ignoring invalid sitemap: %s", response)
            return
        for url, lastmod in self._entries(sitemap):
            if kind == "urlset":
                yield from self._page(url, lastmod)
            elif url not in above and any(pattern.search(url) for pattern in self._follow):
                yield self._sitemap(url, above)

    def _entries(self, sitemap: Any) -> Iterator[tuple[str, str]]:
        """Yield each URL with its lastmod, at once: the event loop would stand still for as long as all are read.

        An alternate link without an entry has the lastmod of the first entry to name it. Such links come at the end, also if a
        filter raises.
        """
        own, others, failed = set[str](), dict[str, str](), None
        try:
            for entry in self.sitemap_filter(sitemap):
                url, lastmod = entry["loc"], entry.get("lastmod", "")
                if url:
                    yield url, lastmod
                if self.sitemap_alternate_links:
                    own.add(url)
                    for other in filter(None, entry.get("alternate", ())):
                        others.setdefault(other, lastmod)
        except Exception as error:  # noqa: BLE001 - it is raised again
            failed = error
        yield from ((url, lastmod) for url, lastmod in others.items() if url not in own)
        if failed:
            raise failed

    def _sitemap(self, url: str, above: Iterable[str] = ()) -> Request:
        given = {"above": [*above, url]}
        request = Request(url, self._parse_sitemap, cb_kwargs=given, dont_filter=True)
        if asks_site(self.settings):
            request.headers.setdefault(*ASK_SITE)
        return request

    def _page(self, url: str, lastmod: str) -> Iterator[Request]:
        if self.sitemap_lastmod == "day" and (day := _DAY.match(one_moment(lastmod.encode()))):
            lastmod = day[0].decode()
        meta = {VERSION: lastmod} if lastmod and self.sitemap_lastmod else {}
        for pattern, callback in self._cbs:
            if pattern.search(url):
                yield Request(url, callback, meta=meta)
                break
