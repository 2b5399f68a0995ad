"""A page: a request that the filter has claimed. In a queue it is a token in the request's meta, in work an object."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from scrapy import Request

from tbloom.scrapy.hooks.queue import copy_request
from tbloom.scrapy.settings import KEEP, TOKEN, WITHIN
from tbloom.scrapy.versions import HASH

#: The text of fingerprints and their version, and that of a token.
FINGERPRINTS = re.compile(rf"((?:[0-9a-f]{{2}})+(?: (?:[0-9a-f]{{2}})+)*)(?: v({HASH}))?")
_TOKEN = re.compile(rf"([0-9a-f]+) (\d{{1,9}}) (\d{{1,9}}) {FINGERPRINTS.pattern}", re.ASCII)
#: So many crawls in a row may fail to fetch a page.
MOST_FAILURES = 3
#: The meta key in which Scrapy counts the retries of a request.
RETRIES = "retry_times"


class Token(NamedTuple):
    """The value of ``request.meta["tbloom_page"]``: the session that holds a page's claims, and the page's history."""

    #: The session that has claimed the page.
    session: str
    #: The fingerprints of the page's first request and of its redirects.
    fingerprints: tuple[str, ...]
    #: The number of crawlers that have died of the page, and the number of the last crawls in a row in which it has failed.
    deaths: int = 0
    failures: int = 0
    #: The hash of the version in which it is fetched; "": it has none.
    version: str = ""

    @classmethod
    def read(cls, text: Any) -> Self | None:
        """Return the token that the text holds; None if it holds none: other programs may write to a queue."""
        form = _TOKEN.fullmatch(text) if isinstance(text, str) else None
        if form is None:
            return None
        session, deaths, failures, fingerprints, version = form.groups("")
        known = unversioned(fingerprints, version)
        return cls(session, known, int(deaths), int(failures), version)

    @classmethod
    def of(cls, request: Request) -> Self | None:
        """Return the request's token; None if it has none."""
        return cls.read(request.meta.get(TOKEN))

    @staticmethod
    def first_of(text: str) -> str:
        """Return the first fingerprint of a token's text, without reading all of it; "" if it has none."""
        return [*text.split(" ", 4), "", "", "", ""][3]

    def __str__(self) -> str:
        return f"{self.session} {self.deaths} {self.failures} {self.text}"

    @property
    def text(self) -> str:
        """The text of its fingerprints and its version."""
        return " ".join(self.fingerprints) + f" v{self.version}" * bool(self.version)

    def write(self, request: Request) -> None:
        """Write the token into the request's meta."""
        request.meta[TOKEN] = str(self)

    @property
    def items(self) -> list[bytes]:
        """The fingerprints as items of the filter."""
        return [bytes.fromhex(fingerprint) for fingerprint in self.fingerprints]


def unversioned(fingerprints: str, version: str) -> tuple[str, ...]:
    """Return the fingerprints of a text. Until 2df42574, tbloom wrote each with the version at its end."""
    return (*(each.removesuffix(version) or each for each in fingerprints.split()),)


def without(request: Request, *keys: str) -> Request:
    """Return the request without these keys in its meta: a copy if it has any of them, because the original may be in a queue."""
    if request.meta.keys().isdisjoint(keys):
        return request
    kept = {key: value for key, value in request.meta.items() if key not in keys}
    return copy_request(request, kept)


@dataclass(slots=True, eq=False)
class Page:
    """A page in work: from ``next_request`` until the scraper has finished it."""

    token: Token
    #: The request that has come out of the queue.
    request: Request
    #: The hashes of all versions that links have asked for before it is fetched: it is done in these.
    versions: set[str]
    #: The meta of the request that its response answers: a callback may write into it.
    meta: dict[str, Any]
    #: The URL by which it was linked, before any redirect.
    url: str
    #: Whether the downloader has returned something for the page; the status of the response, or why there is no response.
    is_fetched: bool = False
    status: int | None = None
    download_error: str = ""
    #: Whether the response comes from Scrapy's HTTP cache.
    is_cached: bool = False
    #: Whether its callback got the response.
    is_called: bool = False
    #: The first exception of its callback or errback, of a pipeline, or of a link that could not be queued.
    exception: str = ""
    #: Whether the page is forbidden (robots.txt, offsite), or redirected to a page that is done.
    counts_as_done: bool = False
    #: The request that a downloader middleware returned in place of a response, until the scheduler gets that request.
    replacement: Request | None = None
    #: The request with which the page's callback or errback asks for the page again.
    repeat: Request | None = None
    #: The feeds and pipelines that have taken its items.
    holders: set[object] = field(default_factory=set)

    @property
    def first(self) -> str:
        """The fingerprint of the page's first request, by which it is known."""
        return self.token.fingerprints[0]


class EndedPage(NamedTuple):
    """A page that the scraper has finished: what is needed of it until it is committed, or left."""

    items: tuple[bytes, ...]
    versions: tuple[bytes, ...]
    url: str
    #: Whether it has ``tbloom_within``, as list pages have.
    is_list: bool
    #: The number of earlier crawls in a row in which it has failed.
    failures: int
    #: For how many slices it is kept; None: the whole window.
    keep: int | None
    holders: tuple[object, ...]

    @classmethod
    def of(cls, page: Page) -> Self:
        """Return what is needed of the page. A callback may have written into its meta."""
        return cls(
            (*page.token.items,),
            (*map(bytes.fromhex, page.versions),),
            page.url,
            WITHIN in page.request.meta,
            page.token.failures,
            page.meta.get(KEEP),
            (*page.holders,),
        )

    @property
    def first(self) -> str:
        """The fingerprint of the page's first request."""
        return self.items[0].hex()

    @property
    def is_given_up(self) -> bool:
        """Whether the page is given up if it fails now: no later crawl takes it."""
        return not self.is_list and self.failures + 1 >= MOST_FAILURES


def pipeline_of(error: BaseException | None) -> str:
    """Return the name of the pipeline that has raised the exception."""
    trace = error.__traceback__ if error else None
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_name == "process_item" and "self" in frame.f_locals:
            return type(frame.f_locals["self"]).__qualname__
        trace = trace.tb_next
    return type(error).__name__
