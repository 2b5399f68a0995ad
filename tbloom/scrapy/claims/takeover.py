"""Go on with the requests that dead crawlers have left."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from tbloom.scrapy.claims.notes import Note, prefix

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler

    from tbloom.bloom.sync import TimeBloom

logger = logging.getLogger(__name__)

#: A look takes so many over, and comes at least so often (s).
_TAKE, _LOOK_SECONDS = 100, 10.0
#: While so many requests wait here, no more are taken over at once.
_ENOUGH = 1000
#: A request that so many crawlers have died of is not tried again.
_MOST_TAKEN = 5


class TakeOver:
    """Looks for the requests of dead crawlers; ``schedule`` is given each, with its fingerprints."""

    def __init__(
        self,
        crawler: Crawler,
        seen: TimeBloom,
        schedule: Callable[[Request, tuple[str, ...]], None],
    ) -> None:
        self._crawler, self._seen, self._schedule = crawler, seen, schedule
        self._next_look = 0.0
        #: Since this crawl is idle: the sessions that gave no sign of life, and until when they count as alive.
        self._silent: dict[str, int] | None = None

    def is_due(self) -> bool:
        """Whether it is time for a look."""
        return time.monotonic() > self._next_look

    def take(self, waiting: int = 0) -> bool:
        """Takes over some, where fewer than enough are waiting here; whether there were any."""
        spider = self._crawler.spider
        assert spider is not None  # noqa: S101 - a crawl is under way
        self._silent = None
        texts = self._seen.take_over(_TAKE, prefix(spider))
        in_a_hurry = len(texts) == _TAKE and waiting < _ENOUGH
        pause = 0.0 if in_a_hurry else min(_LOOK_SECONDS, self._seen.session_ttl / 4)
        self._next_look = time.monotonic() + pause
        taken = [(note, request) for note, request in map(self._read, texts) if note and request]
        if taken:
            notes = [note._replace(taken=note.taken + 1) for note, _ in taken]
            items = [bytes.fromhex(note.fingerprints[0]) for note in notes]
            again = [note.text(spider) for note in notes]
            self._seen.claim_many(items, notes=again, previous_owner=self._seen.session)
        for note, request in taken:
            self._count("tbloom/taken_over")
            self._schedule(request, note.fingerprints)
        return bool(texts)

    def are_all_alive(self) -> bool:
        """Asked while this crawl is idle: whether every other session has given a sign of life since.

        Such a session does its own work; one that gives none is dead soon.
        """
        self._seen.pause_session()
        others = self._seen.other_sessions()
        known = others if self._silent is None else self._silent
        self._silent = {name: until for name, until in others.items() if known.get(name) == until}
        return not self._silent

    def _read(self, text: str) -> tuple[Note | None, Request | None]:
        spider, note = self._crawler.spider, None
        assert spider is not None  # noqa: S101
        try:
            note = Note.read(text, spider)
            why: object = f"{note.taken} crawlers have died of it"
            if note.taken < _MOST_TAKEN:
                return note, note.restore(spider)
        except ValueError as error:
            why = error
        logger.error(
            "A request that a dead crawler left can't be taken over: %s: %.200r", why, text
        )
        self._count("tbloom/not_taken_over")
        if note:
            self._seen.release(bytes.fromhex(note.fingerprints[0]))
        return note, None

    def _count(self, stat: str) -> None:
        if self._crawler.stats:
            self._crawler.stats.inc_value(stat)
