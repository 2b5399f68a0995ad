"""Takes over the requests that dead crawlers have left."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from tbloom.scrapy.claims.requests import Note, prefix
from tbloom.scrapy.crawler import count, spider_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from scrapy import Request
    from scrapy.crawler import Crawler

    from tbloom.scrapy.calls import Errands
    from tbloom.scrapy.stores import CrawlBloom

logger = logging.getLogger(__name__)

#: Number of requests that one search takes over, and time from search to search (seconds).
_BATCH, _SEARCH_SECONDS = 100, 10.0
#: A request is left to the next crawl once this many crawlers have died while they worked on it.
_MAX_DEATHS = 5


class TakeOver:
    """Looks for requests of dead crawlers, and calls ``schedule`` with each and its note."""

    def __init__(
        self,
        crawler: Crawler,
        seen: CrawlBloom,
        errands: Errands,
        schedule: Callable[[Request, Note], None],
    ) -> None:
        self._crawler, self._seen, self._schedule = crawler, seen, schedule
        self._errands = errands
        self._next_search = 0.0
        self._searching: Future[list[str]] | None = None
        self._has_said = False
        #: Number of requests that this crawl leaves to the next one, because crawlers have died of them.
        self.left = 0
        #: The sessions without a heartbeat since this crawl became idle, and when each expires.
        self._silent: dict[str, int] | None = None

    def search(self) -> list[str]:
        """The notes of a batch of requests, which are this session's now."""
        return self._seen.take_over(_BATCH, prefix(spider_of(self._crawler)))

    def search_later(self) -> None:
        """Takes over a batch while the event loop goes on, if it is time. (An idle crawl does so at once.)"""
        if time.monotonic() > self._next_search:
            self._next_search = time.monotonic() + min(_SEARCH_SECONDS, self._seen.session_ttl / 4)
            self._searching = self._errands.later("taken over", self.search, self.take)

    def is_searching(self) -> bool:
        """A search is on its way, or its requests are not scheduled yet."""
        search = self._searching
        return search is not None and not (search.done() and search.exception())

    def take(self, texts: list[str]) -> None:
        """Schedules the requests of the notes: the crawl is not idle."""
        self._silent = self._searching = None
        spider = spider_of(self._crawler)
        notes: list[Note] = []
        taken: list[tuple[Request, Note]] = []
        for text in texts:
            note = None
            try:
                note = Note.read(text, spider)
                request = note.restore(spider)
            except ValueError as error:
                if note:  # as of another version of the spider
                    item = bytes.fromhex(note.fingerprints[0])
                    self._errands.later("released", partial(self._seen.release, item))
                logger.error(
                    "A dead crawler's request can't be taken over: %s: %.200r", error, text
                )
                count(self._crawler, "tbloom/not_taken_over")
                continue
            if note.deaths < _MAX_DEATHS:
                taken.append((request, note))
            else:
                message = (
                    "%d crawlers have died while they worked on %s, which is left to the next crawl"
                )
                logger.error(message, note.deaths, request)
                count(self._crawler, "tbloom/not_taken_over")
                self.left += 1
                note = note._replace(deaths=0)
            notes.append(note)
        if notes:
            items = [bytes.fromhex(note.fingerprints[0]) for note in notes]
            again = [note.text(spider) for note in notes]
            renew = partial(self._seen.claim_many, items, None, again, self._seen.session)
            self._errands.later("noted", renew)
            logger.info("took over %d requests of crawlers that have ended", len(taken))
        for request, note in taken:
            count(self._crawler, "tbloom/taken_over")
            self._schedule(request, note)

    def are_all_alive(self) -> bool:
        """Every other session has sent a heartbeat since this crawl became idle.

        A session with a heartbeat does its own work; one without is dead soon.
        """
        self._seen.pause_session()
        others = self._seen.other_sessions()
        known = others if self._silent is None else self._silent
        self._silent = {name: until for name, until in others.items() if known.get(name) == until}
        if others and not self._has_said:
            self._has_said = True
            message = "waiting up to %.0f s for %d requests of other crawlers (%d), which are taken over if those have died"
            claims = self._seen.info().claims
            logger.info(message, self._seen.session_ttl, claims, len(others))
        return not self._silent
