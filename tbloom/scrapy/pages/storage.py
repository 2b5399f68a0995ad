"""Scrapy's HTTP cache in a page store: ``HTTPCACHE_STORAGE = "tbloom.scrapy.PageCacheStorage"``."""

from __future__ import annotations

import logging
import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.utils.project import data_path
from scrapy.utils.request import RequestFingerprinter

from tbloom.errors import ConfigError, StoreLocked, TBloomError
from tbloom.pages import calendar
from tbloom.pages.config import given
from tbloom.scrapy.crawler import CrawlEnd, OnceLogger, count
from tbloom.scrapy.errorline import error_line
from tbloom.scrapy.pages.addresses import KEY, url_of
from tbloom.scrapy.pages.responses import fields_of, headers_of, response_of
from tbloom.scrapy.pages.shared import SharedStore
from tbloom.scrapy.settings import (
    PAGES,
    Setting,
    arguments,
    check_names,
    expand,
    naming_settings,
)

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.http import Response
    from scrapy.settings import BaseSettings
    from scrapy.utils.request import RequestFingerprinterProtocol

logger = logging.getLogger(__name__)

_REFUSED = "The page store can't hold %s, which is fetched again each time, and perhaps others: %s"
_FAILED = "%s could not be stored, and perhaps others; the crawl goes on: %s"
_WITHOUT = "%s; until then, all pages are fetched"
_UNREAD = (
    "%s could not be read from the page store, and counts as not stored; perhaps others, too: %s"
)


class PageCacheStorage:
    """Keeps the responses of Scrapy's HTTP cache as pages of a ``PageStore``, under all of its policies.

    All spiders use one store, unless TBLOOM_PAGES_PATH has ``%(spider)s``. The crawlers of a process
    share it. One process writes at a time; others can read with TBLOOM_PAGES_READONLY.

    The address of a GET without a body is its canonical URL (w3lib's ``canonicalize_url``). Any other
    request, and every request under another fingerprinter than Scrapy's, has the address ``b"scrapy:"``
    followed by its fingerprint. Responses that are not from http or https, or that a page store can't
    hold, are not stored, and are fetched each time.

    A response comes back with URL, status, headers, body, flags, IP address, protocol and encoding, in one
    of the classes of ``scrapy.http``.
    """

    def __init__(self, settings: BaseSettings) -> None:
        """Opens the store; if the path has ``%(spider)s``, checks the settings only. An error waits for ``open_spider``."""
        self._shared: SharedStore | None = None
        self._fingerprinter: RequestFingerprinterProtocol = RequestFingerprinter()
        self._once = OnceLogger(logger)
        self._error: Exception | None = None
        try:
            check_names(settings)
            self._expiration = _expiration(settings)
            self._arguments = _arguments(settings)
            self._is_readonly: bool = self._arguments["readonly"]
            if "%(spider)s" not in str(self._arguments["path"]):
                self._open(None)
        except (TBloomError, OSError) as error:
            self._error = error

    def open_spider(self, spider: Spider) -> None:
        """Scrapy calls this when a crawl begins. An error ends the crawl; ``scrapy shell`` goes on without the store."""
        crawler = spider.crawler
        self._fingerprinter = crawler.request_fingerprinter or self._fingerprinter
        try:
            with CrawlEnd(crawler).ending_at_an_error(PAGES):
                if self._error is not None:
                    raise self._error
                if self._shared is None:
                    self._open(spider.name)
        except (TBloomError, OSError) as error:
            self._error = error
            logger.error(_WITHOUT, error_line(error, crawler.settings, PAGES))

    def close_spider(self, spider: Spider) -> None:  # noqa: ARG002 - the signature is Scrapy's
        """Scrapy calls this when a crawl ends; the last one waits until its pages are on the disk."""
        if self._shared is not None:
            self._release()

    def retrieve_response(self, spider: Spider, request: Request) -> Response | None:
        """The stored response, or None if there is none that is new enough."""
        if self._shared is None:
            return None
        try:
            page = self._shared.store.get(self._address(request))
        except (TBloomError, OSError) as error:
            count(spider.crawler, "tbloom/pages/unread")
            self._warn(spider, _UNREAD, request, error)
            return None
        if page is None:
            return None
        age = (calendar.now() - page.at).total_seconds()
        if 0 < self._expiration < age:
            return None
        request.meta["cache_timestamp"] = page.at.timestamp()
        return response_of(page)

    def store_response(self, spider: Spider, request: Request, response: Response) -> None:
        """Stores the response; if that fails, the crawl goes on."""
        if self._shared is None or self._is_readonly:
            return
        if not response.url.lower().startswith(("http://", "https://")):
            count(spider.crawler, "tbloom/pages/refused")
            return
        try:
            self._shared.store.put(
                response.url,
                response.body,
                status=response.status,
                headers=headers_of(response),
                at=calendar.now(),
                key=self._address(request),
                fields=fields_of(response),
            )
        except ConfigError as error:
            count(spider.crawler, "tbloom/pages/refused")
            self._warn(spider, _REFUSED, request, error)
        except (TBloomError, OSError) as error:
            count(spider.crawler, "tbloom/pages/failed")
            self._warn(spider, _FAILED, request, error)

    def _open(self, spider: str | None) -> None:
        path = expand(PAGES["path"], self._arguments["path"], spider)
        try:
            with naming_settings(PAGES):
                shared = SharedStore(**{**self._arguments, "path": path})
        except StoreLocked as error:
            otherwise = "only read it here, with TBLOOM_PAGES_READONLY = True"
            raise StoreLocked(error.path, error.pid, otherwise) from None
        self._shared = shared
        # Scrapy does not call close_spider for a crawl that fails before its start.
        self._release = weakref.finalize(self, shared.release)
        logger.debug("The HTTP cache is the page store %s", shared.store.path)

    def _address(self, request: Request) -> bytes:
        # Another fingerprinter may give several URLs the same fingerprint.
        is_scrapys = type(self._fingerprinter) is RequestFingerprinter
        url = url_of(request) if is_scrapys else None
        return url or KEY + self._fingerprinter.fingerprint(request)

    def _warn(self, spider: Spider, message: str, request: Request, error: Exception) -> None:
        self._once.log(logging.WARNING, message, request, error, extra={"spider": spider})


def _arguments(settings: BaseSettings) -> dict[str, Any]:
    """The arguments of PageStore, checked as far as is possible without the store; the path has no spider yet."""
    found = arguments(settings, PAGES)
    found["readonly"] = PAGES["readonly"].is_on(settings, default=False)
    if "granularity" not in found:  # the zone may be the filter's alone
        found.pop("tz", None)
    with naming_settings(PAGES):
        given(found.get("granularity"), found.get("slices"), found.get("tz"))
    if "path" not in found:
        folder = Path(data_path(settings["HTTPCACHE_DIR"]), "pages")
        found["path"] = str(folder).replace("%", "%%")
    elif isinstance(found["path"], os.PathLike):
        found["path"] = os.fspath(found["path"])
    return found


def _expiration(settings: BaseSettings) -> float:
    setting = Setting("HTTPCACHE_EXPIRATION_SECS", int)
    seconds = setting.value(settings)
    if not isinstance(seconds, int | float):
        raise ConfigError(setting.name, seconds, "a number of seconds; 0: for ever")
    return seconds
