"""Scrapy's HTTP cache in a page store: ``HTTPCACHE_STORAGE = "tbloom.scrapy.PageCacheStorage"``."""

from __future__ import annotations

import logging
import os
import re
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.utils.project import data_path
from scrapy.utils.request import RequestFingerprinter
from w3lib.url import canonicalize_url

from tbloom.errors import ConfigError, ConfigMismatch, StoreLocked, TBloomError
from tbloom.pages import calendar
from tbloom.pages.config import given
from tbloom.scrapy import settings as options
from tbloom.scrapy.dupefilter.dupefilter import ERROR_REASON
from tbloom.scrapy.pages.responses import fields_of, headers_of, response_of
from tbloom.scrapy.pages.sharing import Use

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.http import Response
    from scrapy.settings import BaseSettings
    from scrapy.utils.request import RequestFingerprinterProtocol

logger = logging.getLogger(__name__)

#: The arguments of PageStore, and the settings that they come from.
_NAMES = {
    "path": "TBLOOM_PAGES_PATH",
    "granularity": "TBLOOM_PAGES_GRANULARITY",
    "slices": "TBLOOM_PAGES_SLICES",
    "tz": "TBLOOM_TIMEZONE",
    "readonly": "TBLOOM_PAGES_READONLY",
    "segment_bytes": "TBLOOM_PAGES_SEGMENT_BYTES",
}
_EXPIRATION = "HTTPCACHE_EXPIRATION_SECS"
#: Before a fingerprint that is a page's address, so that it is no URL.
KEY = b"scrapy:"
_REFUSED = "The page store can't hold %s, which is fetched again each time, and perhaps others: %s"
_FAILED = "%s could not be stored, and perhaps others; the crawl goes on: %s"
_UNREAD = (
    "%s could not be read from the page store, and counts as not stored; perhaps others, too: %s"
)


class PageCacheStorage:
    """Keeps the responses of Scrapy's HTTP cache as pages of a ``PageStore``, under all of its policies.

    The store is one for all spiders, unless TBLOOM_PAGES_PATH has ``%(spider)s``. Crawlers of one process
    share it; of other processes, one writes at a time, and others read with TBLOOM_PAGES_READONLY.

    A GET without a body is addressed by its canonical URL (w3lib's ``canonicalize_url``), as long as Scrapy's own
    fingerprinter says which requests are the same; any other request, or all under another fingerprinter, by
    ``b"scrapy:"`` and its fingerprint. Responses that are not from http or https are not stored, nor
    those that a page store can't hold; they are fetched each time.

    A response comes back with URL, status, headers, body, flags, IP address, protocol and encoding, and as one of
    the classes of ``scrapy.http``.
    """

    def __init__(self, settings: BaseSettings) -> None:
        """Opens the store; if its path has the spider's name in it, only the settings are checked.

        :raises ConfigError: that names the setting, where one can't be right.
        :raises ConfigMismatch: where the stored store has other slices.
        :raises StoreLocked: where another process writes to it.
        """
        options.check_names(settings)
        self._expiration = _expiration(settings)
        self._arguments = _arguments(settings)
        self._is_readonly: bool = self._arguments["readonly"]
        self._use: Use | None = None
        self._fingerprinter: RequestFingerprinterProtocol = RequestFingerprinter()
        self._warned: set[str] = set()
        if "%(spider)s" not in str(self._arguments["path"]):
            self._open(None)

    def open_spider(self, spider: Spider) -> None:
        """Scrapy's: a crawl begins."""
        self._fingerprinter = spider.crawler.request_fingerprinter or self._fingerprinter
        if self._use is None:
            try:
                self._open(spider.name)
            except (TBloomError, OSError) as error:
                # What else is raised here, Scrapy only logs.
                logger.error("The page store can't be opened: %s", error, extra={"spider": spider})
                raise CloseSpider(ERROR_REASON) from error

    def close_spider(self, spider: Spider) -> None:  # noqa: ARG002 - the signature is Scrapy's
        """Scrapy's: a crawl ends. If no other has the store, what was stored is waited for to be on the disk."""
        if self._use is not None:
            self._release()

    def retrieve_response(self, spider: Spider, request: Request) -> Response | None:
        """Scrapy's: the stored response, and when that was; None: there is none that is new enough."""
        if self._use is None:
            self._refuse(spider)
            return None
        try:
            page = self._use.store.get(self._address(request))
        except (TBloomError, OSError) as error:
            self._count(spider, "tbloom/pages/unread")
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
        """Scrapy's: stores the response, if it can be; the crawl goes on without."""
        if self._use is None or self._is_readonly:
            return
        if not response.url.lower().startswith(("http://", "https://")):
            self._count(spider, "tbloom/pages/refused")
            return
        try:
            self._use.store.put(
                response.url,
                response.body,
                status=response.status,
                headers=headers_of(response),
                at=calendar.now(),
                key=self._address(request),
                fields=fields_of(response),
            )
        except ConfigError as error:
            self._count(spider, "tbloom/pages/refused")
            self._warn(spider, _REFUSED, request, error)
        except (TBloomError, OSError) as error:
            self._count(spider, "tbloom/pages/failed")
            self._warn(spider, _FAILED, request, error)

    def _open(self, spider: str | None) -> None:
        path = options.named(_NAMES["path"], self._arguments["path"], spider)
        try:
            use = Use(**{**self._arguments, "path": path})
        except ConfigError as error:
            raise _naming_setting(error) from None
        except ConfigMismatch:
            logger.error(
                "TBLOOM_PAGES_GRANULARITY, TBLOOM_PAGES_SLICES and TBLOOM_TIMEZONE don't describe the store"
            )
            raise
        except StoreLocked as error:
            otherwise = "only read it here, with TBLOOM_PAGES_READONLY = True"
            raise StoreLocked(error.path, error.pid, otherwise) from None
        self._use = use
        # A crawl that does not come to its start is not told to close.
        self._release = weakref.finalize(self, use.release)
        logger.debug("The HTTP cache is the page store %s", use.store.path)

    def _address(self, request: Request) -> bytes:
        # Another fingerprinter may call several URLs the same.
        is_scrapys = type(self._fingerprinter) is RequestFingerprinter
        if is_scrapys and request.method == "GET" and not request.body:
            is_verbatim = request.meta.get("verbatim_url")
            return (request.url if is_verbatim else canonicalize_url(request.url)).encode()
        return KEY + self._fingerprinter.fingerprint(request)

    def _refuse(self, spider: Spider) -> None:
        """Before Scrapy 2.19, spiders can't be closed while they are opened."""
        engine = spider.crawler.engine
        if engine is not None and engine.spider is not None:
            engine.close_spider(spider, ERROR_REASON)
        raise IgnoreRequest("the page store is not open")

    def _count(self, spider: Spider, stat: str) -> None:
        if spider.crawler.stats is not None:
            spider.crawler.stats.inc_value(stat)

    def _warn(self, spider: Spider, sentence: str, request: Request, error: Exception) -> None:
        """Once in a crawl."""
        if sentence not in self._warned:
            self._warned.add(sentence)
            logger.warning(sentence, request, error, extra={"spider": spider})


def _arguments(settings: BaseSettings) -> dict[str, Any]:
    """What PageStore takes, checked but for what only it can; the path is to be ``options.named``."""
    kinds = {"slices": int, "segment_bytes": int}
    found: dict[str, Any] = {
        argument: options.number(settings, setting, kinds.get(argument, str))
        for argument, setting in _NAMES.items()
        if settings.get(setting) is not None
    }
    readonly = found.get("readonly", False)
    try:
        found["readonly"] = options.flag(str(readonly))
    except ValueError:
        raise ConfigError(_NAMES["readonly"], readonly, "True or False") from None
    if "granularity" not in found:  # the zone may be the filter's alone
        found.pop("tz", None)
    try:
        given(found.get("granularity"), found.get("slices"), found.get("tz"))
    except ConfigError as error:
        raise _naming_setting(error) from None
    if "path" not in found:
        folder = Path(data_path(settings["HTTPCACHE_DIR"]), "pages")
        found["path"] = str(folder).replace("%", "%%")
    elif isinstance(found["path"], os.PathLike):
        found["path"] = os.fspath(found["path"])
    return found


def _expiration(settings: BaseSettings) -> float:
    seconds = options.number(settings, _EXPIRATION, int)
    if not isinstance(seconds, int | float):
        raise ConfigError(_EXPIRATION, seconds, "a number of seconds; 0: for ever")
    return seconds


def _naming_setting(error: ConfigError) -> ConfigError:
    # Of what is missing, it says what else is given: "because slices is given".
    expected = re.sub(
        r"(?<=because )\w+", lambda match: _NAMES.get(match[0], match[0]), error.expected
    )
    return ConfigError(_NAMES.get(error.argument, error.argument), error.value, expected)
