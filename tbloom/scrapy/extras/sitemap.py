"""A SitemapSpider that fetches a page again when its ``lastmod`` has changed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Literal

from scrapy import Request
from scrapy import spiders as scrapys
from scrapy.http import Response

from tbloom.errors import ConfigError
from tbloom.scrapy.compat import read_sitemap, sitemaps_in
from tbloom.scrapy.settings import DONE, VERSION

#: The day that a lastmod in a W3C format begins with.
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


class SitemapSpider(scrapys.SitemapSpider):
    """Scrapy's SitemapSpider, with each page's ``lastmod`` as its version.

    Sitemaps are never filtered, but for those of an index that have a ``lastmod`` themselves.
    """

    __module__ = "tbloom.scrapy"

    #: What of a page's ``lastmod`` is its version: True: all; "day": the day; False: nothing, so that each page is fetched once a window.
    sitemap_lastmod: bool | Literal["day"] = True
    #: Whether a sitemap of an index is read again within the window only if its own ``lastmod`` has changed.
    sitemap_index_lastmod: bool = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, choices in (
            ("sitemap_lastmod", (True, False, "day")),
            ("sitemap_index_lastmod", (True, False)),
        ):
            if (value := getattr(self, name)) not in choices:
                raise ConfigError(name, value, " or ".join(map(repr, choices)))

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
                    yield self._sitemap(url, above=above)
            return
        sitemap = read_sitemap(self, response)
        kind = getattr(sitemap, "type", None)
        if kind not in ("sitemapindex", "urlset"):
            self.logger.warning("Ignoring invalid sitemap: %s", response)
            # It was not read in this version.
            response.meta[DONE] = False
            return
        for url, lastmod in self._entries(self.sitemap_filter(sitemap)):
            if kind == "urlset":
                yield from self._page(url, lastmod)
            elif url not in above and any(pattern.search(url) for pattern in self._follow):
                yield self._sitemap(url, lastmod, above)

    def _entries(self, entries: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str]]:
        """Yield URLs with their lastmod. An alternate link without an entry has that of the first one that names it."""
        urls, others = {""}, dict[str, str]()  # an empty one is none
        for entry in entries:
            url, lastmod = entry["loc"], entry.get("lastmod", "")
            if url:
                yield url, lastmod
            if self.sitemap_alternate_links:
                urls.add(url)
                for other in entry.get("alternate", ()):
                    others.setdefault(other, lastmod)
        yield from ((other, lastmod) for other, lastmod in others.items() if other not in urls)

    def _sitemap(self, url: str, lastmod: str = "", above: Iterable[str] = ()) -> Request:
        meta = {VERSION: lastmod} if lastmod and self.sitemap_index_lastmod else {}
        given = {"above": [*above, url]}
        return Request(url, self._parse_sitemap, meta=meta, cb_kwargs=given, dont_filter=not meta)

    def _page(self, url: str, lastmod: str) -> Iterator[Request]:
        if self.sitemap_lastmod == "day" and (day := _DAY.match(lastmod)):
            lastmod = day[0]
        meta = {VERSION: lastmod} if lastmod and self.sitemap_lastmod else {}
        for pattern, callback in self._cbs:
            if pattern.search(url):
                yield Request(url, callback, meta=meta)
                break
