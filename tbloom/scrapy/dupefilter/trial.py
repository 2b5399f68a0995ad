"""The duplicate filter of a crawl that only tries a spider: the fleet's is neither asked nor filled."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy.dupefilters import RFPDupeFilter

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class TrialDupeFilter(RFPDupeFilter):
    """Scrapy's own, in memory; in the shell it filters nothing, as Scrapy has it."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(fingerprinter=crawler.request_fingerprinter)
        self._filters = crawler.crawling
        logger.info("tbloom's filter is neither asked nor filled by this command of Scrapy's")

    def request_seen(self, request: Request) -> bool:
        """Has this process asked for the request?"""
        return self._filters and super().request_seen(request)

    def clear(self) -> None:
        """scrapy-redis' scheduler calls this."""
