"""The requests that a crawl has claimed, from when they are scheduled until they are done."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from redis import RedisError

from tbloom import Claim
from tbloom.errors import FilterFull, TBloomError
from tbloom.scrapy.claims.held import HeldRequests
from tbloom.scrapy.claims.requests import Note, RequestClaim, note_text
from tbloom.scrapy.claims.results import PageResults, busy
from tbloom.scrapy.claims.takeover import TakeOver
from tbloom.scrapy.claims.unstored import UnstoredItems
from tbloom.scrapy.crawler import count, fingerprint
from tbloom.scrapy.meta import CLAIM, WITHIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy import Request
    from scrapy.crawler import Crawler

    from tbloom.scrapy.calls import Calls
    from tbloom.scrapy.crawler import CrawlEnd
    from tbloom.scrapy.outage import CrawlBloom

logger = logging.getLogger(__name__)


class InFlight:
    """The requests that one crawl has claimed.

    If the queue is ``shared`` with other processes, as scrapy-redis' is, the process that takes a request
    out of it claims it anew.
    """

    def __init__(
        self,
        crawler: Crawler,
        seen: CrawlBloom,
        end: CrawlEnd,
        calls: Calls,
        *,
        take_over: bool,
        shared: bool,
    ) -> None:
        self._crawler, self._seen = crawler, seen
        self._end = end
        self._calls = calls
        self._shared = shared
        self._held = HeldRequests(crawler, seen, shared=shared)
        self._take_over = TakeOver(crawler, seen, self._schedule) if take_over else None
        #: By the first fingerprint: the requests that Scrapy has taken out of the queue and still processes.
        self._running: dict[str, Request] = {}
        self._results = PageResults()
        #: By the first fingerprint: the claims on pages that are processed, but for their items.
        self._done: dict[str, RequestClaim] = {}
        self._unstored = UnstoredItems(crawler)
        #: The request that is just being taken over.
        self._taken: Request | None = None

    def claim(self, request: Request) -> Claim:
        """Claims a request that is about to be scheduled."""
        if request is self._taken:
            return Claim.NEW
        own = self._hex(request)
        before = RequestClaim.of(request)
        request.meta.pop(CLAIM, None)  # copied from another request, unless this one was redirected
        if before is None or not self._held.has(before) or "redirect_urls" not in request.meta:
            return self._claim(request, (own,))
        if own == before.fingerprints[0]:  # redirected to itself, as for a new cookie
            before.write(request)
            self._queue_again(before)
            return Claim.NEW
        if own in before.fingerprints:  # a loop
            return Claim.SEEN
        answer = self._claim(request, (own, *before.fingerprints))
        self._forget(before)
        if answer is not Claim.NEW:  # the claim on the target covers this page
            self._later("marked", partial(self._seen.commit_many, before.items))
        return answer

    async def claim_many(self, requests: list[Request]) -> list[Claim]:
        """Claims requests that are about to be scheduled and carry no claim."""
        items = [fingerprint(self._crawler, request) for request in requests]
        pairs = zip(requests, items, strict=True)
        notes = [self._note(request, (item.hex(),)) for request, item in pairs]
        answers = await self._calls.run(partial(self._seen.claim_many, items, notes=notes))
        for request, item, answer in zip(requests, items, answers, strict=True):
            if answer is Claim.NEW:
                self._held.add(request, (item.hex(),), queued=True)
        return answers

    def scheduled(self, request: Request) -> None:
        """A request is about to enter the queue, unless the dupefilter has seen it."""
        claim = RequestClaim.of(request)
        if claim is None or request is self._taken or not request.dont_filter:
            return  # the dupefilter will be asked
        if self._held.has(claim) and self._held.belongs_to(request, claim):
            self._queue_again(claim)
            return
        request.meta.pop(CLAIM)
        if self._hex(request) in claim.fingerprints and not self._held.has(claim):
            self._claim(request, claim.fingerprints)  # tried again after its release

    def _queue_again(self, claim: RequestClaim) -> None:
        """A request that Scrapy was processing enters the queue once more."""
        self._running.pop(claim.fingerprints[0], None)
        self._held.hand_over(claim)

    def admit(self, request: Request) -> bool:
        """A request has come out of the queue: returns True if it is to be fetched.

        Another crawler or an earlier run may have put it there and died, and others may have taken it over.
        """
        self.settle()
        take_over = self._take_over
        if take_over and take_over.is_due():
            self._try("taken over", lambda: take_over.take(len(self._held.numbers)))
        claim = RequestClaim.of(request)
        # Never claimed (dont_filter), or downloaded by a callback with the meta of its page.
        if claim is None or not self._held.belongs_to(request, claim):
            return True
        if claim.session != self._seen.session or self._shared:
            if not self._claim_again(request, claim):
                return False
        elif not self._held.has(claim):  # a copy came out of the queue before
            request.meta.pop(CLAIM)
            return request.dont_filter
        elif (
            claim.deaths is not None
        ):  # it was taken over: if it ends this crawler too, that counts
            first, text = (
                bytes.fromhex(claim.fingerprints[0]),
                self._note_of_running(request, claim),
            )
            again = partial(self._seen.claim_many, [first], None, [text], self._seen.session)
            self._later("noted", again)
        claim = RequestClaim.of(request) or claim
        self._running[claim.fingerprints[0]] = request
        own = self._hex(request)
        if own not in claim.fingerprints:  # redirected, with dont_filter
            claim._replace(fingerprints=(*claim.fingerprints, own)).write(request)
        return True

    def continues(self, request: Request, parent: Request) -> bool:
        """The request that a callback yields asks for its own page once more, with the same claim."""
        claim = RequestClaim.of(request)
        return (
            claim is not None
            and request.dont_filter
            and claim == RequestClaim.of(parent)
            and self._hex(request) in claim.fingerprints
        )

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
            self._forget(claim)
            self._later("released", partial(self._seen.release_many, claim.items))
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
        """Marks the pages whose items are stored."""
        claims = [claim for first, claim in self._done.items() if not self._unstored.wait(first)]
        try:
            if any(self._unstored.has_items(claim.fingerprints[0]) for claim in claims):
                self._unstored.flush()
        except OSError as error:  # a full disk: they are left to the next crawl
            logger.error(
                "Pages are not marked, because their items could not be written: %s", error
            )
            self._end.begin()
            return
        items, pages = [], 0
        for claim in claims:
            self._done.pop(claim.fingerprints[0])
            if not self._unstored.take(claim.fingerprints[0]):
                continue  # left to the next crawl
            items += claim.items
            pages += 1
            self._forget(claim)
        if items:
            commit = partial(self._seen.commit_many, items)
            self._later("marked", commit, lambda: count(self._crawler, "tbloom/done", pages))

    async def finish(self) -> None:
        """Returns once the feeds are stored, and what can be marked is."""
        await self._unstored.closed()
        self.settle()
        await self._calls.run(lambda: None)

    def is_idle(self) -> bool:
        """Nothing is queued or running here, and nothing can be taken over, now or soon."""
        engine = self._crawler.engine
        if engine is None or not engine.spider_is_idle():
            return True  # another handler of the signal has found something to do
        self.settle()
        left = self._held.numbers.keys() - self._done.keys()
        self._release([*filter(self._results.may_try_again, left)])
        try:
            # A process that shares the queue has lost what is left of it.
            self._calls.now(lambda: None)  # what was posted comes first
            if self._held.handed_over:
                self._held.handed_over = False
                self._seen.end_session()
            take_over = self._take_over
            return not take_over or (not take_over.take() and take_over.are_all_alive())
        except (RedisError, TBloomError) as error:
            self._meet(error, "looked for")
            return not self._end.has_begun

    def release_all(self) -> None:
        """Releases all claims, except on pages whose items are not stored."""
        self._release([*(self._held.numbers.keys() - self._done.keys())])
        self._running.clear()

    @property
    def given_up(self) -> int:
        """Number of requests that have ended too many crawlers."""
        return self._take_over.given_up if self._take_over else 0

    def _release(self, fingerprints: Iterable[str]) -> None:
        items = [bytes.fromhex(first) for first in fingerprints]
        if items:
            self._later("released", partial(self._seen.release_many, items))
            count(self._crawler, "tbloom/released", len(items))
            for item in items:
                del self._held.numbers[item.hex()]

    def _claim(self, request: Request, fingerprints: tuple[str, ...]) -> Claim:
        """Claims a request that is about to enter the queue."""
        answer = self._ask(request, fingerprints, self._note(request, fingerprints), "")
        if answer is Claim.NEW:
            self._held.add(request, fingerprints, queued=True)
        return answer

    def _ask(
        self, request: Request, fingerprints: tuple[str, ...], note: str, previous_owner: str
    ) -> Claim:
        item, within = bytes.fromhex(fingerprints[0]), request.meta.get(WITHIN)
        try:
            claim = partial(self._seen.claim, item, within, note, previous_owner)
            return self._calls.now(claim)
        except (RedisError, FilterFull):
            self._running.clear()  # their links may be lost: they are not done, and left to the next crawl
            raise

    def _note(self, request: Request, fingerprints: tuple[str, ...]) -> str:
        return note_text(self._crawler, request, fingerprints) if self._take_over else ""

    def _claim_again(self, request: Request, claim: RequestClaim) -> bool:
        """Claims a request that perhaps another process has put into the queue."""
        guesses = self._seen.circuit.answers
        try:
            note = self._note_of_running(request, claim)
            answer = self._ask(request, claim.fingerprints, note, claim.session)
        except RedisError:
            self._end.begin()
            if not self._seen.circuit.is_open:
                raise
            return False
        if answer is Claim.NEW:
            self._held.add(request, claim.fingerprints, queued=False, deaths=claim.deaths)
        if self._seen.circuit.answers > guesses:
            return True  # only Redis knows who else has it
        if claim.session != self._seen.session:
            count(self._crawler, f"tbloom/handed_over/{answer.value}")
        return answer is Claim.NEW

    def _note_of_running(self, request: Request, claim: RequestClaim) -> str:
        deaths = 0 if claim.deaths is None else claim.deaths + 1
        return (
            note_text(self._crawler, request, claim.fingerprints, deaths) if self._take_over else ""
        )

    def _schedule(self, request: Request, note: Note) -> None:
        """Schedules a request that was taken over, and so is claimed already."""
        engine = self._crawler.engine
        assert engine is not None  # noqa: S101 - the crawl is running
        self._held.add(request, note.fingerprints, queued=True, deaths=note.deaths)
        self._taken = request
        try:
            engine.crawl(request)
        finally:
            self._taken = None

    def _forget(self, claim: RequestClaim) -> None:
        first = claim.fingerprints[0]
        self._held.numbers.pop(first, None)
        self._running.pop(first, None)
        self._results.forget(first)

    def _later(
        self, what: str, call: Callable[[], object], then: Callable[[], object] = lambda: None
    ) -> None:
        """Makes a call that the crawl can do without and does not wait for, and calls ``then`` if it succeeds."""

        def made(future: Future[object]) -> None:
            error = future.exception()
            if error is None:
                then()
            elif isinstance(error, RedisError | TBloomError):
                self._meet(error, what)
            else:
                raise error

        if not self._end.has_begun:  # else the next crawl takes it over
            self._calls.post(call, made)

    def _try(self, what: str, call: Callable[[], object]) -> None:
        """Makes a call that the crawl can do without."""
        if self._end.has_begun:
            return
        try:
            call()
        except (RedisError, TBloomError) as error:
            self._meet(error, what)

    def _meet(self, error: RedisError | TBloomError, what: str) -> None:
        """Logs an error, and ends the crawl where no policy says otherwise."""
        if not self._seen.circuit.is_open:  # which the log has
            logger.error("Requests could not be %s: %s", what, error)
        if self._seen.circuit.on_error == "raise" or isinstance(error, TBloomError):
            self._end.begin()

    def _hex(self, request: Request) -> str:
        return fingerprint(self._crawler, request).hex()


#: By crawl, because Scrapy makes the middlewares apart from the dupefilter.
in_flight: WeakKeyDictionary[Crawler, InFlight] = WeakKeyDictionary()
