"""The requests that this crawl has claimed, from when they are scheduled until they are done.

A request carries its claim in its meta, through the queue (disk, or Redis, to another process),
retries and redirects: the session, a number, and the fingerprint of each of its URLs so far.
"""

from __future__ import annotations

import logging
import time
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from redis import RedisError

from tbloom.errors import TBloomError
from tbloom.holdings import Claim
from tbloom.scrapy.notes import CLAIM, are_fingerprints, from_note, prefix, to_note

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeGuard

    from scrapy import Request
    from scrapy.crawler import Crawler

    from tbloom.sync import TimeBloom

logger = logging.getLogger(__name__)

#: Where a request's meta says within how many slices it counts as seen.
WITHIN = "tbloom_within"
#: A look for the requests of dead crawlers takes so many over, and comes at least so often (s).
_TAKE, _LOOK_SECONDS = 100, 10.0


class InFlight:
    """The requests that one crawl has claimed."""

    def __init__(self, crawler: Crawler, seen: TimeBloom, *, take_over: bool) -> None:
        self._crawler = crawler
        self._seen = seen
        self._take_over = take_over
        #: The claims, by their first fingerprint: the number under which a request carries it. Those in the
        #: queue, which may be shared, and those that have come out of it here.
        self._queued: dict[str, int] = {}
        self._active: dict[str, int] = {}
        self._numbers = count()
        self._next_look = 0.0
        #: Since this crawl is idle: the sessions that gave no sign of life, and until when they count as alive.
        self._silent: dict[str, int] | None = None
        self._said = False

    def claim(self, request: Request) -> Claim:
        """Claims a request that is about to be scheduled."""
        fingerprint = self._fingerprint(request)
        if self.holds(request):  # it was taken over
            return Claim.NEW
        return self._claim(request, [fingerprint], "")

    def arrives(self, request: Request) -> bool:
        """Whether a request that comes out of the queue is to be fetched.

        Another crawler, or an earlier run, may have put it there, and may be dead; then others may
        have taken it over.
        """
        self._silent = None
        self._look()
        claim = request.meta.get(CLAIM)
        if not _is_claim(claim):
            return True  # it was scheduled without being asked for (dont_filter)
        session, number, *fingerprints = claim
        if session != self._seen.session:
            answer = self._claim(request, fingerprints, session)
            self._count(f"tbloom/handed_over/{answer.value}")
            if answer is not Claim.NEW:
                return False
        elif self._number(fingerprints[0]) != number:
            return False  # a copy of it was here before
        self._queued.pop(fingerprints[0], None)
        self._active[fingerprints[0]] = request.meta[CLAIM][1]
        fingerprint = self._fingerprint(request)
        if fingerprint not in fingerprints:  # it was redirected
            request.meta[CLAIM] = [*request.meta[CLAIM], fingerprint]
        return True

    def goes_on(self, request: Request, as_: Request) -> bool:
        """Whether a callback asks for the same page once more, with the claim that it has."""
        return (
            request.dont_filter
            and request.meta[CLAIM] == as_.meta.get(CLAIM)
            and self._fingerprint(request) in request.meta[CLAIM]
        )

    def holds(self, request: Request) -> bool:
        """Whether the request carries a claim of this crawl that is neither done nor given up."""
        claim = request.meta.get(CLAIM)
        return (
            _is_claim(claim)
            and claim[0] == self._seen.session
            and self._number(claim[2]) == claim[1]
        )

    def is_queued(self, request: Request) -> None:
        """The request goes into the queue, perhaps once more: another process may get it."""
        _, number, fingerprint, *_ = request.meta[CLAIM]
        self._active.pop(fingerprint, None)
        self._queued[fingerprint] = number

    def done(self, request: Request) -> None:
        """The request's callback has run to its end: all its URLs are seen from now on."""
        if self.holds(request):
            _, _, *fingerprints = request.meta[CLAIM]
            items = [bytes.fromhex(fingerprint) for fingerprint in fingerprints]
            self._try(lambda: self._seen.commit_many(items))
            self._forget(fingerprints[0])
            self._count("tbloom/done")

    def failed(self, request: Request) -> None:
        """The request has come to nothing: whoever meets its URL next may try."""
        if self.holds(request):
            fingerprint = request.meta[CLAIM][2]
            self._try(lambda: self._seen.release(bytes.fromhex(fingerprint)))
            self._forget(fingerprint)
            self._count("tbloom/released")

    def is_idle(self) -> bool:
        """Nothing is queued or under way here: whether there is nothing to be taken over, now or soon."""
        # What has come out of the queue, and is still claimed, was dropped without a word. What has not
        # come out of it was lost by a process that shares it.
        self._give_up(self._active, self._seen.release_many, "tbloom/released")
        self._give_up(self._queued, self._seen.abandon_many, "tbloom/abandoned")
        if not self._take_over:
            return True
        try:
            if self._take():
                return False
            others = self._seen.other_sessions()
        except RedisError:
            return True
        # A session that has given a sign of life since then does its own work; one that does not is dead soon.
        known = others if self._silent is None else self._silent
        self._silent = {name: until for name, until in others.items() if known.get(name) == until}
        return not self._silent

    def release_all(self) -> None:
        """Gives up all claims."""
        self._give_up(self._active, self._seen.release_many, "tbloom/released")
        self._give_up(self._queued, self._seen.release_many, "tbloom/released")

    def _give_up(
        self, claims: dict[str, int], how: Callable[[list[bytes]], None], stat: str
    ) -> None:
        items = [bytes.fromhex(fingerprint) for fingerprint in claims]
        if items:
            self._try(lambda: how(items))
            self._count(stat, len(items))
            claims.clear()

    def _number(self, fingerprint: str) -> int | None:
        return self._queued.get(fingerprint, self._active.get(fingerprint))

    def _forget(self, fingerprint: str) -> None:
        self._queued.pop(fingerprint, None)
        self._active.pop(fingerprint, None)

    def _claim(self, request: Request, fingerprints: list[str], giver: str) -> Claim:
        note = ""
        if self._take_over and self._crawler.spider:
            note = to_note(request, fingerprints, self._crawler.spider)
            if not note:
                self._count("tbloom/not_noted")
        within, item = request.meta.get(WITHIN), bytes.fromhex(fingerprints[0])
        answer = self._seen.claim(item, within, note, giver)
        if answer is Claim.NEW:
            self._hold(request, fingerprints)
        return answer

    def _hold(self, request: Request, fingerprints: list[str]) -> None:
        number = self._queued[fingerprints[0]] = next(self._numbers)
        request.meta[CLAIM] = [self._seen.session, number, *fingerprints]

    def _look(self) -> None:
        """From time to time, looks for requests of crawlers that have died."""
        if self._take_over and time.monotonic() > self._next_look:
            self._try(self._take)

    def _take(self) -> bool:
        """Takes over requests of crawlers that have died; whether there were any."""
        spider, engine = self._crawler.spider, self._crawler.engine
        assert spider is not None  # noqa: S101 - a crawl is under way
        assert engine is not None  # noqa: S101
        self._next_look = time.monotonic() + min(_LOOK_SECONDS, self._seen.session_ttl / 4)
        notes = self._seen.take_over(_TAKE, prefix(spider))
        for note in notes:
            try:
                request, fingerprints = from_note(note, spider)
            except ValueError as error:
                logger.error(
                    "A request that a dead crawler left can't be taken over: %s: %r", error, note
                )
                self._count("tbloom/not_taken_over")
                continue
            self._hold(request, fingerprints)
            self._count("tbloom/taken_over")
            engine.crawl(request)
        return bool(notes)

    def _try(self, call: Callable[[], object]) -> None:
        """Makes a call whose failure changes nothing for this crawl: the filter makes up for it."""
        try:
            call()
        except (RedisError, TBloomError) as error:
            if not self._said:
                self._said = True
                logger.error(
                    "Redis could not be told what was fetched, or not; it will be: %s", error
                )

    def _fingerprint(self, request: Request) -> str:
        fingerprinter = self._crawler.request_fingerprinter
        assert fingerprinter is not None  # noqa: S101 - a crawl is under way
        return fingerprinter.fingerprint(request).hex()

    def _count(self, stat: str, times: int = 1) -> None:
        if self._crawler.stats:
            self._crawler.stats.inc_value(stat, times)


#: The claims of each crawl, for the middlewares, which Scrapy makes apart from the dupefilter.
in_flight: WeakKeyDictionary[Crawler, InFlight] = WeakKeyDictionary()


def _is_claim(value: object) -> TypeGuard[list[Any]]:
    if not isinstance(value, list) or not are_fingerprints(value[2:]):
        return False
    return isinstance(value[0], str) and isinstance(value[1], int)
