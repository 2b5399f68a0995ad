"""A fleet: crawlers of one spider take pages that others have left, give away what they have too many of, and end together.

A page is left when a crawler gives it away, when its crawler ends or dies, when it has failed in an earlier crawl, and when a program
pushes it. A crawler that has nothing to do asks for such pages, and says so with each question. The others learn it from the
replies to their commits.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any

from scrapy import Request
from scrapy.utils.asyncio import call_later

from tbloom import Note
from tbloom.bloom.claims.notes import Taken
from tbloom.scrapy.compat import host_queues, is_downloading, wake_engine
from tbloom.scrapy.crawl import Crawl
from tbloom.scrapy.done.committer import Committer
from tbloom.scrapy.done.failures import Failures
from tbloom.scrapy.done.page import MOST_FAILURES, Token
from tbloom.scrapy.done.serialize import Unreadable, read_request, read_token
from tbloom.scrapy.outage import ClaimStore, CrawlBloom
from tbloom.scrapy.settings import TOKEN, WHEN_IDLE

logger: logging.Logger = logging.getLogger(__name__)

#: The most pages that one call takes, and that one call gives away. (200 take the server some 1 ms.)
_TAKES, GIVES = 100, 200
#: So many failed pages are taken at the start, before the first link. The others follow when the queue is empty.
_MOST_FAILED = 1_000
#: An idle crawler asks again after the first pause. Each further pause is longer by this factor, up to the longest (seconds), to
#: which each crawler that waits adds some time, so that the server answers 50 of up to 1,000 a second.
_FIRST_PAUSE, _FACTOR, _LONGEST_PAUSE, _EACH_ADDS, _MOST = 0.03, 1.5, 1.0, 0.02, 20.0
#: A crawler whose queue is empty while it works asks again after this time, if nothing was left (seconds).
BUSY_PAUSE = 1.0
#: A crawl whose start does not come to an end takes left pages once it has done nothing for this time (seconds).
_START_PATIENCE = 30.0
#: So long an idle crawl that may end need not ask again (seconds).
_FINISHED_FOR = 4.0
#: So many crawlers may die of a page.
_MOST_DEATHS = 3
_UNREADABLE = (
    "%d kept pages can't be restored by this spider (%s): each is fetched when a link leads to it, or by a version of the spider that "
    "can; %d of them are given up. If a callback was renamed: tbloom retry %s --reason unreadable --callback NAME"
)


@dataclass(slots=True)
class _Found:
    """The answer to a question for pages."""

    taken: Taken | None = None
    pages: list[tuple[Request, Token]] = field(default_factory=list)
    #: By its first item, each page that this spider can't restore, with the name of what is missing.
    unreadable: dict[bytes, tuple[Token, str]] = field(default_factory=dict)


class Sharing:
    """Takes pages for one crawl, and knows whether an idle crawl is over. ``enqueue`` enqueues a page that was taken."""

    def __init__(
        self,
        crawl: Crawl,
        seen: ClaimStore,
        failures: Failures,
        committer: Committer,
        enqueue: Callable[[Request, Token], object],
    ) -> None:
        self._crawl, self._seen, self._failures, self._committer = crawl, seen, failures, committer
        self._enqueue = enqueue
        self._waits_for_work = WHEN_IDLE.value(crawl.crawler.settings) == "wait"
        #: Changes whenever a request enters the queue or comes out of it; and what it was at the last look, since when.
        self.queue_changes: int = 0
        self._changes_seen, self._still_since = -1, 0.0
        #: Whether the spider is ready for left pages: its start is over, and it has been idle once. Until then, they are held.
        self._is_ready = False
        self._held: list[tuple[Request, Token]] = []
        #: Whether pages that have failed in earlier crawls may be left.
        self._more_failed = True
        #: What the question that is under way has found, and the pages that this spider could not restore.
        self._found, self._unreadable = _Found(), set[bytes]()
        #: Whether a question, or the pause after it, is under way. The first one is due at the start.
        self.is_asking: bool = True
        #: Whether the first question is answered: until then, this session may hold pages that it is about to leave.
        self.has_begun: bool = False
        #: When a busy crawl may ask again; the next pause of an idle one, and the longest.
        self._next_question, self._pause, self._longest = 0.0, _FIRST_PAUSE, _LONGEST_PAUSE
        #: ``queue_changes`` when no work was left, and when that was.
        self._finished_at, self._finished_when = -1, 0.0
        #: Until when this crawl waits for others in any case.
        self._waits_until = 0.0

    def begin(self) -> None:
        """Join the crawlers of this spider, and take the pages that have failed in earlier crawls."""
        logger.info("this crawler is session %s", self._seen.session)  # as "tbloom queue" has it
        # In the thread of the links, and before the first one: a link to such a page would begin its count of failures again.
        self._crawl.link_calls.begin(
            partial(self._take, 0, idle=False),
            partial(self._answered, False),  # noqa: FBT003 - of a partial
        )

    def wait_for_others(self, seen: CrawlBloom) -> None:
        """Wait for two heartbeats: Redis has lost the filter, and does not know yet which crawlers are at work."""
        self._waits_until = time.monotonic() + seen.session_ttl / 2

    def ask_if_short(self) -> None:
        """Ask for pages, because the queue is empty; but not too often."""
        now = time.monotonic()
        if not self._is_ready:
            if self._changes_seen != self.queue_changes or is_downloading(
                self._crawl.crawler.engine
            ):
                self._changes_seen, self._still_since = self.queue_changes, now
            if now > self._still_since + _START_PATIENCE:
                self._become_ready()
        elif now > self._next_question:
            self._ask(idle=False)

    def _become_ready(self) -> bool:
        """Enqueue the pages that were held; return whether there were any."""
        self._is_ready = True
        held, self._held = self._held, []
        for request, token in held:
            self._enqueue(request, token)
        if held:
            wake_engine(self._crawl.crawler.engine)
        return bool(held)

    def is_finished(self) -> bool:
        """Return whether no work is left for an idle crawl. If that is not known, ask, and return False: the answer wakes the engine."""
        if not self._crawl.is_running:
            return True
        if not self._is_ready and self._become_ready():
            return False
        is_recent = time.monotonic() < self._finished_when + _FINISHED_FOR
        if self._finished_at == self.queue_changes and is_recent:
            return True
        self._ask(idle=True)
        return False

    def _ask(self, *, idle: bool) -> None:
        if self.is_asking or not self._crawl.is_running:
            return
        self._next_question = time.monotonic() + BUSY_PAUSE
        self.is_asking = True
        question = partial(self._take, _TAKES, idle=idle)
        self._crawl.page_calls.begin(question, partial(self._answered, idle))

    def _take(self, limit: int, *, idle: bool) -> _Found:
        """Take left pages. If there are none, or for a ``limit`` of 0, take some that have failed in earlier crawls.

        After an outage this is called again, and goes on with what it had found.
        """
        found = self._found
        if found.taken is None:
            found.taken = self._seen.take(limit, self._crawl.queue, idle=idle)
            self._sort(found, found.taken.notes)
        if self._more_failed and not found.taken.notes:
            queue = self._crawl.failed_queue
            while len(found.pages) < _MOST_FAILED and (
                failed := self._seen.take(_TAKES, queue, idle=False, main=False).notes
            ):
                self._sort(found, failed)
            self._more_failed = len(found.pages) >= _MOST_FAILED
        if found.unreadable:  # not before: they would be taken again
            self._leave_unreadable(found.unreadable)
        self._found = _Found()
        return found

    def _sort(self, found: _Found, notes: list[Note]) -> None:
        """Add the pages of notes to what is found: those that this spider can restore, and the others."""
        for note in notes:
            try:
                token = read_token(note, self._seen.session)
            except ValueError as error:  # of a program that knows nothing of pages
                logger.error("A page is not taken: %s", error)
                continue
            try:
                found.pages.append((read_request(note.text, self._crawl.spider), token))
            except Unreadable as error:
                found.unreadable[token.items[0]] = token, error.name

    def _leave_unreadable(self, pages: dict[bytes, tuple[Token, str]]) -> None:
        """Leave pages as failed ones, before the next link: it may name another callback, or another version of the spider take them."""
        histories = {
            item: self._committer.failure(
                token.failures + (item not in self._unreadable), f"unreadable/{name}"
            )
            for item, (token, name) in pages.items()
        }
        self._seen.note_history(histories)
        self._seen.leave_many([*histories])
        self._seen.trim_given_up(self._crawl.queue)

    def _answered(self, idle: bool, asked: Future[Any]) -> None:  # noqa: FBT001 - of a partial
        self.has_begun = True
        pause = 0.0
        if idle:  # after an error too
            pause, self._pause = self._pause, min(_FACTOR * self._pause, self._longest)
        try:
            pause = self._use(asked.result(), pause, idle=idle)
        except Exception as error:  # noqa: BLE001 - the log has it
            self._crawl.fail(error)
        finally:
            # Meanwhile, nothing is asked for, however often the engine wants to know.
            call_later(pause, self._may_ask)

    def _use(self, found: _Found, pause: float, *, idle: bool) -> float:
        """Enqueue the pages that were taken. Return the pause until the next question (s): ``pause``, or none."""
        taken = found.taken
        assert taken is not None  # noqa: S101 - the server has answered
        self._report_unreadable(found.unreadable)
        if pages := [page for page in found.pages if self._is_to_fetch(*page)]:
            logger.debug("took %d pages that other crawlers have left", len(pages))
            self._crawl.count("tbloom/taken", len(pages))
        self._held += pages
        if self._is_ready:
            self._become_ready()
        if taken.notes:
            self._pause, self._next_question = _FIRST_PAUSE, 0.0  # there may be more
            return 0.0
        if not idle:
            # By itself, an engine with work looks into its empty queue every 5 s only.
            call_later(BUSY_PAUSE, partial(wake_engine, self._crawl.crawler.engine))
            self._pause = _FIRST_PAUSE
            return 0.0
        is_over = taken.is_over and time.monotonic() >= self._waits_until
        if is_over and not self._waits_for_work:
            self._finished_at, self._finished_when = self.queue_changes, time.monotonic()
            self._pause = _FIRST_PAUSE
            return 0.0
        is_told = self._waits_for_work and not taken.others
        why = f"{WHEN_IDLE.name} = 'wait'" if is_told else f"{taken.others} others work"
        message = "nothing to fetch: waiting for pages of other crawlers or programs (%s)"
        self._crawl.log_once(logger.info, message, why)
        self._longest = min(_LONGEST_PAUSE + _EACH_ADDS * taken.waiting, _MOST)
        return pause

    def _may_ask(self) -> None:
        self.is_asking = False
        wake_engine(self._crawl.crawler.engine)

    def _is_to_fetch(self, request: Request, token: Token) -> bool:
        """Return whether a page that was taken is to be fetched. Once the crawl closes, it is left to the next one."""
        if not self._crawl.is_running:
            return False
        if token.deaths > _MOST_DEATHS:
            why = f"{token.deaths} crawlers have died of it"
            self._committer.give_up(token.items[0], request.url, token.failures, "deaths", why)
            return False
        self._failures.forget(token.fingerprints[0])  # somebody wants it to be fetched again
        return True

    def _report_unreadable(self, pages: dict[bytes, tuple[Token, str]]) -> None:
        """Log once for each reason how many pages this spider can't restore."""
        by_name = defaultdict[str, list[Token]](list)
        for item, (token, name) in pages.items():
            if item not in self._unreadable:
                by_name[name].append(token)
        self._unreadable.update(pages)
        for name, tokens in by_name.items():
            given_up = sum(token.failures + 1 >= MOST_FAILURES for token in tokens)
            logger.warning(_UNREADABLE, len(tokens), name, given_up, self._crawl.spider.name)
            self._crawl.count("tbloom/not_taken", len(tokens))
            for stat, number in ("left", len(tokens) - given_up), ("given_up", given_up):
                if number:
                    self._crawl.count(f"tbloom/{stat}", number)
                    self._crawl.count(f"tbloom/{stat}/unreadable/{name}", number)


class Giving:
    """Gives queued pages to crawlers that wait. ``put`` puts a request back, ``can_give`` returns whether others can fetch it."""

    def __init__(
        self,
        crawl: Crawl,
        scheduler: Any,
        seen: CrawlBloom,
        put: Callable[[Request], object],
        can_give: Callable[[Request], bool],
    ) -> None:
        self._crawl, self._scheduler, self._seen = crawl, scheduler, seen
        self._put, self._can_give = put, can_give
        self._keeps = max(1, crawl.crawler.settings.getint("CONCURRENT_REQUESTS"))
        self.is_giving: bool = False
        #: Nothing could be given at the last look, so the next one is not before this time.
        self._next_look = 0.0
        #: The requests that were given lately, each with the time: Redis may lose what no other crawler has taken yet.
        self._given_lately = deque[tuple[float, Request]]()

    def session_lost(self, *, is_empty: bool) -> None:
        """If Redis has lost the filter, put the pages back that were given lately: no other crawler may have taken them.

        Each is claimed again before it is fetched.
        """
        self._forget_given()
        given, self._given_lately = self._given_lately, deque()
        for _, request in given if is_empty else ():
            self._put(request)

    def _forget_given(self) -> None:
        """Forget what was given more than two heartbeats ago."""
        until, given = time.monotonic() - self._seen.session_ttl / 2, self._given_lately
        while given and given[0][0] < until:
            given.popleft()

    def queued(self, request: Request) -> None:
        """Hear that a page has entered the queue."""

    def look(self) -> None:
        """Give away some pages if crawlers wait, and more are queued than are fetched next."""
        waiting, crawl = self._seen.pop_waiting(), self._crawl
        if self.is_giving or not crawl.is_running:
            return
        if time.monotonic() > self._next_look:
            spare = max(0, self._scheduler.queued - self._keeps)
            self._give(waiting, spare * waiting // (waiting + 1))

    def _give(self, waiting: int, share: int) -> None:  # noqa: ARG002 - as GivingHosts'
        """Give up to ``share`` pages to so many crawlers that wait."""
        if not share:
            return
        if requests := self._choose(min(share, GIVES)):
            self._begin(requests, self._seen.leave_many)
        else:
            self._next_look = time.monotonic() + BUSY_PAUSE

    def _begin(
        self,
        requests: list[Request],
        give: Callable[[list[bytes]], object],
        then: Callable[[], object] = lambda: None,
    ) -> None:
        self.is_giving = True
        self._forget_given()
        self._given_lately.extend(zip(repeat(time.monotonic()), requests))
        items = [bytes.fromhex(Token.first_of(request.meta[TOKEN])) for request in requests]
        call = partial(give, items)
        self._crawl.page_calls.begin(call, partial(self._given, len(requests), then))

    def _given(self, count: int, then: Callable[[], object], call: Future[object]) -> None:
        self.is_giving = False
        try:
            call.result()
        except Exception as error:  # noqa: BLE001 - the log has it
            self._crawl.fail(error)
            return
        then()
        if count:
            self._crawl.count("tbloom/given", count)
            logger.debug("gave %d queued pages to crawlers that wait", count)
        self._seen.pop_waiting()  # it was their number before
        wake_engine(self._crawl.crawler.engine)

    def _choose(self, most: int) -> list[Request]:
        """Take up to ``most`` pages out of the queue that others can fetch: all pages of some hosts, or else the next ones of all."""
        chosen, left = list[Request](), most
        # The busiest host stays.
        for _, pop, size in (host_queues(self._scheduler) or [])[:-1]:
            if size <= left:
                chosen += self._givable_of([pop() for _ in range(size)])
                left -= size
        if not chosen:
            pop = self._scheduler.next_in_project
            chosen = self._givable_of(
                [request for _ in range(most) if (request := pop()) is not None]
            )
        return chosen

    def _givable_of(self, requests: list[Request]) -> list[Request]:
        """Return those that others can fetch. The others are this crawl's next ones: back in the queue, they might lose their place."""
        givable, kept = list[Request](), list[Request]()
        for request in requests:
            (givable if self._can_give(request) else kept).append(request)
        self._scheduler.first.extendleft(reversed(kept))
        return givable
