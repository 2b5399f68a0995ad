"""The pages of a crawl that have failed: how often, why, and what the log says."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any

from scrapy import Request
from scrapy.utils.asyncio import call_later

from tbloom.scrapy.claims.ends import Ends
from tbloom.scrapy.claims.page import Page
from tbloom.scrapy.crawler import Crawl, count
from tbloom.scrapy.settings import ATTEMPTS

logger: logging.Logger = logging.getLogger(__name__)

#: So many pages that fail one after the other in the same pipeline, or half of the last hundred, are a fault of the pipeline.
_IN_A_ROW, _LAST = 20, 100
_SHOWN_URLS = 3
#: The longest pause before another attempt (seconds).
_MAX_PAUSE = 60.0
_PIPELINE = "pipeline/"


class Failures:
    """Counts failed attempts; pages are tried again, or left to the next crawl."""

    def __init__(self, crawl: Crawl, ends: Ends, try_again: Callable[[Page], None]) -> None:
        self._crawl, self._ends, self._try_again = crawl, ends, try_again
        self.attempts: int = ATTEMPTS.value(crawl.crawler.settings)
        #: Pages that wait for another attempt, with their timers.
        self.waiting: dict[Page, Any] = {}
        #: The failed attempts of pages that may be tried again, by the fingerprints of their first URLs.
        self._failed: Counter[str] = Counter()
        #: The fingerprints of the pages that this crawl tries no more.
        self.left_pages: set[str] = set()
        self._reasons: Counter[str] = Counter()
        self._urls: list[str] = []
        #: Why each of the last pages has failed; "": it has not.
        self._last: deque[str] = deque(maxlen=_LAST)
        self._broken = ""

    def failed(self, page: Page) -> None:
        """A page has failed: it is tried again after a pause, or left to the next crawl."""
        self._note(page.failed)
        first = page.token.fingerprints[-1]
        self._failed[first] += 1
        tries = self._failed[first]
        if tries < self.attempts and not (self._broken or self._crawl.is_ending):
            pause = min(2.0 ** (tries - 1), _MAX_PAUSE)
            self.waiting[page] = call_later(pause, self._pause_ends, page)
        else:
            del self._failed[first]
            self._leave(page)

    def worked(self, page: Page) -> None:
        """The page is marked."""
        self._note("")
        self._failed.pop(page.token.fingerprints[-1], None)

    def left(self, reason: str, request: Request, fingerprints: Iterable[str]) -> None:
        """A page is left to the next crawl."""
        self.left_pages.update(fingerprints)
        self._reasons[reason] += 1
        if len(self._urls) < _SHOWN_URLS:
            self._urls.append(request.url)
        count(self._crawl.crawler, "tbloom/left")
        count(self._crawl.crawler, f"tbloom/left/{reason}")

    def close(self) -> None:
        """No page is tried again any more."""
        self.attempts = 0
        for page, timer in [*self.waiting.items()]:
            timer.cancel()
            self._leave(page)
        self.waiting.clear()

    def report(self) -> None:
        """Logs how many pages are left to the next crawl, why, and the first ones."""
        if self._reasons:
            message = "%d pages have failed, and are left to the next crawl (%s), for example %s"
            reasons = ", ".join(f"{reason}: {n}" for reason, n in self._reasons.most_common())
            logger.warning(message, self._reasons.total(), reasons, " ".join(self._urls))

    def _pause_ends(self, page: Page) -> None:
        del self.waiting[page]
        self._try_again(page)

    def _leave(self, page: Page) -> None:
        self.left(page.failed, page.request, page.token.fingerprints)
        self._ends.leave(page.token.items, page.note)

    def _note(self, reason: str) -> None:
        self._last.append(reason)
        if self._broken or not reason.startswith(_PIPELINE):
            return
        last = [*self._last]
        in_a_row = len(last) >= _IN_A_ROW and {*last[-_IN_A_ROW:]} == {reason}
        if in_a_row or last.count(reason) * 2 >= _LAST:
            self._broken = reason
            message = (
                "The pipeline %s fails again and again: its pages are not marked, and the next crawl fetches them again. "
                "This crawl tries none twice"
            )
            logger.error(message, reason.removeprefix(_PIPELINE))
