"""Requests wait in the scheduler for the filter's answer, and no callback waits. The answer takes them into the project's queue.

They are accepted at once, asked about together, and settled in the order in which they came.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from redis import RedisError
from scrapy import Request, Spider, signals
from scrapy.core.scheduler import Scheduler as MemoryScheduler
from scrapy.crawler import Crawler
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_f_from_coro_f, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from tbloom import Claim
from tbloom.errors import TBloomError
from tbloom.scrapy.crawl import Crawl, Stage, crawl_of, ending_at_an_error
from tbloom.scrapy.hooks.engine import (
    has_receivers,
    is_idle,
    is_trial,
    link_source,
    next_turn,
    wake_engine,
    watch_output,
)
from tbloom.scrapy.links import Answer, NoAnswer, Pending, ask_site, link_of, own_values
from tbloom.scrapy.options import asks_nobody, check_server_of_queue
from tbloom.scrapy.settings import FLUSH, WITHIN
from tbloom.scrapy.stores import is_awaited

logger: logging.Logger = logging.getLogger(__name__)

#: A call about requests with the same arguments; its answers.
Question = Callable[[list[Pending], dict[str, Any]], Sequence[Claim | None]]
#: So many requests go in one call. (With 200 and a server 50 ms away, a fast crawl waits for answers.)
_BATCH = 1_000
#: So many are settled in one turn of the event loop, which stands still meanwhile. While more wait, start() yields no further one.
_TURN = 100
#: While more requests than this are queued, others wait so long for later ones that share their call (seconds). So do pages that are done.
_ENOUGH, GATHER = 50, 0.1
#: While more wait, no further page should be fetched.
_FULL = 5_000


_NO_LOGIN = "%s was dropped: it was seen, or is claimed. If it logs this crawler in, give it dont_filter=True"
_ONLY_SEEN = (
    "Nothing was fetched, because all requests of this crawl, also its first ones, were seen within the window, perhaps by crawls with "
    "other arguments. Give start requests, and list pages that arguments choose from, dont_filter=True, or meta={'tbloom_within': 1}: "
    "then each slice fetches them once"
)
#: Stands for the project's class, which ``addon`` puts in its place in the order of methods, because only the settings name it.
#: ``super()`` is the project's then. A wrapper would lack all that Scrapy, extensions and spiders know of the project's class.
Project: Any = object


class FilteringScheduler(Project):  # type: ignore[misc] # known at run time only
    """A project's scheduler, in which requests wait for the filter's answer."""

    #: A spider may not know its crawler.
    _crawl: Crawl
    #: Requests that came out of the queue and were not given to other crawlers: they are the next ones.
    first: deque[Request]
    #: The requests of the crawl; None: the dupefilter asks about each as it comes.
    requests: Requests | None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Any:
        """Make the scheduler. Where scrapy-redis finds no server, one line in the log ends the crawl."""
        is_shared = any(kind.__module__.startswith("scrapy_redis.") for kind in cls.__mro__)
        if is_shared and is_trial(crawler):  # leaves the queue alone
            return MemoryScheduler.from_crawler(crawler)
        with ending_at_an_error(crawler):
            if is_shared:  # both calls raise an error that names a wrong setting
                FLUSH.value(crawler.settings)
                check_server_of_queue(crawler.settings)
            scheduler = super().from_crawler(crawler)
            scheduler._crawl = crawl_of(crawler)  # noqa: SLF001 - its own
            scheduler.first, scheduler.requests = deque(), None
            if not is_trial(crawler):
                crawl_of(crawler).scheduler = scheduler
            return scheduler
        return MemoryScheduler.from_crawler(crawler)  # of which nothing is asked

    def flush(self) -> None:
        """Clear scrapy-redis' queue, which all crawlers share, unless this crawl ends by an error."""
        if not self._crawl.is_ending:
            super().flush()

    def enqueue_request(self, request: Request) -> bool:
        """Return True at once; ``request_dropped`` is sent later for a duplicate."""
        return self.requests.enqueue(request) if self.requests else self.enqueue_in_project(request)

    def next_request(self) -> Request | None:
        """Return the next request that is to be fetched."""
        request = self.requests.next_request() if self.requests else self.next_in_project()
        if request is not None:
            ask_site(request, self._crawl.crawler.settings)
        return request

    def has_pending_requests(self) -> bool:
        """Return whether requests are queued, or wait."""
        is_queued = self.first or super().has_pending_requests()
        return bool(is_queued) or bool(self.requests and self.requests.is_busy)

    def __len__(self) -> int:
        return self.queued + (self.requests.inbox.waiting if self.requests else 0)

    @property
    def queued(self) -> int:
        """The number of requests in the project's scheduler."""
        return len(self.first) + int(getattr(super(), "__len__", int)())  # int() is 0

    def enqueue_in_project(self, request: Request) -> bool:
        """Call ``enqueue_request`` of the project's scheduler."""
        return bool(super().enqueue_request(request))

    def next_in_project(self) -> Request | None:
        """Call ``next_request`` of the project's scheduler."""
        request: Request | None = self.first.popleft() if self.first else super().next_request()
        return request

    @deferred_f_from_coro_f
    async def open(self, spider: Spider) -> None:
        """Open the scheduler. The dupefilter sets ``requests``. An error ends the crawl."""
        crawl = self._crawl
        with ending_at_an_error(crawl.crawler):
            opened: object = None
            try:
                opened = super().open(spider)
            finally:
                # scrapy-redis' scheduler does not return what its dupefilter does, and may raise while that is under way.
                for each in {opened, crawl.opened}:
                    if isinstance(each, Deferred):
                        await maybe_deferred_to_future(each)
            is_open = crawl.stage is not Stage.OPENING
            if not (is_open or crawl.is_ending or is_trial(crawl.crawler)):
                raise asks_nobody(type(self))

    @deferred_f_from_coro_f
    async def close(self, reason: str) -> None:
        """Close the scheduler once no request waits: all that are left are in the queue."""
        if self.requests:
            await self.requests.close()
        try:
            closed = super().close(reason)
            if isinstance(closed, Deferred):
                await maybe_deferred_to_future(closed)
        finally:
            if self.requests:
                await self.requests.queue_closed(reason)


class Requests:
    """The requests of one crawl, with ``TBLOOM_MARK = "scheduled"``: each counts as seen once it is scheduled.

    With ``DUPEFILTER_CLASS`` alone, the filter is asked about each request as it comes. With the add-on, requests wait in an inbox.

    Any scheduler may be the project's, and Scrapy's interface has one way to tell it what is seen: it asks its dupefilter. So the answer
    takes the way round through the project's scheduler, which logs, counts and queues as it does without tbloom::

        to_project  --> scheduler.enqueue_request --> DupeFilter.request_seen --> answer
          sets answer         of the project              tbloom's                  returns answer

    The scheduler does not ask about a request with ``dont_filter``, which has an answer if it comes from an earlier crawl.
    """

    def __init__(self, crawl: Crawl, scheduler: FilteringScheduler | None) -> None:
        self._crawl, self._scheduler = crawl, scheduler
        #: The answer for the request that is enqueued now, and whether the scheduler has ever asked.
        self.answer: Answer | None = None
        self.is_asked: bool = False
        self._has_seen = self._has_new = self._has_sent_form = False
        self.inbox: Inbox = Inbox(crawl, self)
        crawl.crawler.signals.connect(self._engine_started, signals.engine_started)

    def _engine_started(self) -> None:
        watch_output(self._crawl.crawler.engine)
        self._crawl.crawler.signals.connect(_answered, signals.response_received)

    # A request comes

    @property
    def is_busy(self) -> bool:
        """Whether requests may enter the queue later: the engine is not idle, and sends no ``spider_idle``."""
        return bool(self.inbox.waiting)

    def enqueue(self, request: Request) -> bool:
        """Enqueue a request; return whether it is queued, or may yet be."""
        try:
            pending = Pending(request) if request.dont_filter else self.link(request)
            return self.inbox.enter(pending)
        except Exception:  # Scrapy would lose the callback's other links, too
            if link_source.get() is None:  # of start()
                raise
            logger.exception("%s could not be scheduled", request)
            return False

    def link(self, request: Request) -> Pending:
        """Return what the filter is asked about a request."""
        return link_of(request, self._crawl, link_source.get(), claims=False)

    def answer_to(self, request: Request) -> Answer:
        """Return the dupefilter's answer for a request that has not waited: the filter is asked."""
        pending = Pending(request, answer=NoAnswer.DROPPED)
        try:
            pending = self.link(request)
            if pending.is_to_ask:
                self.inbox.ask_alone(pending)
        except (RedisError, TBloomError) as error:  # Scrapy hangs where a dupefilter raises
            self._crawl.fail(error)
            pending.answer = NoAnswer.DROPPED
        if pending.answer is NoAnswer.WRONG:
            self.lose(pending)
        elif pending.answer in (None, Claim.NEW):
            self.mark(pending)
        answer = pending.answer or Claim.NEW
        self._note(request, answer, is_queued=False)
        self._crawl.count(f"tbloom/{answer.value}")
        return answer

    def next_request(self) -> Request | None:
        """Return the next request that is to be fetched; None: there is none now, or too many wait."""
        request = None
        if self._scheduler is not None and not self.inbox.is_full:
            request = self._scheduler.next_in_project()
        if request is None:
            self.inbox.ask()
        return request

    # The filter is asked, in a thread

    def to_look(self, batch: list[Pending], *, mostly_seen: bool | None) -> list[Pending]:  # noqa: ARG002 - as of Pages
        """Return the requests that are only looked for first. ``mostly_seen``: whether the last ones were; None: there are none."""
        return []

    def look(self, group: list[Pending], arguments: dict[str, Any]) -> list[Claim | None]:
        """Return for each request whether it is seen, else None. A thread calls this, for ``to_look``."""
        raise NotImplementedError

    def prepare(self, pending: Pending) -> None:
        """Prepare a request for the question. The event loop calls this, because a spider may change what it has yielded."""

    def ask(self, group: list[Pending], arguments: dict[str, Any]) -> list[Claim]:
        """Return the filter's answers for requests with the same arguments: each is added in its version, and as itself."""
        added, places = list[bytes](), list[int]()
        for pending in group:
            item = pending.item or b""
            places.append(len(added))
            added += [pending.look, item] if pending.version else [item]
        are_new = self._crawl.seen.add_many(added, **arguments)
        return [Claim.NEW if are_new[place] else Claim.SEEN for place in places]

    # It is settled: queued, filtered or dropped

    def settle(self, pending: Pending) -> bool:
        """Queue or filter a request that has its answer; return whether it is queued."""
        if pending.answer in (None, Claim.NEW):
            self.mark(pending)
        return self.to_project(pending)

    def to_project(self, pending: Pending) -> bool:
        """Let the scheduler queue or filter a request; return whether it is queued."""
        assert self._scheduler is not None  # noqa: S101 - there is one with the add-on
        request, answer = pending.request, pending.answer
        is_new = answer is None or answer is Claim.NEW
        is_answered = answer is not None and pending.item is not None
        if answer is not None and (is_answered or answer is NoAnswer.WRONG):
            self._crawl.count(f"tbloom/{answer.value}")
        queued = False
        if is_new or not request.dont_filter:
            self.answer = answer
            try:
                queued = self._scheduler.enqueue_in_project(request)
            finally:
                self.answer = None
            if queued and not (self.is_asked or is_new):
                self._crawl.fail(asks_nobody(type(self._scheduler)))
        self._note(request, answer if is_answered else None, is_queued=queued)
        return queued

    def _note(self, request: Request, answer: object, *, is_queued: bool) -> None:
        """Note for the report the answer for a request (None: the filter is not asked), and whether it is to be fetched.

        One with ``tbloom_within`` counts as new.
        """
        is_new = answer is Claim.NEW or (is_queued and answer is None)
        if is_new or (answer is not None and WITHIN in request.meta):
            self._has_new = True
        elif answer is Claim.SEEN:
            self._has_seen = True
        # The form of a login comes from start(), or from a start page.
        if request.body and request.meta.get("depth", 0) in (0, 1):
            self._has_sent_form = self._has_sent_form or answer is Claim.NEW
            if not self._has_sent_form and answer in (Claim.SEEN, Claim.BUSY):
                self._crawl.log_once(logger.warning, _NO_LOGIN, request)

    def mark(self, pending: Pending) -> None:
        """Let a new request, which enters the queue, have the values in its meta for itself."""
        own_values(pending.request)
        if self._scheduler is None:
            ask_site(pending.request, self._crawl.crawler.settings)

    def settled(self) -> None:
        """Hear that some requests are settled."""

    def lose(self, pending: Pending, error: Exception | None = None) -> None:
        """Hear that a request could not be settled."""

    # The end of the crawl, in this order

    async def close(self) -> None:
        """Return once no request waits."""
        await self.inbox.close()

    async def queue_closed(self, reason: str) -> None:
        """Do nothing: no page is committed. ``spider_closed`` is sent after this."""

    async def finish(self) -> None:
        """Do nothing: no page is committed."""

    def report(self) -> None:
        """Log what the user should know of a crawl that has ended: that nothing was fetched because all was seen."""
        stats = self._crawl.crawler.stats
        is_all_seen = self._has_seen and not self._has_new
        if is_all_seen and stats and not stats.get_value("response_received_count"):
            logger.warning(_ONLY_SEEN)


def _answered(response: Any) -> None:
    """Handle Scrapy's signal. In a queue on disk, the request has lost its marks."""
    if response.request is not None:
        own_values(response.request)


class Inbox:
    """The requests of a crawl that wait."""

    def __init__(self, crawl: Crawl, owner: Requests) -> None:
        self._crawl, self._owner = crawl, owner
        #: Whether the last requests were mostly seen; None: none have their answers yet.
        self._mostly_seen: bool | None = None
        #: Requests that wait: before they are asked about, and with their answers.
        self._unasked = deque[Pending]()
        self._answered = deque[Pending]()
        #: Whether a batch is asked about.
        self._is_asking = False
        #: The number of requests that have waited or wait, and how many of them are settled.
        self.received: int = 0
        self.settled: int = 0

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return self.received - self.settled

    @property
    def is_full(self) -> bool:
        """Whether no further page should be fetched: so many requests wait, or the server is away."""
        return self.waiting > _FULL or self._crawl.outage.is_on

    # 1. A request comes

    def enter(self, pending: Pending) -> bool:
        """Let the request wait for its answer, and behind others for its turn; return whether it is queued, or may yet be."""
        waits = self.received > self.settled
        if pending.is_to_ask and not waits and is_idle(self._crawl.crawler.engine):
            # A handler of spider_idle that schedules a seen request would otherwise keep the crawl open for ever.
            try:
                self.ask_alone(pending)
            except (RedisError, TBloomError) as error:
                if not is_awaited(error):
                    self._crawl.fail(error)
                    pending.answer = NoAnswer.DROPPED
        if not (waits or pending.is_to_ask):
            return self._owner.settle(pending)
        self.received += 1
        self._unasked.append(pending)
        if len(self._unasked) == 1 and not self._is_asking:
            # Together with later requests, at least with those of this turn of the event loop.
            scheduler = self._crawl.scheduler
            is_soon_idle = scheduler is None or scheduler.queued <= _ENOUGH
            call_later(0.0 if is_soon_idle else GATHER, self.ask)
        return True

    async def have_room(self) -> None:
        """Return once few requests wait, or the crawl ends."""
        while self.waiting > _TURN and self._crawl.is_running:
            self.ask()
            await self._crawl.link_calls.ended()
            await next_turn()

    # 2. The filter is asked, in a thread

    def ask(self) -> None:
        """Ask about the next ones, unless some are asked about now."""
        if self._is_asking or not self._unasked:
            return
        self._is_asking = True
        batch = list[Pending]()
        while self._unasked and len(batch) < _BATCH:
            batch.append(self._unasked.popleft())
        if first := self._owner.to_look(batch, mostly_seen=self._mostly_seen):
            look = partial(self._put, first, self._owner.look)
            self._crawl.link_calls.begin(look, partial(self._have_looked, batch))
        else:
            self._ask(batch)

    def _have_looked(self, batch: list[Pending], looked: Future[None]) -> None:
        if looked.exception() or not any(pending.is_to_ask for pending in batch):
            self._have_answers(batch, looked)
        else:
            self._ask(batch)

    def _ask(self, batch: list[Pending]) -> None:
        for pending in batch:
            if pending.is_to_ask:
                self._owner.prepare(pending)
        ask = partial(self._put, batch, self._owner.ask)
        self._crawl.link_calls.begin(ask, partial(self._have_answers, batch))

    def ask_alone(self, pending: Pending) -> None:
        """Ask about one request, and wait."""
        self._put(self._owner.to_look([pending], mostly_seen=False), self._owner.look)
        if pending.is_to_ask:
            self._owner.prepare(pending)
            self._put([pending], self._owner.ask)

    @staticmethod
    def _put(batch: list[Pending], question: Question) -> None:
        """Put a question about the requests that are to be asked about, together for those with the same arguments."""
        groups = defaultdict[Any, list[Pending]](list)
        for pending in batch:
            if pending.is_to_ask:
                groups[pending.arguments].append(pending)
        for arguments, group in groups.items():
            answers = question(group, dict(arguments))
            for pending, answer in zip(group, answers, strict=True):
                pending.answer = answer

    def _have_answers(self, batch: list[Pending], asked: Future[None]) -> None:
        try:
            asked.result()
        except Exception as error:  # noqa: BLE001 - the log has it
            self._crawl.fail(error)
        seen = 0
        for pending in batch:
            seen += pending.answer is Claim.SEEN
            if pending.is_to_ask:
                pending.answer = NoAnswer.DROPPED
        self._mostly_seen = 2 * seen > len(batch)
        self._answered.extend(batch)
        if len(self._answered) == len(batch):
            self._settle_some()
        self._is_asking = False
        self.ask()

    # 3. It is settled: queued, filtered or dropped

    def _settle_some(self) -> None:
        """Settle some requests that have their answers. The others follow in the next turn of the event loop."""
        # What was seen takes little time; and waiting links take memory.
        turn = _BATCH if self._mostly_seen else _TURN
        batch = [self._answered.popleft() for _ in range(min(turn, len(self._answered)))]
        self.settle_late(*batch)
        self.settled += len(batch)
        if self._answered:
            call_later(0, self._settle_some)
        wake_engine(self._crawl.crawler.engine)
        self._owner.settled()

    def settle_late(self, *batch: Pending) -> None:
        """Settle requests that the engine believes to be queued, and send the signal that the engine would send."""
        crawler, dropped = self._crawl.crawler, signals.request_dropped
        is_heard = has_receivers(crawler, dropped)
        for pending in batch:
            try:
                if not self._owner.settle(pending) and is_heard:
                    crawler.signals.send_catch_log(
                        dropped, request=pending.request, spider=crawler.spider
                    )
            except Exception as error:
                logger.exception("%s could not be scheduled", pending.request)
                self._owner.lose(pending, error)

    async def close(self) -> None:
        """Return once no request waits: Scrapy's engine closes its scheduler."""
        self._crawl.stage = Stage.CLOSING
        while self.waiting:
            self.ask()
            self._settle_some()
            await self._crawl.link_calls.ended()
        self._crawl.stage = Stage.QUEUE_CLOSED
