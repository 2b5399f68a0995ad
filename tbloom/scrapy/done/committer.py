"""Commits, leaves or releases the pages of a crawl, many in a call, in a separate thread; and knows those that have failed in it."""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from scrapy.utils.asyncio import call_later
from twisted.internet.defer import Deferred

from tbloom import History
from tbloom.arguments import check_keep
from tbloom.claims.fleet import failed_queue_of, given_up_queue_of
from tbloom.engine.urls import without_userinfo
from tbloom.errors import ConfigError
from tbloom.scrapy.crawl import Crawl, Stage
from tbloom.scrapy.done.page import MOST_FAILURES, EndedPage, FailedPage, Page, Why
from tbloom.scrapy.done.states import DONE, TABLE, Event, Known, Register, State
from tbloom.scrapy.done.stored import LOST, StoredItems
from tbloom.scrapy.hooks.engine import wake_engine
from tbloom.scrapy.hooks.feeds import closed_at
from tbloom.scrapy.inbox import GATHER, Inbox
from tbloom.scrapy.links import look_of
from tbloom.scrapy.settings import KEEP, TAKE_OVER
from tbloom.scrapy.stores import ClaimStore

logger: logging.Logger = logging.getLogger(__name__)

_SHOWN_URLS = 3
#: So many pages may be redirected to one page, such as a login: the first ones are done if it is, and the others have failed.
_MOST_REDIRECTED = 3
#: This is known of so many of such pages, the last ones: a login is always among them.
_MOST_TARGETS = 10_000
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


class Failures:
    """The pages that have failed in this crawl."""

    def __init__(self, crawl: Crawl, register: Register) -> None:
        self._crawl = crawl
        self.register: Register = register
        #: How long a page's first pause is (seconds).
        self.pause: float = _PAUSE
        #: Why pages have failed, or were given up, and how often.
        self.reasons: Counter[str] = Counter()
        #: By their first fingerprints, why pages have failed that are left to the next crawl, with what the log says of the first ones.
        self._left = dict[str, tuple[str, str]]()
        #: The first fingerprints of pages whose claims were lost with the filter in Redis, as far as this crawl knew the pages.
        self._lost = set[str]()
        #: By its fingerprint, the first pages that were redirected to each page; and by its URL, how many others have failed.
        self._redirected: dict[str, set[str]] = {}
        self._walls: Counter[str] = Counter()

    def is_walled(self, page: Page, target: str, url: str) -> bool:
        """Note that a page is redirected to another one; return whether too many others were. A retry is answered as before."""
        first = self._redirected[target] = self._redirected.pop(target, set())  # the last one
        if len(self._redirected) > _MOST_TARGETS:
            del self._redirected[next(iter(self._redirected))]
        if len(first) < _MOST_REDIRECTED:
            first.add(page.url)
        if page.url not in first:
            self._walls[url] += 1
        return page.url not in first

    def add(self, known: Known | None, page: EndedPage, why: Why, *, is_held: bool) -> None:
        """Note that a page has failed, and count it, unless no later crawl takes it. A list page may be fetched again at once.

        ``known``: the page as the register knows it; None: the register lets it fail. ``is_held``: this session has its claim.
        """
        words = f": {why.words}" if why.words else ""
        logger.debug("%s has failed (%s)%s", page.url, why.reason, words)
        if known and page.is_list:
            self.register.step(known, Event.FAIL_LIST)
        elif known:
            pause = page.pause or self.pause
            failures = 0 if page.is_given_up else page.failures
            failed = FailedPage(page.first, time.monotonic() + pause, 2 * pause, failures)
            event = Event.GIVE_UP if page.is_given_up else Event.FAIL
            if (
                self.register.step(known, event, failed)
                and failed.state is State.HELD
                and not is_held
            ):
                self.register.step(failed, Event.PART)
        if not page.is_given_up or self._crawl.is_ending:
            if is_held:  # claimed since
                self._lost.discard(page.first)
            example = f"{page.url} ({why.words})" if why.words else page.url
            self._left[page.first] = why.reason, example if len(self._left) < _SHOWN_URLS else ""
            self.count("failed", why.reason)

    def try_again(self, failed: FailedPage) -> None:
        """Follow no further link to a page, to which one is followed now, until it is done or fails again."""
        self.register.step(failed, Event.LINK)
        self._left.pop(failed.first, None)

    def forget(self, first: str) -> None:
        """Note that a page, which may have failed, is done, or is fetched in this crawl: it is not left to the next one."""
        if failed := self.register.get(FailedPage, first, State.HELD, State.FREE):
            self.register.step(failed, Event.FETCH)
        self._left.pop(first, None)

    def hold_none(self, *, is_empty: bool) -> None:
        """Note that this crawl holds no claims of failed pages any more. ``is_empty``: Redis has lost them."""
        for failed in self.register.all(FailedPage, State.HELD):
            self.register.step(failed, Event.PART)
        if is_empty:
            self._lost.update(
                self._left, (known.first for known in self.register.all(Known, *TABLE))
            )

    def count(self, stat: str, reason: str, pages: int = 1) -> None:
        """Count pages that have ``failed``, or are ``given_up``."""
        self.reasons[reason] += pages
        self._crawl.count(f"tbloom/{stat}", pages)
        self._crawl.count(f"tbloom/{stat}/{reason}", pages)

    def report(self) -> None:
        """Log where the most pages were redirected. Then how many pages are left to the next crawl, why, and some of them."""
        for url, failed in self._walls.most_common(_SHOWN_URLS):
            logger.warning(_WALL, failed, without_userinfo(url))
        for message, is_lost in (_AGAIN, False), (_LOST, True):
            left = [why for first, why in self._left.items() if (first in self._lost) == is_lost]
            if left:
                reasons, examples = zip(*left, strict=True)
                counted = ", ".join(f"{why}: {n}" for why, n in Counter(reasons).most_common())
                shown = " ".join(filter(None, examples))
                logger.warning(message, len(left), counted, shown and f", for example {shown}")


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

    def answer(self) -> None:
        """Let those go on that wait."""
        for noted in self.waiting:
            noted.callback(None)
        self.waiting.clear()


class Committer:
    """Commits each page that is done, once its links have their answers and its items are stored.

    A page that has failed keeps its claim, in the queue in which the next crawl finds it.
    """

    def __init__(
        self,
        crawl: Crawl,
        seen: ClaimStore,
        inbox: Inbox,
        failures: Failures,
        when_committed: Callable[[list[EndedPage]], object],
    ) -> None:
        """``when_committed``: called after each call with the pages that were committed."""
        self._crawl, self._seen, self._inbox = crawl, seen, inbox
        self._failures, self._when_committed = failures, when_committed
        self._register = failures.register
        self.stored: StoredItems = StoredItems(crawl.crawler, self._holder_ended)
        #: Whether claims have notes, by which other crawls find the pages.
        self.has_notes: bool = TAKE_OVER.value(crawl.crawler.settings) and seen.keeps_notes
        #: Pages that are done, each with the number of links that the crawl had received then.
        self._done: list[tuple[EndedPage, int]] = []
        #: Pages that are done, and whose items are not stored yet, by the holder of the items.
        self._unstored = defaultdict[object, list[EndedPage]](list)
        self._outbox = _Outbox()
        self._timer: Any = None
        self._is_sending = False

    # A page that is done

    def add(self, page: Page) -> None:
        """Commit a page."""
        ended = EndedPage.of(page)
        try:  # a callback may have set in response.meta for how many slices it is kept
            check_keep(ended.keep, None, self._seen.config.slices)
        except ConfigError as error:
            message = "meta[%r] of %s: %s; it is kept for the whole window"
            logger.error(message, KEEP, page.request, error)
            ended.keep = None
        if not self._register.step(page, Event.DONE, ended):
            return
        self._failures.forget(ended.first)
        self._done.append((ended, self._inbox.received))
        if page.token.deaths:  # this crawler has not died of it
            self._set_history(ended.items[0], History(self._crawl.queue, failures=ended.failures))
        self.soon()

    def fail_after_end(self, page: Page) -> None:
        """Leave a page that was done, because one of its links could not be scheduled. Do nothing if it is not done."""
        ended = self._register.get(EndedPage, page.first, State.ENDED)
        waiting = [each for each in self._done if each[0] is not ended]
        if ended and len(waiting) < len(self._done):
            self._done = waiting
            self.fail(ended, ended, Why(page.exception, *page.words))

    # A page that is not done

    def fail(self, known: Known | None, page: EndedPage, why: Why) -> None:
        """Let a page fail: its claim says so, or is released. The page is left to the next crawl when this session ends.

        ``known``: the page as the register knows it; None: the register lets it fail.
        """
        first, history = page.items[0], self.failure(page.failures + 1, why)
        self._failures.add(known, page, why, is_held=self._seen.owns(first))
        if page.is_given_up and not self._crawl.is_ending:  # an error leaves claims as they are
            times = f"it failed in {page.failures + 1} crawls in a row ({why.reason})"
            self.give_up(first, page.url, history, times)
        elif not page.is_list:
            self._set_history(first, history)
        # Any crawler may fetch a list page soon. Of another page, the next crawl claims the URLs of redirects when it meets them.
        self.release(item for item in page.items if page.is_list or item != first)

    def failure(self, failures: int, why: Why) -> History:
        """Return what the claim of a page says that has failed in so many crawls in a row, and why it has now."""
        queue_of = given_up_queue_of if failures >= MOST_FAILURES else failed_queue_of
        return History(queue_of(self._crawl.queue), failures=failures, **why._asdict())

    def give_up(self, item: bytes, url: str, history: History, why: str) -> None:
        """Keep a page for a link, or an operator: no crawl takes it any more. The log says ``why``."""
        message = "%s is given up: %s. Only a link leads to it again, or tbloom retry"
        logger.warning(message, without_userinfo(url), why)
        self._failures.count("given_up", history.reason)
        self._set_history(item, history)
        self._outbox.left.append(item)
        self.soon()

    def fetch_again(self, item: bytes, failures: int) -> None:
        """Let the claim of a page that has failed say that it is fetched again."""
        self._set_history(item, History(self._crawl.queue, failures=failures))
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

    # The calls

    def soon(self) -> None:
        """Send after ``GATHER``, so that pages that end until then share the call."""
        if (self._done or self._outbox) and not (self._timer or self._is_sending):
            self._timer = call_later(GATHER, self.send)

    def send(self) -> None:
        """Send what can be sent now. While a call is on its way, do nothing: the end of that call sends the rest."""
        timer, self._timer = self._timer, None
        if timer:
            timer.cancel()
        if self._is_sending:
            return
        # Links may be lost where the crawl ends by an error.
        if self._crawl.is_ending or self._crawl.stage is Stage.CLOSED:
            self._outbox.answer()
            return
        pages, outbox = self._sendable(), self._outbox
        if self._crawl.is_ending:  # by a full disk
            outbox.answer()
        elif pages or outbox:
            self._is_sending, self._outbox = True, _Outbox()
            calls = self._crawl.page_calls
            calls.begin(partial(self._send, pages, outbox), partial(self._sent, pages, outbox))

    @property
    def is_pending(self) -> bool:
        """Whether a call about pages is on its way, or due. Pages that wait for a holder do not count."""
        return bool(self._is_sending or self._done or self._outbox)

    def storing(self) -> list[tuple[float, EndedPage]]:
        """Return for each feed that is closed, and not stored yet, since when that is so, and one of its pages. Any thread may call this."""
        unstored = self._unstored.copy().items()
        return [(at, pages[0]) for holder, pages in unstored if pages and (at := closed_at(holder))]

    def _holder_ended(self, holder: object) -> None:
        """Look at the pages that have waited for this holder."""
        for page in self._unstored.pop(holder, ()):
            if self._register.step(page, Event.STORED):
                self._done.append((page, 0))
        self.soon()

    def _sendable(self) -> list[EndedPage]:
        """Return the pages that can be committed now."""
        done, self._done, ready = self._done, [], list[EndedPage]()
        for page, links in done:
            if links > self._inbox.settled:
                self._done.append((page, links))
            elif (holder := self.stored.holder_of(page)) is None:
                ready.append(page)
            elif holder is LOST:
                self.fail(page, page, Why("items", self.stored.lost_by(page)))
            elif self._register.step(page, Event.KEPT):
                self._unstored[holder].append(page)
        try:
            if ready:
                self.stored.flush()
        except OSError as error:  # a full disk
            message = "Pages are not marked, because their items could not be written: %s"
            logger.error(message, error)
            self._crawl.end()
            return []
        return [page for page in ready if self._register.step(page, Event.SEND)]

    def _send(self, pages: list[EndedPage], outbox: _Outbox) -> None:
        """Make the calls, in the thread of the commits. After an error, they may be made again."""
        seen, config = self._seen, self._seen.config
        items = defaultdict[int | None, list[bytes]](list)
        looks = defaultdict[int | None, list[bytes]](list)
        for page in pages:
            items[page.keep] += page.items
            for version in page.versions:
                for item in page.items:
                    looks[page.keep].append(look_of(item, bytes.fromhex(version), config))
        for keep, of_pages in items.items():
            seen.commit_many([*of_pages, *looks[keep]], keep)
        if outbox.histories:
            seen.note_history(outbox.histories)
        if outbox.released:
            seen.release_many(outbox.released)
        if outbox.left:
            seen.leave_many(outbox.left)
            seen.trim_given_up(self._crawl.queue)

    def _sent(self, pages: list[EndedPage], outbox: _Outbox, call: Future[None]) -> None:
        self._is_sending = False
        outbox.answer()
        try:
            call.result()
        except Exception as error:  # noqa: BLE001 - the log has it
            self._crawl.fail(error)
            self.send()  # nothing, but for what waits
            return
        for page in pages:
            self._register.step(page, Event.COMMITTED)
        forbidden = sum(page.is_forbidden for page in pages)
        for stat, number in ("done", len(pages) - forbidden), ("forbidden", forbidden):
            if number:
                self._crawl.count(f"tbloom/{stat}", number)
        self._when_committed(pages)
        self.soon()
        wake_engine(self._crawl.crawler.engine)  # it may be idle

    # The end of the crawl

    async def finish(self) -> None:
        """Return once all that can be sent is sent."""
        ended = self._crawl.page_calls.ended
        await ended()  # a call that is on its way sends nothing more
        self.send()
        # No page ends any more, so each call leaves less for the next one.
        while self._is_sending:
            await ended()
            self.send()

    def report(self) -> None:
        """Log how many pages are done and not committed."""
        if unmarked := sum(map(self._register.count, DONE)):
            message = "%d pages were fetched and not marked: the next crawl fetches them again"
            logger.warning(message, unmarked)
