"""The project's scheduler, and the way by which the filter's answer gets there."""

from __future__ import annotations

from scrapy import Request

from tbloom import Claim
from tbloom.scrapy.crawl import Crawl, ProjectScheduler
from tbloom.scrapy.hints import Hints
from tbloom.scrapy.links import Answer, NoAnswer, Pending
from tbloom.scrapy.options import asks_nobody


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
