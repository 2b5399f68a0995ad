"""The journey of a request, in a crawl that commits pages when they are done.

::

    1. comes       enqueue        a link: to a page that may be new, or has failed in this crawl (_link)
                                  a retry or a redirect: its page goes on (_continued)
                                  of a page that others have left, or that is asked for again (_claimed)
    2. is asked    prepare        it gets its page's Token, and a note
                   ask            the filter claims many in one call
    3. is settled  settle         seen, or claimed: filtered; without an answer: dropped (_filter)
    4. is queued   mark           new: with its Token (or the project's scheduler has _refused it)
    5. comes out   next_request   its page is in work: a Page
                   _claim_again   but back to 2 if the token is another session's
    6. is fetched  Work           hears of the page until the scraper has finished it
    7. ends        _ended         as an EndedPage, for the Committer: done, or failed. Without an end, it is left when its session ends

A page is a Token while it is queued, a Page while it is in work, and an EndedPage until the filter knows what has become of it.
"""

from __future__ import annotations

import logging
import shlex
import time
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any

from redis import RedisError
from scrapy import Request

from tbloom import Claim
from tbloom.claims.queues import arguments_in, options_of
from tbloom.errors import TBloomError
from tbloom.scrapy.crawl import Crawl
from tbloom.scrapy.done.committer import Committer, Failures
from tbloom.scrapy.done.held import Holding
from tbloom.scrapy.done.page import (
    RETRIES,
    EndedPage,
    FailedPage,
    Page,
    Token,
    Why,
    why_failed,
    without,
)
from tbloom.scrapy.done.serialize import NotSerializable, write_note
from tbloom.scrapy.done.sharing import Giving, GivingHosts, Taking, Telling
from tbloom.scrapy.done.states import DONE as ENDED
from tbloom.scrapy.done.states import FAILED, IN_QUEUE, Event, Known, Register, State, UnknownStep
from tbloom.scrapy.done.work import Work
from tbloom.scrapy.hooks.engine import (
    in_loop,
    link_source,
    wake_engine,
    watch_answers,
    watch_end,
    watch_files,
    watch_output,
)
from tbloom.scrapy.hooks.feeds import close_feeds
from tbloom.scrapy.inbox import FilteringScheduler, Requests
from tbloom.scrapy.links import NoAnswer, Pending, link_of, look_of, own_values, version_of
from tbloom.scrapy.settings import DONE, SHARE, TOKEN, VERSION, WITHIN
from tbloom.scrapy.stores import ClaimStore

logger: logging.Logger = logging.getLogger(__name__)

#: Of so many queued pages the versions are known.
_VERSIONS = 10_000
#: An owner of hosts asks for further pages as long as fewer are queued.
_FEW = 500
_NOT_SERIALIZABLE = (
    "%s, and perhaps others, can't be serialised: %s. No other crawler takes such a page, and if it fails, or its crawler dies, the next "
    "crawl fetches it only if a link leads to it. Give the request plain values, of which a downloader middleware makes the objects, "
    "and methods of the spider as callback and errback"
)
_LEFT = "%d pages wait for the next crawl. In the project's folder, tbloom queue %s shows them, and tbloom drop %s --left forgets them"
_UNKNOWN_STEP = (
    "%s. This is a fault of tbloom: please report it. The page fails, and the crawl goes on"
)


class Pages(Requests):
    """The requests and the pages of one crawl."""

    def __init__(self, crawl: Crawl, scheduler: FilteringScheduler, seen: ClaimStore) -> None:
        super().__init__(crawl, scheduler)
        crawler = crawl.crawler
        self._scheduler: FilteringScheduler = scheduler
        self._seen = seen
        self._has_jobdir = bool(crawler.settings["JOBDIR"])
        #: How many pages wait for the next crawl, also of earlier crawls, if this one is ended before its work.
        self._left = 0
        #: Whether the filter had items at the start.
        self._had_items = False
        #: Whether a heartbeat is under way, before which no request leaves the queue.
        self._is_checking = False
        #: The versions of the pages that were queued last, by their first fingerprints: links in these need no answer of the filter.
        self._versions = dict[str, str]()
        self._register = Register(self._step_failed)
        self.failures: Failures = Failures(crawl, self._register)
        self.committer: Committer = Committer(
            crawl, seen, self.inbox, self.failures, self._committed
        )
        self.work: Work = Work(crawler, self._register, self.committer.stored, self._ended)
        self._holding = Holding(crawl, self.inbox, self.work, self.committer)
        self._taking = Taking(crawl, seen, self.failures, self.committer, self._claimed)
        self._giving: Giving | None = None
        self._telling: Telling | None = None
        if (shared := seen.shared) is not None:
            self._telling = Telling(crawl, self.failures, shared.session_ttl, self._holding.oldest)
            shared.join(self._telling, partial(in_loop(), self._session_lost))
            if SHARE.value(crawler.settings) and self.committer.has_notes:
                kind = GivingHosts if crawl.owns_hosts else Giving
                parts = self.inbox, self.work
                self._giving = kind(crawl, scheduler, shared, *parts, is_givable=self._is_givable)

    def _engine_started(self) -> None:
        engine = self._crawl.crawler.engine
        watch_output(engine, self.work.passing)
        watch_answers(engine, self.work.answered)
        watch_end(engine, self.work.scraped)
        watch_files(engine, self.work.file_failed)
        self._holding.begin()
        if not self._crawl.is_ending:  # by a mistake in the settings
            shared = self._seen.shared
            self._had_items = shared is not None and not shared.is_new
            self._taking.begin()
            if self.committer.has_notes and (warning := self._crawl.warning_of_arguments):
                logger.warning(warning)

    def _step_failed(self, known: Known, error: UnknownStep) -> None:
        """Let a page fail whose state does not know what happens to it. That is a fault of tbloom, which the log has once."""
        self._crawl.log_once(partial(logger.error, stack_info=True), _UNKNOWN_STEP, error)
        page = EndedPage.of(known) if isinstance(known, Page) else known
        if isinstance(page, EndedPage) and known.state not in FAILED:
            self.committer.fail(None, page, Why("step", str(error)))

    # 1. A request comes

    def enqueue(self, request: Request) -> bool:
        """Enqueue a request; return whether it is queued, or may yet be."""
        output = link_source.get()
        source = self.work.of(output)
        try:
            # A request with which a callback asks for its own page again waits for the page's end.
            if request.dont_filter and self.work.asked_again(request, source):
                return True
            return self.inbox.enter(self._pending(request, source, is_link=not request.dont_filter))
        except Exception as error:  # Scrapy would lose the callback's other links, too
            if output is None:  # of start()
                raise
            logger.exception("%s could not be scheduled", request)
            self.lose(Pending(request, source=source), error)
            return False

    def link(self, request: Request) -> Pending:
        """See ``Requests``. Also a request with ``dont_filter`` may be a link."""
        return self._pending(request, self.work.of(link_source.get()))

    def _pending(
        self, request: Request, source: Page | None = None, *, is_link: bool = True
    ) -> Pending:
        """Return the pending request; with an answer where there is nothing to ask.

        ``source``: the page for which a callback or errback has yielded it. ``is_link``: whether the filter is asked, unless a page
        goes on as this request.
        """
        if TOKEN in request.meta:
            if page := self.work.continued(request):
                return self._continued(request, page)
            request = without(request, TOKEN)  # it came with a copied meta
        pending = self._link(request) if is_link else Pending(request)
        pending.source = source
        return pending

    def _link(self, request: Request) -> Pending:
        """Return the pending request of a link."""
        pending = link_of(request, self._crawl, link_source.get(), claims=True)
        if pending.answer is Claim.BUSY:
            if self._may_be_seen(pending):
                pending.answer = None
            else:
                self._give_token(pending)
        return pending

    def _is_own(self, pending: Pending) -> bool:
        """Return whether this crawl has the page of a link in a version that may be new."""
        return self._seen.known(pending.item or b"", pending.look) is Claim.BUSY

    def _may_be_seen(self, pending: Pending) -> bool:
        """Return whether the version of a link to a page of this crawl is none of those that are known to be new."""
        if not (pending.item and pending.version and self._seen.needs_server):
            return False
        first = self._register.first_of(pending.item.hex())
        known = self._register.get(Known, first)
        asked = known.asked if known else None
        new = [self._versions.get(first), *getattr(known, "versions", ()), *(asked or ())]
        return pending.version.hex() not in new

    def _give_token(self, pending: Pending) -> None:
        """Give a page that may be new a token. One that has failed in this crawl gets none before its pause is over."""
        assert pending.item is not None  # noqa: S101 - it is a link
        first = pending.item.hex()
        failed = self._register.get(FailedPage, first, *FAILED)
        if failed and WITHIN not in pending.request.meta:
            # Meanwhile, another crawler may own its host.
            is_followed = failed.state is State.FOLLOWED or time.monotonic() < failed.until
            if self._crawl.owns_hosts or is_followed:
                pending.answer = Claim.BUSY
                return
            self.failures.try_again(failed)
            # The claim is this crawl's, unless it was dropped, and stays as it is until the page ends.
            if pending.answer is Claim.BUSY:
                self.committer.fetch_again(pending.item, failed.failures)
                pending.item, pending.answer = None, Claim.NEW
        if pending.answer in (None, Claim.NEW):
            self._register.take_asked(first)  # before an earlier claim
            failures, version = failed.failures if failed else 0, pending.version.hex()
            pending.token = Token(self._seen.session, (first,), 0, failures, version)

    def _continued(self, request: Request, page: Page) -> Pending:
        """Return the pending request as which a page goes on. A retry is not asked about; the URL of a redirect is claimed, too."""
        if request.dont_filter:
            return Pending(request, page=page, token=page.token)
        pending = link_of(request, self._crawl, claims=True)
        pending.page, pending.token, pending.note = page, page.token, ""
        if pending.item is None:
            return pending
        before, hexed = page.token.fingerprints, pending.item.hex()
        pending.token = page.token._replace(fingerprints=(*before, hexed))
        if hexed in before:  # back to each of its URLs once, as for a cookie, but in no circle
            goes_on = before.count(hexed) == 1
        elif self.failures.is_walled(page, hexed, request.url):
            goes_on = False
        else:
            return pending
        pending.item, pending.answer = None, Claim.NEW if goes_on else Claim.BUSY
        return pending

    def _claimed(self, request: Request, token: Token | None) -> None:
        """Enqueue a request without asking the filter. ``token``: the request's page, which this session has claimed."""
        self._taking.queue_changed()
        self.inbox.settle_late(Pending(request, answer=Claim.NEW, token=token))

    def prepare(self, pending: Pending) -> None:
        """Give a page that may be new a token. Write the note that is kept with its claim, if one can restore the request."""
        if pending.token is None:
            if pending.version and self._is_own(pending):
                pending.answer = Claim.BUSY
            self._give_token(pending)
        request, token, crawl = pending.request, pending.token, self._crawl
        if token is None or pending.note is not None:
            return
        pending.note = ""
        if self.committer.has_notes:
            try:
                # A link may have these from a copied meta, and a retry in a JOBDIR: they are of this crawl.
                request = without(request, RETRIES, DONE)
                is_owned = crawl.owns_hosts
                pending.note = write_note(
                    request, token, crawl.spider, crawl.queue, one_owner=is_owned
                )
            except NotSerializable as error:
                crawl.count("tbloom/unserializable")
                crawl.log_once(logger.warning, _NOT_SERIALIZABLE, request, error)

    # 2. The filter is asked

    def to_look(self, batch: list[Pending], *, mostly_seen: bool | None) -> list[Pending]:
        """See ``Requests``. A look takes no notes; and a local filter knows at once.

        A page may be linked in a version that was seen while it waits in another one. A claim would not tell.
        """
        if not self._seen.needs_server:
            return []
        if (self._had_items if mostly_seen is None else mostly_seen) and self.committer.has_notes:
            return batch
        looks, found = dict[bytes | None, bytes](), list[Pending]()
        for pending in batch:
            if pending.is_to_ask and pending.version and pending.token is None:
                is_other = looks.setdefault(pending.item, pending.look) != pending.look
                if is_other or self._is_own(pending):
                    found.append(pending)
        return found

    def look(self, group: list[Pending], arguments: dict[str, Any]) -> list[Claim | None]:
        """See ``Requests``."""
        are_seen = self._seen.contains_many(map(attrgetter("look"), group), **arguments)
        return [Claim.SEEN if is_seen else None for is_seen in are_seen]

    def ask(self, group: list[Pending], arguments: dict[str, Any]) -> list[Claim]:
        """See ``Requests``."""
        of_each = map(attrgetter("item", "look", "note"), group)
        items, looks, notes = zip(*of_each, strict=True)
        return self._seen.claim_many(items, notes=notes, looks=looks, **arguments)

    # 3. It is settled: queued, filtered or dropped

    def _filter(self, pending: Pending) -> bool:
        """Filter or drop a request that is not new."""
        page, answer = pending.page, pending.answer
        claimed_before = Token.of(pending.request) if pending.token else None
        if answer is NoAnswer.DROPPED and claimed_before and page is None:
            self._requeue(pending.request)  # for the next crawl with its JOBDIR
            return True
        if answer is NoAnswer.WRONG:
            self.lose(pending)
        queued = self.to_project(pending)
        if page:
            self._leads_elsewhere(page, pending)
        elif claimed_before:
            # It was claimed again, and another crawler has it. Of its redirects, this one may have claims.
            self._dropped(claimed_before, *IN_QUEUE)
            self.committer.release(claimed_before.items[1:])
        elif answer is Claim.BUSY and pending.item and self._seen.owns(pending.item):
            # If the page is fetched later, it is done in this version, too; else it is fetched once more.
            first, version = self._register.first_of(pending.item.hex()), pending.version.hex()
            if version not in ("", self._versions.get(first)):
                self._register.ask(first, version, pending.request)
        elif pending.token:
            self._dropped(pending.token, State.FOLLOWED)
        return queued

    def _dropped(self, token: Token, *states: State) -> None:
        """Note that the page of a token, if it is in one of these states, does not enter the queue."""
        if waits := self._register.get(Known, token.fingerprints[0], *states):
            self._register.step(waits, Event.DROPPED)

    def _leads_elsewhere(self, page: Page, pending: Pending) -> None:
        """End a page whose redirect is not new: as done, unless it is in a circle, or leads to a wall."""
        if pending.answer is NoAnswer.DROPPED:
            return  # the page stays in work: it is unfinished
        if pending.answer is NoAnswer.WRONG:
            page.fail(f"link/{pending.answer.value}")
        elif pending.item is None:
            page.fail_again(pending.request)
        else:
            target_first = self._register.first_of(pending.item.hex())
            target = self._register.get(EndedPage, target_first)
            page.holders.update(target.holders if target else ())
            page.counts_as_done = True
        self.work.end(page)

    def lose(self, pending: Pending, error: Exception | None = None) -> None:
        """Let the page fail, though it was done, whose link has a wrong value, or could not be scheduled."""
        if source := pending.source:
            why = type(error).__name__ if error else NoAnswer.WRONG.value
            source.fail(f"link/{why}", error)
            self.committer.fail_after_end(source)

    # 4. It is queued

    def settle(self, pending: Pending) -> bool:
        """Queue a request that is new, with its token; filter any other. Return whether the project's scheduler has queued it."""
        if pending.answer not in (None, Claim.NEW):
            return self._filter(pending)
        self.mark(pending)
        try:
            queued = self.to_project(pending)
        except Exception as error:
            self._refused(pending, type(error).__name__, error)
            raise
        if not queued:
            self._refused(pending, "refused")
            return False
        self._taking.queue_changed()
        token = pending.token
        if token is None:  # no page
            return True
        if token.version:
            self._versions[token.fingerprints[0]] = token.version
            if len(self._versions) > _VERSIONS:
                del self._versions[next(iter(self._versions))]
        if isinstance(self._giving, GivingHosts):
            self._giving.queued(pending.request)
        if pending.page:
            pending.page.others = token.fingerprints[1:]
            self.work.goes_on(pending.page)
        return True

    def mark(self, pending: Pending) -> None:
        """See ``Requests``. The request of a page gets its token, too."""
        if pending.token:
            is_bare = bool(self._giving and pending.item and not pending.note)
            pending.token = pending.token._replace(session=self._seen.session, is_bare=is_bare)
            pending.request.meta[TOKEN] = str(pending.token)
        own_values(pending.request)

    def settled(self) -> None:
        """Commit the pages that have waited for these links."""
        self.committer.soon()

    def _refused(self, pending: Pending, why: str, error: Exception | None = None) -> None:
        """End a request that the project's scheduler has not queued.

        The page of a retry or a redirect has failed. A new link, and the URL of a redirect, are released. Any other request keeps its
        claim and its note: the next crawl takes it.
        """
        page, token = pending.page, pending.token
        if page and token:
            self.committer.release(item for item in token.items if item not in page.token.items)
            page.fail(f"queue/{why}", error)
            self.work.end(page)
        elif token:
            if pending.item is not None:
                self.committer.release(token.items)
            self._dropped(token, *IN_QUEUE)

    def _requeue(self, request: Request) -> None:
        """Queue a request again that was taken out of the queue. If that fails, its claim is left to the next crawl, with its note."""
        try:
            self.to_project(Pending(request, answer=Claim.NEW))
        except Exception:
            logger.exception("%s could not be queued again", request)

    # 5. It comes out of the queue: to be fetched, or for another crawler

    @property
    def is_busy(self) -> bool:
        """Whether requests may enter the queue later, or pages are about to be committed. The queue is empty.

        An idle crawl asks whether others have left pages. The answer wakes the engine.
        """
        return bool(
            self.inbox.waiting or self.committer.is_pending or not self._taking.is_finished()
        )

    def next_request(self) -> Request | None:
        """Return the next request that is to be fetched; None: there is none now."""
        if self._seen.is_silent:
            self._check_session()
            return None
        while not self.inbox.is_full and (request := self._scheduler.next_in_project()) is not None:
            token = Token.of(request)
            if token is None and (request.dont_filter or not self._has_jobdir):
                return request  # of no page
            if token and token.session == self._seen.session and self._seen.owns(token.items[0]):
                self._begin_work(request, token)
                return request
            self._claim_again(request, token)
        self.inbox.ask()
        self._taking.ask_if_short()
        return None

    def _begin_work(self, request: Request, token: Token) -> None:
        """Begin to work on the page of a request, in the last version that links have asked for."""
        first = token.fingerprints[0]
        self._versions.pop(first, None)
        self._taking.queue_changed()
        asked = self._register.take_asked(first)
        # Of a page that was linked after it had failed, the token has the first version, the request the last one.
        versions = {token.version, version_of(request).hex(), *asked} - {""}
        for version, link in asked.items():
            request.meta[VERSION] = link.meta[VERSION]
            token = token._replace(version=version)
        if asked:
            request.meta[TOKEN] = str(token)
        self.work.begin(request, token, versions)
        if self._crawl.owns_hosts and self._scheduler.queued < _FEW:
            self._taking.ask_if_short()  # others leave pages of its hosts

    def _claim_again(self, request: Request, token: Token | None) -> None:
        """Claim a request whose claim is no longer this session's, or that an earlier crawl has put into the queue of its JOBDIR.

        Another crawl may have taken its page, or fetched it. Without a ``token``, a crawl without tbloom has left it in the JOBDIR.
        """
        if token is None:
            self.inbox.enter(self._pending(request))
            return
        arguments = (("within", request.meta[WITHIN]),) if WITHIN in request.meta else ()
        item, version = token.items[0], bytes.fromhex(token.version)
        look = look_of(item, version, self._seen.config)
        self.inbox.enter(Pending(request, item, look, version, arguments, token=token))

    def _is_givable(self, request: Request) -> bool:
        """Return whether Redis has all that another crawler needs of a queued request.

        A page that was redirected, is tried again, or has failed in this crawl, stays. So does one with a cookie jar.
        """
        token = Token.of(request)
        return not (
            token is None
            or token.session != self._seen.session
            or len(token.fingerprints) > 1
            or token.is_bare
            or self._register.get(Known, token.fingerprints[0])
            or "cookiejar" in request.meta
        )

    # 7. It ends

    def _ended(self, page: Page) -> None:
        """Commit a page that the scraper has finished, or leave it, or enqueue it again."""
        again = page.repeat
        goes_on = again is not None and not page.exception and page.answered.meta.get(DONE) is None
        if goes_on:
            self._register.step(page, Event.ON)
        elif why := why_failed(page, self.work.done_statuses):
            self.committer.fail(page, EndedPage.of(page), why)
        else:
            self.committer.add(page)
        if again is not None:
            again = without(again, DONE, *[] if goes_on else [TOKEN])
            self._claimed(again, page.token if goes_on else None)

    def _committed(self, pages: list[EndedPage]) -> None:
        """Ask for pages again in the versions of links that came while they were in work. Give pages to crawlers that wait."""
        for page in pages:
            asked = page.asked or {}
            for link in [link for of, link in asked.items() if of not in page.versions][-1:]:
                try:
                    self.inbox.enter(self._pending(link))
                except Exception:
                    logger.exception("%s could not be scheduled", link)
        if self._giving:
            self._giving.look()

    # The session

    def _check_session(self) -> None:
        """Send a heartbeat, because this crawler was silent for so long that others may fetch what it has queued."""
        if not self._is_checking:
            self._is_checking = True
            self._crawl.page_calls.begin(self._seen.live, self._checked)

    def _checked(self, call: Future[None]) -> None:
        self._is_checking = False
        try:
            call.result()
        except Exception as error:  # noqa: BLE001 - the log has it
            self._crawl.fail(error)
        wake_engine(self._crawl.crawler.engine)

    def _session_lost(self, is_empty: bool) -> None:  # noqa: FBT001 - of a partial
        """Go on as another session. What is queued is claimed again when it leaves the queue, because its tokens name the lost one.

        ``is_empty``: Redis has lost the filter, with what was given to others and not taken yet.
        """
        self._taking.queue_changed()
        self.failures.hold_none(is_empty=is_empty)
        if is_empty and (shared := self._seen.shared) is not None:
            self._taking.wait_for_others(shared.session_ttl / 2)  # two heartbeats
        # Each is claimed again before it is fetched.
        for request in self._giving.session_lost(is_empty=is_empty) if self._giving else ():
            self._requeue(request)
        wake_engine(self._crawl.crawler.engine)

    # The end of the crawl, in this order

    async def close(self) -> None:
        """Return once no request waits. A queue on disk gets what was kept back from other crawlers."""
        await self.inbox.close()
        while self._scheduler.first:
            self._requeue(self._scheduler.first.pop())

    async def queue_closed(self, reason: str) -> None:
        """Return once the feeds are stored, and the pages are committed whose items are in them. Tell others why the crawl ends.

        ``spider_closed`` is sent after this: its handlers read the stats.
        """
        try:
            await close_feeds(self._crawl.crawler)
            await self.committer.finish()
        finally:
            left = self._seen.claimed - self._register.count(State.HELD)
            if not self._crawl.is_ending:  # a handler of spider_closed may yet store their items
                left -= sum(len(page.items) for page in self._register.all(EndedPage, *ENDED))
            if self.committer.has_notes:
                if left:
                    self._crawl.count("tbloom/left", left)
                if reason != "finished" and not self._crawl.is_ending:
                    look = self._seen.fleet(self._crawl.queue).look
                    with suppress(RedisError, TBloomError):  # the server may refuse to tell
                        self._left = left + (await self._crawl.page_calls.run(look)).pages.left
            if self._telling:
                self._telling.end(reason)

    async def finish(self) -> None:
        """Return once the pages are committed whose items other handlers of ``spider_closed`` have stored."""
        await self._crawl.page_calls.ended()
        self.committer.stored.lose_buffers()
        await self.committer.finish()

    def report(self) -> None:
        """Log what the user should know of a crawl that has ended. Pages that are not committed are among it."""
        if self._left:
            options = options_of(arguments_in(self._crawl.queue) or {})
            words = shlex.join([self._crawl.spider.name, *options])
            logger.info(_LEFT, self._left, words, words)
        self.committer.report()
        self.failures.report()
        super().report()
