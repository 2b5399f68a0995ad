"""Requests wait in the scheduler for the filter's answer, and no callback waits.

They are accepted at once, asked about together, and handed on in order to the project's scheduler. That one asks its dupefilter,
ours, which has the answer by then.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from redis import RedisError
from scrapy import Request, signals
from scrapy.settings import BaseSettings

from tbloom import Claim
from tbloom.arguments import check_keep, check_ttl, check_within
from tbloom.errors import ConfigError, TBloomError
from tbloom.scrapy.compat import call_soon, wake_engine
from tbloom.scrapy.crawl import Crawl
from tbloom.scrapy.done.page import Page, Token
from tbloom.scrapy.outage import Answer, AnyStore, ClaimStore, CrawlExact, Guess
from tbloom.scrapy.settings import KEEP, STORE, TTL, WITHIN, Setting, naming_settings

logger: logging.Logger = logging.getLogger(__name__)

#: So many requests go in one call. (With 200 and a server 50 ms away, a crawl of 450 pages a second, with 11 links each, took 1.6
#: times as long as with Scrapy's own filter, with 1,000 1.3 times: `make bench ARGS="--only crawls"`.)
_BATCH = 1_000
#: So many enter the queue in one turn of the event loop, which stands still meanwhile.
_TURN = 100
#: While more wait, the engine takes no further request out of the queue.
_FULL = 5_000
_ARGUMENTS = {WITHIN, KEEP, TTL}


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request that is to enter the queue."""

    request: Request
    #: What the filter is asked for; None: nothing.
    fingerprint: bytes | None = None
    #: The arguments of ``add`` or ``claim``, as pairs.
    arguments: tuple[tuple[str, Any], ...] = ()
    answer: Answer | None = None
    # With "done":
    #: The page that goes on as this request, the token that it gets in the queue, and the note that is kept with its claim.
    page: Page | None = None
    token: Token | None = None
    note: str = ""
    #: The page whose callback or errback has yielded it.
    source: Page | None = None
    #: The session that has claimed it, if it has come out of a queue.
    owner: str = ""

    @property
    def is_to_ask(self) -> bool:
        """Whether the filter is to be asked for it."""
        return self.fingerprint is not None and self.answer is None


class PendingRequests:
    """The requests of one crawl on their way into the queue.

    ``scheduler``: the scheduler in which they wait; None: each is asked about at once, by the dupefilter.
    """

    #: New requests are claimed.
    claims = False

    def __init__(self, crawl: Crawl, scheduler: Any) -> None:
        self.crawl: Crawl = crawl
        self._scheduler = scheduler
        #: The answer that the dupefilter gives now.
        self._answer_now: Answer | None = None
        self._unasked = deque[PendingRequest]()
        #: Those that have their answers, and are not handed on yet.
        self._answered = deque[PendingRequest]()
        self._is_asking = self._is_closed = False
        #: The number of requests that were met, and how many of them are handed on.
        self.met: int = 0
        self.answered: int = 0

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return self.met - self.answered

    @property
    def is_full(self) -> bool:
        """Whether so many wait that no further page should be fetched."""
        return self.waiting > _FULL

    def enqueue(self, request: Request) -> bool:
        """Enqueue a request; return whether it is queued, or may yet be."""
        return self._enter(self._pending(request))

    def next_request(self) -> Request | None:
        """Return the next request that is to be fetched; None: there is none now."""
        request: Request | None = self._scheduler.next_in_project()
        return request

    def answer_to(self, request: Request) -> Answer:
        """Return the dupefilter's answer. The filter is asked for a request that has not waited."""
        if self._answer_now is not None:
            return self._answer_now
        try:
            pending = self._pending(request, always=True)
            if pending.is_to_ask:
                if self._scheduler is None:
                    self._ask_for([pending])
                else:
                    self.crawl.calls.call_and_block(partial(self._ask_for, [pending]))
        except (RedisError, TBloomError) as error:  # Scrapy hangs where a dupefilter raises
            self.crawl.fail(error)
            return self._count(Guess.DROPPED)
        self._write_token(pending)
        return self._count(pending.answer or Claim.NEW)

    async def close(self) -> None:
        """Return once no request waits."""
        while self.met > self.answered:
            self._ask()
            self._hand_on_some()
            await self.crawl.calls.run(lambda: None)
        self._is_closed = True

    # Ask the filter

    def _pending(self, request: Request, *, always: bool = False) -> PendingRequest:
        """Return the pending request; with an answer where there is nothing to ask. A wrong value in its meta ends the crawl.

        ``always``: also if its ``dont_filter`` is set.
        """
        if request.dont_filter and not always:
            return PendingRequest(request)
        if self.crawl.is_ending or self._is_closed:
            return PendingRequest(request, answer=Guess.DROPPED)
        settings, seen = self.crawl.crawler.settings, self.crawl.answers.seen
        try:
            arguments = _arguments_of(request, seen, settings, claims=self.claims)
        except TBloomError as error:
            self.crawl.fail(error)
            return PendingRequest(request, answer=Guess.DROPPED)
        pending = PendingRequest(request, item := self.crawl.fingerprint(request), arguments)
        if not arguments and isinstance(seen, ClaimStore):
            pending.answer = seen.known(item)
        return pending

    def _enter(self, pending: PendingRequest) -> bool:
        if not pending.is_to_ask and self.met == self.answered:
            return self._hand_on(pending)
        self.met += 1
        self._unasked.append(pending)
        if len(self._unasked) == 1 and not self._is_asking:
            call_soon(self._ask)  # with those that come in this turn of the event loop
        return True

    def _ask(self) -> None:
        if self._is_asking or not self._unasked:
            return
        self._is_asking = True
        batch = [self._unasked.popleft() for _ in range(min(_BATCH, len(self._unasked)))]
        self.crawl.calls.begin(partial(self._ask_for, batch), partial(self._have_answers, batch))

    def _ask_for(self, batch: list[PendingRequest]) -> None:
        """Ask the filter for a batch, in the thread of the calls."""
        groups = defaultdict[Any, list[PendingRequest]](list)
        for pending in batch:
            if pending.is_to_ask:
                groups[pending.arguments].append(pending)
        for arguments, group in groups.items():
            self._ask_together(group, dict(arguments))

    def _ask_together(self, group: list[PendingRequest], arguments: dict[str, Any]) -> None:
        items = [pending.fingerprint or b"" for pending in group]
        notes = [pending.note for pending in group] if self.claims else None
        answers = self.crawl.answers.ask(items, notes, **arguments)
        for pending, answer in zip(group, answers, strict=True):
            pending.answer = answer

    def _have_answers(self, batch: list[PendingRequest], asked: Future[None]) -> None:
        try:
            asked.result()
        except Exception as error:  # noqa: BLE001 - the log has it
            self.crawl.fail(error)
        for pending in batch:
            if pending.is_to_ask:
                pending.answer = Guess.DROPPED
        self._answered.extend(batch)
        if len(self._answered) == len(batch):
            self._hand_on_some()
        self._is_asking = False
        self._ask()

    # Hand on

    def _hand_on_some(self) -> None:
        """Hand on some of those that have their answers; the others follow in the next turn of the event loop."""
        for _ in range(min(_TURN, len(self._answered))):
            self._enqueue_answered(self._answered.popleft())
            self.answered += 1
        if self._answered:
            call_soon(self._hand_on_some)
        wake_engine(self.crawl.crawler.engine)

    def _enqueue_answered(self, pending: PendingRequest) -> None:
        """Hand on a request that the engine believes to be queued, and send the signal that the engine would send."""
        crawler = self.crawl.crawler
        try:
            if not self._hand_on(pending):
                dropped = signals.request_dropped
                crawler.signals.send_catch_log(
                    dropped, request=pending.request, spider=crawler.spider
                )
        except Exception as error:
            logger.exception("%s could not be scheduled", pending.request)
            self._lost(pending.source, error)

    def _write_token(self, pending: PendingRequest) -> None:
        """Write the token into a request that the project's scheduler is about to queue."""

    def _lost(self, source: Page | None, error: Exception) -> None:
        """Note that a link could not be scheduled, which the page has yielded."""

    def _hand_on(self, pending: PendingRequest) -> bool:
        """Hand the request on to the project's scheduler; return whether it is queued."""
        if pending.fingerprint is not None and pending.answer is not None:
            self._count(pending.answer)
        return self._put(pending.request, pending.answer)

    def _count(self, answer: Answer) -> Answer:
        self.crawl.count(f"tbloom/{answer.value}")
        return answer

    def _put(self, request: Request, answer: Answer | None) -> bool:
        """Hand the request on to the project's scheduler, whose dupefilter gives this answer; None: it asks the filter."""
        self._answer_now = answer
        try:
            return bool(self._scheduler.enqueue_in_project(request))
        finally:
            self._answer_now = None


def _arguments_of(
    request: Request, seen: AnyStore, settings: BaseSettings, *, claims: bool
) -> tuple[tuple[str, Any], ...]:
    """Return the arguments of ``add`` or ``claim`` in the request's meta, as pairs. Raise ConfigError that names the key."""
    meta = request.meta
    if not _ARGUMENTS & meta.keys():
        return ()
    names = {"ttl": TTL} if isinstance(seen, CrawlExact) else {"within": WITHIN, "keep": KEEP}
    for key in (_ARGUMENTS - {*names.values()}) & meta.keys():
        expected = f"to be left out with TBLOOM_STORE = {STORE.value(settings)!r}"
        raise ConfigError(f"meta[{key!r}] of {request}", meta[key], expected)
    if claims:  # the end of the page says how long it is kept
        del names["keep"]
    arguments = {name: meta[key] for name, key in names.items() if key in meta}
    with naming_settings({n: Setting(f"meta[{key!r}] of {request}") for n, key in names.items()}):
        if isinstance(seen, CrawlExact):
            check_ttl(arguments["ttl"])
        else:
            slices = seen.config.slices
            check_keep(arguments.get("keep"), arguments.get("within"), slices)
            check_within(arguments.get("within"), slices)
    return (*arguments.items(),)
