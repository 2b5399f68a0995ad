"""``TBLOOM_MARK = "scheduled"``: a request counts as seen once it is scheduled, and no page is followed.

With ``DUPEFILTER_CLASS`` alone, each request is asked about as it comes. With the add-on, requests wait in the scheduler.
"""

from __future__ import annotations

import logging
from typing import Any

from scrapy import Request, signals

from tbloom import Claim
from tbloom.scrapy.crawl import Crawl, ProjectScheduler
from tbloom.scrapy.hooks.engine import link_source, watch_output
from tbloom.scrapy.inbox import Inbox, ProjectQueue, Requests
from tbloom.scrapy.links import Answer, NoAnswer, Pending, drop_copied, link_of, own_values

logger: logging.Logger = logging.getLogger(__name__)


class AskedRequests(Requests):
    """Adds the requests of one crawl to the filter."""

    def __init__(self, crawl: Crawl, scheduler: ProjectScheduler | None) -> None:
        self._crawl, self._scheduler = crawl, scheduler
        self.inbox: Inbox = Inbox(crawl, self)
        self.project: ProjectQueue = ProjectQueue(crawl, scheduler)
        connect = crawl.crawler.signals.connect
        connect(_answered, signals.response_received)
        connect(self._engine_started, signals.engine_started)

    def _engine_started(self) -> None:
        watch_output(self._crawl.crawler.engine)

    # A request comes

    @property
    def is_busy(self) -> bool:
        """Whether requests may enter the queue later: the engine is not idle, and sends no ``spider_idle``."""
        return bool(self.inbox.waiting)

    def enqueue(self, request: Request) -> bool:
        """Enqueue a request; return whether it is queued, or may yet be."""
        try:
            return self.inbox.enter(
                Pending(request) if request.dont_filter else self._link(request)
            )
        except Exception:  # Scrapy would lose the callback's other links, too
            if link_source.get() is None:  # of start()
                raise
            logger.exception("%s could not be scheduled", request)
            return False

    def answer_to(self, request: Request) -> Answer:
        """Return the dupefilter's answer for a request that has not waited: the filter is asked."""
        pending = self.inbox.ask_now(request, self._link)
        if pending.answer is Claim.NEW:
            own_values(request)
        return self.project.count(request, pending.answer or NoAnswer.DROPPED)

    def next_request(self) -> Request | None:
        """Return the next request that is to be fetched; None: there is none now, or too many wait."""
        request = None
        if self._scheduler is not None and not self.inbox.is_full:
            request = self._scheduler.next_in_project()
        if request is None:
            self.inbox.ask()
        return request

    def _link(self, request: Request) -> Pending:
        drop_copied(request, link_source.get())
        return link_of(request, self._crawl, claims=False)

    def ask(self, group: list[Pending], arguments: dict[str, Any]) -> list[Claim]:
        """Add the links to the filter, each in its version and as itself."""
        added, places = list[bytes](), list[int]()
        for pending in group:
            item = pending.item or b""
            places.append(len(added))
            added += [pending.look, item] if pending.version else [item]
        are_new = self._crawl.seen.add_many(added, **arguments)
        return [Claim.NEW if are_new[place] else Claim.SEEN for place in places]

    def settle(self, pending: Pending) -> bool:
        """Queue or filter a request."""
        if pending.answer is Claim.NEW:
            own_values(pending.request)
        return self.project.settle(pending)

    # The end of the crawl, in this order

    async def close(self) -> None:
        """Return once no request waits."""
        await self.inbox.close()

    async def finish(self, reason: str) -> None:
        """Do nothing: no page is committed."""

    def report(self) -> None:
        """Log what the user should know of a crawl that has ended."""
        self.project.hints.report()


def _answered(response: Any) -> None:
    """Handle Scrapy's signal. In a queue on disk, the request has lost its marks."""
    if response.request is not None:
        own_values(response.request)
