"""Which claims on requests a crawl holds."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tbloom.scrapy.claims.requests import RequestClaim
from tbloom.scrapy.crawler import fingerprint

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

    from tbloom.scrapy.outage import CrawlBloom


class HeldRequests:
    """The requests that one crawl has claimed, until they are done, released or handed over."""

    def __init__(self, crawler: Crawler, seen: CrawlBloom, *, shared: bool) -> None:
        self._crawler, self._seen, self._shared = crawler, seen, shared
        #: The numbers of the claims, by the first fingerprint of their requests.
        self.numbers: dict[str, int] = {}
        #: True if other processes are to end claims of this one.
        self.handed_over = False
        self._next_number = itertools.count()

    def add(
        self,
        request: Request,
        fingerprints: tuple[str, ...],
        *,
        queued: bool,
        deaths: int | None = None,
    ) -> None:
        """A request has been claimed. ``queued``: it enters the queue; else it has come out of it."""
        claim = RequestClaim(self._seen.session, next(self._next_number), fingerprints, deaths)
        claim.write(request)
        self.numbers[fingerprints[0]] = claim.number
        if queued:
            self.hand_over(claim)

    def hand_over(self, claim: RequestClaim) -> None:
        """A claimed request enters the queue. The process that takes it out of a shared one claims it."""
        if self._shared:
            self.handed_over = True
            self.numbers.pop(claim.fingerprints[0], None)
            self._seen.hand_over(claim.items[:1])

    def has(self, claim: RequestClaim) -> bool:
        """The claim is neither done nor released."""
        number = self.numbers.get(claim.fingerprints[0])
        return claim.session == self._seen.session and number == claim.number

    def of(self, request: Request) -> RequestClaim | None:
        """The claim that is held and the request's own."""
        claim = RequestClaim.of(request)
        return claim if claim and self.has(claim) and self.belongs_to(request, claim) else None

    def belongs_to(self, request: Request, claim: RequestClaim) -> bool:
        """The claim is the request's own, by its URL or by a redirect, not copied with the meta."""
        own = fingerprint(self._crawler, request).hex()
        return own in claim.fingerprints or "redirect_urls" in request.meta
