"""What a crawler tells of itself with each heartbeat: for ``tbloom queue``, metrics and ``tbloom watch``."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter, deque

from tbloom.bloom.claims.record import Record
from tbloom.bloom.claims.session import Session
from tbloom.scrapy.crawl import Crawl

#: Pages a minute are those of the last heartbeats, so many.
_BEATS = 5
_LEFT, _GIVEN_UP = "tbloom/left/", "tbloom/given_up/"


class Telling:
    """Makes the records of one crawl. Called in the thread of the heartbeats."""

    def __init__(self, crawl: Crawl, session_ttl: float) -> None:
        self._crawl, self._ttl = crawl, session_ttl
        self._began = time.monotonic()
        #: The counts at the begin of each session, by its name.
        self._before = dict[str, Counter[str]]()
        self._done = deque([(self._began, 0)], maxlen=_BEATS)
        #: Why the crawl has ended; "": it runs.
        self.ended: str = ""

    def __call__(self, session: Session) -> Record:
        """Return the session's record as it is now."""
        all_counts = self._crawl.counts.copy()
        begun = all_counts if self._before else Counter[str]()
        counts = all_counts - self._before.setdefault(session.name, begun)
        failed = Counter[str]()
        for stat, number in counts.items():
            for prefix in (_LEFT, _GIVEN_UP):
                if stat.startswith(prefix):
                    failed[stat.removeprefix(prefix)] += number
        return Record(
            queue=self._crawl.queue,
            project=str(self._crawl.crawler.settings["BOT_NAME"]),
            host=socket.gethostname(),
            pid=os.getpid(),
            up=round(time.monotonic() - self._began),
            ttl=self._ttl,
            claimed=len(session.claimed),
            done=counts["tbloom/done"],
            per_minute=self._per_minute(all_counts["tbloom/done"]),
            taken=counts["tbloom/taken"],
            given=counts["tbloom/given"],
            failed=failed,
            ended=self.ended,
        )

    def _per_minute(self, done: int) -> int:
        now, (began, before) = time.monotonic(), self._done[0]
        self._done.append((now, done))
        return round(60 * (done - before) / max(1.0, now - began))
