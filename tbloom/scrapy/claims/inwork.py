"""The claimed pages that Scrapy has taken out of its queue, until they are marked or released."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tbloom.errors import ConfigError
from tbloom.items import check_keep
from tbloom.scrapy.claims.requests import RequestClaim
from tbloom.scrapy.claims.unstored import UnstoredItems
from tbloom.scrapy.crawler import count
from tbloom.scrapy.meta import KEEP

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    from scrapy import Request
    from scrapy.core.engine import ExecutionEngine
    from scrapy.core.scraper import Slot
    from scrapy.crawler import Crawler

    from tbloom.scrapy.claims.errands import Errands
    from tbloom.scrapy.claims.held import HeldRequests
    from tbloom.scrapy.crawler import CrawlEnd
    from tbloom.scrapy.stores import CrawlBloom

logger = logging.getLogger(__name__)

#: A page that has failed this often in one crawl is left to the next one: its links may lead back to it.
_MAX_FAILURES = 3


@dataclass(slots=True)
class _Page:
    """What has happened to a page since it was taken out of the queue."""

    #: The request that Scrapy processes, if it does.
    request: Request | None = None
    #: None: its callback has not ended. One failure counts for the whole page.
    went_well: bool | None = None
    #: The number of items that the pipelines still have.
    items: int = 0


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
        self._pages = defaultdict[str, _Page](_Page)
        self._failures: Counter[str] = Counter()
        #: The claims on pages that are processed, but for their items, and for how many slices the pages are kept.
        self._done: dict[str, tuple[RequestClaim, int | None]] = {}
        self._unstored = UnstoredItems(crawler)
        self._marking: Future[object] | None = None

    def begin(self, claim: RequestClaim, request: Request) -> None:
        """Scrapy processes the request."""
        self._pages[claim.fingerprints[0]].request = request

    def leave(self, claim: RequestClaim) -> None:
        """Scrapy processes the page's request no more."""
        self._pages[claim.fingerprints[0]].request = None

    def clear(self) -> None:
        """Nothing that is in work now will be marked."""
        self._pages.clear()

    def forget(self, claim: RequestClaim) -> None:
        """The claim has ended."""
        self._pages.pop(claim.fingerprints[0], None)
        self._held.numbers.pop(claim.fingerprints[0], None)

    def left(self, *, in_vain: bool = False) -> list[str]:
        """The pages that are claimed and not done; ``in_vain``: also those that have failed too often."""
        left = self._held.numbers.keys() - self._done.keys()
        return [page for page in left if in_vain or self._failures[page] < _MAX_FAILURES]

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
        if first := self._first_of(request):
            page = self._pages[first]
            page.went_well = well and page.went_well is not False

    def awaits(self, request: Request, items: int) -> None:
        """Adds to the number of the page's items that the pipelines still have."""
        if first := self._first_of(request):
            self._pages[first].items += items

    def passed(self, request: Request) -> None:
        """An item of the request's page has passed the pipelines."""
        if first := self._first_of(request):
            self._pages[first].items -= 1
            self._unstored.add(first)

    def _first_of(self, request: Request) -> str:
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
        busy = _busy(engine, engine.scraper.slot)
        for first, page in [*self._pages.items()]:
            if page.request is None or first in busy:
                continue
            del self._pages[first]
            # Scrapy says nothing of an item whose pipeline is cancelled. (A pipeline may add items of its own.)
            well = page.went_well and page.items <= 0
            if well:
                self._failures.pop(first, None)
            elif well is False:  # None: it was dropped on the way
                self._failures[first] += 1
            claim = self._held.of(page.request)
            if claim and well:
                self._done[first] = claim, self._keep_of(page.request)
            elif claim and self._failures[first] < _MAX_FAILURES:
                self.failed(page.request)
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
        items = defaultdict[int | None, list[bytes]](list)
        for first in stored:
            claim, keep = self._done.pop(first)
            items[keep] += claim.items
            self.forget(claim)

        def commit() -> None:
            for keep, of_pages in items.items():
                self._seen.commit_many(of_pages, keep)

        if items:
            pages = len(stored)
            self._marking = self._errands.later(
                "marked", commit, lambda _: count(self._crawler, "tbloom/done", pages)
            )

    def _keep_of(self, request: Request) -> int | None:
        """For how many slices the page is kept; a callback may have said so in ``response.meta``."""
        keep = request.meta.get(KEEP)
        try:
            check_keep(keep, None, self._seen.config.slices)
        except ConfigError as error:
            logger.error(
                "meta[%r] of %s: %s; it is kept for the whole window", KEEP, request, error
            )
            return None
        return keep


def _busy(engine: ExecutionEngine, slot: Slot) -> set[str]:
    """The pages that Scrapy downloads, or whose output it processes."""
    claims = map(RequestClaim.of, engine.downloader.active | slot.active)
    return {claim.fingerprints[0] for claim in claims if claim}
