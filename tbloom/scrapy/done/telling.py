"""What a crawler tells of itself with each heartbeat: for ``tbloom queue``, metrics and ``tbloom watch``."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter, deque
from threading import Lock

from tbloom.bloom.claims.record import Record
from tbloom.bloom.claims.session import Session
from tbloom.scrapy.crawl import Crawl
from tbloom.scrapy.done.failures import Failures

#: Pages a minute are those of the last heartbeats, so many.
_BEATS = 5


class Telling:
    """Makes the records of one crawl. Called in the thread of the heartbeats."""

    def __init__(self, crawl: Crawl, failures: Failures, session_ttl: float) -> None:
        self._crawl, self._failures, self._ttl = crawl, failures, session_ttl
        self._began = time.monotonic()
        #: What each session has told last, by its name: the stats, and why pages have failed. And the name of the newest one.
        self._told, self._newest = dict[str, list[Counter[str]]](), ""
        self._lock = Lock()
        self._done = deque([(self._began, 0)], maxlen=_BEATS)
        #: Why the crawl has ended; "": it runs.
        self.ended: str = ""

    def __call__(self, session: Session) -> Record:
        """Return the session's record as it is now."""
        found = [self._crawl.counts.copy(), self._failures.reasons.copy()]
        with self._lock:
            if session.name not in self._told:
                self._newest = session.name
            # A lost session that tells once more, when the next one has begun, tells the same again.
            if session.name == self._newest:
                self._told.pop(session.name, None)
                others = zip(*self._told.values(), strict=True) if self._told else ([], [])
                own = [
                    now - sum(before, Counter[str]())
                    for now, before in zip(found, others, strict=True)
                ]
                self._told[session.name] = own
            counts, failed = self._told[session.name]
        return Record(
            queue=self._crawl.queue,
            project=str(self._crawl.crawler.settings["BOT_NAME"]),
            host=socket.gethostname(),
            pid=os.getpid(),
            up=round(time.monotonic() - self._began),
            ttl=self._ttl,
            claimed=max(0, len(session.claimed) - self._failures.held),
            owns_hosts=self._crawl.owns_hosts,
            done=counts["tbloom/done"],
            per_minute=self._per_minute(found[0]["tbloom/done"]),
            taken=counts["tbloom/taken"],
            given=counts["tbloom/given"],
            failed=failed,
            ended=self.ended,
        )

    def _per_minute(self, done: int) -> int:
        now, (began, before) = time.monotonic(), self._done[0]
        self._done.append((now, done))
        return round(60 * (done - before) / max(1.0, now - began))
