"""The requests that a crawl has claimed, from when they are scheduled until they are done."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from redis import RedisError
from scrapy import signals
from scrapy.utils.asyncio import create_looping_call

from tbloom import Claim
from tbloom.errors import TBloomError
from tbloom.scrapy.calls import Calls, Errands
from tbloom.scrapy.claims.pages import ClaimedPages
from tbloom.scrapy.claims.requests import Note, RequestClaim, note_text
from tbloom.scrapy.claims.takeover import TakeOver
from tbloom.scrapy.crawler import fingerprint
from tbloom.scrapy.meta import CLAIM, WITHIN
from tbloom.scrapy.outage import NEW, Answer, Answers, Guess

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

    from tbloom.scrapy.crawler import CrawlEnd
    from tbloom.scrapy.stores import CrawlBloom

logger = logging.getLogger(__name__)

#: By so much the priority of a request is lower of which crawlers have died.
_SUSPECT = 1_000_000
#: Pages are marked this long after they are done, at most.
_SETTLE_SECONDS = 0.5


class InFlight:
    """Follows the requests of one crawl from claim to mark.

    If the queue is ``shared`` with other processes, as scrapy-redis' is, the process that takes a request
    out of it claims it anew.
    """

    def __init__(
        self,
        crawler: Crawler,
        seen: CrawlBloom,
        answers: Answers,
        end: CrawlEnd,
        calls: Calls,
        *,
        shared: bool,
    ) -> None:
        self._crawler, self._seen, self._answers = crawler, seen, answers
        self._end, self._calls, self._shared = end, calls, shared
        self._errands = Errands(calls, answers, end)
        self.pages = ClaimedPages(crawler, seen, self._errands, shared=shared)
        self._take_over = TakeOver(crawler, seen, self._errands, self._schedule)
        self._settling = create_looping_call(self.pages.settle)
        crawler.signals.connect(self._settle_regularly, signals.engine_started)
        crawler.signals.connect(self._scheduled, signals.request_scheduled)
        #: The request that is just being taken over.
        self._taken: Request | None = None

    def claim(self, request: Request) -> Answer:
        """Claims a request that is about to be scheduled."""
        if request is self._taken:
            return Claim.NEW
        own = self._hex(request)
        carried = RequestClaim.of(request)
        before = carried and self.pages.held(carried)
        request.meta.pop(CLAIM, None)  # copied from another request, unless this one was redirected
        if before is None or "redirect_urls" not in request.meta:
            return self._claim(request, (own,))
        if own == before.fingerprints[0]:  # redirected to itself, as for a new cookie
            before.write(request)
            self.pages.enqueue(before)
            return Claim.NEW
        if own in before.fingerprints:  # a loop
            return Claim.SEEN
        answer = self._claim(request, (own, *before.fingerprints))
        if answer is Claim.SEEN:
            self.pages.forget(before)
            self._errands.later("marked", partial(self._seen.commit_many, before.items))
        elif answer in NEW or self.pages.join(own, before):
            self.pages.forget(before)  # it ends as the target does
        else:  # nobody knows yet how the target ends
            self.pages.release([before.fingerprints[0]])
        return answer

    async def claim_many(self, requests: list[Request]) -> list[Answer]:
        """Claims requests that are about to be scheduled and carry no claim."""
        items = [fingerprint(self._crawler, request) for request in requests]
        pairs = [*zip(requests, items, strict=True)]
        notes = [note_text(self._crawler, request, (item.hex(),)) for request, item in pairs]
        answers = await self._calls.run(partial(self._answers.ask, items, notes))
        for (request, item), answer in zip(pairs, answers, strict=True):
            if answer in NEW:
                self.pages.enqueue(self.pages.add(request, (item.hex(),)))
        return answers

    def _scheduled(self, request: Request) -> None:
        """A request, a retry or a redirect is about to enter the queue, unless the dupefilter has seen it."""
        claim = RequestClaim.of(request)
        if claim is None or request is self._taken or not request.dont_filter:
            return  # the dupefilter will be asked
        has = self.pages.has(claim)
        if has and self.pages.belongs_to(request, claim):
            self.pages.enqueue(claim)
            return
        request.meta.pop(CLAIM)
        if self._hex(request) in claim.fingerprints and not has:
            self._claim(request, claim.fingerprints)  # tried again after its release

    def admit(self, request: Request) -> bool:
        """A request has come out of the queue: returns True if it is to be fetched.

        Another crawler or an earlier run may have put it there and died, and others may have taken it over.
        """
        self.pages.settle()
        self._take_over.search_later()
        claim = RequestClaim.of(request)
        # Never claimed (dont_filter), or downloaded by a callback with the meta of its page.
        if claim is None or not self.pages.belongs_to(request, claim):
            return True
        if claim.session != self._seen.session or self._shared:
            if not self._claim_again(request, claim):
                return False
        elif not self.pages.has(claim):  # a copy came out of the queue before
            request.meta.pop(CLAIM)
            return request.dont_filter
        elif claim.deaths is not None:  # if it ends this crawler too, its note will say so
            note = [self._note_of_running(request, claim)]
            owner = self._seen.session
            again = partial(self._seen.claim_many, claim.items[:1], None, note, owner)
            self._errands.later("noted", again)
        claim = RequestClaim.of(request) or claim
        own = self._hex(request)
        if own not in claim.fingerprints:  # redirected, with dont_filter
            claim = claim._replace(fingerprints=(*claim.fingerprints, own))
            claim.write(request)
        self.pages.begin(claim, request)
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

    def _settle_regularly(self) -> None:
        """Pages are marked soon, also while no request leaves the queue."""
        if not self._end.has_begun:
            self._settling.start(_SETTLE_SECONDS, now=False)

    async def finish(self, reason: str) -> None:
        """Returns once the feeds are stored, and what can be marked is. What is left is for others, unless the crawl is finished."""
        if self._settling.running:
            self._settling.stop()
        if self._take_over.left:
            message = (
                "%d requests are left to the next crawl, because several crawlers have died of each"
            )
            logger.warning(message, self._take_over.left)
        await self.pages.feeds.closed()
        for _ in range(2):  # what is on its way comes first
            await self._calls.run(lambda: None)
            self.pages.settle()
        await self._calls.run(lambda: None)
        if reason == "finished":
            self.pages.release_left(in_vain=True)

    def is_idle(self) -> bool:
        """Nothing is queued or running here, and nothing can be taken over, now or soon."""
        engine = self._crawler.engine
        if engine is None or not engine.spider_is_idle():
            return True  # another handler of the signal has found something to do
        self._calls.now(lambda: None)  # what is on its way comes first
        self.pages.settle()
        self.pages.release_left()
        self._calls.now(lambda: None)
        try:
            # A process that shares the queue has lost what is left of it.
            if self.pages.handed_over:
                self.pages.handed_over = False
                self._seen.end_session()
            if self._take_over.is_searching():
                return False
            if texts := self._calls.now(self._take_over.search):
                self._take_over.take(texts)
            return not texts and self._take_over.are_all_alive()
        except (RedisError, TBloomError) as error:
            self._errands.failed("searched for", error)
            return not self._end.has_begun

    def _claim(self, request: Request, fingerprints: tuple[str, ...]) -> Answer:
        """Claims a request that is about to enter the queue."""
        answer = self._ask(request, fingerprints, note_text(self._crawler, request, fingerprints))
        if answer in NEW:
            self.pages.enqueue(self.pages.add(request, fingerprints))
        return answer

    def _ask(
        self, request: Request, fingerprints: tuple[str, ...], note: str, previous_owner: str = ""
    ) -> Answer:
        given = {"within": request.meta.get(WITHIN), "previous_owner": previous_owner}
        items = [bytes.fromhex(fingerprints[0])]
        try:
            [answer] = self._calls.now(partial(self._answers.ask, items, [note], **given))
        except (RedisError, TBloomError):
            self._end.begin()
            raise
        return answer

    def _claim_again(self, request: Request, claim: RequestClaim) -> bool:
        """Claims a request that perhaps another process has put into the queue."""
        note = self._note_of_running(request, claim)
        try:
            answer = self._ask(request, claim.fingerprints, note, claim.session)
        except RedisError:
            if not self._seen.circuit.is_open:
                raise
            return False
        if answer in NEW:
            self.pages.add(request, claim.fingerprints, claim.deaths)
        if isinstance(answer, Guess):
            return True  # only Redis knows who else has it
        return answer is Claim.NEW

    def _note_of_running(self, request: Request, claim: RequestClaim) -> str:
        deaths = 0 if claim.deaths is None else claim.deaths + 1
        return note_text(self._crawler, request, claim.fingerprints, deaths)

    def _schedule(self, request: Request, note: Note) -> None:
        """Schedules a request that was taken over, and so is claimed already."""
        engine = self._crawler.engine
        if engine is None or engine.spider is None:  # closed: the next crawl takes it over
            return
        # After the others: what it may do to the crawler harms no more than it must.
        if note.deaths:
            request.priority -= _SUSPECT
        self.pages.enqueue(self.pages.add(request, note.fingerprints, note.deaths))
        self._taken = request
        try:
            engine.crawl(request)
        finally:
            self._taken = None

    def _hex(self, request: Request) -> str:
        return fingerprint(self._crawler, request).hex()
