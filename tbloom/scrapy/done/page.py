"""A page: a request that the filter has claimed. In a queue it is a token in the request's meta, in work an object."""

from __future__ import annotations

import logging
import os
import re
import sysconfig
import time
from collections.abc import Container
from dataclasses import dataclass, field
from http.client import responses
from pathlib import Path
from traceback import walk_tb
from typing import NamedTuple, Self

import scrapy
from scrapy import Request

import tbloom
from tbloom.engine.urls import without_secrets, without_userinfo
from tbloom.scrapy.done.states import Known
from tbloom.scrapy.hooks.engine import copy_request
from tbloom.scrapy.settings import DONE, KEEP, TOKEN, WITHIN

logger: logging.Logger = logging.getLogger(__name__)

_SUCCESS = range(200, 300)
#: The length of a version's hash: two versions of one URL have the same hash once in 2**64 times.
VERSION_BYTES = 8
#: The text of fingerprints and their version, and that of a token.
FINGERPRINTS = re.compile(
    rf"((?:[0-9a-f]{{2}})+(?: (?:[0-9a-f]{{2}})+)*)(?: v([0-9a-f]{{{2 * VERSION_BYTES}}}))?"
)
_TOKEN = re.compile(
    rf"([0-9a-f]+) (\d{{1,9}}) (\d{{1,9}}) {FINGERPRINTS.pattern}( bare)?", re.ASCII
)
#: So many crawls in a row may fail to fetch a page.
MOST_FAILURES = 3
#: A URL in the words of an error; and so much of these is read, and kept.
_URL, _READ, _KEPT = re.compile(r"[A-Za-z][\w+.-]*://\S+"), 1_000, 200
#: What is not the project's: packages, the standard library, and these two, wherever they are.
_PACKAGES = {"site-packages", "dist-packages"}
_OTHERS = tuple(
    f"{folder}{os.sep}"
    for folder in (sysconfig.get_path("stdlib"), *scrapy.__path__, *tbloom.__path__)
)
#: The meta key in which Scrapy counts the retries of a request.
RETRIES = "retry_times"
#: The one in which it counts the redirects.
REDIRECTS = "redirect_times"
_NOT_RETRIED = (
    "a downloader middleware has asked for it again and again without dont_filter=True: let it return get_retry_request(...), from "
    "scrapy.downloadermiddlewares.retry"
)


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
    #: Whether its claim has no note that can restore it.
    is_bare: bool = False

    @classmethod
    def of(cls, request: Request) -> Self | None:
        """Return the request's token; None if it has none: other programs may write to a queue."""
        text = request.meta.get(TOKEN)
        form = _TOKEN.fullmatch(text) if isinstance(text, str) else None
        if form is None:
            return None
        session, deaths, failures, fingerprints, version, bare = form.groups("")
        known = (*fingerprints.split(),)
        return cls(session, known, int(deaths), int(failures), version, bool(bare))

    def __str__(self) -> str:
        bare = " bare" * self.is_bare
        return f"{self.session} {self.deaths} {self.failures} {self.text}{bare}"

    @property
    def text(self) -> str:
        """The text of its fingerprints and its version."""
        return " ".join(self.fingerprints) + f" v{self.version}" * bool(self.version)

    @property
    def items(self) -> list[bytes]:
        """The fingerprints as items of the filter."""
        return [*map(bytes.fromhex, self.fingerprints)]


def without(request: Request, *keys: str) -> Request:
    """Return the request without these keys in its meta: a copy if it has any of them, because the original may be in a queue."""
    if request.meta.keys().isdisjoint(keys):
        return request
    kept = {key: value for key, value in request.meta.items() if key not in keys}
    return copy_request(request, kept)


class Why(NamedTuple):
    """Why a page has failed."""

    #: As its stat is named.
    reason: str
    #: What the error said, in one line without the secrets of URLs, and the last place in the project at which it was raised; "": unknown.
    message: str = ""
    where: str = ""

    @property
    def words(self) -> str:
        """The message and the place, as people read them."""
        return " at ".join(filter(None, self[1:]))


@dataclass(slots=True, eq=False)
class Page(Known):
    """A page in work: from ``next_request`` until the scraper has finished it."""

    token: Token
    #: The request that has come out of the queue.
    request: Request
    #: The request that its response answers: a callback may write into its meta.
    answered: Request
    #: The URL by which it was linked, before any redirect.
    url: str
    #: The hashes of all versions that links have asked for before it is fetched: it is done in these.
    versions: set[str]
    #: Whether the downloader has returned something for the page; the status of the response, or why there is no response.
    is_fetched: bool = False
    status: int | None = None
    download_error: str = ""
    #: Whether the response comes from Scrapy's HTTP cache.
    is_cached: bool = False
    #: What the downloader middlewares got for it: a status, or an exception; None: nothing so far.
    got: int | Exception | None = None
    #: Whether its callback got the response.
    is_called: bool = False
    #: The first exception of its callback or errback, of a pipeline, or of a link that could not be queued.
    exception: str = ""
    #: The message and the place (``Why``) of that exception, or of the download error.
    words: tuple[str, str] = "", ""
    #: Whether the page is redirected to a page that is done; and whether it is forbidden (robots.txt, offsite).
    counts_as_done: bool = False
    is_forbidden: bool = False
    #: The request that a downloader middleware returned in place of a response, until the scheduler gets that request.
    replacement: Request | None = None
    #: The request with which the page's callback or errback asks for the page again.
    repeat: Request | None = None
    #: The feeds and pipelines that have taken its items.
    holders: set[object] = field(default_factory=set)
    #: How long its pause is if it fails (seconds), because it has failed before; 0: it has not.
    pause: float = 0.0
    #: When its work began, or when it was last seen to wait for its turn in the downloader (monotonic).
    since: float = field(default_factory=time.monotonic)
    #: How many of its items pass the pipelines now.
    passing: int = 0

    @property
    def held_by(self) -> str:
        """What has the page now."""
        if not self.is_fetched:
            return "downloader"
        return "pipeline" if self.passing else "callback"

    def fail(self, reason: str, error: BaseException | None = None, about: str = "") -> None:
        """Let the page fail at its end, for the first reason that is given. ``about``: what the message begins with."""
        if not self.exception:
            message, where = words_of(error)
            self.exception = reason
            self.words = ": ".join(filter(None, [about[:_KEPT], message])), where

    def fail_again(self, request: Request) -> None:
        """Let the page fail that is to go on as a request for the same URL, which it has been: a redirect, or a retry without dont_filter."""
        got, error = self.got, self.got if isinstance(self.got, Exception) else None
        if request.meta.get(REDIRECTS) != self.request.meta.get(REDIRECTS):
            self.fail("redirect")
        else:
            failed = f"download/{type(got).__name__}" if error else f"status/{got}"
            self.fail("redirect" if got is None else failed, error, _NOT_RETRIED)


def why_failed(page: Page, done_statuses: Container[int]) -> Why | None:
    """Return why a page that the scraper has finished has failed; None: it is done, unless its items are lost.

    docs/scrapy.md has this as a table. ``done_statuses``: a page is done with these though no callback gets its response.
    ``done/committer.py`` knows later whether its items are lost.
    """
    said, status, words = page.answered.meta.get(DONE), page.status, page.words
    if said not in (None, True, False):
        message = "meta[%r] of %s: expected True or False, got %r: the page has failed"
        logger.error(message, DONE, page.request, said)
    if said is not None:
        reason = "" if said == True else DONE  # noqa: E712 - or 1
    elif page.exception or page.counts_as_done or page.is_forbidden or page.is_called:
        reason = page.exception
    elif page.download_error:
        reason = f"download/{page.download_error}"
    elif status is None:
        reason = "unfinished"
    elif status in done_statuses:
        reason = ""
    else:  # a spider middleware has refused a response that was for the callback
        reason = "input"
        if status not in _SUCCESS:
            reason, words = f"status/{status}", (responses.get(status, ""), "")
    return Why(reason + " from the cache" * page.is_cached, *words) if reason else None


@dataclass(slots=True, eq=False)
class EndedPage(Known):
    """A page that the scraper has finished: what is needed of it until it is committed, or left."""

    items: list[bytes]
    #: The hashes of the versions in which it is done.
    versions: set[str]
    url: str
    #: Whether it has ``tbloom_within``, as list pages have.
    is_list: bool
    #: The number of earlier crawls in a row in which it has failed.
    failures: int
    #: For how many slices it is kept; None: the whole window.
    keep: int | None
    holders: tuple[object, ...]
    #: See ``Page``. A callback or errback may have said that a forbidden one is done.
    pause: float
    is_forbidden: bool

    @classmethod
    def of(cls, page: Page) -> Self:
        """Return what is needed of the page. A callback may have written into its meta."""
        token, meta = page.token, page.answered.meta
        is_forbidden = page.is_forbidden and meta.get(DONE) is None
        ended = cls(
            page.first,
            token.items,
            page.versions,
            without_userinfo(page.url),
            is_list=WITHIN in page.request.meta,
            failures=token.failures,
            keep=1 if is_forbidden else meta.get(KEEP),
            holders=(*page.holders,),
            pause=page.pause,
            is_forbidden=is_forbidden,
        )
        ended.others, ended.asked = page.others, page.asked
        return ended

    @property
    def is_given_up(self) -> bool:
        """Whether the page is given up if it fails now: no later crawl takes it."""
        return not self.is_list and self.failures + 1 >= MOST_FAILURES


@dataclass(slots=True, eq=False)
class FailedPage(Known):
    """A page that has failed in this crawl."""

    #: When a link to the page is followed again, and how long the page's next pause is (seconds).
    until: float
    pause: float
    #: The number of earlier crawls in a row in which the page has failed.
    failures: int


def words_of(error: BaseException | None) -> tuple[str, str]:
    """Return the message and the place (``Why``) of an error."""
    try:
        said = "" if error is None else str(error)[:_READ]
    except Exception:  # noqa: BLE001 - of a project's own class
        said = ""
    if "://" in said:
        said = _URL.sub(lambda url: without_secrets(url[0]), said)
    return " ".join(said.split())[:_KEPT], place_of(error)


def place_of(error: BaseException | None) -> str:
    """Return the last place in the project's own code at which the error was raised: "shop/spiders/books.py:41"; "": there is none."""
    where = ""
    for frame, line in walk_tb(error.__traceback__ if error else None):
        file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__"))
        parts = Path(file).parts
        if not (file.startswith(("<", *_OTHERS)) or _PACKAGES.intersection(parts)):
            where = f"{'/'.join(parts[-1 - module.count('.') :])}:{line}"
    return where


def pipeline_of(error: BaseException | None) -> str:
    """Return the name of the pipeline that has raised the exception."""
    trace = error.__traceback__ if error else None
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_name == "process_item" and "self" in frame.f_locals:
            return type(frame.f_locals["self"]).__qualname__
        trace = trace.tb_next
    return type(error).__name__
