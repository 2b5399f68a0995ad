"""The requests that this crawl has claimed, from when they are scheduled until they are done."""

from __future__ import annotations

import logging
from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from redis import RedisError

from tbloom.bloom.claims.held import Claim
from tbloom.errors import TBloomError
from tbloom.scrapy.claims.notes import CLAIM, WITHIN, Carried, Note
from tbloom.scrapy.claims.takeover import TakeOver

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler

    from tbloom.bloom.sync import TimeBloom

logger = logging.getLogger(__name__)


class InFlight:
    """The requests that one crawl has claimed. ``shared``: the queue is shared with other processes, as
    scrapy-redis' is. What is put there is claimed anew by whoever takes it out."""

    def __init__(
        self,
        crawler: Crawler,
        seen: TimeBloom,
        give_up: Callable[[], None],
        *,
        take_over: bool,
        shared: bool,
    ) -> None:
        self._crawler, self._seen = crawler, seen
        self._give_up = give_up
        self._shared = shared
        self._take_over = TakeOver(crawler, seen, self._schedule) if take_over else None
        #: By the first fingerprint: the numbers under which requests carry their claims, and the
        #: requests that have come out of the queue, until Scrapy is through with them.
        self._numbers: dict[str, int] = {}
        self._under_way: dict[str, Request] = {}
        self._done: set[str] = set()
        self._count_up = count()
        self._taken: Request | None = None
        self._handed_over = self._lost = False

    def claim(self, request: Request) -> Claim:
        """Claims a request that is about to be scheduled."""
        if request is self._taken:
            return Claim.NEW
        fingerprint = self._fingerprint(request)
        before = Carried.by(request)
        request.meta.pop(CLAIM, None)  # a copy's, unless it was redirected
        if before is None or not self._is_ours(before) or "redirect_urls" not in request.meta:
            return self._claim(request, (fingerprint,), "")
        if fingerprint in before.fingerprints:  # back to where it came from, as with a new cookie
            before.write(request)
            return Claim.NEW
        answer = self._claim(request, (fingerprint, *before.fingerprints), "")
        self._forget(before)
        if answer is not Claim.NEW:  # who fetches the target fetches this page
            self._try("marked", lambda: self._seen.commit_many(before.items))
        return answer

    def claim_many(self, requests: list[Request]) -> list[Claim]:
        """Claims requests that are about to be scheduled, and carry no claim."""
        fingerprints = [self._fingerprint(request) for request in requests]
        pairs = zip(requests, fingerprints, strict=True)
        notes = [self._note(request, (fingerprint,)) for request, fingerprint in pairs]
        items = [bytes.fromhex(fingerprint) for fingerprint in fingerprints]
        answers = self._seen.claim_many(items, notes=notes)
        for request, fingerprint, answer in zip(requests, fingerprints, answers, strict=True):
            if answer is Claim.NEW:
                self._hold(request, (fingerprint,))
        return answers

    def scheduled(self, request: Request) -> None:
        """A request is about to be put into the queue, if the dupefilter has not seen it."""
        carried = Carried.by(request)
        if carried is None or request is self._taken or not request.dont_filter:
            return  # the dupefilter will be asked
        if self._is_ours(carried) and self._goes_with(request, carried):
            self._under_way.pop(carried.fingerprints[0], None)
            self._hand_over(carried)
            return
        request.meta.pop(CLAIM)
        if self._fingerprint(request) in carried.fingerprints and not self._is_ours(carried):
            self._claim(request, carried.fingerprints, "")  # tried again after it was given up

    def arrives(self, request: Request) -> bool:
        """Whether a request that comes out of the queue is to be fetched.

        Another crawler, or an earlier run, may have put it there, and may be dead; then others may
        have taken it over.
        """
        self.settle()
        take_over = self._take_over
        if take_over and take_over.is_due():
            self._try("taken over", lambda: take_over.take(len(self._numbers)))
        carried = Carried.by(request)
        # Scheduled without being asked for (dont_filter); or a download of a callback's own, with the
        # meta of its page.
        if carried is None or not self._goes_with(request, carried):
            return True
        if carried.session != self._seen.session or self._shared:
            if not self._takes_from_queue(request, carried):
                return False
        elif not self._is_ours(carried):  # a copy of it was here before
            request.meta.pop(CLAIM)
            return request.dont_filter
        carried = Carried.by(request) or carried
        self._under_way[carried.fingerprints[0]] = request
        fingerprint = self._fingerprint(request)
        if fingerprint not in carried.fingerprints:  # redirected, with dont_filter
            carried._replace(fingerprints=(*carried.fingerprints, fingerprint)).write(request)
        return True

    def goes_on(self, request: Request, as_: Request) -> bool:
        """Whether a callback asks for the same page once more, with the claim that it has."""
        carried = Carried.by(request)
        return (
            carried is not None
            and request.dont_filter
            and carried == Carried.by(as_)
            and self._fingerprint(request) in carried.fingerprints
        )

    def done(self, request: Request) -> None:
        """The request's callback has run to its end: once Scrapy is through with what it yielded, it is marked."""
        carried = self._own(request)
        if carried:
            self._done.add(carried.fingerprints[0])

    def failed(self, request: Request) -> None:
        """The request has come to nothing: whoever meets its URL next may try."""
        carried = self._own(request)
        if carried:
            self._forget(carried)
            self._try("given up", lambda: self._seen.release_many(carried.items))
            self._count("tbloom/released")

    def settle(self) -> None:
        """Marks the pages that Scrapy is through with, and gives up requests that were dropped without a word."""
        engine = self._crawler.engine
        if engine is None or engine.scraper.slot is None:
            return
        busy = engine.downloader.active | engine.scraper.slot.active
        ended = [work for work in self._under_way.items() if work[1] not in busy]
        items, pages = [], 0
        for first, request in ended:
            carried = self._own(request)
            if carried and first in self._done:
                items += carried.items
                pages += 1
                self._forget(carried)
            elif carried:
                self.failed(request)
            self._under_way.pop(first, None)
        if items and self._try("marked", lambda: self._seen.commit_many(items)):
            self._count("tbloom/done", pages)

    def is_idle(self) -> bool:
        """Nothing is queued or under way here: whether there is nothing to be taken over, now or soon."""
        engine = self._crawler.engine
        if engine is None or not engine.spider_is_idle():
            return True  # another handler of the signal has found something to do
        self.settle()
        self.release_all()
        try:
            if self._handed_over:  # what is left of it was lost by a process that shares the queue
                self._handed_over = False
                self._seen.end_session()
            take_over = self._take_over
            return not take_over or (not take_over.take() and take_over.are_all_alive())
        except RedisError:
            return True

    def release_all(self) -> None:
        """Gives up all claims."""
        items = [bytes.fromhex(first) for first in self._numbers]
        if items:
            self._try("given up", lambda: self._seen.release_many(items))
            self._count("tbloom/released", len(items))
            self._numbers.clear()
            self._under_way.clear()
            self._done.clear()

    def _claim(self, request: Request, fingerprints: tuple[str, ...], previous_owner: str) -> Claim:
        text = self._note(request, fingerprints)
        item = bytes.fromhex(fingerprints[0])
        answer = self._seen.claim(item, request.meta.get(WITHIN), text, previous_owner)
        if answer is Claim.NEW:
            self._hold(request, fingerprints)
        return answer

    def _note(self, request: Request, fingerprints: tuple[str, ...]) -> str:
        spider = self._crawler.spider
        if not self._take_over or spider is None:
            return ""
        note = Note.of(request, fingerprints, spider)
        if note is None:
            self._count("tbloom/not_noted")
        return note.text(spider) if note else ""

    def _hold(self, request: Request, fingerprints: tuple[str, ...]) -> None:
        carried = Carried(self._seen.session, next(self._count_up), fingerprints)
        carried.write(request)
        self._numbers[fingerprints[0]] = carried.number
        self._hand_over(carried)

    def _hand_over(self, carried: Carried) -> None:
        """It goes into the queue; the process that gets it from a shared one claims it."""
        if self._shared:
            self._handed_over = True
            self._numbers.pop(carried.fingerprints[0], None)
            self._seen.hand_over(carried.items[:1])

    def _takes_from_queue(self, request: Request, carried: Carried) -> bool:
        guesses = self._seen.circuit.answers
        try:
            answer = self._claim(request, carried.fingerprints, carried.session)
        except RedisError:
            self._give_up()
            raise
        mine = Carried.by(request)
        if answer is Claim.NEW and mine:  # it has come out of the queue
            self._numbers[mine.fingerprints[0]] = mine.number
        if self._seen.circuit.answers > guesses:
            return True  # it was scheduled; whether somebody else has it, nobody knows now
        if carried.session != self._seen.session:
            self._count(f"tbloom/handed_over/{answer.value}")
        return answer is Claim.NEW

    def _schedule(self, request: Request, fingerprints: tuple[str, ...]) -> None:
        """Schedules a request that was taken over, and so is claimed already."""
        engine = self._crawler.engine
        assert engine is not None  # noqa: S101 - a crawl is under way
        self._hold(request, fingerprints)
        self._taken = request
        try:
            engine.crawl(request)
        finally:
            self._taken = None

    def _own(self, request: Request) -> Carried | None:
        """The claim of this crawl that the request has come with out of the queue."""
        carried = Carried.by(request)
        is_own = carried and self._is_ours(carried) and self._goes_with(request, carried)
        return carried if is_own else None

    def _is_ours(self, carried: Carried) -> bool:
        """Whether it is a claim of this crawl that is neither done nor given up."""
        number = self._numbers.get(carried.fingerprints[0])
        return carried.session == self._seen.session and number == carried.number

    def _goes_with(self, request: Request, carried: Carried) -> bool:
        """Whether the claim is the request's own, by its URL or through a redirect, not copied with meta."""
        fingerprint = self._fingerprint(request)
        return fingerprint in carried.fingerprints or "redirect_urls" in request.meta

    def _forget(self, carried: Carried) -> None:
        first = carried.fingerprints[0]
        self._numbers.pop(first, None)
        self._under_way.pop(first, None)
        self._done.discard(first)

    def _try(self, what: str, call: Callable[[], object]) -> bool:
        """Makes a call that this crawl can do without, as long as Redis is there."""
        if self._lost:
            return False
        try:
            call()
        except (RedisError, TBloomError) as error:
            logger.error("Requests could not be %s: %s", what, error)
            if self._seen.circuit.on_error == "raise" or isinstance(error, TBloomError):
                self._lost = True  # don't wait for Redis once more for each page that is under way
                self._give_up()
            return False
        return True

    def _fingerprint(self, request: Request) -> str:
        fingerprinter = self._crawler.request_fingerprinter
        assert fingerprinter is not None  # noqa: S101 - a crawl is under way
        return fingerprinter.fingerprint(request).hex()

    def _count(self, stat: str, times: int = 1) -> None:
        if self._crawler.stats:
            self._crawler.stats.inc_value(stat, times)


#: The claims of each crawl, for the middlewares, which Scrapy makes apart from the dupefilter.
in_flight: WeakKeyDictionary[Crawler, InFlight] = WeakKeyDictionary()
