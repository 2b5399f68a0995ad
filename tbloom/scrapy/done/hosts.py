"""``TBLOOM_SHARE = "hosts"``: a host has one owner at a time among the crawlers of a spider.

The first crawler that claims a page of a host owns it; others leave its pages in the filter, from which the owner takes them. A
crawler gives away a host in two steps. It parts with the host: it leaves the host's pages that are queued, and what it claims of the
host from now on is left, too. Once it has nothing of the host any more, it frees the host, and another crawler may own that.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Any

from scrapy import Request

from tbloom.bloom.claims.calls import Hosts
from tbloom.bloom.claims.notes import owned_host
from tbloom.scrapy.compat import host_of, host_queues, hosts_at_work
from tbloom.scrapy.done.sharing import BUSY_PAUSE, GIVES, Giving


class GivingHosts(Giving):
    """Gives whole hosts to crawlers that wait. Hosts are named as scripts have them: some may be one for them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: The hosts that this crawler may own.
        self._owned = set[str]()
        #: The hosts with which it has parted, each with the number of links that were received until Redis knew that: they may have been
        #: claimed before.
        self._parted = dict[str, int]()

    def queued(self, request: Request) -> None:
        """See ``Giving.queued``."""
        host = owned_host(host_of(request))
        self._owned.add(host)
        self._parted.pop(host, None)

    def session_lost(self, *, is_empty: bool) -> None:
        """See ``Giving.session_lost``. Others may own the hosts."""
        self._owned.clear()
        self._parted.clear()
        super().session_lost(is_empty=is_empty)

    def _give(self, waiting: int, share: int) -> None:
        if not (waiting or self._parted) or (queues := host_queues(self._scheduler)) is None:
            return
        self._next_look = time.monotonic() + BUSY_PAUSE
        by_host = defaultdict[str, list[Any]](list)
        for host, *queue in queues:
            by_host[owned_host(host)].append(queue)
        here = by_host.keys() | {*map(owned_host, self._busy_hosts())}
        here |= {owned_host(host_of(request)) for request in self._scheduler.first}
        settled = self._crawl.pending.settled
        freed = {host for host, received in self._parted.items() if received <= settled} - here
        parted = self._owned - self._parted.keys() - here if waiting else set[str]()
        # The rest of those with which it has parted, and then others. The busiest one stays.
        kept = [host for host in by_host if host not in self._parted]
        popped, others = list[Request](), iter(kept[:-1])
        for host in (host for host in by_host if host in self._parted):
            popped += _pop(by_host[host], GIVES - len(popped))
        while len(popped) < min(share, GIVES) and (host := next(others, "")):
            popped += _pop(by_host[host], GIVES - len(popped))
            parted.add(host)
        given = self._givable_of(popped)
        if given or parted or freed:
            hosts = Hosts([*parted], [*freed])
            self._begin(given, partial(self._seen.give, hosts), partial(self._changed, hosts))

    def _changed(self, hosts: Hosts) -> None:
        """Note that Redis knows of changes."""
        self._parted |= dict.fromkeys(hosts.parted, self._crawl.pending.received)
        for host in hosts.freed:
            # Unless it has got a page of the host since.
            if self._parted.pop(host, None) is not None:
                self._owned.discard(host)

    def _busy_hosts(self) -> Iterable[str]:
        """Return the hosts of pages in work, and those whose delay is not over."""
        crawl = self._crawl
        requests = crawl.tracker.requests
        return {*map(host_of, requests)} | hosts_at_work(crawl.crawler.engine)


def _pop(queues: list[Any], most: int) -> list[Request]:
    """Take up to so many requests out of the queues of a host."""
    pops = [pop for pop, size in queues for _ in range(size)]
    return [pop() for pop in pops[:most]]
