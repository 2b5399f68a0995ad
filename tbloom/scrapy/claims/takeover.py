"""Takes over the requests that dead crawlers have left, and those that earlier crawls have failed to fetch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from scrapy import Request
from scrapy.utils.asyncio import call_later

from tbloom.bloom.claims.verbs import ClaimVerbs
from tbloom.engine.flow import together
from tbloom.scrapy.claims.ends import Ends
from tbloom.scrapy.claims.page import LEFT, RUNNING, Note, Token, prefix
from tbloom.scrapy.compat import look_again
from tbloom.scrapy.crawler import Crawl
from tbloom.scrapy.notes import restore_request
from tbloom.scrapy.outage import CrawlBloom

logger: logging.Logger = logging.getLogger(__name__)

#: The kind of search of an idle crawl, for running requests; the others are the notes' kinds.
_IDLE = "idle"
#: Number of requests that one search takes over, and time from search to search (seconds).
_BATCH, _SEARCH_SECONDS = 100, 10.0
#: An idle crawl that waits for other crawlers looks again after this time (seconds).
_WAIT_SECONDS = 0.5


class TakeOver:
    """Looks for requests without a living crawler. An idle crawl ends once it knows whether every other crawler is alive."""

    def __init__(
        self,
        crawl: Crawl,
        seen: CrawlBloom,
        ends: Ends,
        schedule: Callable[[Request, Token], object],
    ) -> None:
        self._crawl, self._seen = crawl, seen
        self._ends, self._schedule = ends, schedule
        #: Changes whenever a request enters the queue or comes out of it.
        self.moves = 0
        self._next_search = 0.0
        self._is_searching = self._has_said = False
        #: The crawl's moves when nothing was left to be taken over.
        self._done_at = -1
        #: The sessions without a heartbeat since this crawl became idle, and when each expires.
        self._silent: dict[str, int] | None = None

    def begin(self) -> None:
        """The crawl begins: takes over the pages that earlier crawls have left."""
        self._search(LEFT)

    def search_later(self) -> None:
        """Takes over a batch, if it is time. (An idle crawl does so at once.)"""
        if time.monotonic() > self._next_search:
            self._search(RUNNING)

    def is_idle(self) -> bool:
        """Whether nothing can be taken over, now or soon. (The engine asks again when this is known.)"""
        is_done = self._done_at == self.moves or self._crawl.is_ending
        if not is_done:
            self._search(_IDLE)
        return is_done

    def _search(self, kind: str) -> None:
        if self._is_searching or self._crawl.is_ending:
            return
        self._next_search = time.monotonic() + min(_SEARCH_SECONDS, self._seen.session_ttl / 4)
        self._is_searching = True
        # While links may wait, not in the thread in which they are asked about.
        calls = self._crawl.calls if kind == _IDLE else self._crawl.ends_calls
        calls.begin(partial(self._look, kind), partial(self._found, kind))

    def _look(self, kind: str) -> tuple[dict[str, int], list[str]]:
        """Of an idle crawl the other living sessions, and until when each counts as alive; and the dead ones' notes."""
        seen = self._seen
        notes = prefix(self._crawl.spider, LEFT if kind == LEFT else RUNNING)
        search = ClaimVerbs.take_over.flow(seen, _BATCH, notes)
        if kind != _IDLE:
            return {}, seen.run(search)
        # A process that shares the queue may have died with what it has taken out of it.
        if seen.has_handed_over and self._ends.is_empty:
            seen.end_session()
        pause, ask = ClaimVerbs.pause_session.flow(seen), ClaimVerbs.other_sessions.flow(seen)
        # In this order: the search finds those that die before it.
        _, others, texts = seen.run(together(pause, ask, search))
        return others, texts

    def _found(self, kind: str, searched: Future[tuple[dict[str, int], list[str]]]) -> None:
        pause, then = _WAIT_SECONDS if kind == _IDLE else 0.0, ""  # after an error too
        with self._crawl.logging_errors("searched for"):
            others, texts = searched.result()
            self._take(texts)
            if kind == LEFT:
                then = LEFT if len(texts) == _BATCH else RUNNING
            if texts:
                pause = 0.0
            elif kind == _IDLE:
                self._note_silent(others)
                if not self._silent:
                    self._done_at, pause = self.moves, 0.0
        # Meanwhile, nothing is searched for, however often the engine asks.
        call_later(pause, self._go_on, then)

    def _go_on(self, kind: str) -> None:
        self._is_searching = False
        if kind:
            self._search(kind)
        look_again(self._crawl.crawler.engine)

    def _note_silent(self, others: dict[str, int]) -> None:
        """A session with a heartbeat since this crawl became idle does its own work; one without is dead soon."""
        known = others if self._silent is None else self._silent
        self._silent = {name: until for name, until in others.items() if known.get(name) == until}
        if others and not self._has_said:
            self._has_said = True
            message = "waiting up to %.0f s for other crawlers (%d), whose requests are taken over if they have died"
            logger.info(message, self._seen.session_ttl, len(others))

    def _take(self, texts: list[str]) -> None:
        """Schedules the requests of the notes, which are this session's now."""
        if texts:
            self._silent = None
        taken = [found for text in texts if (found := self._request_of(text))]
        if not taken:
            return
        logger.info("took over %d requests of crawlers that have ended", len(taken))
        for request, note in taken:
            self._crawl.count("tbloom/taken_over")
            self._schedule(request, note.token)

    def _request_of(self, text: str) -> tuple[Request, Note] | None:
        """The request of a note, and the note; None: it is left to the next crawl."""
        spider, note, left = self._crawl.spider, None, ""
        try:
            note = Note.read(text)
            request = restore_request(note.request, spider)
        except ValueError as error:  # as of another version of the spider
            self._not_taken(f"{error}: {text[:200]!r}")
            if note is None:
                return None
        else:
            token = note.token
            has_failed = not self._ends.left_pages.isdisjoint(token.fingerprints)
            if not has_failed and token.deaths < self._ends.attempts:
                return request, note
            if not has_failed:
                self._not_taken(
                    f"{token.deaths} crawlers have died of {request}; the next crawl has it"
                )
                self._ends.left("died", request, token.fingerprints)
            left = note._replace(token=token._replace(deaths=0)).text(spider, LEFT)
        self._ends.leave(note.token.items[:1], left)
        return None

    def _not_taken(self, why: str) -> None:
        logger.error("A dead crawler's request is not taken over: %s", why)
        self._crawl.count("tbloom/not_taken_over")
