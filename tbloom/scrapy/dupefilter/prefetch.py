"""Ask Redis for the requests of a page together, and those of several pages, before the dupefilter is asked for each."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware

from tbloom.scrapy.crawler import fingerprint, spider_of
from tbloom.scrapy.meta import CLAIM, KEEP, TTL, WITHIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy.crawler import Crawler

    from tbloom.scrapy.calls import Calls
    from tbloom.scrapy.claims.inflight import InFlight
    from tbloom.scrapy.outage import Answer, Answers


class Prefetch:
    """The answers of one crawl that the dupefilter has not been asked for yet."""

    def __init__(
        self, crawler: Crawler, answers: Answers, in_flight: InFlight | None, calls: Calls
    ) -> None:
        self._crawler, self._answers = crawler, answers
        self._in_flight, self._calls = in_flight, calls
        #: In order: a callback may yield the same object twice.
        self._known: WeakKeyDictionary[Request, list[Answer]] = WeakKeyDictionary()
        #: The requests that wait until the call before theirs is answered.
        self._waiting: list[Request] = []
        self._asking = asyncio.Lock()

    async def ask(self, found: Iterable[Any]) -> None:
        """Asks for the requests among the objects that the dupefilter will be asked for."""
        requests = [one for one in found if isinstance(one, Request) and self._is_asked_for(one)]
        if requests:
            self._waiting += requests
            await asyncio.shield(self._ask_together(requests))

    def take(self, request: Request) -> Answer | None:
        """The answer for the request, if there is one."""
        answers = self._known.get(request)
        return answers.pop(0) if answers else None

    async def _ask_together(self, requests: list[Request]) -> None:
        """Asks for what waits. Pages that come while the call before is on its way go together."""
        async with self._asking:
            if requests[0] in self._waiting:  # else they went with those of an earlier page
                waiting, self._waiting = self._waiting, []
                # The dupefilter is asked for each request then, and raises it again for those that it concerns.
                with suppress(Exception):
                    await self._ask(waiting)

    async def _ask(self, requests: list[Request]) -> None:
        if self._in_flight:
            answers = await self._in_flight.claim_many(requests)
        else:
            items = [fingerprint(self._crawler, request) for request in requests]
            answers = await self._calls.run(partial(self._answers.ask, items))
        for request, answer in zip(requests, answers, strict=True):
            self._known.setdefault(request, []).append(answer)

    def _is_asked_for(self, request: Request) -> bool:
        # A request with a claim is the copy of an earlier one: the dupefilter knows what it is.
        if request.dont_filter or {CLAIM, WITHIN, KEEP, TTL} & request.meta.keys():
            return False
        offsite = self._crawler.get_downloader_middleware(OffsiteMiddleware)
        if offsite is None or request.meta.get("allow_offsite"):
            return True
        return offsite.should_follow(request, spider_of(self._crawler))  # else that one drops it
