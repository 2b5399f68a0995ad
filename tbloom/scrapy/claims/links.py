"""Links of a crawl that marks pages when they are done: they are claimed, and come out of the queue as pages."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import count as numbers
from typing import Any

from scrapy import Request, signals
from scrapy.exceptions import DontCloseSpider
from scrapy.utils.asyncio import call_later

from tbloom import Claim
from tbloom.scrapy.claims.ends import Ends
from tbloom.scrapy.claims.page import LEFT, RETRIES, RUNNING, Note, Page, Token, without
from tbloom.scrapy.claims.pages import Pages
from tbloom.scrapy.claims.states import Event, State
from tbloom.scrapy.claims.takeover import TakeOver
from tbloom.scrapy.compat import look_again
from tbloom.scrapy.crawler import Crawl
from tbloom.scrapy.links import Link, Links
from tbloom.scrapy.notes import NotNotable, note_request
from tbloom.scrapy.outage import NEW, CrawlBloom
from tbloom.scrapy.settings import CLAIM, TAKE_OVER

logger: logging.Logger = logging.getLogger(__name__)

_NOT_NOTED = (
    "Redis can't keep %s, because %s, nor perhaps others: such pages count as seen once they are scheduled, and are lost if "
    "their crawler dies"
)


class ClaimedLinks(Links):
    """Claims links that are new, and follows their pages until they are marked or left to the next crawl.

    ``shared``: other processes take requests out of the queue as well.
    """

    claims = True

    def __init__(self, crawl: Crawl, queue: Any, seen: CrawlBloom, *, shared: bool) -> None:
        super().__init__(crawl, queue)
        crawler = self.crawl.crawler
        self.seen: CrawlBloom = seen
        self._shared = shared
        self._has_notes = TAKE_OVER.value(crawler.settings)
        self._most = max(1, crawler.settings.getint("CONCURRENT_REQUESTS"))
        self.ends: Ends = Ends(crawl, seen, lambda: (self.met, self.answered), self._try_again)
        places = self.ends.feeds.places
        crawl.pages = self.pages = Pages(
            crawler.settings, self.ends.ended, self._go_on, places, knows_items=crawl.knows_items
        )
        self._take_over = TakeOver(crawl, seen, self.ends, self._schedule_again)
        self._numbers = numbers()
        #: The number of requests out of a queue that are being claimed, and those that were.
        self._adopting = 0
        self._adopted = deque[tuple[Request, Token]]()
        #: Notes to be written, by their items.
        self._notes = dict[bytes, str]()
        self.pages.connect(crawler.signals.connect)
        crawler.signals.connect(self._take_over.begin, signals.engine_started)
        crawler.signals.connect(self._idle, signals.spider_idle)

    @property
    def waiting(self) -> int:
        """Also of those that are between two queues."""
        return super().waiting + len(self.ends.waiting) + len(self._adopted)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued or running here, and nothing can be taken over, now or soon."""
        self.pages.end_all()
        self.ends.send()
        return not self.ends.is_pending and self._take_over.is_idle()

    def _idle(self) -> None:
        """Keeps the crawl open while the work of a silent crawler may have to be taken over."""
        engine = self.crawl.crawler.engine
        # Another handler of the signal may have found something to do.
        if engine and engine.spider_is_idle() and not self.is_idle:
            raise DontCloseSpider

    # Into the queue

    def enqueue(self, request: Request) -> bool:
        """See ``Links.enqueue``; a request with which a callback asks for its page again waits for the page's end."""
        return self.pages.keep_retry(request) or super().enqueue(request)

    def _answered_now(self, link: Link, request: Request) -> None:
        if link.answer in NEW and link.token is not None:
            link.token._replace(session=self.seen.session).write(request)

    def _link(self, request: Request, *, is_asked: bool = False) -> Link:
        self._take_over.moves += 1
        page = self.pages.returning(request)
        if page is None:
            request = without(CLAIM, request)  # which came with a copied meta
        link = super()._link(request, is_asked=is_asked and page is None)
        link.page, link.token = page, page.token if page else None
        if link.item is None:
            return link
        hexed, before = link.item.hex(), page.token.fingerprints if page else ()
        token = page.token if page else self._token()
        link.token = token._replace(fingerprints=(hexed, *before))
        if hexed in before:  # to itself, once, as for a new cookie; or in a circle
            is_first = before[0] == hexed and before.count(hexed) == 1
            link.item, link.answer = None, Claim.NEW if is_first else Claim.BUSY
        elif hexed in self.ends.left_pages:
            link.answer = Claim.BUSY
        if link.answer is not None:
            return link
        try:
            link.note = self._note(request, link.token.in_queue)
        except NotNotable as error:
            self.crawl.count("tbloom/not_noted")
            self.crawl.log_once(logger.warning, _NOT_NOTED, request, error)
            link.token = link.token if page else None
        return link

    def _note(self, request: Request, token: Token, kind: str = RUNNING) -> str:
        """The note of a request; "" where none is wanted. Raises NotNotable."""
        if not self._has_notes:
            return ""
        spider = self.crawl.spider
        return Note(token, note_request(request, spider)).text(spider, kind)

    def _token(self, *fingerprints: str) -> Token:
        return Token(self.seen.session, next(self._numbers), fingerprints)

    def _ask_together(self, links: list[Link], items: list[bytes], given: dict[str, Any]) -> None:
        super()._ask_together(links, items, given)
        # A page that was redirected is claimed under all its URLs.
        tokens = [link.token for link in links if link.owner and link.token]
        if others := [item for token in tokens for item in token.items[1:]]:
            self.crawl.answers.ask(others, [""] * len(others), **given)
        new = [link for link in links if link.answer is Claim.NEW]
        if at_once := [link.item or b"" for link in new if link.token is None]:
            self.seen.commit_many(at_once)

    def _hand_on_some(self) -> None:
        super()._hand_on_some()
        self.ends.soon()  # pages may have waited for these

    def _hand_on(self, link: Link) -> bool:
        if link.owner:
            return self._have_adopted(link)
        page, token = link.page, link.token
        if link.answer is not None and link.answer not in NEW:
            token = None
        if token is not None:
            if link.item is not None and page is None:  # claimed by the session of now
                token = token._replace(session=self.seen.session)
            token.write(link.request)
        queued = False
        try:
            queued = super()._hand_on(link)
        finally:
            if page is not None and token is not None:
                page.token = token
                self.pages.happens(page, Event.ENQUEUED if queued else Event.REFUSED)
            elif token is not None and not queued:
                self.ends.leave(token.items, "")
        if token is not None and queued:
            if token.deaths:
                self._note_soon(link.request, token.in_queue)
            self._hand_over(token)
        elif page is not None and token is None:
            self._leads_elsewhere(page, link)
        return queued

    def _leads_elsewhere(self, page: Page, link: Link) -> None:
        """A middleware's request for the page is not new."""
        places = self.ends.places_of(link.item)
        # Or it is about to be, or has become so while the link waited.
        known = link.item and self.seen.known(link.item)
        page.would_fail = "redirect"
        if Claim.SEEN in (link.answer, known) or places is not None:
            page.places |= places or set()
            self.pages.happens(page, Event.TO_SEEN)
        elif link.item is not None and self.seen.holds(link.item):
            self.pages.follow(page, link.item.hex())
        else:
            self.pages.happens(page, Event.REFUSED)

    def _hand_over(self, token: Token) -> None:
        """Whoever takes the request out of a shared queue claims it anew."""
        if self._shared:
            self.seen.hand_over(token.items)

    def _give(self, request: Request, token: Token | None) -> None:
        """Queues a request that the filter is not asked for; with a token, its claims are this session's."""
        self._take_over.moves += 1
        self._hand_on_later(Link(request, answer=Claim.NEW, token=token))

    def _go_on(self, page: Page, request: Request) -> None:
        """The page has ended that was asked for again. If it has failed, the request is no page's."""
        is_page = page.state is State.PASSED_ON
        request = request if is_page else without(CLAIM, request)
        self._give(request, page.token if is_page else None)

    def _schedule_again(self, request: Request, dead: Token) -> None:
        """Queues a request whose claims this session has taken over."""
        engine = self.crawl.crawler.engine
        if engine is not None and engine.spider is not None:  # else the next crawl takes it over
            token = self._token(*dict.fromkeys(dead.fingerprints))
            self._give(request, token._replace(deaths=dead.deaths + 1))

    # Out of the queue

    def next_request(self) -> Request | None:
        """The next request that is to be fetched; None: there is none now."""
        self._take_over.search_later()
        if self._adopted:
            return self._take(*self._adopted.popleft())
        while self._adopting < self._most and (request := super().next_request()) is not None:
            token = Token.of(request)
            if token is None:
                return request
            if not self._shared and token.session == self.seen.session:
                return self._take(request, token)
            self._adopt(request, token)
        return None

    def _take(self, request: Request, token: Token) -> Request:
        """The request is to be fetched, as a page."""
        self._take_over.moves += 1
        left = ""
        with suppress(NotNotable):  # a middleware's object: the note of its claim stays
            left = self._note(without(RETRIES, request), token._replace(deaths=0), LEFT)
        if token.deaths:  # this crawler may die of it, too
            self._note_soon(request, token)
        self.pages.taken(token, request, left)
        return request

    def _note_soon(self, request: Request, token: Token) -> None:
        """Notes the request anew, together with others of this turn of the event loop."""
        with suppress(NotNotable):
            text = self._note(request, token)
            if not self._notes:
                call_later(0, self._send_notes)
            self._notes[token.items[0]] = text

    def _send_notes(self) -> None:
        notes, self._notes = self._notes, {}
        self.crawl.later("noted", partial(self.seen.note_again, notes))

    def _adopt(self, request: Request, token: Token) -> None:
        """Claims a request that perhaps another process has put into the queue, in the place of that one's session."""
        owner = (("previous_owner", token.session),)
        link = Link(request, token.items[0], owner, token=token, owner=token.session)
        with suppress(NotNotable):
            link.note = self._note(request, token.in_queue)
        self._adopting += 1
        self._enter(link)

    def _have_adopted(self, link: Link) -> bool:
        self._adopting -= 1
        token = link.token or self._token()
        is_own = link.owner == self.seen.session
        if link.answer in NEW:
            if not is_own:
                token = self._token(*token.fingerprints)._replace(deaths=token.deaths)
                token.write(link.request)
            self._adopted.append((link.request, token))
        elif self.crawl.is_ending:  # the next crawl asks for it
            self._put_back(link.request, token, is_own=is_own)
        else:  # another crawler fetches it, or has fetched it
            self.crawl.count("tbloom/dropped")
            return False
        return True

    def _put_back(self, request: Request, token: Token, *, is_own: bool = True) -> None:
        """Puts a request back into the queue that has come out of it."""
        self._put(request, Claim.NEW)
        if is_own:
            self._hand_over(token)

    # The end of a page, and of the crawl

    def _try_again(self, page: Page) -> None:
        self._give(without(RETRIES, page.request.copy()), page.token)
        look_again(self.crawl.crawler.engine)

    async def close(self) -> None:
        """Returns once no link waits, and all pages have ended."""
        self.ends.close()
        await super().close()
        while self._adopted:
            self._put_back(*self._adopted.popleft())
        self.pages.end_all()
