"""What a crawl tells of itself with each heartbeat."""

from __future__ import annotations

from collections import Counter
from threading import Lock

from tbloom.bloom.claims.record import Process, Record
from tbloom.bloom.claims.session import Session
from tbloom.scrapy.crawl import Crawl
from tbloom.scrapy.done.failures import Failures


class Telling:
    """Makes the records of one crawl. Called in the thread of the heartbeats."""

    def __init__(self, crawl: Crawl, failures: Failures, session_ttl: float) -> None:
        self._crawl, self._failures, self._process = crawl, failures, Process(session_ttl)
        #: What each session has told last, by its name, the newest one last: the stats, and why pages have failed.
        self._told = dict[str, list[Counter[str]]]()
        #: What has been told of the crawl, and what of that by earlier sessions.
        self._last = self._before = [Counter[str](), Counter[str]()]
        self._lock = Lock()
        #: Why the crawl has ended; "": it runs.
        self.ended: str = ""

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
        return Record(
            queue=self._crawl.queue,
            project=str(self._crawl.crawler.settings["BOT_NAME"]),
            claimed=max(0, len(session.claimed) - self._failures.held),
            owns_hosts=self._crawl.owns_hosts,
            taken=counts["tbloom/taken"],
            given=counts["tbloom/given"],
            failed=failed,
            ended=self.ended,
            **about,
        )
