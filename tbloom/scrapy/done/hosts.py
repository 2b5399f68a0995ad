"""``TBLOOM_SHARE = "hosts"``: a host has one owner at a time among the crawlers of a spider.

The first crawler that claims a page of a host owns it; others leave its pages in the filter, from which the owner takes them. A
crawler gives away a host in two steps. It parts with the host: it leaves the host's pages that are queued, and what it claims of the
host from now on is left, too. Once it has nothing of the host any more, it frees the host, and another crawler may own that.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any

from scrapy import Request

from tbloom.bloom.claims.calls import Hosts
from tbloom.bloom.claims.notes import owned_host
from tbloom.scrapy.compat import host_of, host_queues, hosts_at_work
from tbloom.scrapy.done.page import Token
from tbloom.scrapy.done.sharing import BUSY_PAUSE, Giving


class GivingHosts(Giving):
    """Gives whole hosts to crawlers that wait. Hosts are named as scripts have them: some may be one for them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: The hosts that this crawler may own.
        self._owned = set[str]()
        #: The hosts with which it has parted, each with the number of links that were met until Redis knew that: they may have been
        #: claimed before.
        self._parted = dict[str, float]()

    def queued(self, request: Request) -> None:
        """See ``Giving.queued``."""
        host = owned_host(host_of(request))
        self._owned.add(host)
        self._parted.pop(host, None)

    def _give(self, waiting: int, share: int) -> None:
        if not (waiting or self._parted) or (queues := host_queues(self._scheduler)) is None:
            return
        self._next_look = time.monotonic() + BUSY_PAUSE
        by_host = defaultdict[str, list[Any]](list)
        for host, *queue in queues:
            by_host[owned_host(host)].append(queue)
        busy = {*map(owned_host, self._busy_hosts())}
        answered = self._crawl.pending.answered
        known = {host for host, met in self._parted.items() if met <= answered}
        freed = known - by_host.keys() - busy
        parted, tokens = set[str](), list[Token]()
        if waiting:
            parted = self._owned - self._parted.keys() - by_host.keys() - busy
        # The busiest host stays.
        for host in [*by_host][:-1]:
            if len(tokens) >= share:
                break
            popped = [pop() for pop, size in by_host[host] for _ in range(size)]
            tokens += self._sort(popped, len(popped))
            parted.add(host)
        if parted or freed:
            self._parted |= dict.fromkeys(parted, math.inf)
            for host in freed:
                del self._parted[host]
            self._owned -= freed
            self._begin(tokens, partial(self._seen.give, Hosts([*parted], [*freed])))

    def _given(self, count: int, call: Future[object]) -> None:
        met = self._crawl.pending.met
        self._parted |= {host: met for host, of in self._parted.items() if of == math.inf}
        super()._given(count, call)

    def _busy_hosts(self) -> Iterable[str]:
        """Return the hosts of pages in work, and those whose delay is not over."""
        crawl = self._crawl
        requests = crawl.tracker.requests
        return {*map(host_of, requests)} | hosts_at_work(crawl.crawler.engine)
