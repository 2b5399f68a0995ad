"""What holds a crawl that has nothing else to do: a page whose work does not end.

Scrapy's time-out ends most downloads. It ends no other handler's, and no callback, pipeline or feed. Nor does this module: it names them.
"""

from __future__ import annotations

import logging
import time
from operator import attrgetter
from typing import NamedTuple

from scrapy import Request
from scrapy.utils.asyncio import call_later

from tbloom.engine.urls import without_userinfo
from tbloom.scrapy.crawl import Crawl, Stage
from tbloom.scrapy.done.committer import Committer
from tbloom.scrapy.done.work import Work
from tbloom.scrapy.hooks.engine import (
    delays_downloads,
    requests_downloaded,
    requests_in_line,
    requests_in_work,
)
from tbloom.scrapy.inbox import Inbox

logger: logging.Logger = logging.getLogger(__name__)

#: After so long in which nothing else has happened, the log names a page that has not ended (seconds).
LONG = 300.0
#: So many looks find nothing new until then: a crawler that was stopped and goes on is no such one.
_LOOKS = 5
#: The most pages that one look names, and the most of a URL that is told.
_NAMED, _LONGEST_URL = 10, 500
_HELD = (
    "%s has not ended for %.0f s (%s), and this crawl has nothing else to do%s. It may need a time-out of its own: crawlers that share "
    "its pages wait for it, too"
)


class Held(NamedTuple):
    """A page in work."""

    #: When its work began, or its turn in the downloader came, or its feed was closed (monotonic).
    since: float
    url: str
    #: What has it: the "downloader", its "callback", a "pipeline" or a "feed".
    state: str
    #: What is in work: a page, a request of no page, or the page of a feed.
    what: object

    @property
    def age(self) -> float:
        """How long it has been there (s)."""
        return time.monotonic() - self.since

    @property
    def name(self) -> str:
        """Its URL, as it is shown."""
        return without_userinfo(self.url)[:_LONGEST_URL]


class Holding:
    """Knows what is in work in one crawl, and since when."""

    def __init__(self, crawl: Crawl, inbox: Inbox, work: Work, committer: Committer) -> None:
        self._crawl, self._inbox, self._work, self._committer = crawl, inbox, work, committer
        #: The requests of no page that are in work, each with the first look at it.
        self._others = dict[Request, float]()
        #: What the last look has found; and how many looks in a row have found the same.
        self._found: object = None
        self._same = 0
        #: What the log has named.
        self._named = set[object]()

    def begin(self) -> None:
        """Look from now on, until the crawl is closed."""
        call_later(LONG / _LOOKS, self._look)

    def oldest(self) -> Held | None:
        """Return what is in work for the longest time. Any thread may call this."""
        return next(iter(self._held()), None)

    def _held(self) -> list[Held]:
        """Return what is in work, the oldest first, without what waits for its turn in the downloader. Any thread may call this."""
        engine, now = self._crawl.crawler.engine, time.monotonic()
        in_line, downloaded, found = requests_in_line(engine), requests_downloaded(engine), []
        for page in self._work.pages:
            if page.request in in_line:
                page.since = now
            else:
                found.append(Held(page.since, page.url, page.held_by, page))
        for request, since in self._others.items():
            if request not in in_line:
                state = "downloader" if request in downloaded else "callback"
                found.append(Held(since, request.url, state, request))
        for since, ended in self._committer.storing():
            found.append(Held(since, ended.url, "feed", ended))
        return sorted(found, key=attrgetter("since"))

    def _look(self) -> None:
        """Name what has not ended for long, if nothing else has happened meanwhile, or is due."""
        crawl, now = self._crawl, time.monotonic()
        if crawl.stage is Stage.CLOSED:
            return
        engine = crawl.crawler.engine
        of_no_page = [each for each in requests_in_work(engine) if not self._work.of(each)]
        self._others = {each: self._others.get(each, now) for each in of_no_page}
        found = self._work.steps, self._inbox.received, requests_downloaded(engine)
        is_due = crawl.outage.is_on or delays_downloads(engine)
        self._same = 0 if is_due or found != self._found else self._same + 1
        self._found = found
        if self._same >= _LOOKS:
            self._name([held for held in self._held() if held.age >= LONG])
        self.begin()

    def _name(self, held: list[Held]) -> None:
        new = [each for each in held if each.what not in self._named]
        new.sort(key=lambda each: not isinstance(each.what, Request))  # pages may wait for it
        more = f", nor have {len(new) - _NAMED} others" * (len(new) > _NAMED)
        for each in new[:_NAMED]:
            logger.warning(_HELD, each.name, each.age, each.state, more)
        self._named = {each.what for each in held}
