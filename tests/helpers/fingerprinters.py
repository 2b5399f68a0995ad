"""Fingerprinters as other add-ons put in: scrapy-poet's, duplicate-url-discarder's, scrapy-zyte-api's."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha1
from typing import Any, Self

from scrapy import Request
from scrapy.utils.request import RequestFingerprinter, fingerprint


class Marks:
    """A downloader middleware that the fingerprinter asks for."""

    def __init__(self, crawler: Any) -> None:
        self.mark: str = crawler.settings["MARK"]
        with suppress(RuntimeError):  # of Scrapy 2.19
            assert crawler.engine is None

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        return cls(crawler)


class AsksTheCrawl(RequestFingerprinter):
    """Asks the crawl for its stats and, through the engine, for a downloader middleware."""

    def __init__(self, crawler: Any) -> None:
        self.crawler = crawler

    def fingerprint(self, request: Request) -> bytes:
        self.crawler.stats.inc_value("fingerprints")
        mark = self.crawler.get_downloader_middleware(Marks).mark
        return sha1(mark.encode() + fingerprint(request)).digest()  # noqa: S324 - as Scrapy's


class Addon:
    """Puts it in, with its middleware."""

    def update_settings(self, settings: Any) -> None:
        settings.set("REQUEST_FINGERPRINTER_CLASS", AsksTheCrawl, "addon")
        settings["DOWNLOADER_MIDDLEWARES"][Marks] = 543


class ByCallback:
    """Makes the callback a part of the fingerprint, unless there is none, or it is the one that is named."""

    def __init__(self, plain: str = "") -> None:
        self.plain = plain

    def fingerprint(self, request: Request) -> bytes:
        name = getattr(request.callback, "__name__", "parse")
        made = fingerprint(request)
        return made if name in ("NO_CALLBACK", self.plain) else sha1(made + name.encode()).digest()  # noqa: S324


class WithoutSession:
    """Gives URLs with different queries the same fingerprint."""

    def fingerprint(self, request: Request) -> bytes:
        return fingerprint(request.replace(url=request.url.partition("?")[0]))


class Refuses:
    """Can't be made, or can't read a request."""

    def __init__(self, *, is_made: bool = False) -> None:
        assert is_made, "refused here"

    def fingerprint(self, request: Request) -> bytes:
        raise RuntimeError(f"refused: {request}")


class RefusesLater(Refuses):
    def __init__(self) -> None:
        super().__init__(is_made=True)
