"""``TBLOOM_SHARE = "hosts"``: a host has one owner at a time among the crawlers of a spider.

The first crawler that claims a page of a host owns it; others leave its pages in the filter, from which the owner takes them. A
crawler gives away a host in two steps. It parts with the host: it leaves the host's pages that are queued, and what it claims of the
host from now on is left, too. Once it has nothing of the host any more, it frees the host, and another crawler may own that.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from scrapy import Request

from tbloom.bloom.claims.calls import Hosts
from tbloom.bloom.claims.notes import owned_host
from tbloom.scrapy.done.giving import GIVES, PAUSE, Giving
from tbloom.scrapy.hooks.queue import host_of, host_queues, hosts_at_work


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
        self._next_look = time.monotonic() + PAUSE
        by_host = defaultdict[str, list[Any]](list)
        for host, *queue in queues:
            by_host[owned_host(host)].append(queue)
        here = by_host.keys() | self._hosts_in_work()
        settled = self._inbox.settled
        frees = [host for host, links in parted.items() if links <= settled and host not in here]
        parts = [host for host in self._hosts.keys() - parted.keys() - here if waiting]
        popped = list[Request]()
        for host in [host for host in by_host if host in parted]:
            popped += _pop(by_host.pop(host), GIVES - len(popped))
        for host in [*by_host][:-1]:  # the busiest one stays
            if len(popped) < share:
                popped += _pop(by_host[host], GIVES - len(popped))
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
