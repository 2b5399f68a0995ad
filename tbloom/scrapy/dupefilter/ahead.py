"""Ask Redis for the requests of one response in one call; the dupefilter then has the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from redis import RedisError
from scrapy import Request

from tbloom.bloom.claims.held import Claim
from tbloom.scrapy.claims.notes import CLAIM, WITHIN

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from tbloom.bloom.sync import TimeBloom
    from tbloom.exact import ExactFilter
    from tbloom.scrapy.claims.inflight import InFlight


class Ahead:
    """The answers of one crawl that were asked for ahead.

    Where requests are marked when they are scheduled, only "seen" is asked for, and nothing changed:
    something may still drop a request. A new one is added when its turn comes. Where they are
    claimed, those that are dropped are given up once the crawl is idle.
    """

    def __init__(
        self, crawler: Crawler, seen: TimeBloom | ExactFilter, in_flight: InFlight | None
    ) -> None:
        self._crawler = crawler
        self._seen = seen
        self._in_flight = in_flight
        self._answers: WeakKeyDictionary[Request, Claim] = WeakKeyDictionary()

    def ask(self, found: list[Any]) -> None:
        """Asks for those that the dupefilter will be asked for."""
        requests = [one for one in found if isinstance(one, Request) and self._is_ours(one)]
        if len(requests) < 2 or self._seen.circuit.is_open:  # noqa: PLR2004 - one is asked for by itself
            return
        guesses = self._seen.circuit.answers
        try:
            answers = self._ask(requests)
        except RedisError:
            return  # the dupefilter will meet it too, and knows what to do
        if self._seen.circuit.answers == guesses:
            self._answers.update(answers)

    def take(self, request: Request) -> Claim | None:
        """The answer for the request, if there is one."""
        return self._answers.pop(request, None)

    def _ask(self, requests: list[Request]) -> dict[Request, Claim]:
        if self._in_flight:
            return dict(zip(requests, self._in_flight.claim_many(requests), strict=True))
        fingerprinter = self._crawler.request_fingerprinter
        assert fingerprinter is not None  # noqa: S101 - a crawl is under way
        seen = self._seen.contains_many(map(fingerprinter.fingerprint, requests))
        return {
            request: Claim.SEEN for request, is_seen in zip(requests, seen, strict=True) if is_seen
        }

    def _is_ours(self, request: Request) -> bool:
        # (One with a claim is a copy of a request of before: the dupefilter knows what it is.)
        return not (request.dont_filter or CLAIM in request.meta or WITHIN in request.meta)


#: Those of each crawl, for the middleware, which Scrapy makes apart from the dupefilter.
ahead: WeakKeyDictionary[Crawler, Ahead] = WeakKeyDictionary()
