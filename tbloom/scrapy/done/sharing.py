"""Crawlers of one spider share its pages: they tell what they do, give queued pages away, and take what others have left.

A page is left when a crawler gives it away, when its crawler ends or dies, when it has failed in an earlier crawl, and when a program
pushes it. A crawler that has nothing to do asks for such pages, and says so with each question. The others learn it from the replies to
their commits. They end together.

``TBLOOM_SHARE = "hosts"``: a host has one owner at a time among the crawlers of a spider.

The first crawler that claims a page of a host owns it; others leave its pages in the filter, from which the owner takes them. A
crawler gives away a host in two steps. It parts with the host: it leaves the host's pages that are queued, and what it claims of the
host from now on is left, too. Once it has nothing of the host any more, it frees the host, and another crawler may own that.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import repeat
from math import inf
from threading import Lock
from typing import Any

from scrapy import Request
from scrapy.utils.asyncio import call_later

from tbloom import History, Note
from tbloom.claims.calls import Hosts
from tbloom.claims.fleet import Crawler, oldest_of
from tbloom.claims.notes import Taken, owned_host
from tbloom.claims.record import Process, Record
from tbloom.claims.session import Session
from tbloom.scrapy.crawl import Calls, Crawl
from tbloom.scrapy.done import held
from tbloom.scrapy.done.committer import Committer, Failures
from tbloom.scrapy.done.page import MOST_FAILURES, Token, Why
from tbloom.scrapy.done.serialize import Unreadable, read_token, request_from_text
from tbloom.scrapy.done.states import State
from tbloom.scrapy.done.work import Work
from tbloom.scrapy.hooks.engine import (
    host_of,
    host_queues,
    hosts_at_work,
    requests_downloaded,
    wake_engine,
)
from tbloom.scrapy.inbox import FilteringScheduler, Inbox
from tbloom.scrapy.settings import WHEN_IDLE, project_in
from tbloom.scrapy.stores import ClaimStore, CrawlBloom

logger: logging.Logger = logging.getLogger(__name__)

#: The most pages that one call gives away. (They take the server some 1 ms.)
_GIVES = 200
#: If nothing could be given, or is left, this crawler looks again after this time (seconds).
_PAUSE = 1.0


class Giving:
    """Gives queued pages to crawlers that wait."""

    def __init__(
        self,
        crawl: Crawl,
        scheduler: FilteringScheduler,
        seen: CrawlBloom,
        inbox: Inbox,
        work: Work,
        *,
        is_givable: Callable[[Request], bool],
    ) -> None:
        """``is_givable``: whether other crawlers can fetch a request."""
        self._crawl, self._scheduler, self._seen = crawl, scheduler, seen
        self._inbox, self._work, self._is_givable = inbox, work, is_givable
        self._keeps = max(1, crawl.crawler.settings.getint("CONCURRENT_REQUESTS"))
        self._is_giving = False
        #: The next look at the queue is not before this time, because nothing could be given at the last one.
        self._next_look = 0.0
        #: The requests that were given lately, each with the time: Redis may lose what no other crawler has taken yet.
        self._given_lately = deque[tuple[float, Request]]()

    def session_lost(self, *, is_empty: bool) -> list[Request]:
        """Return the pages that were given lately, if Redis has lost the filter: no other crawler may have taken them."""
        self._forget_given()
        given, self._given_lately = self._given_lately, deque()
        return [request for _, request in given] if is_empty else []

    def _forget_given(self) -> None:
        """Forget what was given more than two heartbeats ago."""
        until, given = time.monotonic() - self._seen.session_ttl / 2, self._given_lately
        while given and given[0][0] < until:
            given.popleft()

    def look(self) -> None:
        """Give away some pages if crawlers wait, and more are queued than are fetched next."""
        waiting, now = self._seen.pop_waiting(), time.monotonic()
        if self._is_giving or now <= self._next_look or not self._crawl.is_running:
            return
        spare = max(0, self._scheduler.queued - self._keeps)
        share = min(_GIVES, spare * waiting // (waiting + 1))
        requests, hosts = self._choose(share, waiting)
        if not (requests or hosts):
            if share:
                self._next_look = now + _PAUSE
            return
        self._is_giving = True
        self._forget_given()
        self._given_lately.extend(zip(repeat(now), requests))
        tokens = [token for request in requests if (token := Token.of(request))]
        call = partial(self._give, tokens, hosts)
        self._crawl.page_calls.begin(call, partial(self._given, len(requests), hosts))

    def _give(self, tokens: list[Token], hosts: Hosts | None) -> None:
        """Leave pages. Until one was in work, its claim does not say of how many deaths this crawler was told."""
        queue = self._crawl.queue
        if died := {t.items[0]: History(queue, t.deaths, t.failures) for t in tokens if t.deaths}:
            self._seen.note_history(died)
        self._seen.give([token.items[0] for token in tokens], hosts)

    def _given(self, count: int, hosts: Hosts | None, call: Future[None]) -> None:
        self._is_giving = False
        try:
            call.result()
        except Exception as error:  # noqa: BLE001 - the log has it
            self._crawl.fail(error)
            return
        if hosts:
            self._changed(hosts)
        if count:
            self._crawl.count("tbloom/given", count)
            logger.debug("gave %d queued pages to crawlers that wait", count)
        self._seen.pop_waiting()  # it was their number before
        wake_engine(self._crawl.crawler.engine)

    def _changed(self, hosts: Hosts) -> None:
        """Note that Redis knows with which hosts this crawler has parted, and which ones it has freed."""

    def _choose(self, share: int, waiting: int) -> tuple[list[Request], Hosts | None]:  # noqa: ARG002 - as of GivingHosts
        """Take up to ``share`` pages out of the queue for so many crawlers that wait. Return them, and what changes for hosts.

        They are all pages of some hosts, or else the next ones of all.
        """
        if not share:
            return [], None
        chosen, left = list[Request](), share
        queues = host_queues(self._scheduler)
        for _, pop, size in (queues or [])[:-1]:  # the busiest host stays
            if size <= left:
                chosen += self._givable_of([pop() for _ in range(size)])
                left -= size
        if not chosen:
            pop = self._scheduler.next_in_project
            chosen = self._givable_of(
                [request for _ in range(share) if (request := pop()) is not None]
            )
        return chosen, None

    def _givable_of(self, requests: list[Request]) -> list[Request]:
        """Return those that others can fetch. The others are this crawl's next ones: back in the queue, they might lose their place."""
        givable, kept = list[Request](), list[Request]()
        for request in requests:
            (givable if self._is_givable(request) else kept).append(request)
        self._scheduler.first.extendleft(reversed(kept))
        return givable


class GivingHosts(Giving):
    """Gives whole hosts to crawlers that wait. Hosts are named as scripts have them: some may be one for them."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        #: The hosts that this crawler may own. No queue has a host whose pages are done, and no reply names a crawler's hosts.
        self._owned = set[str]()
        #: Those with which it has parted, each with how many links were received until Redis knew that: they may have been claimed
        #: before.
        self._parted: dict[str, int] = {}

    def queued(self, request: Request) -> None:
        """Hear that a page has entered the queue."""
        host = owned_host(host_of(request))
        self._owned.add(host)
        self._parted.pop(host, None)

    def session_lost(self, *, is_empty: bool) -> list[Request]:
        """See ``Giving.session_lost``. Others may own the hosts."""
        self._owned.clear()
        self._parted.clear()
        return super().session_lost(is_empty=is_empty)

    def _choose(self, share: int, waiting: int) -> tuple[list[Request], Hosts | None]:
        """See ``Giving._choose``. The pages are the rest of those hosts with which it has parted, and then all of some others."""
        parted = self._parted
        if not (waiting or parted) or (queues := host_queues(self._scheduler)) is None:
            return [], None
        self._next_look = time.monotonic() + _PAUSE
        by_host = defaultdict[str, list[Any]](list)
        for host, *queue in queues:
            by_host[owned_host(host)].append(queue)
        here = by_host.keys() | self._hosts_in_work()
        settled = self._inbox.settled
        frees = [host for host, links in parted.items() if links <= settled and host not in here]
        parts = [*self._owned - here] if waiting else []
        popped = list[Request]()
        for host in [host for host in by_host if host in parted]:
            popped += _pop(by_host.pop(host), _GIVES - len(popped))
        for host in [*by_host][:-1]:  # the busiest one stays
            if len(popped) < share:
                popped += _pop(by_host[host], _GIVES - len(popped))
                parts.append(host)
        return self._givable_of(popped), Hosts(parts, frees) if parts or frees else None

    def _changed(self, hosts: Hosts) -> None:
        """See ``Giving._changed``."""
        self._owned.difference_update(hosts.parted)
        self._parted |= dict.fromkeys(hosts.parted, self._inbox.received)
        for host in hosts.freed:  # unless it has got a page of the host since
            self._parted.pop(host, None)

    def _hosts_in_work(self) -> set[str]:
        """Return the hosts of pages in work or kept back, and those whose delay is not over."""
        requests = [*self._work.requests, *self._scheduler.first]
        hosts = {*map(host_of, requests)} | hosts_at_work(self._crawl.crawler.engine)
        return {*map(owned_host, hosts)}


def _pop(queues: list[Any], most: int) -> list[Request]:
    """Take up to so many requests out of the queues of a host."""
    pops = [pop for pop, size in queues for _ in range(size)]
    return [pop() for pop in pops[:most]]


#: The most pages that one call takes.
_TAKES = 100
#: The pauses of an idle crawler grow from the first to the usual one (seconds). Many idle crawlers make longer pauses, up to the longest,
#: so that the server answers so many of them a second.
_FIRST_PAUSE, _USUAL_PAUSE, _LONGEST_PAUSE, _ANSWERS = 0.03, 0.25, 20.0, 50
#: A crawl whose start does not come to an end takes left pages once it has done nothing for this time (seconds).
_START_PATIENCE = 30.0
#: So long a crawl that is over need not ask again, if another component keeps it open (seconds).
_OVER_FOR = 4.0
_FOR_WHAT = (
    "still waiting: the oldest page of the crawlers that work is %s, in work for %.0f s (%s, of %s)"
)
#: So many crawlers may die of a page.
_MOST_DEATHS = 3
_UNREADABLE = (
    "%d kept pages can't be restored by this spider (%s): each is fetched when a link leads to it, or by a version of the spider that "
    "can; %d of them are given up. If a callback was renamed: tbloom retry %s --reason unreadable --callback NAME"
)


class Taking:
    """Takes pages for one crawl, and knows whether an idle crawl is over. ``enqueue`` enqueues a page that was taken."""

    def __init__(
        self,
        crawl: Crawl,
        seen: ClaimStore,
        failures: Failures,
        committer: Committer,
        enqueue: Callable[[Request, Token], object],
    ) -> None:
        self._crawl, self._seen, self._failures, self._committer = crawl, seen, failures, committer
        self._enqueue = enqueue
        #: Whether a question, or the pause after it, is under way. The first one is due at the start.
        self._is_asking = True
        #: What the question has found so far: the answer, the pages, and by its first item, each page that this spider can't restore,
        #: with the name of what is missing. After an outage, it is put again, and goes on with that.
        self._taken: Taken | None = None
        self._found: list[tuple[Request, Token]] = []
        self._lacking: dict[bytes, tuple[Token, str]] = {}
        #: The last pause (seconds), and from when on this crawler also asks while it works.
        self._pause = self._works_from = 0.0
        #: Since when this crawl has had nothing to fetch; None: it had, or the log says what it waits for.
        self._waits_since: float | None = None
        #: When no work was left: the crawl is over, unless its queue has changed since then. None: some may be left.
        self._over_at: float | None = None
        #: When the queue has changed. While the spider is not ready, a download counts as a change.
        self._changed_at = time.monotonic()
        #: Whether the spider is ready for left pages: its start is over, and it has been idle once.
        self._is_ready = False
        #: The pages that this spider could not restore.
        self._unreadable = set[bytes]()
        #: Whether an idle crawl waits for pages that programs push; and until when it waits for others in any case.
        self._waits_for_work = WHEN_IDLE.value(crawl.crawler.settings) == "wait"
        self._waits_until = 0.0

    def begin(self) -> None:
        """Join the crawlers of this spider, and leave the pages that have failed in earlier crawls to all of them."""
        logger.info("this crawler is session %s", self._seen.session)  # as "tbloom queue" has it
        # In the thread of the links, and before the first one: it would begin the count of a failed page again that is not left yet.
        self._is_asking = False
        self._ask(self._crawl.link_calls, 0, idle=False)

    def queue_changed(self) -> None:
        """Note that a request has entered the queue, or come out of it."""
        self._changed_at = time.monotonic()

    def wait_for_others(self, seconds: float) -> None:
        """Go on waiting for so long: Redis has lost the filter, and does not know yet which crawlers are at work."""
        self._waits_until = time.monotonic() + seconds

    def ask_if_short(self) -> None:
        """Ask for pages, because the queue is empty; but not too often."""
        now = time.monotonic()
        if not self._is_ready:
            if requests_downloaded(self._crawl.crawler.engine):
                self._changed_at = now
            self._is_ready = now > self._changed_at + _START_PATIENCE
        if self._is_ready and now > self._works_from:
            self._ask(self._crawl.page_calls, _TAKES, idle=False)

    def is_finished(self) -> bool:
        """Return whether no work is left for an idle crawl. If that is not known, ask, and return False: the answer wakes the engine."""
        if self._is_asking:
            return False
        if not self._crawl.is_running:
            return True
        self._is_ready = True
        over_at, now = self._over_at, time.monotonic()
        if over_at is not None and self._changed_at < over_at and now < over_at + _OVER_FOR:
            return True
        self._ask(self._crawl.page_calls, _TAKES, idle=True)
        return False

    def _ask(self, calls: Calls, limit: int, *, idle: bool) -> None:
        """Ask for pages, unless a question, or the pause after it, is under way."""
        if not self._is_asking and self._crawl.is_running:
            self._is_asking, self._taken = True, None
            calls.begin(partial(self._take, limit, idle=idle), partial(self._answered, idle))

    def _take(self, limit: int, *, idle: bool) -> None:
        """Take left pages. For a ``limit`` of 0, leave those that have failed in earlier crawls."""
        queue = self._crawl.queue
        if self._taken is None:
            self._taken = self._seen.take(limit, queue, idle=idle)
            self._sort(self._taken.notes)
        if not limit:
            self._seen.leave_failed(queue)
        if self._lacking:  # not before: they would be taken again
            self._leave_unreadable()

    def _sort(self, notes: list[Note]) -> None:
        """Find the pages of notes: those that this spider can restore, and the others."""
        for note in notes:
            try:
                token = read_token(note, self._seen.session)
            except ValueError as error:  # of a program that knows nothing of pages
                logger.error("A page is not taken: %s", error)
                continue
            try:
                text = note.text.partition("\n")[2]
                self._found.append((request_from_text(text, self._crawl.spider), token))
            except Unreadable as error:
                self._lacking[token.items[0]] = token, error.name

    def _leave_unreadable(self) -> None:
        """Leave pages as failed ones, before the next link: it may name another callback, or another version of the spider take them."""
        histories = {
            item: self._committer.failure(
                token.failures + (item not in self._unreadable), Why(f"unreadable/{name}")
            )
            for item, (token, name) in self._lacking.items()
        }
        self._seen.note_history(histories)
        self._seen.leave_many([*histories])
        self._seen.trim_given_up(self._crawl.queue)

    def _answered(self, idle: bool, asked: Future[None]) -> None:  # noqa: FBT001 - of a partial
        try:
            asked.result()
            self._report_unreadable()
            if pages := [page for page in self._found if self._is_to_fetch(*page)]:
                logger.debug("took %d pages that other crawlers have left", len(pages))
                self._crawl.count("tbloom/taken", len(pages))
                for request, token in pages:
                    self._enqueue(request, token)
                wake_engine(self._crawl.crawler.engine)
            self._pause = self._decide(idle=idle)
        except Exception as error:  # noqa: BLE001 - the log has it
            self._crawl.fail(error)
        finally:
            self._found, self._lacking = [], {}
            # Meanwhile, nothing is asked for, however often the engine wants to know.
            call_later(self._pause, self._may_ask)
            if not idle:
                # By itself, an engine with work looks into its empty queue every 5 s only.
                call_later(_PAUSE, partial(wake_engine, self._crawl.crawler.engine))

    def _decide(self, *, idle: bool) -> float:
        """Return the pause until the next question (seconds). ``idle``: whether this crawler had nothing to do when it asked."""
        now, crawl, taken = time.monotonic(), self._crawl, self._taken
        assert taken is not None  # noqa: S101 - the server has answered
        self._works_from, self._over_at = now, None
        if taken.notes or self._found:
            self._waits_since = None
            return 0.0  # there may be more
        self._works_from += _PAUSE
        if not idle:
            self._waits_since = None
            return 0.0
        if taken.is_over and now >= self._waits_until and not self._waits_for_work:
            self._over_at = now
            return 0.0
        is_told = self._waits_for_work and not taken.others
        why = f"{WHEN_IDLE.name} = 'wait'" if is_told else f"{taken.others} others work"
        message = "nothing to fetch: waiting for pages of other crawlers or programs (%s)"
        crawl.log_once(logger.info, message, why)
        self._waits_since = now if self._waits_since is None else self._waits_since
        if taken.others and now > self._waits_since + held.LONG and (shared := self._seen.shared):
            self._waits_since = inf
            crawl.page_calls.begin(partial(oldest_of, shared, crawl.queue), self._say_for_what)
        longest = min(max(_USUAL_PAUSE, taken.waiting / _ANSWERS), _LONGEST_PAUSE)
        pause = min(max(_FIRST_PAUSE, 1.5 * self._pause), longest)
        self._works_from += pause  # so that after the pause an idle crawl asks as one
        return pause

    def _say_for_what(self, look: Future[Crawler | None]) -> None:
        """Log the oldest page that the other crawlers have in work, if the server tells."""
        if not look.exception() and (crawler := look.result()):
            told, age = crawler.record, crawler.oldest_for or 0.0
            logger.info(_FOR_WHAT, told.oldest_page, age, told.oldest_state, crawler.place)

    def _may_ask(self) -> None:
        self._is_asking = False
        wake_engine(self._crawl.crawler.engine)

    def _is_to_fetch(self, request: Request, token: Token) -> bool:
        """Return whether a page that was taken is to be fetched. Once the crawl closes, it is left to the next one."""
        if not self._crawl.is_running:
            return False
        if token.deaths > _MOST_DEATHS:
            why = f"{token.deaths} crawlers have died of it"
            history = self._committer.failure(max(token.failures, MOST_FAILURES), Why("deaths"))
            self._committer.give_up(token.items[0], request.url, history, why)
            return False
        # Somebody wants it to be fetched again.
        self._failures.forget(token.fingerprints[0])
        return True

    def _report_unreadable(self) -> None:
        """Log once for each reason how many pages this spider can't restore."""
        by_name = defaultdict[str, list[Token]](list)
        for item, (token, name) in self._lacking.items():
            if item not in self._unreadable:
                by_name[name].append(token)
        self._unreadable.update(self._lacking)
        for name, tokens in by_name.items():
            given_up = sum(token.failures + 1 >= MOST_FAILURES for token in tokens)
            logger.warning(_UNREADABLE, len(tokens), name, given_up, self._crawl.spider.name)
            self._crawl.count("tbloom/not_taken", len(tokens))
            for stat, number in ("failed", len(tokens) - given_up), ("given_up", given_up):
                if number:
                    self._failures.count(stat, f"unreadable/{name}", number)


class Telling:
    """Makes the records of one crawl. Called in the thread of the heartbeats."""

    def __init__(
        self,
        crawl: Crawl,
        failures: Failures,
        session_ttl: float,
        oldest: Callable[[], held.Held | None],
    ) -> None:
        self._crawl, self._failures, self._process = crawl, failures, Process(session_ttl)
        self._oldest = oldest
        #: What each session has told last, by its name, the newest one last: the stats, and why pages have failed.
        self._told = dict[str, list[Counter[str]]]()
        #: What has been told of the crawl, and what of that by earlier sessions.
        self._last = self._before = [Counter[str](), Counter[str]()]
        self._lock = Lock()
        #: Why the crawl has ended; "": it runs.
        self._ended = ""

    def end(self, reason: str) -> None:
        """Let the last record say why the crawl has ended."""
        self._ended = reason

    def __call__(self, session: Session) -> Record:
        """Return the session's record as it is now."""
        found = [self._crawl.counts.copy(), self._failures.reasons.copy()]
        with self._lock:
            if session.name not in self._told:
                self._before, self._told[session.name] = self._last, []
            # A lost session that tells once more, when the next one has begun, tells the same again.
            if session.name == [*self._told][-1]:
                self._last, both = found, zip(found, self._before, strict=True)
                self._told[session.name] = [now - before for now, before in both]
            counts, failed = self._told[session.name]
        # Its pages are the session's, its pace is the crawl's.
        about = self._process.about(found[0]["tbloom/done"]) | {"done": counts["tbloom/done"]}
        if oldest := self._oldest():
            of_page = {"page": oldest.name, "state": oldest.state, "seconds": round(oldest.age)}
            about |= {f"oldest_{name}": value for name, value in of_page.items()}
        return Record(
            queue=self._crawl.queue,
            project=project_in(self._crawl.crawler.settings),
            claimed=max(0, len(session.claimed) - self._failures.register.count(State.HELD)),
            owns_hosts=self._crawl.owns_hosts,
            taken=counts["tbloom/taken"],
            given=counts["tbloom/given"],
            failed=failed,
            ended=self._ended,
            **about,
        )
