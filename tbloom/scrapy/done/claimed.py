"""Requests of a crawl that commits pages when they are done.

A new request is claimed, and queued with a token. The crawler that takes the request out of the queue works on the page.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from redis import RedisError
from scrapy import Request, signals
from scrapy.exceptions import DontCloseSpider

from tbloom import Claim
from tbloom.scrapy.compat import is_idle, watch_end
from tbloom.scrapy.crawl import Crawl
from tbloom.scrapy.done.committer import Committer
from tbloom.scrapy.done.failures import Failures
from tbloom.scrapy.done.page import Page, Token, without
from tbloom.scrapy.done.serialize import RUNNING, NotSerializable, write_note
from tbloom.scrapy.done.takeover import TakeOver
from tbloom.scrapy.done.tracker import Tracker
from tbloom.scrapy.outage import NEW, ClaimStore
from tbloom.scrapy.pending import PendingRequest, PendingRequests
from tbloom.scrapy.settings import TAKE_OVER, TOKEN, WITHIN

logger: logging.Logger = logging.getLogger(__name__)

_NOT_SERIALIZABLE = (
    "%s, and perhaps others, can't be serialised: %s. If such a page fails, or its crawler dies, the next crawl fetches it only "
    "if a link leads to it"
)


class ClaimedRequests(PendingRequests):
    """Claims requests that are new. ``shared``: other processes take requests out of the queue as well."""

    claims = True

    def __init__(self, crawl: Crawl, scheduler: Any, seen: ClaimStore, *, shared: bool) -> None:
        super().__init__(crawl, scheduler)
        crawler = crawl.crawler
        self._seen, self._shared = seen, shared
        self._has_notes = TAKE_OVER.value(crawler.settings) and seen.keeps_notes
        self._max_adopting = max(1, crawler.settings.getint("CONCURRENT_REQUESTS"))
        #: The number of requests out of a queue that wait for their claims.
        self._adopting = 0
        #: Requests out of a queue that this session has claimed, and that the engine has not taken yet.
        self._adopted = deque[tuple[Request, Token]]()
        self._failures = Failures(crawler.settings, crawl.count)
        self.committer: Committer = Committer(
            crawl, seen, self._failures, lambda: (self.met, self.answered)
        )
        self.tracker: Tracker = Tracker(crawler, self._failures, self.committer, self._enqueue)
        self._take_over = TakeOver(crawl, seen, self._failures, self.committer, self._enqueue)
        connect = crawler.signals.connect
        connect(self.tracker.item_scraped, signals.item_scraped)  # after the feed exporter
        connect(self.tracker.spider_error, signals.spider_error)
        connect(self.tracker.item_error, signals.item_error)
        connect(self._idle, signals.spider_idle)

    @property
    def waiting(self) -> int:
        """The number of requests that wait, also between two queues."""
        return super().waiting + len(self._adopted)

    @property
    def is_busy(self) -> bool:
        """Whether requests may enter the queue later, or pages are about to be committed."""
        return bool(self.waiting or self.committer.is_pending or self._take_over.is_searching)

    def _engine_started(self) -> None:
        super()._engine_started()
        watch_end(self.crawl.crawler.engine, self.tracker.scraped)
        self._take_over.begin()

    def _idle(self) -> None:
        """Keep the crawl open while the pages of a crawler that may be dead may have to be taken over."""
        # Another handler of the signal may have found something to do.
        if is_idle(self.crawl.crawler.engine):
            self.tracker.idle()
            if not self.is_finished:
                raise DontCloseSpider

    @property
    def is_finished(self) -> bool:
        """Whether an idle crawl has nothing to commit, and can take nothing over, now or soon."""
        self.committer.send()
        return not self.committer.is_pending and self._take_over.is_finished()

    def item_lost(self, response: Any, error: BaseException) -> None:
        """See ``Tracker.item_lost``."""
        self.tracker.item_lost(response, error)

    # Into the queue

    @property
    def _source_page(self) -> Page | None:
        return self.tracker.of(self._source) if self._source is not None else None

    def _accept(self, request: Request, source: Page | None) -> bool:
        # A request with which a callback asks for its own page again waits for the page's end.
        return self.tracker.asked_again(request, source) or super()._accept(request, source)

    def _lost(self, source: Page | None, error: Exception) -> None:
        """Let the page of the link fail."""
        if source:
            source.exception = source.exception or f"link/{type(error).__name__}"

    def _enqueue(self, request: Request, token: Token | None) -> None:
        """Enqueue a request without asking the filter. ``token``: the request's page, which this session has claimed."""
        self._take_over.moves += 1
        self._enqueue_answered(PendingRequest(request, answer=Claim.NEW, token=token))

    def _pending(self, request: Request, *, always: bool = False) -> PendingRequest:
        page = self.tracker.continued(request)
        if page is None:
            request = without(request, TOKEN)  # which came with a copied meta
        pending = super()._pending(request, always=always and page is None)
        pending.page = page
        if page:
            pending.token = page.token
            self._check_redirect(pending, page)
        elif pending.fingerprint is not None:
            hexed = pending.fingerprint.hex()
            self._check_failed(pending, hexed)
            if pending.answer is None:
                failures = self._failures.failures_before(hexed)
                pending.token = Token(self._seen.session, (hexed,), failures=failures)
                pending.note = self._note(request, pending.token)
        return pending

    def _check_redirect(self, pending: PendingRequest, page: Page) -> None:
        """Let a redirect lead to its own URL once, as for a new cookie, but not in a circle."""
        if pending.fingerprint is None:
            return
        before, hexed = page.token.fingerprints, pending.fingerprint.hex()
        if hexed in before:
            is_first = before[-1] == hexed and before.count(hexed) == 1
            pending.fingerprint, pending.answer = None, Claim.NEW if is_first else Claim.BUSY
        pending.token = page.token._replace(fingerprints=(*before, hexed))

    def _check_failed(self, pending: PendingRequest, fingerprint: str) -> None:
        """Let a page that has failed in this crawl be busy for a while; then it is claimed again."""
        pauses = self._failures.pauses(fingerprint)
        if pauses is None or WITHIN in pending.request.meta:
            return
        if pauses:
            pending.answer = Claim.BUSY
            return
        self._failures.try_again(fingerprint)
        pending.answer, pending.tries_again = None, True
        pending.arguments = (*pending.arguments, ("previous_owner", self._seen.session))

    def _note(self, request: Request, token: Token) -> str:
        """Return the note that is kept with a claim; "" if the store keeps no notes, or no note can restore the request."""
        if not self._has_notes:
            return ""
        try:
            return write_note(request, token, self.crawl.spider, RUNNING)
        except NotSerializable as error:
            self.crawl.count("tbloom/unserializable")
            self.crawl.log_once(logger.warning, _NOT_SERIALIZABLE, request, error)
            return ""

    def _ask_together(self, group: list[PendingRequest], arguments: dict[str, Any]) -> None:
        super()._ask_together(group, arguments)
        # A page that was redirected is claimed under all its URLs.
        adopted = [
            each.token
            for each in group
            if each.previous_owner and each.token and each.answer is Claim.NEW
        ]
        if others := [item for token in adopted for item in token.items[1:]]:
            self.crawl.answers.ask(others, [""] * len(others), **arguments)

    def _write_token(self, pending: PendingRequest) -> None:
        if pending.token and pending.answer in NEW:
            pending.token._replace(session=self._seen.session).write(pending.request)

    def _hand_on_some(self) -> None:
        super()._hand_on_some()
        self.committer.soon()  # pages may have waited for these links

    def _hand_on(self, pending: PendingRequest) -> bool:
        if pending.previous_owner:
            return self._have_adopted(pending)
        page, token = pending.page, pending.token
        is_new = pending.answer is None or pending.answer in NEW
        if token and is_new:
            token = token._replace(session=self._seen.session)  # of now
            token.write(pending.request)
        queued = False
        try:
            queued = super()._hand_on(pending)
        except Exception as error:
            if token and is_new:
                self._not_queued(pending, token, error)
            raise
        finally:
            if pending.tries_again and pending.fingerprint:
                self._have_tried(pending.fingerprint.hex(), is_queued=is_new and queued)
        self._take_over.moves += queued
        if page and is_new and token:
            self.tracker.queued(page, token)
        if token and is_new and not queued:  # the project's scheduler does not want it
            self.committer.release(token.items)
        if token and is_new and queued and self._shared:
            self._seen.hand_over(token.items)
        elif page and not is_new:
            self._leads_elsewhere(page, pending)
        return queued

    def _have_tried(self, fingerprint: str, *, is_queued: bool) -> None:
        """Note whether a link to a page that has failed has entered the queue."""
        if not is_queued:
            self._failures.not_tried(fingerprint)
        elif self._shared:
            self._failures.hand_over(fingerprint)

    def _not_queued(self, pending: PendingRequest, token: Token, error: Exception) -> None:
        """Give up a request for which the project's scheduler has raised the exception.

        The page of a retry or a redirect has failed. A new link, and the URL of a redirect, are released, unless they may be in a
        shared queue. Any other request keeps its claim and its note: the next crawl takes it over.
        """
        page, give_up = pending.page, self.committer.release
        if self._shared and isinstance(error, RedisError):
            # Redis may have queued it, and the reply was lost: released, it would be queued, and fetched, once more.
            give_up = self._seen.hand_over
        if page:
            give_up([item for item in token.items if item not in page.token.items])
            self.tracker.leave(page, f"queue/{type(error).__name__}")
        elif pending.fingerprint is not None:
            give_up(token.items)

    def _leads_elsewhere(self, page: Page, pending: PendingRequest) -> None:
        """End a page whose redirect is not new. The page is done if the page to which it leads is done."""
        item = pending.fingerprint
        done = self.committer.uncommitted.get(item) if item else None
        if done:
            self.tracker.lead_to_done(page, done.holders)
        elif pending.answer is Claim.SEEN or (item and self._seen.known(item) is Claim.SEEN):
            self.tracker.lead_to_done(page, set())
        else:
            self.tracker.leave(page, "redirect")

    # Out of the queue

    def next_request(self) -> Request | None:
        """Return the next request that is to be fetched; None: there is none now."""
        self._take_over.search_later()
        if self._adopted:
            return self._take(*self._adopted.popleft())
        while (
            self._adopting < self._max_adopting and (request := super().next_request()) is not None
        ):
            token = Token.of(request)
            if token is None:
                return request
            if not self._shared and token.session == self._seen.session:
                return self._take(request, token)
            self._adopt(request, token)
        return None

    def _take(self, request: Request, token: Token) -> Request:
        self._take_over.moves += 1
        if self._shared:  # perhaps another crawler's link has led to it
            self._failures.hand_over(token.fingerprints[0])
        self.tracker.taken(request, token)
        return request

    def _adopt(self, request: Request, token: Token) -> None:
        """Claim a request that has come out of the queue, in the place of the session in its token."""
        arguments: tuple[tuple[str, Any], ...] = (("previous_owner", token.session),)
        if WITHIN in request.meta:  # asks what its claim has asked
            arguments = (("within", request.meta[WITHIN]), *arguments)
        pending = PendingRequest(
            request, token.items[0], arguments, token=token, previous_owner=token.session
        )
        # The token of a request that was taken over counts this crawler as dead already, and the note must not.
        pending.note = self._note(request, token._replace(deaths=max(0, token.deaths - 1)))
        self._adopting += 1
        self._enter(pending)

    def _have_adopted(self, pending: PendingRequest) -> bool:
        self._adopting -= 1
        assert pending.token  # noqa: S101 - it has come out of a queue
        token = pending.token._replace(session=self._seen.session)
        if pending.answer in NEW:
            token.write(pending.request)
            self._adopted.append((pending.request, token))
        elif self.crawl.is_ending:  # the next crawl asks for it
            self._put(pending.request, Claim.NEW)
        else:  # another crawler fetches it, or has fetched it
            self.crawl.count("tbloom/dropped")
            return False
        return True

    async def close(self) -> None:
        """Return once no request waits. Put adopted requests back into the queue."""
        await super().close()
        while self._adopted:
            request, token = self._adopted.popleft()
            if self._put(request, Claim.NEW) and self._shared:
                self._seen.hand_over(token.items)
