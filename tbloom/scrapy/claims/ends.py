"""What the pages of a crawl come to: marked, tried again, or left to the next crawl; many in a call, and what the log says."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from scrapy import Request
from scrapy.utils.asyncio import call_later

from tbloom.arguments import check_keep
from tbloom.errors import ConfigError
from tbloom.scrapy.claims.feeds import Feeds
from tbloom.scrapy.claims.page import Page
from tbloom.scrapy.claims.states import State
from tbloom.scrapy.compat import look_again
from tbloom.scrapy.crawler import Crawl
from tbloom.scrapy.outage import CrawlBloom
from tbloom.scrapy.settings import ATTEMPTS, KEEP

logger: logging.Logger = logging.getLogger(__name__)

#: Pages that end within this time go in one call (seconds).
_GATHER = 0.02
#: So many pages that fail one after the other in the same pipeline, or half of the last hundred, are a fault of the pipeline.
_IN_A_ROW, _LAST = 20, 100
_SHOWN_URLS = 3
#: The longest pause before another attempt (seconds).
_MAX_PAUSE = 60.0
_PIPELINE = "pipeline/"


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
    """Marks pages that are done. Those that have failed are tried again, or left to the next crawl.

    ``links``: how many links are met, and how many have their answers; ``try_again`` is called with a page after its pause.
    """

    def __init__(
        self,
        crawl: Crawl,
        seen: CrawlBloom,
        links: Callable[[], tuple[int, int]],
        try_again: Callable[[Page], None],
    ) -> None:
        self._crawl, self._seen, self._links, self._try_again = crawl, seen, links, try_again
        self.feeds: Feeds = Feeds(crawl.crawler, self._stored)
        #: Pages that are to be marked, and those among them whose items a feed or a pipeline still keeps.
        self._marked: list[_Done] = []
        self._held: list[_Done] = []
        #: The pages that are done, and that the store does not know of, by their items.
        self._done: dict[bytes, _Done] = {}
        #: The claims of pages that have failed, with the notes by which the next crawl finds them.
        self._left: list[tuple[list[bytes], str]] = []
        self._timer: Any = None
        self._is_sending = False
        self.attempts: int = ATTEMPTS.value(crawl.crawler.settings)
        self._is_closed = False
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

    def ended(self, page: Page) -> None:
        """The page is marked, or it has failed: then it is tried again after a pause, or left to the next crawl."""
        self._note(page.failed)
        first = page.token.fingerprints[-1]
        if page.state is State.MARKED:
            del self._failed[first]
            self._mark(page)
            return
        self._failed[first] += 1
        tries = self._failed[first]
        ends = self._broken or self._is_closed or self._crawl.is_ending
        if tries < self.attempts and not ends:
            pause = min(2.0 ** (tries - 1), _MAX_PAUSE)
            self.waiting[page] = call_later(pause, self._pause_ends, page)
        else:
            del self._failed[first]
            self._leave(page)

    def left(self, reason: str, request: Request, fingerprints: Iterable[str]) -> None:
        """A page is left to the next crawl."""
        self.left_pages.update(fingerprints)
        self._reasons[reason] += 1
        if len(self._urls) < _SHOWN_URLS:
            self._urls.append(request.url)
        self._crawl.count("tbloom/left")
        self._crawl.count(f"tbloom/left/{reason}")

    def leave(self, items: list[bytes], note: str) -> None:
        """Gives back the claims of a page that has failed; with a note, the next crawl takes it over."""
        self._left.append((items, note))
        self.soon()

    def places_of(self, item: bytes | None) -> set[object] | None:
        """Where the items wait of a page that is done; None: the store knows of the page, or it is not done."""
        done = self._done.get(item or b"")
        return done.places if done else None

    @property
    def is_pending(self) -> bool:
        """Whether pages have ended of which the store is about to hear. (Those that a feed still keeps wait for its end.)"""
        return bool(self._is_sending or self._marked or self._left)

    @property
    def is_empty(self) -> bool:
        """Whether no page has ended of which the store does not know."""
        return not (self.is_pending or self._done)

    def soon(self) -> None:
        """Sends what can be sent, with all that comes within some milliseconds."""
        if not (self._timer or self._is_sending) and (self._marked or self._left):
            self._timer = call_later(_GATHER, self.send)

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

    def close(self) -> None:
        """No page is tried again any more."""
        self._is_closed = True
        for page, timer in [*self.waiting.items()]:
            timer.cancel()
            self._leave(page)
        self.waiting.clear()

    async def finish(self) -> None:
        """Returns once the feeds are stored, and what can be sent is."""
        await self.feeds.closed()
        for _ in range(2):  # what is on its way comes first
            await self._crawl.ends_calls.run(lambda: None)
            self.send()
        await self._crawl.ends_calls.run(lambda: None)
        if self._timer:
            self._timer.cancel()

    def report(self) -> None:
        """Logs how many pages are left to the next crawl, why, and the first ones; and how many are not marked."""
        if self._reasons:
            message = "%d pages have failed, and are left to the next crawl (%s), for example %s"
            reasons = ", ".join(f"{reason}: {n}" for reason, n in self._reasons.most_common())
            logger.warning(message, self._reasons.total(), reasons, " ".join(self._urls))
        pages = {*self._done.values()}
        sent = [page.items[0] for page in pages if page.is_sent]
        if unmarked := len(pages) - len(sent) + self._seen.uncommitted(sent):
            message = "%d pages were fetched and not marked: the next crawl fetches them again"
            logger.warning(message, unmarked)

    def _mark(self, page: Page) -> None:
        met, _ = self._links()
        request = getattr(page.thing, "request", None) or page.request
        done = _Done(page.token.items, self._keep_of(request), met, page.places)
        self._marked.append(done)
        self._done |= dict.fromkeys(done.items, done)
        self.soon()

    def _leave(self, page: Page) -> None:
        self.left(page.failed, page.request, page.token.fingerprints)
        self.leave(page.token.items, page.note)

    def _pause_ends(self, page: Page) -> None:
        del self.waiting[page]
        self._try_again(page)

    def _note(self, reason: str) -> None:
        """Logs that a pipeline fails again and again."""
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

    def _make(self, marked: list[_Done], left: list[tuple[list[bytes], str]]) -> None:
        by_keep = defaultdict[int | None, list[bytes]](list)
        for page in marked:
            by_keep[page.keep] += page.items
        for keep, items in by_keep.items():
            self._seen.commit_many(items, keep)
        items = [item for items, _ in left for item in items]
        self._crawl.calls.now(partial(self._crawl.answers.forget, items))  # in the thread that asks
        noted = {items[0]: note for items, note in left if note}
        if noted:
            self._seen.note_again(noted)
            self._seen.abandon_many([*noted])
        if others := [item for item in items if item not in noted]:
            self._seen.release_many(others)

    def _made(self, marked: list[_Done], call: Future[None]) -> None:
        self._is_sending = False
        with self._crawl.logging_errors("marked"):
            call.result()
            for page in marked:
                for item in page.items:
                    self._done.pop(item, None)
            self._crawl.count("tbloom/done", len(marked))
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
            self._crawl.end()
            return []
        return ready

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
