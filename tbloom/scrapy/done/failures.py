"""What one crawl knows of pages that have failed in it: when it follows a link to one again, walls, and what it reports at its end."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass

from tbloom.scrapy.crawl import Crawl
from tbloom.scrapy.done.page import EndedPage, Page, Why
from tbloom.scrapy.done.states import FAILED, Event, Known, Register, State

logger: logging.Logger = logging.getLogger(__name__)

_SHOWN_URLS = 3
#: The pause after which a link to a page is followed again that has failed once (seconds); doubled at each failure.
_PAUSE = 600.0
_AGAIN = "%d pages have failed, and the next crawl fetches them again (%s)%s"
_LOST = (
    "%d pages have failed, and only a link leads to them again: Redis has lost their claims (%s)%s"
)
_WALL = (
    "%d pages that were redirected to %s (a login?) have failed. If they are done, let a downloader middleware set "
    "request.meta['tbloom_done'] = True"
)


@dataclass(slots=True, eq=False)
class FailedPage(Known):
    """A page that has failed in this crawl."""

    #: When a link to the page is followed again, and how long the page's next pause is (seconds).
    until: float
    pause: float
    #: The number of earlier crawls in a row in which the page has failed.
    failures: int


class Walls:
    """Pages to which many others are redirected, such as a login: the first ones are done if it is, and the others have failed."""

    #: So many pages may be redirected to one page.
    MOST = 3
    #: This is known of so many of these pages, the last ones: a login is always among them.
    _MOST_TARGETS = 10_000

    def __init__(self) -> None:
        #: By its fingerprint, the first pages that were redirected to each page; and by its URL, how often others were.
        self._first: dict[str, set[str]] = {}
        self._others: Counter[str] = Counter()

    def note(self, page: Page, target: str, url: str) -> bool:
        """Note that a page is redirected to another one; return whether that is a wall for it. A retry is answered as before."""
        first = self._first[target] = self._first.pop(target, set())  # the last one
        if len(self._first) > self._MOST_TARGETS:
            del self._first[next(iter(self._first))]
        if len(first) < self.MOST:
            first.add(page.url)
        if page.url not in first:
            self._others[url] += 1
        return page.url not in first

    def report(self) -> None:
        """Log where the most pages were redirected."""
        for url, failed in self._others.most_common(_SHOWN_URLS):
            logger.warning(_WALL, failed, url)


class Failures:
    """The pages that have failed in this crawl."""

    def __init__(self, crawl: Crawl, register: Register) -> None:
        self._crawl, self.register = crawl, register
        #: How long a page's first pause is (seconds).
        self.pause: float = _PAUSE
        #: Why pages have failed, or were given up, and how often.
        self.reasons: Counter[str] = Counter()
        #: By their first fingerprints, why pages have failed that are left to the next crawl, with what the log says of the first ones.
        self._left = dict[str, tuple[str, str]]()
        #: Whether Redis has lost the filter, and the first fingerprints of pages whose claims went with it.
        self._has_lost = False
        self._lost = set[str]()

    def add(self, known: Known, page: EndedPage, why: Why) -> None:
        """Note that a page has failed. A list page may be fetched again at once."""
        words = f": {why.words}" if why.words else ""
        logger.debug("%s has failed (%s)%s", page.url, why.reason, words)
        if page.is_list:
            self.register.step(known, Event.FAIL_LIST)
            return
        pause = page.pause or self.pause
        failures = 0 if page.is_given_up else page.failures
        failed = FailedPage(page.first, time.monotonic() + pause, 2 * pause, failures)
        self.register.step(known, Event.GIVE_UP if page.is_given_up else Event.FAIL, failed)

    def of(self, first: str) -> FailedPage | None:
        """Return what is known of a page that has failed, and has not come out of the queue since."""
        return self.register.get(FailedPage, first, *FAILED)

    def try_again(self, failed: FailedPage) -> None:
        """Follow no further link to a page, to which one is followed now, until it is done or fails again."""
        self.register.step(failed, Event.LINK)
        self._left.pop(failed.first, None)

    def forget(self, first: str) -> None:
        """Note that a page, which may have failed, is done, or is fetched in this crawl: it is not left to the next one."""
        if failed := self.of(first):
            self.register.step(failed, Event.FETCH)
        self._left.pop(first, None)

    @property
    def held(self) -> int:
        """The number of pages whose claims this crawl holds for the next one."""
        return self.register.count(State.HELD)

    def hold_none(self, *, is_empty: bool) -> None:
        """Note that this crawl holds no claims of failed pages any more. ``is_empty``: Redis has lost them."""
        for failed in self.register.all(FailedPage, State.HELD):
            self.register.step(failed, Event.PART)
        if is_empty:
            self._has_lost = True
            self._lost.update(self._left)

    def count(self, stat: str, reason: str, pages: int = 1) -> None:
        """Count pages that have ``failed``, or are ``given_up``."""
        self.reasons[reason] += pages
        self._crawl.count(f"tbloom/{stat}", pages)
        self._crawl.count(f"tbloom/{stat}/{reason}", pages)

    def count_failed(self, page: EndedPage, why: Why, *, is_held: bool) -> None:
        """Count a page that has failed, and that the next crawl fetches again. ``is_held``: this session has its claim."""
        self._lost.discard(page.first)
        if self._has_lost and not is_held:
            self._lost.add(page.first)
        example = f"{page.url} ({why.words})" if why.words else page.url
        self._left[page.first] = why.reason, example if len(self._left) < _SHOWN_URLS else ""
        self.count("failed", why.reason)

    def count_given_up(self, url: str, reason: str, why: str) -> None:
        """Log and count a page that no later crawl takes."""
        logger.warning(
            "%s is given up: %s. Only a link leads to it again, or tbloom retry", url, why
        )
        self.count("given_up", reason)

    def report(self) -> None:
        """Log how many pages are left to the next crawl, why, and some of them."""
        for message, is_lost in (_AGAIN, False), (_LOST, True):
            left = [why for first, why in self._left.items() if (first in self._lost) == is_lost]
            if left:
                reasons, examples = zip(*left, strict=True)
                counted = ", ".join(f"{why}: {n}" for why, n in Counter(reasons).most_common())
                shown = " ".join(filter(None, examples))
                logger.warning(message, len(left), counted, shown and f", for example {shown}")
