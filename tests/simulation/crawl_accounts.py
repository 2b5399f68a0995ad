"""What is promised of a crawl's pages.

- A page that is marked was fetched and parsed without an error.
- A page that nobody has finished can be had again: the next crawl marks all that there are.
- A crawl fetches a page as often as its attempts allow, and not again once it has finished it.
- Of several crawls one finishes a page, and another one only where the first has died, has ended by an error or decided by itself
  during an outage (``TBLOOM_ON_ERROR = "schedule"``), or where all was forgotten meanwhile.
- After a clear, which forgets claims too, a page that nobody has finished is new to whoever meets a link to it.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from typing import Any

from tests.simulation.accounts import Account
from tests.simulation.server import Clock

#: The pages, with the pages to which they link.
SITE = {"start": ["a", "b"], "a": ["b", "c"], "b": ["start"], "c": []}
_URL = "http://site/{}"
START = [_URL.format("start")]
#: How the first attempts of a crawl to get a page end: without an answer, or by an exception of the callback.
FATES = {"a": ["download"], "b": ["callback", "callback", "callback"], "c": ["callback"]}
ATTEMPTS = 2


class CrawlAccount(Account):
    """Hears of all fetches of a schedule."""

    NOTHING = None
    attempts, start = ATTEMPTS, START

    def __init__(self, clock: Clock, items: Iterable[str]) -> None:
        super().__init__(clock, ())
        self.urls = [_URL.format(name) for name in items]
        #: The queue of crawls that share one.
        self.queue: deque[dict[str, Any]] = deque()
        #: How often each crawl has fetched a page, and which crawls have finished it.
        self._fetched: Counter[tuple[int, str]] = Counter()
        self.finished: defaultdict[str, list[int]] = defaultdict(list)
        #: The crawls that have ended by an error or decided by themselves; and how often all was forgotten, perhaps.
        self.failed_crawls, self.clears = set[int](), 0

    def links_of(self, url: str) -> list[str]:
        """The pages to which a page links."""
        return [_URL.format(name) for name in SITE[url.rpartition("/")[2]]]

    def fetched(self, crawl: int, url: str) -> str:
        """A crawl fetches a page: how that ends, "" for well."""
        before, self._fetched[crawl, url] = self._fetched[crawl, url], self._fetched[crawl, url] + 1
        most = self.attempts * (1 + self.clears)
        assert before < most, f"crawl {crawl} fetches {url} {before + 1} times"
        fates = FATES.get(url.rpartition("/")[2], [])
        return fates[before] if before < len(fates) else ""

    def succeeds(self, crawl: int, url: str) -> None:
        """A crawl's callback has handled a page without an error."""
        by = self.finished[url]
        by.append(crawl)
        repeats = len(by) - 1
        reasons = self.clears + len({*by} & (self.failed_crawls | self.dead))
        assert repeats <= reasons, f"{url} is finished by the crawls {by}"

    def begins(self, store: int, verb: str, arguments: dict[str, Any]) -> Any:
        """See ``Account``."""
        self.clears += verb == "clear"
        return super().begins(store, verb, arguments)
