"""What happens to pages after their download, by the first fingerprint of their claims."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tbloom.scrapy.claims.requests import RequestClaim

if TYPE_CHECKING:
    from scrapy.core.engine import ExecutionEngine
    from scrapy.core.scraper import Slot

#: A page that has failed this often in one crawl is left to the next one: its links may lead back to it.
_MAX_FAILURES = 3


class PageResults:
    """The results of the pages of one crawl."""

    def __init__(self) -> None:
        self._went_well: dict[str, bool] = {}
        #: The number of items that the pipelines still have.
        self._items: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()

    def add(self, page: str, *, well: bool) -> None:
        """Something has ended. One failure counts for the whole page."""
        self._went_well[page] = well and self._went_well.get(page, True)

    def awaits(self, page: str, items: int) -> None:
        """Adds to the number of the page's items that the pipelines still have."""
        self._items[page] += items

    def take(self, page: str) -> bool | None:
        """Whether all went well with a page that has been processed, and its items; None if it was dropped on the way."""
        went_well = self._went_well.pop(page, None)
        # Scrapy says nothing of an item whose pipeline is cancelled. (A pipeline may add items of its own.)
        if self._items.pop(page, 0) > 0 and went_well is not None:
            went_well = False
        if went_well:
            self._failures.pop(page, None)
        elif went_well is False:
            self._failures[page] += 1
        return went_well

    def may_try_again(self, page: str) -> bool:
        """The page has not failed too often."""
        return self._failures[page] < _MAX_FAILURES

    def forget(self, page: str) -> None:
        """Forgets what has happened since the page was taken out of the queue."""
        self._went_well.pop(page, None)
        self._items.pop(page, None)


def busy(engine: ExecutionEngine, slot: Slot) -> set[str]:
    """The pages that Scrapy downloads, or whose output it processes."""
    claims = map(RequestClaim.of, engine.downloader.active | slot.active)
    return {claim.fingerprints[0] for claim in claims if claim}
