"""Takes over requests of dead crawlers, and requests that earlier crawls have failed to fetch."""

from __future__ import annotations

import logging
import time
from bisect import insort
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from scrapy import Request

from tbloom.scrapy.compat import call_later, wake_engine
from tbloom.scrapy.crawl import Crawl
from tbloom.scrapy.done.committer import Committer
from tbloom.scrapy.done.failures import Failures
from tbloom.scrapy.done.page import Token
from tbloom.scrapy.done.serialize import LEFT, RUNNING, prefix_of, read_request, read_token
from tbloom.scrapy.outage import ClaimStore

logger: logging.Logger = logging.getLogger(__name__)

_WAITS = (
    "%s: nothing is left to fetch, and the crawl waits for the server, to mark its pages. A signal (Ctrl-C) ends it; the next crawl "
    "fetches again what is not marked"
)

#: Number of requests that one search takes over, and time from search to search (seconds).
_BATCH, _SEARCH_SECONDS = 100, 10.0
#: A search looks at every claim, which takes some 3 us of the server's time each. A busy crawl searches again after so many times the time
#: that its last search took, if that is longer, but at most after this time (seconds).
_PAUSE_FACTOR, _LONGEST_PAUSE = 20, 60.0
#: An idle crawl that waits for other crawlers looks again after this time (seconds). Each further pause is twice as long, up to a third of
#: the time between two heartbeats.
_WAIT_SECONDS = 0.5
#: So often a page that kills its crawlers is taken over.
_MAX_TAKE_OVERS = 3
#: After so many deaths, a page is a suspect, and waits until the crawl is idle.
_SUSPECT_DEATHS = 2

#: Search mode of an idle crawl: it looks for requests that other crawlers are working on.
_IDLE = "idle"


def search_seconds(took: float, session_ttl: float) -> float:
    """Return the time from one search of a busy crawl to the next (s). ``took``: how long the search before took (s)."""
    shortest = min(_SEARCH_SECONDS, session_ttl / 4)
    return max(shortest, min(_PAUSE_FACTOR * took, _LONGEST_PAUSE))


class TakeOver:
    """Looks for requests without a living crawler. An idle crawl ends once it knows whether every other crawler is alive."""

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
        #: Changes whenever a request enters the queue or comes out of it.
        self.moves = 0
        #: When a busy crawl searches again, and how long its last search took.
        self._next_search = self._took = 0.0
        #: Whether pages that earlier crawls have left may still be there; and whether the last search has left any page to the next one.
        self._may_find_left, self._may_find_more = True, False
        #: Whether a search, or the pause after a search, is under way.
        self.is_searching = False
        #: Whether the log says that this crawl waits for others.
        self._has_logged_wait = False
        #: Pages of which crawlers have perhaps died, those with the fewest deaths first. Each is fetched alone, so that no other page
        #: is blamed for a death.
        self._suspects: list[tuple[Request, Token]] = []
        #: The crawl's moves when nothing was left to be taken over.
        self._finished_at = -1
        #: The sessions without a heartbeat since this crawl became idle, and when each expires.
        self._silent: dict[str, int] | None = None
        self._pause = _WAIT_SECONDS

    def begin(self) -> None:
        """Take over the pages that earlier crawls have left."""
        self._search(LEFT)

    def search_later(self) -> None:
        """Search for requests of dead crawlers, if the last search was long enough ago. ``is_finished`` does not wait for that."""
        if time.monotonic() > self._next_search:
            self._search(LEFT if self._may_find_left else RUNNING)

    def is_finished(self) -> bool:
        """Return whether nothing can be taken over, now or soon. While a search is under way, return False: its end wakes the engine."""
        if self._crawl.is_ending:
            return True
        if self._suspects and not (self.is_searching or self._may_find_more):
            self._enqueue(*self._suspects.pop(0))
            return False
        is_finished = not self._suspects and self._finished_at == self.moves
        if not is_finished:
            self._search(_IDLE)
        return is_finished

    def _search(self, kind: str) -> None:
        if self.is_searching or self._crawl.is_ending or self._crawl.is_closed:
            return
        self._next_search = time.monotonic() + search_seconds(self._took, self._seen.session_ttl)
        self.is_searching = True
        # The search for failed pages precedes the first links in their thread: a link to such a page would begin its count of failures
        # anew. A later search has another thread, so that no link waits for it.
        calls = self._crawl.commit_calls if kind == RUNNING else self._crawl.calls
        calls.begin(partial(self._look, kind), partial(self._found, kind))

    def _look(self, kind: str) -> tuple[dict[str, int], list[str]]:
        """Return the other sessions, each with the time until which it counts as alive, and the notes that were taken over.

        The sessions are asked for by an idle crawl only.
        """
        seen = self._seen
        prefix = prefix_of(self._crawl.spider, LEFT if kind == LEFT else RUNNING)
        began, others = time.monotonic(), dict[str, int]()
        if kind == _IDLE:
            # A process that shares the queue may have died with requests that it has taken out of it.
            if seen.has_handed_over and not self._committer.uncommitted:
                seen.end_session()
            others, notes = seen.look_around(_BATCH, prefix)
        else:
            notes = seen.take_over(_BATCH, prefix)
        self._took = time.monotonic() - began
        return others, notes

    def _found(self, kind: str, searched: Future[tuple[dict[str, int], list[str]]]) -> None:
        pause, then = self._pause if kind == _IDLE else 0.0, ""  # after an error too
        with self._crawl.logging_errors("taken over"):
            others, notes = searched.result()
            self._take(notes, kind)
            self._may_find_more = len(notes) == _BATCH
            if kind == LEFT:
                self._may_find_left = self._may_find_more
                then = LEFT if self._may_find_left else RUNNING
            if notes:
                self._silent, self._pause, pause = None, _WAIT_SECONDS, 0.0
            elif kind == _IDLE:
                self._wait_for(others)
                if self._silent:
                    longest = max(_WAIT_SECONDS, self._seen.session_ttl / 12)
                    self._pause = min(2 * self._pause, longest)
                else:
                    self._finished_at, pause = self.moves, 0.0
                    self._silent, self._pause = None, _WAIT_SECONDS  # for the next idle moment
        circuit = self._crawl.answers.circuit
        if kind == _IDLE and circuit.is_open and not self._crawl.is_ending:
            self._crawl.log_once(logger.warning, _WAITS, circuit.place)
        # Meanwhile, nothing is searched for, however often the engine asks.
        call_later(pause, self._go_on, then)

    def _go_on(self, kind: str) -> None:
        self.is_searching = False
        if kind:
            self._search(kind)
        wake_engine(self._crawl.crawler.engine)

    def _wait_for(self, others: dict[str, int]) -> None:
        """Wait for the sessions that have had no heartbeat since this crawl became idle. Any other session is alive."""
        known = others if self._silent is None else self._silent
        self._silent = {name: until for name, until in others.items() if known.get(name) == until}
        if others and not self._has_logged_wait:
            self._has_logged_wait = True
            message = "waiting up to %.0f s for other crawlers (%d), whose requests are taken over if they have died"
            logger.info(message, self._seen.session_ttl, len(others))

    def _take(self, notes: list[str], kind: str) -> None:
        """Enqueue the requests of these notes. This session holds their claims now."""
        taken = [found for note in notes if (found := self._read(note, kind))]
        if taken:
            logger.info("took over %d requests of crawlers that have ended", len(taken))
        for request, token in taken:
            self._crawl.count("tbloom/taken_over")
            if token.deaths >= _SUSPECT_DEATHS:
                insort(self._suspects, (request, token), key=lambda suspect: suspect[1].deaths)
            else:
                self._enqueue(request, token)

    def _read(self, note: str, kind: str) -> tuple[Request, Token] | None:
        """Return the request of a note, and its token; None: it is not for this crawl."""
        spider, engine = self._crawl.spider, self._crawl.crawler.engine
        token = None
        try:
            token = read_token(note)
            request = read_request(note, spider)
        except ValueError as error:  # as of another version of the spider
            self._not_taken(f"{error}: {note[:200]!r}")
            if token:
                self._committer.release(token.items[:1])
            return None
        # A page that has failed in this crawl, and any page once the spider is closed, is left to the next crawl.
        if self._failures.pauses(token.fingerprints[0]) is not None or not (
            engine and engine.spider
        ):
            return None
        deaths = token.deaths + (kind != LEFT)
        if deaths > _MAX_TAKE_OVERS:
            message = "%s: %d crawlers have died of it, and it is not taken over any more"
            logger.warning(message, request, deaths)
            self._crawl.count("tbloom/not_taken_over")
            self._committer.release(token.items[:1])
            return None
        return request, token._replace(session=self._seen.session, deaths=deaths)

    def _not_taken(self, why: str) -> None:
        logger.error("A dead crawler's request is not taken over: %s", why)
        self._crawl.count("tbloom/not_taken_over")
