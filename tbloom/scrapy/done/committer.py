"""Commits, leaves or releases the pages of a crawl, many in a call, in a separate thread."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from scrapy.utils.asyncio import call_later
from twisted.internet.defer import Deferred

from tbloom import History
from tbloom.arguments import check_keep
from tbloom.errors import ConfigError
from tbloom.scrapy.crawl import Crawl
from tbloom.scrapy.done.failures import Failures
from tbloom.scrapy.done.page import MOST_FAILURES, EndedPage, Page
from tbloom.scrapy.done.stored import StoredItems
from tbloom.scrapy.hooks.engine import wake_engine
from tbloom.scrapy.outage import ClaimStore
from tbloom.scrapy.settings import KEEP, TAKE_OVER
from tbloom.scrapy.versions import look_of

logger: logging.Logger = logging.getLogger(__name__)

#: Pages that end within this time go in one call (seconds).
GATHER = 0.1


@dataclass(slots=True)
class _Outbox:
    """Claims of pages that are not done, to be changed or released."""

    #: What claims are to say of their pages, by their items.
    histories: dict[bytes, History] = field(default_factory=dict)
    #: The items whose claims are released, and those that are left: a link may lead to them, or an operator.
    released: list[bytes] = field(default_factory=list)
    left: list[bytes] = field(default_factory=list)
    #: Waits until the claims are changed.
    waiting: list[Deferred[None]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.histories or self.released or self.left)


class Committer:
    """Commits each page that is done, once its links have their answers and its items are stored.

    A page that has failed keeps its claim, in the queue in which the next crawl finds it. ``links`` returns how many links the crawl
    has received, and how many of them are settled.
    """

    def __init__(
        self,
        crawl: Crawl,
        seen: ClaimStore,
        failures: Failures,
        links: Callable[[], tuple[int, int]],
    ) -> None:
        self._crawl, self._seen, self._failures, self._links = crawl, seen, failures, links
        #: Whether claims have notes, by which other crawls find the pages.
        self.has_notes: bool = TAKE_OVER.value(crawl.crawler.settings) and seen.keeps_notes
        #: Called after each commit.
        self.when_sent: Callable[[], object] = lambda: None
        self.stored: StoredItems = StoredItems(crawl.crawler, self._holder_ended)
        #: Pages that are done, each with the number of links that the crawl had received then.
        self._done: list[tuple[EndedPage, int]] = []
        #: Pages that are done, and whose items are not stored yet, by the holder of the items.
        self._unstored = defaultdict[object, list[EndedPage]](list)
        #: Pages that are done, and not known to be committed, by their items.
        self.uncommitted: dict[bytes, EndedPage] = {}
        #: How many of its items were committed after others had taken them over.
        self._taken_over = 0
        self._outbox = _Outbox()
        self._timer: Any = None
        self._is_sending = False

    def add(self, page: Page) -> None:
        """Commit a page that is done."""
        ended = self._ended_page(page)
        self._failures.forget(ended.first)
        received, _ = self._links()
        self._done.append((ended, received))
        self.uncommitted.update(dict.fromkeys(ended.items, ended))
        if page.token.deaths:  # this crawler has not died of it
            self._set_history(ended.items[0], History(self._crawl.queue, failures=ended.failures))
        self.soon()

    def fail_after_end(self, page: Page, reason: str) -> None:
        """Leave a page that was done, because one of its links could not be scheduled. Do nothing if it is not done."""
        ended = self.uncommitted.get(page.token.items[0])
        waiting = [each for each in self._done if each[0] is not ended]
        if ended and len(waiting) < len(self._done):
            self._done = waiting
            self._forget(ended)
            self._fail(ended, reason)

    def fail(self, page: Page, reason: str) -> None:
        """Let a page fail: its claim says so, or is released. The page is left to the next crawl when this session ends."""
        self._fail(EndedPage.of(page), reason)

    def _fail(self, page: EndedPage, reason: str) -> None:
        self._failures.add(page, reason)
        first = page.items[0]
        if page.is_given_up and not self._crawl.is_ending:  # an error leaves claims as they are
            why = f"it failed in {page.failures + 1} crawls in a row ({reason})"
            self.give_up(first, page.url, page.failures + 1, reason, why)
        else:
            self._failures.count_left(page.url, reason)
            if not page.is_list:
                self._set_history(first, self.failure(page.failures + 1, reason))
        # Any crawler may fetch a list page soon. Of another page, the next crawl claims the URLs of redirects when it meets them.
        self.release(item for item in page.items if page.is_list or item != first)

    def failure(self, failures: int, reason: str) -> History:
        """Return what the claim of a page says that has failed in so many crawls in a row, now for this reason."""
        queues = self._crawl.failed_queue, self._crawl.given_up_queue
        queue = queues[failures >= MOST_FAILURES]
        return History(queue, failures=failures, reason=reason, failed_at=round(time.time()))

    def give_up(self, item: bytes, url: str, failures: int, reason: str, why: str) -> None:
        """Keep a page for a link, or an operator: no crawl takes it any more. The log says ``why``."""
        self._failures.count_given_up(url, reason, why)
        self._set_history(item, self.failure(max(failures, MOST_FAILURES), reason))
        self._outbox.left.append(item)
        self.soon()

    def fetch_again(self, page_item: bytes, failures: int) -> None:
        """Let the claim of a page that has failed say that it is fetched again."""
        self._set_history(page_item, History(self._crawl.queue, failures=failures))
        self.soon()

    def release(self, items: Iterable[bytes]) -> None:
        """Release claims: the items are new to the next link."""
        self._outbox.released.extend(items)
        self.soon()

    def note_death(self, page: Page) -> Deferred[None]:
        """Count this crawler in the page's claim, in case it dies of the page. The Deferred fires once the server has done so."""
        noted: Deferred[None] = Deferred()
        if self._crawl.is_ending or not self.has_notes:
            noted.callback(None)
            return noted
        token = page.token
        self._set_history(token.items[0], History(self._crawl.queue, token.deaths, token.failures))
        self._outbox.waiting.append(noted)
        self.soon()
        return noted

    def _set_history(self, item: bytes, history: History) -> None:
        if self.has_notes:
            self._outbox.histories[item] = history

    def soon(self) -> None:
        """Send after ``GATHER``, so that pages that end until then share the call."""
        if (self._done or self._outbox) and not (self._timer or self._is_sending):
            self._timer = call_later(GATHER, self._gathered)

    def _gathered(self) -> None:
        self._timer = None
        self.send()

    def send(self) -> None:
        """Send what can be sent now. While a call is on its way, do nothing: the end of that call sends the rest."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._is_sending:
            return
        # Links may be lost where the crawl ends by an error.
        if self._crawl.is_ending or self._crawl.is_closed:
            self._answer(self._outbox)
            return
        pages, outbox = self._sendable(), self._outbox
        if (pages or outbox) and not self._crawl.is_ending:
            self._is_sending, self._outbox = True, _Outbox()
            calls = self._crawl.page_calls
            calls.begin(partial(self._send, pages, outbox), partial(self._sent, pages, outbox))

    @property
    def is_pending(self) -> bool:
        """Whether a call about pages is on its way, or due. Pages that wait for a holder do not count."""
        return bool(self._is_sending or self._done or self._outbox)

    async def finish(self) -> None:
        """Return once the feeds are stored, and all that can be sent is sent."""
        await self.stored.closed()
        # Meanwhile, other handlers of spider_closed may store more.
        await self._crawl.page_calls.ended()
        self.stored.lose_buffers()
        await self._crawl.page_calls.ended()  # a call that is on its way sends nothing more
        self.send()
        # No page ends any more, so each call leaves less for the next one.
        while self._is_sending:
            await self._crawl.page_calls.ended()
            self.send()
        if self._timer:
            self._timer.cancel()

    def report(self) -> None:
        """Log how many pages are done and not committed, and how many others have taken over."""
        if unmarked := len({page.first for page in self.uncommitted.values()}):
            message = "%d pages were fetched and not marked: the next crawl fetches them again"
            logger.warning(message, unmarked)
        if self._taken_over:
            message = "%d pages were taken over by other crawlers before they were marked, and may be fetched twice"
            logger.warning(message, self._taken_over)

    def _holder_ended(self, holder: object) -> None:
        """Look at the pages that have waited for this holder."""
        self._done += [(page, 0) for page in self._unstored.pop(holder, [])]
        self.soon()

    def _sendable(self) -> list[EndedPage]:
        """Return the pages that can be committed now."""
        _, settled = self._links()
        done, self._done, ready = self._done, [], list[EndedPage]()
        for page, links in done:
            if links > settled:
                self._done.append((page, links))
            elif (holder := self.stored.unstored(page.holders)) is not None:
                self._unstored[holder].append(page)
            elif self.stored.have_lost(page.holders):
                self._forget(page)
                self._fail(page, "items")
            else:
                ready.append(page)
        try:
            if ready:
                self.stored.flush()
        except OSError as error:  # a full disk
            message = "Pages are not marked, because their items could not be written: %s"
            logger.error(message, error)
            self._crawl.end()
            return []
        return ready

    def _send(self, pages: list[EndedPage], outbox: _Outbox) -> None:
        """Make the calls, in the thread of the commits. After an error, they may be made again."""
        by_keep = defaultdict[int | None, list[EndedPage]](list)
        for page in pages:
            by_keep[page.keep].append(page)
        calls: list[Callable[[], object]] = [
            partial(self._commit, group, keep) for keep, group in by_keep.items()
        ]
        if outbox.histories:
            calls.append(partial(self._seen.note_history, outbox.histories))
        if outbox.released:
            calls.append(partial(self._seen.release_many, outbox.released))
        if outbox.left:
            calls.append(partial(self._seen.leave_many, outbox.left))
            calls.append(partial(self._seen.trim_given_up, self._crawl.queue))
        for call in calls:
            call()

    def _commit(self, pages: list[EndedPage], keep: int | None) -> None:
        items = [item for page in pages for item in page.items]
        config = self._seen.config
        looks = [
            look_of(item, version, config)
            for page in pages
            for version in page.versions
            for item in page.items
        ]
        answers = self._seen.commit_many([*items, *looks], keep)
        self._taken_over += answers[: len(items)].count(False)

    def _sent(self, pages: list[EndedPage], outbox: _Outbox, call: Future[None]) -> None:
        self._is_sending = False
        self._answer(outbox)
        try:
            call.result()
        except Exception as error:  # noqa: BLE001 - the log has it
            self._crawl.fail(error)
            self.send()  # nothing, but for what waits
            return
        for page in pages:
            self._forget(page)
            self._crawl.count("tbloom/done")
        self.when_sent()
        self.soon()
        wake_engine(self._crawl.crawler.engine)  # it may be idle

    @staticmethod
    def _answer(outbox: _Outbox) -> None:
        waiting, outbox.waiting[:] = outbox.waiting[:], []
        for noted in waiting:
            noted.callback(None)

    def _forget(self, page: EndedPage) -> None:
        for item in page.items:
            self.uncommitted.pop(item, None)

    def _ended_page(self, page: Page) -> EndedPage:
        """Return what is needed of the page. A callback may have set in ``response.meta`` for how many slices it is kept."""
        ended = EndedPage.of(page)
        try:
            check_keep(ended.keep, None, self._seen.config.slices)
        except ConfigError as error:
            message = "meta[%r] of %s: %s; it is kept for the whole window"
            logger.error(message, KEEP, page.request, error)
            return ended._replace(keep=None)
        return ended
