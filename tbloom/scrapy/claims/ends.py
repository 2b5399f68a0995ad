"""What the pages of a crawl have come to: marked, or left to the next crawl, many in a call."""

from __future__ import annotations

import logging
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy.utils.asyncio import call_later

from tbloom.errors import ConfigError
from tbloom.items import check_keep
from tbloom.scrapy.claims.feeds import Feeds, Place
from tbloom.scrapy.compat import look_again
from tbloom.scrapy.crawler import count
from tbloom.scrapy.meta import KEEP

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from tbloom.scrapy.calls import Crawl
    from tbloom.scrapy.claims.page import Page
    from tbloom.scrapy.stores import CrawlBloom

logger = logging.getLogger(__name__)

#: Pages that end within this time go in one call (seconds).
_GATHER = 0.02


class _Marked(NamedTuple):
    """A page that is to be marked once its links are claimed and its items stored."""

    items: list[bytes]
    keep: int | None
    #: The number of links that the crawl had met when the page ended.
    links: int
    places: set[Place]


class Ends:
    """Marks pages and leaves others to the next crawl. ``links``: how many links are met, and how many have their answers."""

    def __init__(
        self, crawl: Crawl, seen: CrawlBloom, links: Callable[[], tuple[int, int]]
    ) -> None:
        self._crawl, self._seen, self._links = crawl, seen, links
        self.feeds = Feeds(crawl.crawler, self._stored)
        #: Pages that are to be marked, and those among them whose items a feed or a pipeline still keeps.
        self._marked: list[_Marked] = []
        self._held: list[_Marked] = []
        #: The claims of pages that have failed, with the notes by which the next crawl finds them.
        self._left: list[tuple[list[bytes], str]] = []
        self._timer: Any = None
        self._is_sending = False
        #: The first items of pages that are on their way to be marked, or could not be yet; and how many pages lost items.
        self._sent = set[bytes]()
        self._lost = 0
        #: Where the items of pages wait that are to be marked, by the pages' own items.
        self.places: dict[bytes, set[Place]] = {}

    def mark(self, page: Page) -> None:
        """The page is done."""
        met, _ = self._links()
        request = getattr(page.thing, "request", None) or page.request
        items = page.token.items
        self._marked.append(_Marked(items, self._keep_of(request), met, page.places))
        self.places |= dict.fromkeys(items, page.places)
        self.soon()

    def leave(self, items: list[bytes], note: str) -> None:
        """Gives back the claims of a page that has failed; with a note, the next crawl takes it over."""
        self._left.append((items, note))
        self.soon()

    def soon(self) -> None:
        """Sends what can be sent, with all that comes within some milliseconds."""
        if not (self._timer or self._is_sending) and (self._marked or self._left):
            self._timer = call_later(_GATHER, self.send)

    @property
    def is_pending(self) -> bool:
        """Whether pages have ended of which the store is about to hear. (Those that a feed still keeps wait for its end.)"""
        return bool(self._is_sending or self._marked or self._left)

    @property
    def is_empty(self) -> bool:
        """Whether no page has ended of which the store does not know."""
        return not (self.is_pending or self._held or self._sent)

    def unmarked(self) -> int:
        """The number of pages that are done, and that the store does not know of."""
        waiting = len(self._marked) + len(self._held) + self._lost
        return waiting + self._seen.uncommitted(self._sent)

    def send(self) -> None:
        """Sends what can be sent now, unless a call is on its way: then it goes after that one."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._is_sending:
            return
        marked, left = self._take_marked(), self._left
        if not (marked or left):
            return
        self._left, sent = [], {page.items[0] for page in marked}
        self._sent |= sent

        def arrived(_: Any) -> None:
            self._sent -= sent
            for page in marked:
                for item in page.items:
                    self.places.pop(item, None)
            count(self._crawl.crawler, "tbloom/done", len(sent))

        self._is_sending = self._crawl.later(
            "marked", partial(self._make, marked, left), arrived, self._crawl.ends_calls
        )
        if self._is_sending:  # after ``arrived``, also where that one was not called
            self._crawl.ends_calls.begin(lambda: None, lambda _: self._go_on())

    async def finish(self) -> None:
        """Returns once the feeds are stored, and what can be sent is."""
        await self.feeds.closed()
        for _ in range(2):  # what is on its way comes first
            await self._crawl.ends_calls.run(lambda: None)
            self.send()
        await self._crawl.ends_calls.run(lambda: None)
        if self._timer:
            self._timer.cancel()

    def _make(self, marked: list[_Marked], left: list[tuple[list[bytes], str]]) -> None:
        by_keep = defaultdict[int | None, list[bytes]](list)
        for page in marked:
            by_keep[page.keep] += page.items
        for keep, items in by_keep.items():
            self._seen.commit_many(items, keep)
        self._give_back(left)

    def _go_on(self) -> None:
        self._is_sending = False
        self.soon()
        look_again(self._crawl.crawler.engine)  # it may be idle

    def _stored(self) -> None:
        """A feed or a pipeline has stored its items, or lost them."""
        self._marked, self._held = [*self._held, *self._marked], []
        self.soon()

    def _take_marked(self) -> list[_Marked]:
        """The pages that can be marked now."""
        if self._crawl.end.has_begun:  # links of theirs may be lost
            return []
        _, answered = self._links()
        pages, self._marked, ready = self._marked, [], list[_Marked]()
        for page in pages:
            if page.links > answered:
                self._marked.append(page)
            elif not all(place.is_stored for place in page.places):
                self._held.append(page)
            elif any(place.is_lost for place in page.places):
                self._lost += 1  # it keeps its claims, and the next crawl takes it over
            else:
                ready.append(page)
        try:
            if ready:
                self.feeds.flush()
        except OSError as error:  # a full disk: they are left to the next crawl
            logger.error(
                "Pages are not marked, because their items could not be written: %s", error
            )
            self._crawl.end.begin()
            self._lost += len(ready)
            return []
        return ready

    def _give_back(self, left: list[tuple[list[bytes], str]]) -> None:
        noted = {items[0]: note for items, note in left if note}
        items = [item for items, _ in left for item in items]
        self._crawl.calls.now(partial(self._crawl.answers.forget, items))  # in the thread that asks
        if noted:
            again = partial(self._seen.claim_many, notes=[*noted.values()])
            again([*noted], previous_owner=self._seen.session)
            self._seen.abandon_many([*noted])
        if others := [item for items, _ in left for item in items if item not in noted]:
            self._seen.release_many(others)

    def _keep_of(self, request: Request) -> int | None:
        """For how many slices the page is kept; a callback may have said so in ``response.meta``."""
        keep: int | None = request.meta.get(KEEP)
        try:
            check_keep(keep, None, self._seen.config.slices)
        except ConfigError as error:
            message = "meta[%r] of %s: %s; it is kept for the whole window"
            logger.error(message, KEEP, request, error)
            return None
        return keep
