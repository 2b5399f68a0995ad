"""A crawler that has more pages than it needs leaves some to crawlers of its spider that wait: they take these (``taking.py``).

``TBLOOM_SHARE = "hosts"``: a host has one owner at a time among the crawlers of a spider.

The first crawler that claims a page of a host owns it; others leave its pages in the filter, from which the owner takes them. A
crawler gives away a host in two steps. It parts with the host: it leaves the host's pages that are queued, and what it claims of the
host from now on is left, too. Once it has nothing of the host any more, it frees the host, and another crawler may own that.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import repeat
from typing import Any

from scrapy import Request

from tbloom.bloom.claims.calls import Hosts
from tbloom.bloom.claims.notes import owned_host
from tbloom.scrapy.crawl import Crawl, ProjectScheduler
from tbloom.scrapy.done.page import Token
from tbloom.scrapy.done.work import Work
from tbloom.scrapy.hooks.engine import wake_engine
from tbloom.scrapy.hooks.queue import host_of, host_queues, hosts_at_work
from tbloom.scrapy.inbox import Inbox
from tbloom.scrapy.outage import CrawlBloom
from tbloom.scrapy.settings import TOKEN

logger: logging.Logger = logging.getLogger(__name__)

#: The most pages that one call gives away. (They take the server some 1 ms.)
_GIVES = 200
#: If nothing could be given, the queue is looked at again after this time (seconds).
_PAUSE = 1.0


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
        share = min(_GIVES, spare * waiting // (waiting + 1))
        requests, hosts = self._choose(share, waiting)
        if not (requests or hosts):
            if share:
                self._next_look = now + _PAUSE
            return
        self._is_giving = True
        self._forget_given()
        self._given_lately.extend(zip(repeat(now), requests))
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


class GivingHosts(Giving):
    """Gives whole hosts to crawlers that wait. Hosts are named as scripts have them: some may be one for them."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        #: The hosts that this crawler may own; with each one with which it has parted, how many links were received until Redis knew
        #: that: they may have been claimed before. No queue has a host whose pages are done, and no reply names a crawler's hosts.
        self._hosts: dict[str, int | None] = {}

    def queued(self, request: Request) -> None:
        """Hear that a page has entered the queue."""
        self._hosts[owned_host(host_of(request))] = None

    def session_lost(self, *, is_empty: bool) -> list[Request]:
        """See ``Giving.session_lost``. Others may own the hosts."""
        self._hosts.clear()
        return super().session_lost(is_empty=is_empty)

    def _choose(self, share: int, waiting: int) -> tuple[list[Request], Hosts | None]:
        """See ``Giving._choose``. The pages are the rest of those hosts with which it has parted, and then all of some others."""
        parted = {host: links for host, links in self._hosts.items() if links is not None}
        if not (waiting or parted) or (queues := host_queues(self._scheduler)) is None:
            return [], None
        self._next_look = time.monotonic() + _PAUSE
        by_host = defaultdict[str, list[Any]](list)
        for host, *queue in queues:
            by_host[owned_host(host)].append(queue)
        here = by_host.keys() | self._hosts_in_work()
        settled = self._inbox.settled
        frees = [host for host, links in parted.items() if links <= settled and host not in here]
        parts = [host for host in self._hosts.keys() - parted.keys() - here if waiting]
        popped = list[Request]()
        for host in [host for host in by_host if host in parted]:
            popped += _pop(by_host.pop(host), _GIVES - len(popped))
        for host in [*by_host][:-1]:  # the busiest one stays
            if len(popped) < share:
                popped += _pop(by_host[host], _GIVES - len(popped))
                parts.append(host)
        return self._givable_of(popped), Hosts(parts, frees) if parts or frees else None

    def _changed(self, hosts: Hosts) -> None:
        """See ``Giving._changed``."""
        self._hosts |= dict.fromkeys(hosts.parted, self._inbox.received)
        for host in hosts.freed:
            # Unless it has got a page of the host since.
            if self._hosts.get(host) is not None:
                del self._hosts[host]

    def _hosts_in_work(self) -> set[str]:
        """Return the hosts of pages in work or kept back, and those whose delay is not over."""
        requests = [*self._work.requests, *self._scheduler.first]
        hosts = {*map(host_of, requests)} | hosts_at_work(self._crawl.crawler.engine)
        return {*map(owned_host, hosts)}


def _pop(queues: list[Any], most: int) -> list[Request]:
    """Take up to so many requests out of the queues of a host."""
    pops = [pop for pop, size in queues for _ in range(size)]
    return [pop() for pop in pops[:most]]
