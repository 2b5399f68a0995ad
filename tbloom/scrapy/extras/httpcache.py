"""Scrapy's HTTP cache in a page store: ``HTTPCACHE_STORAGE = "tbloom.scrapy.PageCacheStorage"``."""

from __future__ import annotations

import logging
import os
from collections import Counter
from pathlib import Path
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes
from scrapy.settings import BaseSettings
from scrapy.utils.project import data_path
from scrapy.utils.request import (
    RequestFingerprinter,
    RequestFingerprinterProtocol,
    fingerprint,
)
from w3lib.url import canonicalize_url

from tbloom.errors import ConfigError, StoreLocked, TBloomError
from tbloom.pages import Page, PageStore, clock
from tbloom.pages.opening import folder
from tbloom.pages.page import header_matches_body
from tbloom.scrapy.crawl import crawl_of, ending_at_an_error
from tbloom.scrapy.settings import PAGES, arguments, check_settings, expand, naming_settings

logger: logging.Logger = logging.getLogger(__name__)

#: Comes before a fingerprint, so that this address of a page is no URL.
KEY = b"scrapy:"
#: What the log says of a page that was not stored, or not read, once for each stat.
_MESSAGES = {
    "tbloom/pages/refused": "The page store can't hold %s, which is fetched again each time, and perhaps others: %s",
    "tbloom/pages/failed": "%s could not be stored, and perhaps others; the crawl goes on: %s",
    "tbloom/pages/unread": "%s could not be read from the page store, and counts as not stored; perhaps others, too: %s",
}

#: The stores that this process has open, by folder and whether they are only read; and the number of crawls that use each.
_opened: dict[tuple[str, bool], PageStore] = {}
_users: Counter[tuple[str, bool]] = Counter()


class PageCacheStorage:
    """Keeps the responses of Scrapy's HTTP cache as pages of a ``PageStore``, under all of its policies.

    All spiders use one store, unless TBLOOM_PAGES_PATH has ``%(spider)s``. The crawlers of a process
    share it. One process writes at a time; others can read with TBLOOM_PAGES_READONLY.

    The address of a GET without a body is its canonical URL (w3lib's ``canonicalize_url``). Any other
    request, and one to which another fingerprinter gives another fingerprint than Scrapy's, has the
    address ``b"scrapy:"`` followed by its fingerprint. Responses that are not from http or https, or that a page store can't
    hold, are not stored, and are fetched each time.

    A response comes back with URL, status, headers and body, in the class that Scrapy chooses for these.
    """

    __module__ = "tbloom.scrapy"

    def __init__(self, settings: BaseSettings) -> None:
        self._settings = settings
        self._store: PageStore | None = None
        self._fingerprinter: RequestFingerprinterProtocol = RequestFingerprinter()
        self._is_readonly = False
        self._expiration = settings.getint("HTTPCACHE_EXPIRATION_SECS")

    def open_spider(self, spider: Spider) -> None:
        """Open the store. An error ends the crawl; ``scrapy shell`` goes on without the store."""
        crawler = spider.crawler
        self._fingerprinter = crawler.request_fingerprinter or self._fingerprinter
        with ending_at_an_error(crawler, PAGES):
            check_settings(self._settings)
            self._open(spider.name)

    def close_spider(self, spider: Spider) -> None:  # noqa: ARG002 - the signature is Scrapy's
        """Close the store; the last crawl waits until its pages are on the disk."""
        if self._store is None:
            return
        _users[self._key] -= 1
        if not _users[self._key]:
            _opened.pop(self._key).close()

    def retrieve_response(self, spider: Spider, request: Request) -> Response | None:
        """Return the stored response, or None if there is none that is new enough."""
        if self._store is None:
            return None
        try:
            page = self._store.get(self._address(request))
        except (TBloomError, OSError) as error:
            self._warn(spider, "tbloom/pages/unread", request, error)
            return None
        if page is None:
            return None
        if 0 < self._expiration < (clock.now() - page.at).total_seconds():
            return None
        request.meta["cache_timestamp"] = page.at.timestamp()
        return _response_of(page)

    def store_response(self, spider: Spider, request: Request, response: Response) -> None:
        """Store the response; if that fails, the crawl goes on."""
        if self._store is None or self._is_readonly:
            return
        if not response.url.lower().startswith(("http://", "https://")):
            crawl_of(spider.crawler).count("tbloom/pages/refused")
            return
        address = response.ip_address
        try:
            self._store.put(
                response.url,
                response.body,
                status=response.status,
                headers=[(name, value) for name in response.headers for value in response.headers.getlist(name)],
                at=clock.now(),
                key=self._address(request),
                fields={} if address is None else {"WARC-IP-Address": str(address)},
            )  # fmt: skip
        except ConfigError as error:
            self._warn(spider, "tbloom/pages/refused", request, error)
        except (TBloomError, OSError) as error:
            self._warn(spider, "tbloom/pages/failed", request, error)

    def _open(self, spider: str) -> None:
        found = arguments(self._settings, PAGES)
        if found.keys().isdisjoint({"granularity", "slices"}):  # the zone may be the filter's alone
            found.pop("tz", None)
        self._is_readonly = found.pop("readonly", False)
        path = found.pop("path", None)
        if path is None:
            path = Path(data_path(self._settings["HTTPCACHE_DIR"]), "pages")
        else:
            path = os.fspath(path) if isinstance(path, os.PathLike) else path
            path = expand(PAGES["path"], path, spider=spider)
        try:
            with naming_settings(PAGES):
                self._key = os.path.realpath(folder(path)), self._is_readonly
                if self._key in _opened:  # the first user's codec counts
                    found.pop("codec", None)
                    _opened[self._key].check_parameters(**found)
                else:
                    _opened[self._key] = PageStore(path, readonly=self._is_readonly, **found)
        except StoreLocked as error:
            otherwise = "only read it here, with TBLOOM_PAGES_READONLY = True"
            raise StoreLocked(error.path, error.pid, otherwise) from None
        _users[self._key] += 1
        self._store = _opened[self._key]
        logger.debug("The HTTP cache is the page store %s", self._store.path)

    def _address(self, request: Request) -> bytes:
        item = self._fingerprinter.fingerprint(request)
        # Another fingerprinter may give several URLs the same fingerprint, or one URL several.
        is_scrapys = item == fingerprint(request)
        if is_scrapys and request.method == "GET" and not request.body:
            is_verbatim = request.meta.get("verbatim_url")
            return (request.url if is_verbatim else canonicalize_url(request.url)).encode()
        return KEY + item

    def _warn(self, spider: Spider, stat: str, request: Request, error: Exception) -> None:
        crawl = crawl_of(spider.crawler)
        crawl.count(stat)
        crawl.log_once(logger.warning, _MESSAGES[stat], request, error)


def _response_of(page: Page) -> Response:
    """Return the response that was stored as this page, or what Scrapy makes of another program's page."""
    headers = Headers()
    for name, value in page.headers:
        headers.appendlist(name.encode("latin-1"), value.encode("latin-1"))
    codings = b", ".join(headers.getlist(b"Content-Encoding")).decode("latin-1")
    if codings and page.body and not header_matches_body("Content-Encoding", codings, page.body):
        # The library requests stores decoded bodies, for example: Scrapy would fail to decode them.
        del headers["Content-Encoding"]
    kind: Any = responsetypes.from_args(headers=headers, url=page.url, body=page.body)
    response: Response = kind(page.url, page.status, headers=headers, body=page.body)
    return response
