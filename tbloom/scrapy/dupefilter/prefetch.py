"""Ask Redis for the requests of one response in one call, before the dupefilter is asked for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from redis import RedisError
from scrapy import Request
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware

from tbloom import Claim
from tbloom.errors import TBloomError
from tbloom.scrapy.crawler import fingerprint, spider_of
from tbloom.scrapy.meta import CLAIM, WITHIN

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from tbloom.scrapy.claims.inflight import InFlight
    from tbloom.scrapy.outage import CrawlBloom, CrawlExact


class Prefetch:
    """The answers of one crawl that the dupefilter has not been asked for yet.

    Something may still drop a request. So where requests are marked when they are scheduled, only
    "seen" is asked for, and nothing is added. Where they are claimed, claims of dropped requests are
    released once the crawl is idle.
    """

    def __init__(
        self, crawler: Crawler, seen: CrawlBloom | CrawlExact, in_flight: InFlight | None
    ) -> None:
        self._crawler = crawler
        self._seen = seen
        self._in_flight = in_flight
        #: In order: a callback may yield the same object twice.
        self._answers: WeakKeyDictionary[Request, list[Claim]] = WeakKeyDictionary()

    def ask(self, found: list[Any]) -> None:
        """Asks for the requests among the objects that the dupefilter will be asked for."""
        requests = [one for one in found if isinstance(one, Request) and self._is_asked_for(one)]
        if len(requests) < 2 or self._seen.circuit.is_open:  # noqa: PLR2004 - one saves no call
            return
        guesses = self._seen.circuit.answers
        try:
            answers = self._ask(requests)
        except (RedisError, TBloomError):
            return  # the dupefilter will meet it too, and handles it
        # What "drop" decides is asked for again, and counted then; what "schedule" does is claimed.
        if self._seen.circuit.answers == guesses or self._seen.circuit.on_error == "schedule":
            for request, answer in answers:
                self._answers.setdefault(request, []).append(answer)

    def take(self, request: Request) -> Claim | None:
        """The answer for the request, if there is one."""
        answers = self._answers.get(request)
        return answers.pop(0) if answers else None

    def _ask(self, requests: list[Request]) -> list[tuple[Request, Claim]]:
        if self._in_flight:
            return [*zip(requests, self._in_flight.claim_many(requests), strict=True)]
        items = [fingerprint(self._crawler, request) for request in requests]
        answers = zip(requests, self._seen.contains_many(items), strict=True)
        return [(request, Claim.SEEN) for request, is_seen in answers if is_seen]

    def _is_asked_for(self, request: Request) -> bool:
        # A request with a claim is the copy of an earlier one: the dupefilter knows what it is.
        if request.dont_filter or CLAIM in request.meta or WITHIN in request.meta:
            return False
        offsite = self._crawler.get_downloader_middleware(OffsiteMiddleware)
        if offsite is None or request.meta.get("allow_offsite"):
            return True
        return offsite.should_follow(request, spider_of(self._crawler))  # else that one drops it


#: By crawl, because Scrapy makes the middleware apart from the dupefilter.
prefetches: WeakKeyDictionary[Crawler, Prefetch] = WeakKeyDictionary()
