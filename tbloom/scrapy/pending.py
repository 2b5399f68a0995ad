"""Requests wait in the scheduler for the filter's answer, and no callback waits.

Requests are accepted at once, asked about together, and settled in order: the project's scheduler queues those that are new, and
filters the others.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from redis import RedisError
from scrapy import Request, signals
from scrapy.utils.asyncio import call_later

from tbloom import Claim, Note
from tbloom.engine.retries import is_outage
from tbloom.errors import ConfigError, TBloomError
from tbloom.scrapy.crawl import Crawl, Stage
from tbloom.scrapy.done.page import Page, Token
from tbloom.scrapy.hints import Hints
from tbloom.scrapy.hooks.engine import call_soon, is_idle, next_turn, wake_engine
from tbloom.scrapy.hooks.scraper import watch_output
from tbloom.scrapy.meta import arguments_of, drop_copied
from tbloom.scrapy.options import asks_nobody
from tbloom.scrapy.outage import ClaimStore
from tbloom.scrapy.versions import look_of

logger: logging.Logger = logging.getLogger(__name__)

#: So many requests go in one call. (With 200 and a server 50 ms away, a fast crawl waits for answers.)
_BATCH = 1_000
#: So many enter the queue in one turn of the event loop, which stands still meanwhile. While more wait, start() yields no further one.
_TURN = 100
#: While more wait, the engine takes no further request out of the queue.
_FULL = 5_000


class NoAnswer(Enum):
    """In place of the filter's answer; the value is its stat, after ``tbloom/``."""

    #: The crawl ends, and the request is dropped.
    DROPPED = "dropped"
    #: A value in its meta is wrong.
    WRONG = "wrong"


#: What becomes of a request.
Answer = Claim | NoAnswer


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request that is to enter the queue."""

    request: Request
    #: The item of its page; None: the filter is not asked.
    fingerprint: bytes | None = None
    #: The arguments of ``add`` or ``claim``, as pairs.
    arguments: tuple[tuple[str, Any], ...] = ()
    answer: Answer | None = None
    #: The hash of the version; b"": there is none.
    version: bytes = b""
    #: What the filter is searched for; b"": the item.
    look: bytes = b""
    # With "done":
    #: The page that goes on as this request, the token that it gets in the queue, and the note that is kept with its claim.
    page: Page | None = None
    token: Token | None = None
    note: Note | str = ""
    #: The page whose callback or errback has yielded the request.
    source: Page | None = None

    @property
    def is_to_ask(self) -> bool:
        """Whether the filter is to be asked for it."""
        return self.fingerprint is not None and self.answer is None

    @property
    def is_new(self) -> bool:
        """Whether it is to be queued: the filter has answered so, or is not asked. Until its answer, it may be new, and counts as such."""
        return self.answer in (None, Claim.NEW)


class PendingRequests:
    """The requests of one crawl on their way into the queue.

    ``scheduler``: the scheduler in which they wait; None: each is asked about at once, by the dupefilter.
    """

    #: New requests are claimed.
    claims = False
    #: The pages in work; None: no page is followed.
    tracker: Any = None

    def __init__(self, crawl: Crawl, scheduler: Any) -> None:
        self.crawl: Crawl = crawl
        self._scheduler = scheduler
        #: The response, or the failure of an errback, whose link is scheduled now.
        self._source: Any = None
        #: Requests that wait: before they are asked about, and with their answers.
        self._unasked = deque[PendingRequest]()
        self._answered = deque[PendingRequest]()
        #: Whether a batch is asked about.
        self._is_asking = False
        #: The number of requests that have waited or wait, and how many of them are settled.
        self.received: int = 0
        self.settled: int = 0
        #: See ``_enqueue_in_project``: the answer of the request that is enqueued there now, and whether the scheduler has ever asked.
        self._answer_now: Answer | None = None
        self._is_asked = False
        self._hints = Hints(crawl)
        crawl.crawler.signals.connect(self._engine_started, signals.engine_started)

    def _engine_started(self) -> None:
        watch_output(self.crawl.crawler.engine, self)

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return self.received - self.settled

    @property
    def is_busy(self) -> bool:
        """Whether requests may enter the queue later: the engine is not idle, and sends no ``spider_idle``."""
        return bool(self.waiting)

    # The scraper (compat.OutputWatcher)

    def yields(self, response: Any) -> None:
        """Note that a link of the response, or of an errback's failure, is scheduled now; None: that is over."""
        self._source = response

    def item_lost(self, response: Any, error: BaseException) -> None:
        """Let the page of an item fail whose pipeline was cancelled."""
        if self.tracker:
            self.tracker.item_lost(response, error)

    # 1. A request comes

    def enqueue(self, request: Request) -> bool:
        """Enqueue a request; return whether it is queued, or may yet be."""
        has_page = self.tracker is not None and self._source is not None
        source = self.tracker.of(self._source) if has_page else None
        try:
            return self._accept(request, source)
        except Exception as error:  # Scrapy would lose the callback's other links, too
            if self._source is None:  # of start()
                raise
            logger.exception("%s could not be scheduled", request)
            self._lost(source, type(error).__name__)
            return False

    def _accept(self, request: Request, source: Page | None) -> bool:
        if not request.dont_filter:
            drop_copied(request, self._source, self.crawl)
        pending = self._pending(request)
        pending.source = source
        if pending.is_to_ask and not self.waiting and is_idle(self.crawl.crawler.engine):
            self._ask_at_once(pending)
        return self._enter(pending)

    def _pending(self, request: Request, *, always: bool = False) -> PendingRequest:
        """Return the pending request; with an answer where there is nothing to ask.

        ``always``: also if its ``dont_filter`` is set.
        """
        if request.dont_filter and not always:
            return PendingRequest(request)
        if self.crawl.is_ending or self.crawl.stage >= Stage.QUEUE_CLOSED:
            return PendingRequest(request, answer=NoAnswer.DROPPED)
        settings, seen = self.crawl.crawler.settings, self.crawl.seen
        try:
            arguments = arguments_of(request, seen, settings, claims=self.claims)
            item, version = self.crawl.fingerprint(request)
        except ConfigError as error:
            logger.error("Spider %s: a request is dropped: %s", self.crawl.spider.name, error)
            return PendingRequest(request, answer=NoAnswer.WRONG)
        look = look_of(item, version, seen.config)
        pending = PendingRequest(request, item, arguments, version=version, look=look)
        if not arguments and isinstance(seen, ClaimStore):
            pending.answer = seen.known(item, look)
        return pending

    def _ask_at_once(self, pending: PendingRequest) -> None:
        """Ask about a request that comes while the engine is idle.

        A handler of ``spider_idle`` that schedules a seen request would otherwise keep the crawl open for ever.
        """
        try:
            self._ask_for([pending])
        except (RedisError, TBloomError) as error:
            if not is_outage(error):
                self.crawl.fail(error)
                pending.answer = NoAnswer.DROPPED

    def _enter(self, pending: PendingRequest) -> bool:
        """Let the request wait for its answer, and behind others for its turn; return whether it is queued, or may yet be."""
        if not (pending.is_to_ask or self.waiting):
            return self._settle(pending)
        self.received += 1
        self._unasked.append(pending)
        if len(self._unasked) == 1 and not self._is_asking:
            # Together with later requests, at least with those of this turn of the event loop.
            call_later(self._gathers_for, self._ask)
        return True

    @property
    def _gathers_for(self) -> float:
        """How long a request waits for others, to share a call with them (seconds)."""
        return 0.0

    async def have_room(self) -> None:
        """Return once few requests wait, or the crawl ends."""
        while self.waiting > _TURN and self.crawl.is_running:
            self._ask()
            await self.crawl.link_calls.ended()
            await next_turn()

    # 2. The filter is asked, in a thread

    def _ask(self) -> None:
        if self._is_asking or not self._unasked:
            return
        self._is_asking = True
        batch = [self._unasked.popleft() for _ in range(min(_BATCH, len(self._unasked)))]
        self.crawl.link_calls.begin(
            partial(self._ask_for, batch), partial(self._have_answers, batch)
        )

    def _ask_for(self, batch: list[PendingRequest]) -> None:
        """Ask the filter for a batch."""
        groups = defaultdict[Any, list[PendingRequest]](list)
        for pending in batch:
            if pending.is_to_ask:
                groups[pending.arguments].append(pending)
        for arguments, group in groups.items():
            answers = self._ask_together(group, dict(arguments))
            for pending, answer in zip(group, answers, strict=True):
                pending.answer = answer

    def _ask_together(self, group: list[PendingRequest], arguments: dict[str, Any]) -> list[Claim]:
        added, places = list[bytes](), list[int]()
        for pending in group:
            item = pending.fingerprint or b""
            places.append(len(added))
            added += [pending.look, item] if pending.version else [item]
        are_new = self.crawl.seen.add_many(added, **arguments)
        return [Claim.NEW if are_new[place] else Claim.SEEN for place in places]

    def _have_answers(self, batch: list[PendingRequest], asked: Future[None]) -> None:
        try:
            asked.result()
        except Exception as error:  # noqa: BLE001 - the log has it
            self.crawl.fail(error)
        for pending in batch:
            if pending.is_to_ask:
                pending.answer = NoAnswer.DROPPED
        self._answered.extend(batch)
        if len(self._answered) == len(batch):
            self._settle_some()
        self._is_asking = False
        self._ask()

    # 3. It is settled: queued, filtered or dropped

    def _settle_some(self) -> None:
        """Settle some requests that have their answers. The others follow in the next turn of the event loop."""
        for _ in range(min(_TURN, len(self._answered))):
            self._settle_late(self._answered.popleft())
            self.settled += 1
        if self._answered:
            call_soon(self._settle_some)
        wake_engine(self.crawl.crawler.engine)

    def _settle_late(self, pending: PendingRequest) -> None:
        """Settle a request that the engine believes to be queued, and send the signal that the engine would send."""
        crawler = self.crawl.crawler
        try:
            if not self._settle(pending):
                dropped = signals.request_dropped
                crawler.signals.send_catch_log(
                    dropped, request=pending.request, spider=crawler.spider
                )
        except Exception as error:
            logger.exception("%s could not be scheduled", pending.request)
            self._lost(pending.source, type(error).__name__)

    def _lost(self, source: Page | None, why: str) -> None:
        """Note that a link of the page could not be scheduled."""

    def _settle(self, pending: PendingRequest) -> bool:
        """Let the project's scheduler queue or filter the request; return whether it is queued."""
        if pending.answer is NoAnswer.WRONG:
            self._count(pending.answer)
            self._lost(pending.source, pending.answer.value)
        elif pending.fingerprint is not None and pending.answer is not None:
            self._count(pending.answer)
            self._hints.answered(pending.request, pending.answer)
        return self._enqueue_in_project(pending.request, pending.answer)

    # 4. It is queued, or filtered, by the project's scheduler

    def _enqueue_in_project(self, request: Request, answer: Answer | None) -> bool:
        # Any scheduler may be the project's, and Scrapy's interface has one way to tell it what is seen: it asks its dupefilter. So
        # the answer takes the way round through the project's scheduler, which logs, counts and queues as it does without tbloom:
        #
        #   _enqueue_in_project --> scheduler.enqueue_request --> DupeFilter.request_seen --> answer_to
        #     sets _answer_now        of the project                tbloom's                    returns _answer_now
        #
        # It does not ask about a request with dont_filter, which has an answer if it comes from an earlier crawl.
        if request.dont_filter and answer not in (None, Claim.NEW):
            return False
        self._answer_now = answer
        try:
            queued = bool(self._scheduler.enqueue_in_project(request))
        finally:
            self._answer_now = None
        if queued:
            self._hints.queued(request)
        if queued and not self._is_asked and answer not in (None, Claim.NEW):
            self.crawl.fail(asks_nobody(type(self._scheduler)))
        return queued

    def answer_to(self, request: Request) -> Answer:
        """Return the dupefilter's answer. The filter is asked for a request that has not waited."""
        self._is_asked = True
        if self._answer_now is not None:
            return self._answer_now
        try:
            drop_copied(request, self._source, self.crawl)
            pending = self._pending(request, always=True)
            if pending.is_to_ask:
                self._ask_for([pending])
            if pending.answer is NoAnswer.WRONG and self.tracker:
                self._lost(self.tracker.of(self._source), pending.answer.value)
        except (RedisError, TBloomError) as error:  # Scrapy hangs where a dupefilter raises
            self.crawl.fail(error)
            return self._count(NoAnswer.DROPPED)
        self._write_token(pending)
        self._hints.answered(request, pending.answer)
        return self._count(pending.answer or Claim.NEW)

    def _write_token(self, pending: PendingRequest) -> None:
        """Write the token into a new request that the project's scheduler is about to queue."""

    def _count(self, answer: Answer) -> Answer:
        self.crawl.count(f"tbloom/{answer.value}")
        return answer

    # 5. It comes out of the queue

    @property
    def is_full(self) -> bool:
        """Whether no further page should be fetched: so many requests wait, or the server is away."""
        return self.waiting > _FULL or self.crawl.outage.is_on

    def next_request(self) -> Request | None:
        """Return the next request that is to be fetched; None: there is none now, or too many wait."""
        request: Request | None = None if self.is_full else self._scheduler.next_in_project()
        if request is None:
            self._ask()
        return request

    # The end of the crawl, in this order

    async def close(self) -> None:
        """Return once no request waits. Scrapy's engine closes its scheduler."""
        self.crawl.stage = Stage.CLOSING
        while self.waiting:
            self._ask()
            self._settle_some()
            await self.crawl.link_calls.ended()
        self.crawl.stage = Stage.QUEUE_CLOSED

    async def finish(self, reason: str) -> None:
        """Do nothing: no page is committed."""

    def report(self) -> None:
        """Log what the user should know of a crawl that has ended."""
        self._hints.report()
