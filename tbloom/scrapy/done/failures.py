"""Decides whether a page is done or has failed, and what this crawl does with a failed page."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from scrapy import Request
from scrapy.settings import BaseSettings

from tbloom.scrapy.done.page import EndedPage, Page
from tbloom.scrapy.settings import DONE, done_statuses, failed_pause

logger: logging.Logger = logging.getLogger(__name__)

_SUCCESS, _NOT_MODIFIED = range(200, 300), 304
_SHOWN_URLS = 3
#: So many pages may be redirected to one page that is not new. This is known of so many of these pages, the last ones: a login is
#: always among them.
_MOST_REDIRECTED, _MOST_TARGETS = 3, 10_000
_WALL = (
    "%d pages that were redirected to %s (a login?) have failed. If they are done, let a downloader middleware set "
    "request.meta['tbloom_done'] = True"
)


@dataclass(slots=True)
class _Failure:
    """A page that has failed in this crawl."""

    #: When a link to the page is followed again (infinite while one is followed), and how long the page's next pause is (seconds).
    until: float
    pause: float
    #: The number of earlier crawls in a row in which the page has failed; and whether this crawl holds its claim.
    failures: int
    is_held: bool


class Failures:
    """The pages that have failed in this crawl, by their first fingerprints. ``count`` is called with the name of a stat."""

    def __init__(self, settings: BaseSettings, count: Callable[[str], object]) -> None:
        self._count = count
        self._done_statuses = done_statuses(settings)
        self._pause = failed_pause(settings)
        self._failed: dict[str, _Failure] = {}
        #: The first pages that were redirected to each page that is not new, or in a version, by its URL; and how often others were.
        self._redirected: dict[str, set[str]] = {}
        self._walls: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._urls: list[str] = []

    def why_failed(self, page: Page) -> str:
        """Return why a page that the scraper has finished has failed, as its stat is named; "": it is done, unless its items are lost.

        docs/scrapy.md has this as a table. ``done/committer.py`` knows later whether the items are lost.
        """
        reason = self._why(page)
        return f"{reason} from the cache" if reason and page.is_cached else reason

    def _why(self, page: Page) -> str:
        said = page.meta.get(DONE)
        if said in (True, False):
            return "" if said else DONE
        if said is not None:
            message = "meta[%r] of %s: expected True or False, got %r: the page has failed"
            logger.error(message, DONE, page.request, said)
            return DONE
        if page.exception:
            return page.exception
        if page.counts_as_done or page.is_called:
            return ""
        return self._why_not_called(page)

    def _why_not_called(self, page: Page) -> str:
        if page.download_error:
            return f"download/{page.download_error}"
        if page.status is None:
            return "unfinished"
        if self.is_done_status(page.status):
            return ""
        # A spider middleware has refused a response that was for the callback.
        return "input" if page.status in _SUCCESS else f"status/{page.status}"

    def is_done_status(self, status: int) -> bool:
        """Return whether a page, or a file, is done though no callback gets a response with this status."""
        return status in self._done_statuses or status == _NOT_MODIFIED

    def add(self, page: EndedPage, reason: str) -> None:
        """Note that a page has failed. A list page may be fetched again at once."""
        logger.debug("%s has failed (%s)", page.url, reason)
        if not page.is_list:
            failed = self._failed.get(page.first)
            pause = failed.pause if failed else self._pause
            failures = 0 if page.is_given_up else page.failures
            self._failed[page.first] = _Failure(
                time.monotonic() + pause, 2 * pause, failures, is_held=not page.is_given_up
            )

    def count_given_up(self, url: str, reason: str, why: str) -> None:
        """Log and count a page that no later crawl takes."""
        logger.warning(
            "%s is given up: %s. Only a link leads to it again, or tbloom retry", url, why
        )
        self._count("tbloom/given_up")
        self._count(f"tbloom/given_up/{reason}")

    def forget(self, fingerprint: str) -> None:
        """Forget the failures of a page that is done, or that is to be fetched again."""
        self._failed.pop(fingerprint, None)

    def has(self, fingerprint: str) -> bool:
        """Return whether the page has failed in this crawl."""
        return fingerprint in self._failed

    def pauses(self, fingerprint: str) -> bool:
        """Return whether a link to a page that has failed in this crawl is not followed yet."""
        return time.monotonic() < self._failed[fingerprint].until

    def try_again(self, fingerprint: str) -> None:
        """Follow no further link until the page, to which one is followed now, is done or fails again."""
        failed = self._failed[fingerprint]
        failed.until, failed.is_held = math.inf, False

    @property
    def held(self) -> int:
        """The number of pages that have failed, and whose claims this crawl holds for the next one."""
        return sum(failed.is_held for failed in [*self._failed.values()])

    def hold_none(self) -> None:
        """Note that this crawl holds no claims of failed pages any more."""
        for failed in self._failed.values():
            failed.is_held = False

    def failures_before(self, fingerprint: str) -> int:
        """Return in how many earlier crawls in a row the page has failed; 0 if it has not failed in this crawl."""
        failed = self._failed.get(fingerprint)
        return failed.failures if failed else 0

    def is_wall(self, target: Request, page: Page) -> bool:
        """Note that a page was redirected to this one. Return whether too many were. One that was before (a retry) counts once."""
        first = self._redirected.pop(target.url, set())
        self._redirected[target.url] = first  # the last one
        if len(self._redirected) > _MOST_TARGETS:
            del self._redirected[next(iter(self._redirected))]
        if len(first) < _MOST_REDIRECTED:
            first.add(page.url)
        if page.url in first:
            return False
        self._walls[target.url] += 1
        return True

    def report(self, unfinished: Collection[Page]) -> None:
        """Log how many pages are left to the next crawl, why, and the first ones. ``unfinished``: pages that are still in work."""
        for page in unfinished:
            self.count_left(page.request.url, "unfinished")
        for url, failed in self._walls.most_common(_SHOWN_URLS):
            logger.warning(_WALL, failed, url)
        if self._reasons:
            message = "%d pages have failed, and are left to the next crawl (%s), for example %s"
            reasons = ", ".join(f"{reason}: {n}" for reason, n in self._reasons.most_common())
            logger.warning(message, self._reasons.total(), reasons, " ".join(self._urls))

    def count_left(self, url: str, reason: str) -> None:
        """Count a page that is left to the next crawl."""
        self._reasons[reason] += 1
        if len(self._urls) < _SHOWN_URLS:
            self._urls.append(url)
        self._count("tbloom/left")
        self._count(f"tbloom/left/{reason}")
