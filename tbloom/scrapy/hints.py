"""Warnings about two likely mistakes of a spider: its login was filtered, or its start was."""

from __future__ import annotations

import logging

from scrapy import Request

from tbloom import Claim
from tbloom.scrapy.crawl import Crawl
from tbloom.scrapy.settings import WITHIN

logger: logging.Logger = logging.getLogger(__name__)

_NO_LOGIN = "%s was dropped: it was seen, or is claimed. If it logs this crawler in, give it dont_filter=True"
_ONLY_SEEN = (
    "Nothing was fetched, because all requests of this crawl, also its first ones, were seen within the window, perhaps by crawls with "
    "other arguments. Give start requests, and list pages that arguments choose from, dont_filter=True, or meta={'tbloom_within': 1}: "
    "then each slice fetches them once"
)


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
