"""The requests that a crawl has claimed, each with its state, until they are marked or released."""

from __future__ import annotations

import itertools
import logging
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tbloom.errors import ConfigError
from tbloom.items import check_keep
from tbloom.scrapy.claims.feeds import Feeds, Place
from tbloom.scrapy.claims.requests import RequestClaim
from tbloom.scrapy.crawler import count, fingerprint
from tbloom.scrapy.meta import KEEP

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    from scrapy import Request
    from scrapy.crawler import Crawler

    from tbloom.scrapy.calls import Errands
    from tbloom.scrapy.stores import CrawlBloom

logger = logging.getLogger(__name__)

#: A page that has failed this often in one crawl is left to the next one: its links may lead back to it.
_MAX_FAILURES = 3


@dataclass(slots=True)
class _Page:
    """A request and its page: in the queue, in work once ``request`` is set, then done once its items are stored."""

    #: None: the request is in a shared queue, and perhaps another process's now.
    claim: RequestClaim | None = None
    #: The request that Scrapy processes.
    request: Request | None = None
    #: None: its callback has not ended. One failure counts for the whole page, also if it is asked for again.
    went_well: bool | None = None
    #: The number of items that the pipelines still have, and where those wait that have passed.
    items: int = 0
    places: set[Place] = field(default_factory=set)
    #: Only its items are to be stored; then it is marked, and kept for ``keep`` slices.
    is_done: bool = False
    keep: int | None = None


class ClaimedPages:
    """The pages that one crawl has claimed, by the first fingerprint of their claims."""

    def __init__(
        self, crawler: Crawler, seen: CrawlBloom, errands: Errands, *, shared: bool
    ) -> None:
        self._crawler, self._seen = crawler, seen
        self._errands, self._shared = errands, shared
        self._pages = defaultdict[str, _Page](_Page)
        self._failures: Counter[str] = Counter()
        self.feeds = Feeds(crawler)
        self._marking: Future[object] | None = None
        #: The first items of pages that are on their way to be marked, or could not be yet.
        self._sent = set[bytes]()
        self._numbers = itertools.count()
        #: True if other processes are to end claims of this one.
        self.handed_over = False

    # From the claim to the queue

    def add(
        self, request: Request, fingerprints: tuple[str, ...], deaths: int | None = None
    ) -> RequestClaim:
        """A request has been claimed."""
        claim = RequestClaim(self._seen.session, next(self._numbers), fingerprints, deaths)
        claim.write(request)
        self._pages[fingerprints[0]].claim = claim
        return claim

    def enqueue(self, claim: RequestClaim) -> None:
        """A claimed request enters the queue, perhaps once more. The process that takes it out of a shared one claims it."""
        page = self._pages[claim.fingerprints[0]]
        page.request = None
        if self._shared:
            self.handed_over = True
            page.claim = None
            self._seen.hand_over(claim.items[:1])

    def held(self, claim: RequestClaim) -> RequestClaim | None:
        """The claim with those that have joined it; None: it is done or released."""
        page = self._pages.get(claim.fingerprints[0])
        held = page.claim if page else None
        same = held and (held.session, held.number) == (claim.session, claim.number)
        return held if same else None

    def has(self, claim: RequestClaim) -> bool:
        """The claim is neither done nor released."""
        return self.held(claim) is not None

    def join(self, fingerprint: str, claim: RequestClaim) -> bool:
        """The claim ends with that of the page with this fingerprint, to which it has led; False: the crawl has none."""
        for page in self._pages.values():
            if page.claim and fingerprint in page.claim.fingerprints:
                joined = (*page.claim.fingerprints, *claim.fingerprints)
                page.claim = page.claim._replace(fingerprints=joined)
                return True
        return False

    def belongs_to(self, request: Request, claim: RequestClaim) -> bool:
        """The claim is the request's own, by its URL or by a redirect, not copied with the meta."""
        own = fingerprint(self._crawler, request).hex()
        return own in claim.fingerprints or "redirect_urls" in request.meta

    # In work

    def begin(self, claim: RequestClaim, request: Request) -> None:
        """Scrapy processes the request."""
        page = self._pages[claim.fingerprints[0]]
        held = self.held(claim) or claim
        own = dict.fromkeys((*claim.fingerprints, *held.fingerprints))
        page.claim, page.request = claim._replace(fingerprints=(*own,)), request

    def ended(self, request: Request, *, well: bool) -> None:
        """The request's callback has ended, or a pipeline has failed with an item of its page.

        ``settle`` marks or releases the page once Scrapy has processed all that the callback has yielded.
        """
        if page := self._page_of(request):
            page.went_well = well and page.went_well is not False

    def leave(self, request: Request) -> None:
        """The crawl is ended by the request's callback: its page is left to the next crawl."""
        if page := self._page_of(request):
            page.request = None

    def awaits(self, request: Request, items: int) -> None:
        """Adds to the number of the page's items that the pipelines still have."""
        if page := self._page_of(request):
            page.items += items

    def passed(self, request: Request) -> None:
        """An item of the request's page has passed the pipelines."""
        if page := self._page_of(request):
            page.items -= 1
            page.places |= self.feeds.places()

    def failed(self, request: Request) -> None:
        """The request has failed; the next crawler that meets its URL may try."""
        claim = RequestClaim.of(request)
        if claim and self.has(claim) and self.belongs_to(request, claim):
            self.release([claim.fingerprints[0]])

    def settle(self) -> None:
        """Marks the pages that Scrapy has processed, and releases requests that something has dropped.

        Once the crawl ends by an error, it leaves them to the next one: links of theirs may be lost.
        """
        engine = self._crawler.engine
        if engine is None or engine.scraper.slot is None or self._errands.end.has_begun:
            return
        claims = map(RequestClaim.of, engine.downloader.active | engine.scraper.slot.active)
        busy = {claim.fingerprints[0] for claim in claims if claim}
        for first, page in [*self._pages.items()]:
            if page.request is None or first in busy:
                continue
            # Scrapy says nothing of an item whose pipeline is cancelled. (A pipeline may add items of its own.)
            if page.went_well and page.items <= 0:
                self._failures.pop(first, None)
                page.is_done, page.keep = True, self._keep_of(page.request)
                page.request = None
                continue
            self._failures[first] += page.went_well is False  # None: it was dropped on the way
            self._pages[first] = _Page(page.claim)
            if self._failures[first] < _MAX_FAILURES:
                self.release([first])
        self._mark()

    # Done

    def forget(self, claim: RequestClaim) -> None:
        """The claim has ended."""
        self._pages.pop(claim.fingerprints[0], None)

    def release_left(self, *, in_vain: bool = False) -> None:
        """Releases the claims that are not done; ``in_vain``: also those on pages that have failed too often."""
        self.release(
            first
            for first, page in self._pages.items()
            if page.claim
            and not page.is_done
            and (in_vain or self._failures[first] < _MAX_FAILURES)
        )

    def unmarked(self) -> int:
        """The number of pages whose callback has ended well, and that are not marked."""
        left = [page for page in self._pages.values() if page.claim and page.went_well]
        return self._seen.uncommitted(self._sent) + len(left)

    def _page_of(self, request: Request) -> _Page | None:
        """The request's page, if the crawl has claimed it: the claim may be in a shared queue again."""
        claim = RequestClaim.of(request)
        if claim and self.belongs_to(request, claim):
            return self._pages.get(claim.fingerprints[0])
        return None

    def release(self, pages: Iterable[str]) -> None:
        """Ends the claims of these pages, each by its first fingerprint: the next crawler that meets their URLs may try."""
        claims = [claim for first in [*pages] if (claim := self._pages.pop(first).claim)]
        items = [item for claim in claims for item in claim.items]

        def release() -> None:
            self._errands.answers.forget(items)
            self._seen.release_many(items)

        if items:
            self._errands.later("released", release)
            count(self._crawler, "tbloom/released", len(claims))

    def _mark(self) -> None:
        """Marks the pages whose items are stored; those that come while a call is on its way go in the next one."""
        if self._marking and not self._marking.done():
            return
        done = [
            page
            for page in self._pages.values()
            if page.is_done and all(place.is_stored for place in page.places)
        ]
        try:
            if done:
                self.feeds.flush()
        except OSError as error:  # a full disk: they are left to the next crawl
            message = "Pages are not marked, because their items could not be written: %s"
            logger.error(message, error)
            self._errands.end.begin()
            return
        items = defaultdict[int | None, list[bytes]](list)
        for page in done:
            if any(place.is_lost for place in page.places):
                page.is_done = False  # left to the next crawl
            elif page.claim:
                items[page.keep] += page.claim.items
                self.forget(page.claim)

        def commit() -> None:
            for keep, of_pages in items.items():
                self._seen.commit_many(of_pages, keep)
            self._sent -= sent  # no other thread changes it meanwhile

        if items:
            sent = {page.claim.items[0] for page in done if page.is_done and page.claim}
            self._sent |= sent
            counted = partial(count, self._crawler, "tbloom/done", len(sent))
            self._marking = self._errands.later("marked", commit, lambda _: counted())

    def _keep_of(self, request: Request) -> int | None:
        """For how many slices the page is kept; a callback may have said so in ``response.meta``."""
        keep: int | None = request.meta.get(KEEP)
        try:
            check_keep(keep, None, self._seen.config.slices)
        except ConfigError as error:
            message = "meta[%r] of %s: %s; it is kept for the whole window"
            logger.error(message, KEEP, request, error)
            return None
        return keep
