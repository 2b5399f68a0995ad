"""The project's scheduler, the way by which the filter's answer gets there, and hints at two likely mistakes of a spider."""

from __future__ import annotations

import logging

from scrapy import Request

from tbloom import Claim
from tbloom.scrapy.crawl import Crawl, ProjectScheduler
from tbloom.scrapy.links import Answer, NoAnswer, Pending
from tbloom.scrapy.options import asks_nobody
from tbloom.scrapy.settings import WITHIN

logger: logging.Logger = logging.getLogger(__name__)

_NO_LOGIN = "%s was dropped: it was seen, or is claimed. If it logs this crawler in, give it dont_filter=True"
_ONLY_SEEN = (
    "Nothing was fetched, because all requests of this crawl, also its first ones, were seen within the window, perhaps by crawls with "
    "other arguments. Give start requests, and list pages that arguments choose from, dont_filter=True, or meta={'tbloom_within': 1}: "
    "then each slice fetches them once"
)


class ProjectQueue:
    """The queue of the project's scheduler.

    Any scheduler may be the project's, and Scrapy's interface has one way to tell it what is seen: it asks its dupefilter. So the answer
    takes the way round through the project's scheduler, which logs, counts and queues as it does without tbloom::

        enqueue --> scheduler.enqueue_request --> DupeFilter.request_seen --> answer
          sets answer     of the project              tbloom's                  returns answer

    It does not ask about a request with ``dont_filter``, which has an answer if it comes from an earlier crawl.
    """

    def __init__(self, crawl: Crawl, scheduler: ProjectScheduler | None) -> None:
        self._crawl, self._scheduler = crawl, scheduler
        #: The answer for the request that is enqueued now, and whether the scheduler has ever asked.
        self.answer: Answer | None = None
        self.is_asked: bool = False
        self.hints: Hints = Hints(crawl)

    def settle(self, pending: Pending) -> bool:
        """Let the scheduler queue or filter a request, and count its answer; return whether it is queued."""
        answer = pending.answer
        is_answered = answer is not None and pending.item is not None
        if answer is not None and (is_answered or answer is NoAnswer.WRONG):
            self._crawl.count(f"tbloom/{answer.value}")
        queued = self.enqueue(pending.request, answer)
        self.hints.note(pending.request, answer if is_answered else None, is_queued=queued)
        return queued

    def enqueue(self, request: Request, answer: Answer | None = Claim.NEW) -> bool:
        """Let the scheduler queue or filter a request; return whether it is queued."""
        assert self._scheduler is not None  # noqa: S101 - there is one with the add-on
        if request.dont_filter and answer not in (None, Claim.NEW):
            return False
        self.answer = answer
        try:
            queued = bool(self._scheduler.enqueue_in_project(request))
        finally:
            self.answer = None
        if queued and not self.is_asked and answer not in (None, Claim.NEW):
            self._crawl.fail(asks_nobody(type(self._scheduler)))
        return queued

    def count(self, request: Request, answer: Answer) -> Answer:
        """Count the answer for a request that has not waited, and return it."""
        self.hints.note(request, answer, is_queued=False)
        self._crawl.count(f"tbloom/{answer.value}")
        return answer


class Hints:
    """Hears of each answer, and says what a crawl's user may have overlooked."""

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl
        self._has_seen = self._has_new = self._has_sent_form = False

    def note(self, request: Request, answer: object, *, is_queued: bool) -> None:
        """Note the answer for a request (None: the filter is not asked), and whether it is to be fetched.

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

    def report(self) -> None:
        """Warn if nothing was fetched because all was seen."""
        stats = self._crawl.crawler.stats
        is_all_seen = self._has_seen and not self._has_new
        if is_all_seen and stats and not stats.get_value("response_received_count"):
            logger.warning(_ONLY_SEEN)
