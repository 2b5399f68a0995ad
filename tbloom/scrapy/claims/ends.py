"""What the pages of a crawl have come to: marked, or left to the next crawl, many in a call."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from scrapy import Request
from scrapy.utils.asyncio import call_later

from tbloom.errors import ConfigError
from tbloom.items import check_keep
from tbloom.scrapy.claims.feeds import Feeds
from tbloom.scrapy.claims.page import Page
from tbloom.scrapy.compat import look_again
from tbloom.scrapy.crawler import Crawl, count, end_crawl
from tbloom.scrapy.outage import CrawlBloom
from tbloom.scrapy.settings import KEEP

logger: logging.Logger = logging.getLogger(__name__)

#: Pages that end within this time go in one call (seconds).
_GATHER = 0.02


@dataclass(slots=True, eq=False)
class _Done:
    """A page that is to be marked once its links are claimed and its items stored."""

    items: list[bytes]
    keep: int | None
    #: The number of links that the crawl had met when the page ended.
    links: int
    places: set[object]
    is_sent: bool = False


class Ends:
    """Marks pages and leaves others to the next crawl. ``links``: how many links are met, and how many have their answers."""

    def __init__(
        self, crawl: Crawl, seen: CrawlBloom, links: Callable[[], tuple[int, int]]
    ) -> None:
        self._crawl, self._seen, self._links = crawl, seen, links
        self.feeds: Feeds = Feeds(crawl.crawler, self._stored)
        #: Pages that are to be marked, and those among them whose items a feed or a pipeline still keeps.
        self._marked: list[_Done] = []
        self._held: list[_Done] = []
        #: The claims of pages that have failed, with the notes by which the next crawl finds them.
        self._left: list[tuple[list[bytes], str]] = []
        self._timer: Any = None
        self._is_sending = False
        #: The pages that are done, and that the store does not know of, by their items.
        self._done: dict[bytes, _Done] = {}

    def mark(self, page: Page) -> None:
        """The page is done."""
        met, _ = self._links()
        request = getattr(page.thing, "request", None) or page.request
        done = _Done(page.token.items, self._keep_of(request), met, page.places)
        self._marked.append(done)
        self._done |= dict.fromkeys(done.items, done)
        self.soon()

    def places_of(self, item: bytes | None) -> set[object] | None:
        """Where the items wait of a page that is done; None: the store knows of the page, or it is not done."""
        done = self._done.get(item or b"")
        return done.places if done else None

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
        return not (self.is_pending or self._done)

    def unmarked(self) -> int:
        """The number of pages that are done, and that the store does not know of."""
        pages = {*self._done.values()}
        sent = [page.items[0] for page in pages if page.is_sent]
        return len(pages) - len(sent) + self._seen.uncommitted(sent)

    def send(self) -> None:
        """Sends what can be sent now, unless a call is on its way: then it goes after that one."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._is_sending or self._crawl.is_ending:  # then links of theirs may be lost
            return
        marked, left = self._take_marked(), self._left
        if marked or left:
            self._is_sending, self._left = True, []
            for page in marked:
                page.is_sent = True
            calls = self._crawl.ends_calls
            calls.begin(partial(self._make, marked, left), partial(self._made, marked))

    async def finish(self) -> None:
        """Returns once the feeds are stored, and what can be sent is."""
        await self.feeds.closed()
        for _ in range(2):  # what is on its way comes first
            await self._crawl.ends_calls.run(lambda: None)
            self.send()
        await self._crawl.ends_calls.run(lambda: None)
        if self._timer:
            self._timer.cancel()

    def _make(self, marked: list[_Done], left: list[tuple[list[bytes], str]]) -> None:
        by_keep = defaultdict[int | None, list[bytes]](list)
        for page in marked:
            by_keep[page.keep] += page.items
        for keep, items in by_keep.items():
            self._seen.commit_many(items, keep)
        self._give_back(left)

    def _made(self, marked: list[_Done], call: Future[None]) -> None:
        self._is_sending = False
        with self._crawl.logging_errors("marked"):
            call.result()
            for page in marked:
                for item in page.items:
                    self._done.pop(item, None)
            count(self._crawl.crawler, "tbloom/done", len(marked))
        self.soon()
        look_again(self._crawl.crawler.engine)  # it may be idle

    def _stored(self) -> None:
        """A feed or a pipeline has stored its items, or lost them."""
        self._marked, self._held = [*self._held, *self._marked], []
        self.soon()

    def _take_marked(self) -> list[_Done]:
        """The pages that can be marked now."""
        _, answered = self._links()
        pages, self._marked, ready = self._marked, [], list[_Done]()
        for page in pages:
            if page.links > answered:
                self._marked.append(page)
            elif self.feeds.keep(page.places):
                self._held.append(page)
            elif not self.feeds.have_lost(page.places):
                ready.append(page)  # others keep their claims, and the next crawl takes them over
        try:
            if ready:
                self.feeds.flush()
        except OSError as error:  # a full disk: they are left to the next crawl
            logger.error(
                "Pages are not marked, because their items could not be written: %s", error
            )
            end_crawl(self._crawl.crawler)
            return []
        return ready

    def _give_back(self, left: list[tuple[list[bytes], str]]) -> None:
        noted = {items[0]: note for items, note in left if note}
        items = [item for items, _ in left for item in items]
        self._crawl.calls.now(partial(self._crawl.answers.forget, items))  # in the thread that asks
        if noted:
            self._seen.note_again(noted)
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
