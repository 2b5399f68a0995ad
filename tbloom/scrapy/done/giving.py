"""A crawler that has more pages than it needs leaves some to crawlers of its spider that wait: they take these (``taking.py``)."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import repeat

from scrapy import Request

from tbloom.bloom.claims.calls import Hosts
from tbloom.scrapy.crawl import Crawl, ProjectScheduler
from tbloom.scrapy.done.page import Token
from tbloom.scrapy.done.work import Work
from tbloom.scrapy.hooks.engine import wake_engine
from tbloom.scrapy.hooks.queue import host_queues
from tbloom.scrapy.inbox import Inbox
from tbloom.scrapy.outage import CrawlBloom
from tbloom.scrapy.settings import TOKEN

logger: logging.Logger = logging.getLogger(__name__)

#: The most pages that one call gives away. (They take the server some 1 ms.)
GIVES = 200
#: If nothing could be given, the queue is looked at again after this time (seconds).
PAUSE = 1.0


class Giving:
    """Gives queued pages to crawlers that wait."""

    def __init__(
        self,
        crawl: Crawl,
        scheduler: ProjectScheduler,
        seen: CrawlBloom,
        inbox: Inbox,
        work: Work,
        *,
        is_givable: Callable[[Request], bool],
    ) -> None:
        """``is_givable``: whether other crawlers can fetch a request."""
        self._crawl, self._scheduler, self._seen = crawl, scheduler, seen
        self._inbox, self._work, self._is_givable = inbox, work, is_givable
        self._keeps = max(1, crawl.crawler.settings.getint("CONCURRENT_REQUESTS"))
        self._is_giving = False
        #: The next look at the queue is not before this time, because nothing could be given at the last one.
        self._next_look = 0.0
        #: The requests that were given lately, each with the time: Redis may lose what no other crawler has taken yet.
        self._given_lately = deque[tuple[float, Request]]()

    def session_lost(self, *, is_empty: bool) -> list[Request]:
        """Return the pages that were given lately, if Redis has lost the filter: no other crawler may have taken them."""
        self._forget_given()
        given, self._given_lately = self._given_lately, deque()
        return [request for _, request in given] if is_empty else []

    def _forget_given(self) -> None:
        """Forget what was given more than two heartbeats ago."""
        until, given = time.monotonic() - self._seen.session_ttl / 2, self._given_lately
        while given and given[0][0] < until:
            given.popleft()

    def look(self) -> None:
        """Give away some pages if crawlers wait, and more are queued than are fetched next."""
        waiting, now = self._seen.pop_waiting(), time.monotonic()
        if self._is_giving or now <= self._next_look or not self._crawl.is_running:
            return
        spare = max(0, self._scheduler.queued - self._keeps)
        share = min(GIVES, spare * waiting // (waiting + 1))
        requests, hosts = self._choose(share, waiting)
        if requests or hosts:
            self._give(requests, hosts)
        elif share:
            self._next_look = now + PAUSE

    def _give(self, requests: list[Request], hosts: Hosts | None) -> None:
        self._is_giving = True
        self._forget_given()
        self._given_lately.extend(zip(repeat(time.monotonic()), requests))
        items = [bytes.fromhex(Token.first_of(request.meta[TOKEN])) for request in requests]
        call = partial(self._seen.give, items, hosts)
        self._crawl.page_calls.begin(call, partial(self._given, len(requests), hosts))

    def _given(self, count: int, hosts: Hosts | None, call: Future[None]) -> None:
        self._is_giving = False
        try:
            call.result()
        except Exception as error:  # noqa: BLE001 - the log has it
            self._crawl.fail(error)
            return
        if hosts:
            self._changed(hosts)
        if count:
            self._crawl.count("tbloom/given", count)
            logger.debug("gave %d queued pages to crawlers that wait", count)
        self._seen.pop_waiting()  # it was their number before
        wake_engine(self._crawl.crawler.engine)

    def _changed(self, hosts: Hosts) -> None:
        """Note that Redis knows with which hosts this crawler has parted, and which ones it has freed."""

    def _choose(self, share: int, waiting: int) -> tuple[list[Request], Hosts | None]:  # noqa: ARG002 - as of GivingHosts
        """Take up to ``share`` pages out of the queue for so many crawlers that wait. Return them, and what changes for hosts.

        They are all pages of some hosts, or else the next ones of all.
        """
        if not share:
            return [], None
        chosen, left = list[Request](), share
        queues = host_queues(self._scheduler)
        for _, pop, size in (queues or [])[:-1]:  # the busiest host stays
            if size <= left:
                chosen += self._givable_of([pop() for _ in range(size)])
                left -= size
        if not chosen:
            pop = self._scheduler.next_in_project
            chosen = self._givable_of(
                [request for _ in range(share) if (request := pop()) is not None]
            )
        return chosen, None

    def _givable_of(self, requests: list[Request]) -> list[Request]:
        """Return those that others can fetch. The others are this crawl's next ones: back in the queue, they might lose their place."""
        givable, kept = list[Request](), list[Request]()
        for request in requests:
            (givable if self._is_givable(request) else kept).append(request)
        self._scheduler.first.extendleft(reversed(kept))
        return givable
