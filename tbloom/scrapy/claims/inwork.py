"""The claimed pages that Scrapy has taken out of its queue, until they are marked or released."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from tbloom.scrapy.claims.requests import RequestClaim
from tbloom.scrapy.claims.results import PageResults, busy
from tbloom.scrapy.claims.unstored import UnstoredItems
from tbloom.scrapy.crawler import count

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    from scrapy import Request
    from scrapy.crawler import Crawler

    from tbloom.scrapy.claims.errands import Errands
    from tbloom.scrapy.claims.held import HeldRequests
    from tbloom.scrapy.crawler import CrawlEnd
    from tbloom.scrapy.stores import CrawlBloom

logger = logging.getLogger(__name__)


class PagesInWork:
    """The pages that one crawl works on, by the first fingerprint of their claims."""

    def __init__(
        self,
        crawler: Crawler,
        seen: CrawlBloom,
        end: CrawlEnd,
        held: HeldRequests,
        errands: Errands,
    ) -> None:
        self._crawler, self._seen, self._end = crawler, seen, end
        self._held, self._errands = held, errands
        self._running: dict[str, Request] = {}
        self._results = PageResults()
        #: The claims on pages that are processed, but for their items.
        self._done: dict[str, RequestClaim] = {}
        self._unstored = UnstoredItems(crawler)
        self._marking: Future[object] | None = None

    def begin(self, claim: RequestClaim, request: Request) -> None:
        """Scrapy processes the request."""
        self._running[claim.fingerprints[0]] = request

    def leave(self, claim: RequestClaim) -> None:
        """Scrapy processes the page's request no more."""
        self._running.pop(claim.fingerprints[0], None)

    def clear(self) -> None:
        """Nothing that is in work now will be marked."""
        self._running.clear()

    def forget(self, claim: RequestClaim) -> None:
        """The claim has ended."""
        self.leave(claim)
        self._held.numbers.pop(claim.fingerprints[0], None)
        self._results.forget(claim.fingerprints[0])

    def left(self, *, in_vain: bool = False) -> list[str]:
        """The pages that are claimed and not done; ``in_vain``: also those that have failed too often."""
        left = self._held.numbers.keys() - self._done.keys()
        return [page for page in left if in_vain or self._results.may_try_again(page)]

    def release(self, pages: Iterable[str]) -> None:
        """Releases the claims on these pages."""
        items = [bytes.fromhex(page) for page in pages]
        if items:
            self._errands.later("released", partial(self._seen.release_many, items))
            count(self._crawler, "tbloom/released", len(items))
            for item in items:
                del self._held.numbers[item.hex()]

    async def stored(self) -> None:
        """Returns once the feeds are stored."""
        await self._unstored.closed()

    def ended(self, request: Request, *, well: bool) -> None:
        """The request's callback has ended, or a pipeline has failed with an item of its page.

        ``settle`` marks or releases the page once Scrapy has processed all that the callback has yielded.
        """
        if page := self._page_of(request):
            self._results.add(page, well=well)

    def awaits(self, request: Request, items: int) -> None:
        """Adds to the number of the page's items that the pipelines still have."""
        if page := self._page_of(request):
            self._results.awaits(page, items)

    def passed(self, request: Request) -> None:
        """An item of the request's page has passed the pipelines."""
        if page := self._page_of(request):
            self._results.awaits(page, -1)
            self._unstored.add(page)

    def _page_of(self, request: Request) -> str:
        """The page's first fingerprint; "" if the crawl has not claimed it."""
        claim = RequestClaim.of(request)
        # Held or not: the page may have been asked for again, and be in a shared queue.
        return claim.fingerprints[0] if claim and self._held.belongs_to(request, claim) else ""

    def failed(self, request: Request) -> None:
        """The request has failed; the next crawler that meets its URL may try."""
        claim = self._held.of(request)
        if claim:
            self.forget(claim)
            self._errands.later("released", partial(self._seen.release_many, claim.items))
            count(self._crawler, "tbloom/released")

    def settle(self) -> None:
        """Marks the pages that Scrapy has processed, and releases requests that something has dropped."""
        engine = self._crawler.engine
        if engine is None or engine.scraper.slot is None:
            return
        for first in self._running.keys() - busy(engine, engine.scraper.slot):
            request = self._running.pop(first)
            claim, went_well = self._held.of(request), self._results.take(first)
            if claim and went_well:
                self._done[first] = claim
            elif claim and self._results.may_try_again(first):
                self.failed(request)
        self._mark()

    def _mark(self) -> None:
        """Marks the pages whose items are stored; those that come while a call is on its way go in the next one."""
        if self._marking and not self._marking.done():
            return
        try:
            stored, lost = self._unstored.take(self._done)
        except OSError as error:  # a full disk: they are left to the next crawl
            logger.error(
                "Pages are not marked, because their items could not be written: %s", error
            )
            self._end.begin()
            return
        for first in lost:
            del self._done[first]
        items = []
        for first in stored:
            claim = self._done.pop(first)
            items += claim.items
            self.forget(claim)
        if items:
            commit, pages = partial(self._seen.commit_many, items), len(stored)
            self._marking = self._errands.later(
                "marked", commit, lambda _: count(self._crawler, "tbloom/done", pages)
            )
