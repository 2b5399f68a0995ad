"""The journey of a request, in a crawl that commits pages when they are done.

::

    1. comes       _linked        a link: to a page that may be new, or has failed in this crawl (_linked_again)
                   _continued     a retry or a redirect: its page goes on
                   _claimed       of a page that others have left, or that is asked for again
    2. is asked    _ask_together  the filter claims many in one call
    3. is settled  _settle        new: queued; seen, or claimed: filtered; without an answer: dropped
    4. is queued   _queued        with its page's Token (or the project's scheduler has _refused it)
    5. comes out   next_request   its page is in work: a Page
                   _claim_again   but back to 2 if the token is another session's
    6. is fetched  Tracker        hears of the page until the scraper has finished it
    7. ends        Committer      as an EndedPage: done, or failed. Without an end, the page is left once its session has ended

A page is a Token while it is queued, a Page while it is in work, and an EndedPage until the filter knows what has become of it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from concurrent.futures import Future
from functools import partial
from typing import Any

from scrapy import Request, signals

from tbloom import Claim, Note
from tbloom.scrapy.crawl import Crawl
from tbloom.scrapy.done.committer import GATHER, Committer
from tbloom.scrapy.done.failures import Failures
from tbloom.scrapy.done.giving import Giving
from tbloom.scrapy.done.hosts import GivingHosts
from tbloom.scrapy.done.page import RETRIES, Page, Token, without
from tbloom.scrapy.done.serialize import NotSerializable, write_note
from tbloom.scrapy.done.taking import Taking
from tbloom.scrapy.done.telling import Telling
from tbloom.scrapy.done.tracker import Tracker
from tbloom.scrapy.hooks.engine import in_loop, wake_engine
from tbloom.scrapy.hooks.scraper import watch_end, watch_files
from tbloom.scrapy.outage import ClaimStore, CrawlBloom
from tbloom.scrapy.pending import NoAnswer, PendingRequest, PendingRequests
from tbloom.scrapy.settings import DONE, SHARE, TOKEN, VERSION, WITHIN
from tbloom.scrapy.versions import look_of

logger: logging.Logger = logging.getLogger(__name__)

#: While more requests than this are queued, links need no answer at once.
_ENOUGH = 50
#: An owner of hosts asks for further pages as long as fewer are queued.
_FEW = 500
_NOT_SERIALIZABLE = (
    "%s, and perhaps others, can't be serialised: %s. No other crawler takes such a page, and if it fails, or its crawler dies, the next "
    "crawl fetches it only if a link leads to it. Give the request plain values, of which a downloader middleware makes the objects, "
    "and methods of the spider as callback and errback"
)
_UNNAMED = (
    "the spider's arguments %s are objects, which say nothing from run to run: crawls that differ only in these share their pages. "
    "Give a text or a number as well to keep crawls apart"
)


class ClaimedRequests(PendingRequests):
    """Claims requests that are new."""

    claims = True

    def __init__(self, crawl: Crawl, scheduler: Any, seen: ClaimStore) -> None:
        super().__init__(crawl, scheduler)
        crawler = crawl.crawler
        self._seen = seen
        self._has_jobdir = bool(crawler.settings["JOBDIR"])
        #: The first fingerprints of queued pages whose claims have no note.
        self._without_note = set[str]()
        #: The versions in which links have asked for pages that this crawl had claimed, each with its hash; by the pages' fingerprints.
        self._asked = defaultdict[str, dict[str, Any]](dict)
        self._failures = Failures(crawler.settings, crawl.count)
        self.committer: Committer = Committer(
            crawl, seen, self._failures, lambda: (self.received, self.settled)
        )
        self.tracker: Tracker = Tracker(crawler, self._failures, self.committer, self._claimed)
        self._taking = Taking(crawl, seen, self._failures, self.committer, self._claimed)
        self._giving: Giving | None = None
        self._telling: Telling | None = None
        if isinstance(seen, CrawlBloom):
            self._telling = Telling(crawl, self._failures, seen.session_ttl)
            seen.tell(self._telling)
            seen.when_lost(partial(in_loop(), self._session_lost))
        #: Whether a heartbeat is under way, before which no request leaves the queue.
        self._is_checking = False
        has_notes = self.committer.has_notes
        if SHARE.value(crawler.settings) and has_notes and isinstance(seen, CrawlBloom):
            kind = GivingHosts if crawl.owns_hosts else Giving
            self._giving = kind(crawl, scheduler, seen, self._requeue, self._givable)
            self.committer.when_sent = self._giving.look
        connect = crawler.signals.connect
        connect(self.tracker.item_scraped, signals.item_scraped)  # after the feed exporter
        connect(self.tracker.item_dropped, signals.item_dropped)
        connect(self.tracker.spider_error, signals.spider_error)
        connect(self.tracker.item_error, signals.item_error)

    @property
    def is_busy(self) -> bool:
        """Whether requests may enter the queue later, or pages are about to be committed. The queue is empty.

        An idle crawl asks whether others have left pages. The answer wakes the engine.
        """
        if self.waiting or self.committer.is_pending or self._taking.is_asking:
            return True
        return not self._taking.is_finished()

    def _engine_started(self) -> None:
        super()._engine_started()
        if not self.crawl.is_ending:  # by a mistake in the settings
            self._taking.begin()
            if self.committer.has_notes and (names := self.crawl.unnamed_arguments):
                logger.warning(_UNNAMED, ", ".join(names))
        engine = self.crawl.crawler.engine
        watch_end(engine, self.tracker.scraped)
        watch_files(engine, self.tracker.file_failed)

    # 1. A request comes

    def _accept(self, request: Request, source: Page | None) -> bool:
        # A request with which a callback asks for its own page again waits for the page's end.
        return self.tracker.asked_again(request, source) or super()._accept(request, source)

    def _pending(self, request: Request, *, always: bool = False) -> PendingRequest:
        if page := self.tracker.continued(request):
            return self._continued(request, page)
        return self._linked(without(request, TOKEN), always=always)  # it came with a copied meta

    def _linked(self, request: Request, *, always: bool) -> PendingRequest:
        """Return the pending request of a link. A page that is new gets a token, and a note."""
        pending = super()._pending(request, always=always)
        item = pending.fingerprint
        if item is None:
            return pending
        failures, version = self._failures.failures_before(item.hex()), pending.version.hex()
        token = Token(self._seen.session, (item.hex(),), 0, failures, version)
        if pending.answer is Claim.BUSY and not self._taking.has_begun:
            pending.answer = None  # asked behind the first question, in its thread
        if self._failures.has(token.fingerprints[0]) and WITHIN not in request.meta:
            self._linked_again(pending, token)
        if pending.is_new:
            self._asked.pop(item.hex(), None)  # before an earlier claim
            pending.token = token
            pending.note = "" if pending.answer else self._note(request, token)
        return pending

    def _linked_again(self, pending: PendingRequest, token: Token) -> None:
        """Let a page that has failed in this crawl be busy for a while; then it is fetched again."""
        # Meanwhile, another crawler may own its host.
        if self.crawl.owns_hosts or self._failures.pauses(token.fingerprints[0]):
            pending.answer = Claim.BUSY
            return
        self._failures.try_again(token.fingerprints[0])
        # The claim is this crawl's, unless it was dropped, and stays as it is until the page ends.
        if pending.answer is Claim.BUSY:
            pending.fingerprint, pending.answer = None, Claim.NEW
            self.committer.fetch_again(token.items[0], token.failures)

    def _continued(self, request: Request, page: Page) -> PendingRequest:
        """Return the pending request as which a page goes on. A retry is not asked about; the URL of a redirect is claimed, too."""
        pending = super()._pending(request)
        pending.page, pending.token = page, page.token
        if pending.fingerprint is None:
            return pending
        before, hexed = page.token.fingerprints, pending.fingerprint.hex()
        pending.token = page.token._replace(fingerprints=(*before, hexed))
        if self._failures.is_wall(request, page):
            goes_on = False  # in each version, the page to which it leads would be new
        elif hexed in before:  # to its own URL once, as for a new cookie, but not in a circle
            goes_on = before[-1] == hexed and before.count(hexed) == 1
        else:
            return pending
        pending.fingerprint, pending.answer = None, Claim.NEW if goes_on else Claim.BUSY
        return pending

    def _claimed(self, request: Request, token: Token | None) -> None:
        """Enqueue a request without asking the filter. ``token``: the request's page, which this session has claimed."""
        self._taking.queue_changed()
        self._settle_late(PendingRequest(request, answer=Claim.NEW, token=token))

    def _note(self, request: Request, token: Token) -> Note | str:
        """Return the note that is kept with a claim; "" if the store keeps no notes, or no note can restore the request."""
        if not self.committer.has_notes:
            return ""
        try:
            crawl = self.crawl
            # A link may have these from a copied meta, and a retry in a JOBDIR: they are of this crawl.
            request = without(request, RETRIES, DONE)
            return write_note(request, token, crawl.spider, crawl.queue, one_owner=crawl.owns_hosts)
        except NotSerializable as error:
            self.crawl.count("tbloom/unserializable")
            self.crawl.log_once(logger.warning, _NOT_SERIALIZABLE, request, error)
            return ""

    # 2. The filter is asked

    @property
    def _gathers_for(self) -> float:
        # As pages that are done do, unless the crawl has soon nothing else to fetch.
        return GATHER if self._scheduler.queued > _ENOUGH else 0.0

    def _ask_together(self, group: list[PendingRequest], arguments: dict[str, Any]) -> list[Claim]:
        items = [pending.fingerprint or b"" for pending in group]
        looks = [pending.look or item for pending, item in zip(group, items, strict=True)]
        notes = [pending.note for pending in group]
        return self._seen.claim_many(items, notes=notes, looks=looks, **arguments)

    # 3. It is settled

    def _settle_some(self) -> None:
        super()._settle_some()
        self.committer.soon()  # pages may have waited for these links

    def _settle(self, pending: PendingRequest) -> bool:
        if pending.is_new:
            return self._queue(pending)
        self._note_asked(pending)
        page, claimed_before = pending.page, Token.of(pending.request)
        if pending.answer is NoAnswer.DROPPED and claimed_before and page is None:
            self._requeue(pending.request)  # for the next crawl with its JOBDIR
            return True
        queued = super()._settle(pending)
        if page:
            self._leads_elsewhere(page, pending)
        elif claimed_before:
            self._is_anothers(claimed_before)
        return queued

    def _note_asked(self, pending: PendingRequest) -> None:
        """Note in which version a link asks for a page that this crawl has claimed: if it is fetched later, it is done in this one, too."""
        item = pending.fingerprint
        if item and pending.version and pending.answer is Claim.BUSY and self._seen.owns(item):
            asked = self._asked[item.hex()]
            asked[pending.version.hex()] = pending.request.meta[VERSION]

    def _leads_elsewhere(self, page: Page, pending: PendingRequest) -> None:
        """End a page whose redirect is not new: as done, unless it is in a circle, or many pages lead to the same one."""
        if pending.answer is NoAnswer.DROPPED:
            return  # the page stays in work: it is unfinished
        if pending.answer is NoAnswer.WRONG:
            self.tracker.fail(page, f"link/{pending.answer.value}")
            return
        item = pending.fingerprint  # None: _continued did not let the filter be asked
        if item is None:
            self.tracker.fail(page, "redirect")
            return
        target = self.committer.uncommitted.get(item)
        self.tracker.lead_to_done(page, target.holders if target else ())

    def _is_anothers(self, token: Token) -> None:
        """Forget a page that was claimed again, and that another crawler has. Of its redirects, this one may have claims."""
        self.tracker.forget(token)
        self.committer.release(token.items[1:])

    # 4. It is queued

    def _queue(self, pending: PendingRequest) -> bool:
        """Queue a request that is new, with its token; return whether the project's scheduler has queued it."""
        self._write_token(pending)
        try:
            queued = super()._settle(pending)
        except Exception as error:
            self._refused(pending, type(error).__name__)
            raise
        if queued:
            self._queued(pending)
        else:
            self._refused(pending, "refused")
        return queued

    def _write_token(self, pending: PendingRequest) -> None:
        if pending.token and pending.is_new:
            pending.token = pending.token._replace(session=self._seen.session)  # of now
            pending.token.write(pending.request)

    def _queued(self, pending: PendingRequest) -> None:
        """Note a request that the project's scheduler has queued."""
        self._taking.queue_changed()
        token = pending.token
        if token is None:  # no page
            return
        if self._giving:
            self._giving.queued(pending.request)
            if pending.fingerprint and not pending.note:
                self._without_note.add(token.fingerprints[0])
        if pending.page:
            self.tracker.requeued(pending.page, token)

    def _refused(self, pending: PendingRequest, why: str) -> None:
        """End a request that the project's scheduler has not queued.

        The page of a retry or a redirect has failed. A new link, and the URL of a redirect, are released. Any other request keeps its
        claim and its note: the next crawl takes it.
        """
        page, token = pending.page, pending.token
        if page and token:
            self.committer.release(item for item in token.items if item not in page.token.items)
            self.tracker.fail(page, f"queue/{why}")
        elif token and pending.fingerprint is not None:
            self.committer.release(token.items)

    def _lost(self, source: Page | None, why: str) -> None:
        """Let the page of the link fail."""
        if source:
            source.exception = source.exception or f"link/{why}"
            self.committer.fail_after_end(source, source.exception)

    def _requeue(self, request: Request) -> None:
        """Queue a request again that was taken out of the queue. If that fails, its claim is left to the next crawl, with its note."""
        try:
            self._enqueue_in_project(request, Claim.NEW)
        except Exception:
            logger.exception("%s could not be queued again", request)

    # 5. It comes out of the queue: to be fetched, or for another crawler

    def next_request(self) -> Request | None:
        """Return the next request that is to be fetched; None: there is none now."""
        if self._seen.is_silent:
            self._check_session()
            return None
        while (request := super().next_request()) is not None:
            token = Token.of(request)
            if token is None and (request.dont_filter or not self._has_jobdir):
                return request  # of no page
            if token and token.session == self._seen.session and self._seen.owns(token.items[0]):
                self._taken_out(request, token)
                return request
            self._claim_again(request, token)
        self._taking.ask_if_short()
        return None

    def _taken_out(self, request: Request, token: Token) -> None:
        """Begin to work on the page of a request."""
        self._taking.queue_changed()
        self._without_note.discard(token.fingerprints[0])
        if asked := self._asked.pop(token.fingerprints[0], None):
            *_, (version, request.meta[VERSION]) = asked.items()  # the last one
            asked[token.version] = None
            token = token._replace(version=version)
            token.write(request)
        self.tracker.follow(request, token, asked or ())
        if self.crawl.owns_hosts and self._scheduler.queued < _FEW:
            self._taking.ask_if_short()  # others leave pages of its hosts

    def _claim_again(self, request: Request, token: Token | None) -> None:
        """Claim a request whose claim is no longer this session's, or that an earlier crawl has put into the queue of its JOBDIR.

        Another crawl may have taken its page, or fetched it. Without a ``token``, a crawl without tbloom has left it in the JOBDIR.
        """
        if token is None:
            self._enter(self._pending(request))
            return
        arguments = (("within", request.meta[WITHIN]),) if WITHIN in request.meta else ()
        note = self._note(request, token)
        item, version = token.items[0], bytes.fromhex(token.version)
        look = look_of(item, version, self._seen.config)
        self._enter(PendingRequest(request, item, arguments, look=look, token=token, note=note))

    def _givable(self, request: Request) -> bool:
        """Return whether Redis has all that another crawler needs of a queued request.

        A page that was redirected, is tried again, has failed, or may have killed a crawler, stays. So does one with a cookie jar.
        """
        token = Token.of(request)
        return not (
            token is None
            or token.session != self._seen.session
            or len(token.fingerprints) > 1
            or token.deaths
            or token.failures
            or token.fingerprints[0] in self._without_note
            or self.tracker.is_again(token)
            or self._failures.has(token.fingerprints[0])
            or "cookiejar" in request.meta
        )

    # The session

    def _check_session(self) -> None:
        """Send a heartbeat, because this crawler was silent for so long that others may fetch what it has queued."""
        if not self._is_checking:
            self._is_checking = True
            self.crawl.page_calls.begin(self._seen.live, self._checked)

    def _checked(self, call: Future[None]) -> None:
        self._is_checking = False
        try:
            call.result()
        except Exception as error:  # noqa: BLE001 - the log has it
            self.crawl.fail(error)
        wake_engine(self.crawl.crawler.engine)

    def _session_lost(self, is_empty: bool) -> None:  # noqa: FBT001 - of a partial
        """Go on as another session. What is queued is claimed again when it leaves the queue, because its tokens name the lost one.

        ``is_empty``: Redis has lost the filter, with what was given to others and not taken yet.
        """
        self._taking.queue_changed()
        self._failures.hold_none()
        if is_empty and isinstance(self._seen, CrawlBloom):
            self._taking.wait_for_others(self._seen)
        if self._giving:
            self._giving.session_lost(is_empty=is_empty)
        wake_engine(self.crawl.crawler.engine)

    # The end of the crawl, in this order

    async def close(self) -> None:
        """See ``PendingRequests.close``. A queue on disk gets what was kept back from other crawlers."""
        await super().close()
        while self._scheduler.first:
            self._requeue(self._scheduler.first.pop())

    async def finish(self, reason: str) -> None:
        """Return once the feeds are stored, and the pages are committed whose items are in them. Tell others why the crawl ends."""
        try:
            await self.committer.finish()
        finally:
            if self._telling:
                self._telling.ended = reason

    def report(self) -> None:
        """See ``PendingRequests.report``. Pages that are not committed are among it."""
        self.committer.report()
        self.tracker.report()
        super().report()
