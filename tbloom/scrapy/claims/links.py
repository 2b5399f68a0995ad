"""Links of a crawl that marks pages when they are done: they are claimed, and come out of the queue as pages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.utils.asyncio import call_later

from tbloom import Claim
from tbloom.scrapy.claims.adoption import Adoption
from tbloom.scrapy.claims.claimant import Claimant
from tbloom.scrapy.claims.ends import Ends
from tbloom.scrapy.claims.failures import Failures
from tbloom.scrapy.claims.note import LEFT, Note
from tbloom.scrapy.claims.pages import Pages
from tbloom.scrapy.claims.states import Event, State
from tbloom.scrapy.claims.takeover import TakeOver
from tbloom.scrapy.claims.token import Token, without_token
from tbloom.scrapy.compat import look_again
from tbloom.scrapy.crawler import OnceLogger, count, fingerprint
from tbloom.scrapy.links import Asks, Link, Links
from tbloom.scrapy.notes import NotNotable
from tbloom.scrapy.outage import NEW, Answer

if TYPE_CHECKING:
    from tbloom.scrapy.claims.page import Page

logger = logging.getLogger(__name__)

_NOT_NOTED = (
    "Redis can't keep %s, because %s, nor perhaps others: such pages count as seen once they are scheduled, and are lost if "
    "their crawler dies"
)


class ClaimedLinks(Links):
    """Claims links that are new, and follows their pages until they are marked or left to the next crawl."""

    def __init__(
        self,
        dupefilter: Asks,
        claimant: Claimant,
        below: Callable[[Request], bool],
        next_below: Callable[[], Request | None],
    ) -> None:
        super().__init__(dupefilter, below)
        self.seen, self._claimant = claimant.seen, claimant
        self._next_below = next_below
        self.pages = Pages(self.crawl.crawler.settings, self._ended)
        self.ends = Ends(self.crawl, self.seen, lambda: (self.met, self.answered))
        self._failures = Failures(self.crawl.crawler)
        self._adoption = Adoption(claimant, self._drop, self._put_back, dupefilter.fail)
        self._take_over = TakeOver(claimant, self._failures, self.ends, self._give)
        self._once = OnceLogger(logger)
        #: Requests that are claimed already, by their ids, with their tokens.
        self._given: dict[int, tuple[Request, Token]] = {}
        #: Pages that wait for another attempt.
        self._again: dict[int, tuple[Any, Page]] = {}
        self.crawl.crawler.signals.connect(self._take_over.begin, signals.engine_started)

    @property
    def is_pending(self) -> bool:
        """Some wait, or are between two queues."""
        return super().is_pending or bool(self._again) or self._adoption.is_pending

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued or running here, and nothing can be taken over, now or soon."""
        self.pages.end_all()
        self.ends.send()
        return not self.ends.is_pending and self._take_over.is_idle()

    # Into the queue

    def _give(self, request: Request, note: Note) -> None:
        """Schedules a request whose claims this session has taken over."""
        crawler = self.crawl.crawler
        token = self._claimant.token(note.fingerprints, note.deaths)
        self._given[id(request)] = request, token
        if crawler.engine is None or crawler.engine.spider is None:  # the next crawl takes it over
            return
        crawler.engine.crawl(request)
        if self._given.pop(id(request), None):  # a handler of request_scheduled drops it on purpose
            self.crawl.later("marked", lambda: self.seen.commit_many(token.items))

    def claim_now(self, request: Request) -> Answer | None:
        """The answer for a request of which the scheduler below asks by itself."""
        link = self._link(request)
        if link.item is not None and link.answer is None:
            self.crawl.calls.now(lambda: self._answer([link]))
        if link.answer in NEW and link.note is not None:
            self._claimant.token(((link.item or b"").hex(),)).write(request)
        return link.answer

    def _link(self, request: Request) -> Link:
        self._take_over.moves += 1
        _, token = self._given.pop(id(request), (None, None))
        if token:
            return self._known(request, token)
        page = self.pages.returning(request)
        if page is None:
            request = without_token(request)
        link = super()._link(request)
        link.page = page
        if link.item is None:
            return link
        hexed = link.item.hex()
        fingerprints = (hexed, *page.token.fingerprints) if page else (hexed,)
        if hexed in fingerprints[1:]:  # to itself, once, as for a new cookie; or in a circle
            is_itself = fingerprints[1:] == (hexed,)
            link.item, link.answer = None, Claim.NEW if is_itself else Claim.BUSY
        elif hexed in self._claimant.failed:
            link.answer = Claim.BUSY
        if link.answer is not None:
            return link
        try:
            link.note = self._claimant.note(request, fingerprints)
        except NotNotable as error:
            count(self.crawl.crawler, "tbloom/not_noted")
            self._once.log(logging.WARNING, _NOT_NOTED, request, error)
            link.note = "" if page else None
        return link

    def _known(self, request: Request, token: Token) -> Link:
        link = Link(request, answer=Claim.NEW)
        link.token = token
        return link

    def _answer(self, batch: list[Link]) -> None:
        for is_noted in (True, False):
            super()._answer([link for link in batch if (link.note is not None) == is_noted])

    def _ask_together(self, links: list[Link], given: dict[str, Any]) -> None:
        items = [link.item for link in links if link.item is not None]
        answers = self.crawl.answers.ask(items, [link.note or "" for link in links], **given)
        for link, answer in zip(links, answers, strict=True):
            link.answer = answer
        at_once = [link.item for link in links if link.note is None and link.answer is Claim.NEW]
        if at_once:
            self.seen.commit_many([item for item in at_once if item is not None])

    def _hand_on(self, link: Link) -> bool:
        if link.page is not None:
            return self._hand_on_page(link, link.page)
        if link.answer in NEW and link.note is not None and link.item is not None:
            link.token = self._claimant.token((link.item.hex(),))
        token: Token | None = link.token
        if token is None:
            return super()._hand_on(link)
        token.write(link.request)
        queued = False
        try:
            queued = super()._hand_on(link)
        finally:
            if not queued:
                self.ends.leave(token.items, "")
        self._claimant.hand_over(token)
        return queued

    def _hand_on_page(self, link: Link, page: Page) -> bool:
        """A page's request returns: it is tried again, redirected, or another one that a middleware has made."""
        new = link.answer is None or link.answer in NEW
        if new:
            if link.answer is not None:
                own = fingerprint(self.crawl.crawler, link.request).hex()
                page.token = page.token._replace(fingerprints=(own, *page.token.fingerprints))
            page.token.write(link.request)
        queued = False
        try:
            queued = super()._hand_on(link)
        finally:
            if new:
                self.pages.entered(page, queued=queued)
                if queued:
                    self._claimant.hand_over(page.token)
        places = self.ends.places.get(link.item or b"")
        if link.answer is Claim.SEEN or places is not None:  # or it is about to be
            page.places |= places or set()
            self.pages.happens(page, Event.TO_SEEN)
        elif not new and link.item is not None and self.seen.holds(link.item):
            self.pages.follow(page, link.item.hex())
        elif not new:
            self.pages.refuse(page, "redirect")
        return queued

    # Out of the queue

    def next_request(self) -> Request | None:
        """The next request that is to be fetched; None: there is none now."""
        self._take_over.search_later()
        if (adopted := self._adoption.next()) is not None:
            self._take(*adopted)
            return adopted[0]
        while (request := self._next_below()) is not None:
            token = Token.of(request)
            if token is None:
                return request
            if not self._claimant.is_holder(token):
                if not self._adoption.add(request, token):
                    break
            else:
                self._take(request, token)
                return request
        self._adoption.ask()
        return None

    def _take(self, request: Request, token: Token) -> None:
        """The request is to be fetched, as a page."""
        self._take_over.moves += 1
        try:
            left = self._claimant.note(request, token.fingerprints, kind=LEFT)
            if token.deaths is not None and self._claimant.is_holder(token):
                running = self._claimant.note(request, token.fingerprints, token.deaths + 1)
                self.crawl.later("noted", lambda: self._claimant.renew(token.items[:1], [running]))
        except NotNotable:  # a middleware's object: the note of its claim stays
            left = ""
        self.pages.taken(token, request, left)

    def _drop(self, request: Request) -> None:
        """A request of the queue is not to be fetched: another crawler fetches it, or has fetched it."""
        crawler = self.crawl.crawler
        count(crawler, "tbloom/dropped")
        crawler.signals.send_catch_log(signals.request_dropped, request=request, spider=crawler.spider)  # fmt: skip

    def _put_back(self, request: Request) -> None:
        """Puts a request back into the queue that has come out of it."""
        with self.dupefilter.answering(Claim.NEW, is_counted=False):
            self._below(request)

    # The end of a page, and of the crawl

    def _ended(self, page: Page, state: State) -> None:
        if state is State.MARKED:
            self._failures.worked(page)
            self.ends.mark(page)
            return
        pause = self._failures.pause(page)
        if pause is None or self.crawl.end.has_begun:
            self._leave(page)
            return
        timer = call_later(pause, self._try_again, page)
        self._again[id(page)] = timer, page

    def _try_again(self, page: Page) -> None:
        del self._again[id(page)]
        meta = {key: value for key, value in page.request.meta.items() if key != "retry_times"}
        request = page.request.replace(meta=meta)
        page.token.write(request)
        self._enter(self._known(request, page.token))
        look_again(self.crawl.crawler.engine)

    def _leave(self, page: Page) -> None:
        self._claimant.failed.update(page.token.fingerprints)
        self._failures.left(page)
        self.ends.leave(page.token.items, page.note)

    async def close(self) -> None:
        """Returns once no link waits, and all pages have ended."""
        for timer, page in [*self._again.values()]:
            timer.cancel()
            self._leave(page)
        self._again.clear()
        await super().close()
        await self._adoption.close()
        self.pages.end_all()

    async def finish(self) -> None:
        """Returns once the feeds are stored, and what can be marked is. What is left in a queue is for others."""
        await self.ends.finish()
        self._take_over.report()
        self._failures.report()
